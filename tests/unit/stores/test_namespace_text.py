"""Stored text of another form is a clear error that shows nothing of the text."""

from __future__ import annotations

import pytest

from duetime.domain.call_events import CallEventType
from duetime.domain.errors import StoreError
from duetime.domain.event_webhooks import EventWebhook
from duetime.domain.namespaces import Namespace, NamespaceSettings
from duetime.stores.namespace_text import read_namespace, secrets_text, settings_text
from tests.support.clock import NOW


def read(*, settings: str | None = None, secrets: str | None = None) -> Namespace:
    return read_namespace(
        name="orders",
        num_shards=4,
        first_shard=0,
        dedicated=False,
        created_at=NOW,
        revision=1,
        settings=settings,
        secrets=secrets,
        tenant_id="acme",
    )


def test_what_has_its_default_is_not_stored() -> None:
    assert settings_text(NamespaceSettings()) is None
    assert settings_text(NamespaceSettings(max_in_flight=5)) == '{"maxInFlight": 5}'
    assert secrets_text(()) is None


@pytest.mark.parametrize("event_types", [None, (), (CallEventType.FAILED, CallEventType.SUCCEEDED)])
@pytest.mark.parametrize("is_enabled", [True, False])
def test_a_webhook_is_read_as_it_was_stored(event_types, is_enabled) -> None:
    webhook = EventWebhook(url="https://hooks.test/?key=1", event_types=event_types, is_enabled=is_enabled)
    stored = settings_text(NamespaceSettings(webhook=webhook))
    assert read(settings=stored).settings == NamespaceSettings(webhook=webhook)
    assert "key=1" not in repr(webhook)


@pytest.mark.parametrize("settings", ["", "{", "[]", "7", "null", '{"webhook": {"url": "x"}}', '{"webhook": 7}'])
def test_settings_of_another_form_are_an_error(settings: str) -> None:
    with pytest.raises(StoreError, match="namespace 'orders' cannot be read"):
        read(settings=settings)


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
def test_secrets_of_another_form_are_an_error_that_shows_none(secrets: str) -> None:
    with pytest.raises(StoreError, match="namespace 'orders' cannot be read") as caught:
        read(secrets=secrets)
    assert "confidential" not in str(caught.value)
