"""Stored text of another form makes its namespace unreadable, with a clear reason that shows nothing of the text."""

from __future__ import annotations

from dataclasses import replace

import pytest

from duetime.domain.call_events import CallEventType
from duetime.domain.event_webhooks import EventWebhook
from duetime.domain.namespaces import Namespace, NamespaceSettings
from duetime.stores.core.namespace_codec import decode_namespace, encode_namespace, secrets_text, settings_text
from duetime.stores.entities import NAMESPACE
from tests.support.clock import NOW


def read(*, settings: str | None = None, secrets: str | None = None) -> Namespace:
    row = dict(zip(NAMESPACE.names, encode_namespace(Namespace("orders", 4, 0, False, NOW)), strict=True))
    return decode_namespace((*(row | {"namespace_settings": settings, "namespace_secrets": secrets}).values(),))


def test_what_has_its_default_is_not_stored() -> None:
    assert settings_text(NamespaceSettings()) is None
    assert settings_text(NamespaceSettings(max_in_flight=5)) == '{"maxInFlight": 5}'
    assert secrets_text(()) is None


@pytest.mark.parametrize("event_types", [None, (), (CallEventType.FAILED, CallEventType.SUCCEEDED)])
@pytest.mark.parametrize("is_enabled", [True, False])
def test_a_webhook_is_read_as_it_was_stored(event_types: tuple[CallEventType, ...] | None, is_enabled: bool) -> None:
    webhook = EventWebhook(url="https://hooks.test/?key=1", event_types=event_types, is_enabled=is_enabled)
    stored = settings_text(NamespaceSettings(webhook=webhook))
    assert read(settings=stored) == replace(read(), settings=NamespaceSettings(webhook=webhook))
    assert "key=1" not in repr(webhook)


@pytest.mark.parametrize("settings", ["", "{", "[]", "7", "null", '{"webhook": {"url": "x"}}', '{"webhook": 7}'])
def test_a_namespace_with_settings_of_another_form_is_unreadable(settings: str) -> None:
    found = read(settings=settings)
    assert found == replace(read(), unreadable=found.unreadable)
    assert (found.unreadable or "").startswith("the stored namespace cannot be read: ")


@pytest.mark.parametrize(
    "secrets",
    [
        "{",
        '{"id": "confidential"}',
        '["confidential"]',
        '[{"id": "confidential"}]',
        '[{"id": "a", "sealed": "*confidential*", "createdAt": "2026-12-20T15:30:00.000Z", "expiresAt": null}]',
        '[{"id": "a", "sealed": "", "createdAt": "confidential", "expiresAt": null}]',
    ],
)
def test_a_namespace_with_secrets_of_another_form_is_unreadable_and_shows_none(secrets: str) -> None:
    found = read(secrets=secrets)
    assert found == replace(read(), unreadable=found.unreadable)
    assert (found.unreadable or "").startswith("the stored namespace cannot be read: ")
    assert "confidential" not in repr(found)
