"""Our signatures, as the official package of the Standard Webhooks specification sees them."""

from __future__ import annotations

import secrets
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from standardwebhooks import Webhook, WebhookVerificationError

from duetime.delivery.request import callback_for
from duetime.delivery.signing import Signer
from duetime.domain.secrets import secret_text
from duetime.testing.contract.builders import make_namespace, make_timer

ID = "0190f0aa-7c11-7b0c-9a51-93b2a30e0f17"
KEY = bytes(range(32))
BODY = '{"namespace":"orders","payload":"Grüße 🎉"}'.encode()


def timestamp() -> int:
    """The package compares with the time of day."""
    return int(datetime.now(UTC).timestamp())


def headers(signature: str, *, at: int, message_id: str = ID) -> dict[str, str]:
    return {"webhook-id": message_id, "webhook-timestamp": str(at), "webhook-signature": signature}


def test_a_signature_is_what_the_official_package_makes() -> None:
    at = datetime(2026, 12, 20, 15, 30, tzinfo=UTC)
    signature = Signer((KEY,)).signature(ID, int(at.timestamp()), BODY)
    assert signature == Webhook(secret_text(KEY)).sign(ID, at, BODY.decode())


@given(key=st.binary(min_size=24, max_size=64), text=st.text(), message_id=st.uuids())
def test_any_key_and_body_verify(key: bytes, text: str, message_id: object) -> None:
    body, at = text.encode(errors="replace"), timestamp()
    signature = Signer((key,)).signature(str(message_id), at, body)
    Webhook(secret_text(key)).verify(body, headers(signature, at=at, message_id=str(message_id)), json_parse=False)


def test_during_a_rotation_either_secret_verifies_and_no_other() -> None:
    old, new, other = (secrets.token_bytes(32) for _ in range(3))
    at = timestamp()
    signed = headers(Signer((old, new)).signature(ID, at, BODY), at=at)

    assert len(signed["webhook-signature"].split(" ")) == 2
    for key in (old, new):
        Webhook(secret_text(key)).verify(BODY, signed)
    with pytest.raises(WebhookVerificationError):
        Webhook(secret_text(other)).verify(BODY, signed)


def test_a_signer_signs_again_and_again() -> None:
    signer = Signer((KEY,))
    assert signer.signature(ID, 1, b"a") == signer.signature(ID, 1, b"a") == Signer((KEY,)).signature(ID, 1, b"a")
    assert (
        len({signer.signature(*parts) for parts in ((ID, 1, b"a"), (ID, 2, b"a"), (ID, 1, b"b"), ("x", 1, b"a"))})
        == 4
    )


def test_a_signer_shows_no_key_and_needs_one() -> None:
    assert repr(Signer((KEY, KEY))) == "Signer(2 keys)"
    with pytest.raises(ValueError, match="needs a key"):
        Signer(())


@pytest.mark.parametrize("payload", [None, '{"text": "\\ud83c\\udf89 ☃", "number": 1.0}', '"\\ud800"'])
def test_a_signed_callback_verifies_as_it_is_sent(payload: str | None) -> None:
    now = datetime.now(UTC).replace(microsecond=987_000)
    timer = make_timer(make_namespace(), execute_at=now, now=now, payload_json=payload, correlation_id="c1")

    callback = callback_for(timer, key=1, fired_at=now, signer=Signer((KEY,)))

    sent = dict(line.split(": ", 1) for line in callback.headers)
    assert sent["webhook-id"] == timer.firing_id
    Webhook(secret_text(KEY)).verify(callback.body or b"", sent)


def test_without_a_signer_there_is_no_signature() -> None:
    now = datetime.now(UTC)
    callback = callback_for(make_timer(make_namespace()), key=1, fired_at=now)
    assert not any(line.startswith("webhook-signature") for line in callback.headers)
