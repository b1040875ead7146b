"""A signed callback that really went over HTTP, as its receiver sees it."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from standardwebhooks import Webhook, WebhookVerificationError

from duetime.delivery.request import callback_for
from duetime.delivery.signing import Signer
from duetime.domain.secrets import secret_text
from duetime.testing.contract.builders import make_namespace, make_timer
from duetime_client.webhooks import InvalidSignature, verify
from tests.integration.delivery.conftest import Sending
from tests.support.receiver import Receiver

OLD, NEW, OTHER = (bytes([number]) * 32 for number in (1, 2, 3))
PAYLOADS = [None, "1.0", '{"text": "Grüße \\ud83c\\udf89", "lone": "\\ud800"}', f'"{"x" * 100_000}"']


@pytest.mark.parametrize("payload", PAYLOADS)
def test_what_arrives_verifies_with_either_secret(sending: Sending, receiver: Receiver, payload: str | None) -> None:
    now = datetime.now(UTC)
    headers = '{"X-Order": "12345", "Authorization": "Bearer abc"}'
    timer = make_timer(
        make_namespace(), callback_url=receiver.url("/hook"), payload_json=payload, headers_json=headers
    )
    sending.sender.submit([callback_for(timer, key=1, fired_at=now, signer=Signer((OLD, NEW)))])
    (received,) = receiver.wait_for(1)
    sending.wait_for(1)

    arrived = dict(received.headers)
    assert arrived["webhook-id"] == timer.firing_id
    for key in (OLD, NEW):
        Webhook(secret_text(key)).verify(received.body, arrived)
        assert verify(received.body, arrived, secret_text(key)).webhook_id == timer.firing_id
    with pytest.raises(WebhookVerificationError):
        Webhook(secret_text(OTHER)).verify(received.body, arrived)
    with pytest.raises(InvalidSignature):
        verify(received.body, arrived, secret_text(OTHER))
