"""The receiver's helper: what it believes, what it does not, and that the official package agrees."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from standardwebhooks import Webhook

import duetime_client.webhooks
from duetime.delivery.firing_urls import FiringUrls
from duetime.delivery.request import callback_for
from duetime.delivery.signing import Signer
from duetime.domain.secrets import secret_text
from duetime.testing.contract.builders import make_namespace, make_timer, seconds
from duetime.testing.contract.schedules import make_schedule
from duetime_client.webhooks import (
    InvalidBody,
    InvalidSignature,
    InvalidTimestamp,
    MissingHeader,
    VerificationError,
    answer_url,
    taken,
    verify,
    verify_event,
    verify_schedule,
)
from tests.support.clock import NOW

KEY, OTHER_KEY = bytes(range(32)), bytes(range(32, 64))
SECRET, OTHER_SECRET = secret_text(KEY), secret_text(OTHER_KEY)
PAYLOAD = '{"orderId": 12345, "text": "Grüße"}'

Headers = dict[str, str]


def callback(*keys: bytes, payload: str | None = PAYLOAD) -> tuple[bytes, Headers]:
    """Body and headers as Duetime sends them."""
    timer = make_timer(
        make_namespace(), "t1", firing_id="firing-1", payload_json=payload, correlation_id="order-12345"
    )
    sent = callback_for(timer, key=1, fired_at=NOW + seconds(0.5), signer=Signer(keys or (KEY,)))
    return sent.body or b"", dict(line.split(": ", 1) for line in sent.headers)


def official(body: str, *, secret: str = SECRET, at: datetime = NOW, webhook_id: str = "firing-1") -> Headers:
    """Headers as the official package makes them."""
    signature = Webhook(secret).sign(webhook_id, at, body)
    return {
        "webhook-id": webhook_id,
        "webhook-timestamp": str(int(at.timestamp())),
        "webhook-signature": signature,
    }


def test_what_duetime_sends_is_believed_and_read() -> None:
    body, headers = callback()

    found = verify(body, headers, SECRET, now=NOW)

    assert (found.webhook_id, found.namespace, found.timer_id, found.attempt) == ("firing-1", "orders", "t1", 1)
    assert found.payload == {"orderId": 12345, "text": "Grüße"}
    assert (found.execute_at, found.fired_at) == (NOW, NOW + seconds(0.5))
    assert (found.timestamp, found.correlation_id) == (NOW, "order-12345")


@given(key=st.binary(min_size=24, max_size=64), text=st.text(st.characters(exclude_categories=["Cs"])))
def test_what_the_official_package_signs_is_believed(key: bytes, text: str) -> None:
    secret = secret_text(key)
    value = {"namespace": "n", "timerId": text, "executeAt": NOW.isoformat(), "firedAt": NOW.isoformat()}
    body = json.dumps(value | {"attempt": 1, "payload": text}, ensure_ascii=False)

    found = verify(body.encode(), official(body, secret=secret), secret, now=NOW)

    assert (found.timer_id, found.payload) == (text, text)


def test_the_time_of_day_is_the_default() -> None:
    body, headers = callback()
    with pytest.raises(InvalidTimestamp):
        verify(body, headers, SECRET)
    now = datetime.now(UTC)
    text = body.decode()
    assert verify(body, official(text, at=now), SECRET).timer_id == "t1"


@pytest.mark.parametrize("spell", [str.upper, str.title, str.lower])
def test_header_names_have_no_case(spell: Any) -> None:
    body, headers = callback()
    assert verify(body, {spell(name): value for name, value in headers.items()}, SECRET, now=NOW)


class TestRotation:
    @pytest.mark.parametrize("secrets", [SECRET, [SECRET], (OTHER_SECRET, SECRET), [SECRET, OTHER_SECRET]])
    def test_one_known_secret_is_enough(self, secrets: str | list[str]) -> None:
        body, headers = callback(KEY)
        assert verify(body, headers, secrets, now=NOW)

    @pytest.mark.parametrize("secret", [SECRET, OTHER_SECRET])
    def test_one_of_several_signatures_is_enough(self, secret: str) -> None:
        body, headers = callback(KEY, OTHER_KEY)
        assert verify(body, headers, secret, now=NOW)

    def test_a_secret_may_come_without_its_prefix(self) -> None:
        body, headers = callback()
        assert verify(body, headers, SECRET.removeprefix("whsec_"), now=NOW)


class TestRefused:
    @pytest.mark.parametrize("changed", [b"", b" ", b"tampered"])
    def test_a_changed_body(self, changed: bytes) -> None:
        body, headers = callback()
        for tampered in (changed, body + changed + b" ", body.replace(b"12345", b"12346"), body[:-1]):
            with pytest.raises(InvalidSignature):
                verify(tampered, headers, SECRET, now=NOW)

    @pytest.mark.parametrize(
        ("name", "value"),
        [("webhook-id", "firing-2"), ("webhook-timestamp", "1797780601"), ("webhook-id", "☃\ud800")],
    )
    def test_a_changed_header(self, name: str, value: str) -> None:
        body, headers = callback()
        with pytest.raises(InvalidSignature):
            verify(body, headers | {name: value}, SECRET, now=NOW)

    def test_parts_that_were_moved_from_one_to_the_next(self) -> None:
        body, headers = callback()
        moved = headers | {"webhook-id": f"{headers['webhook-id']}.{headers['webhook-timestamp'][:-1]}"}
        with pytest.raises(VerificationError):
            verify(body, moved, SECRET, now=NOW)

    def test_another_secret(self) -> None:
        body, headers = callback()
        with pytest.raises(InvalidSignature):
            verify(body, headers, [OTHER_SECRET], now=NOW)

    @pytest.mark.parametrize(
        "signature",
        ["v1", "v1,", "v1,AAAA", "v1,☃", "v1,\ud800", ",", " ", "v1a,{}", "v2,{}", "V1,{}", "{}", "v1, {}", "v1,{}="],
    )
    def test_a_signature_of_another_form(self, signature: str) -> None:
        body, headers = callback()
        good = headers["webhook-signature"].removeprefix("v1,")
        with pytest.raises(InvalidSignature):
            verify(body, headers | {"webhook-signature": signature.replace("{}", good)}, SECRET, now=NOW)

    @pytest.mark.parametrize("name", ["webhook-id", "webhook-timestamp", "webhook-signature"])
    def test_a_missing_header(self, name: str) -> None:
        body, headers = callback()
        for without in ({each: value for each, value in headers.items() if each != name}, headers | {name: ""}):
            with pytest.raises(MissingHeader, match=name):
                verify(body, without, SECRET, now=NOW)

    @pytest.mark.parametrize("timestamp", ["soon", "-1", "1.5", "٣", "9" * 12, "9" * 5000, " 1797780600", "0x1"])
    def test_a_timestamp_that_is_none(self, timestamp: str) -> None:
        body, headers = callback()
        with pytest.raises(InvalidTimestamp):
            verify(body, headers | {"webhook-timestamp": timestamp}, SECRET, now=NOW)

    @pytest.mark.parametrize(
        "body", ["[]", "7", '"x"', "{}", "not json", "[" * 100_000, '{"namespace": 7}', '{"namespace": "n"}']
    )
    def test_a_signed_body_that_is_no_callback(self, body: str) -> None:
        with pytest.raises(InvalidBody):
            verify(body.encode(), official(body), SECRET, now=NOW)

    def test_nothing_of_it_is_an_error_of_the_program(self) -> None:
        assert all(
            issubclass(kind, VerificationError)
            for kind in (InvalidBody, InvalidSignature, InvalidTimestamp, MissingHeader)
        )
        assert not issubclass(VerificationError, ValueError | TypeError)


def test_signatures_of_unknown_versions_are_passed_over() -> None:
    body, headers = callback()
    signature = f"v9,abc v1a,{'A' * 88} {headers['webhook-signature']} v1,AAAA"
    assert verify(body, headers | {"webhook-signature": signature}, SECRET, now=NOW)


@pytest.mark.parametrize(("offset", "tolerance"), [(300, 300.0), (-300, 300.0), (10, 10.0), (-10, 10.0), (0, 0.0)])
def test_the_time_may_differ_by_the_tolerance_either_way(offset: int, tolerance: float) -> None:
    body, headers = callback()
    now = NOW + timedelta(seconds=offset)
    assert verify(body, headers, SECRET, now=now, tolerance_seconds=tolerance)
    further = now + timedelta(seconds=-1 if offset < 0 else 1)
    with pytest.raises(InvalidTimestamp, match="from now"):
        verify(body, headers, SECRET, now=further, tolerance_seconds=tolerance)


@pytest.mark.parametrize("secret", ["", "whsec_", "whsec_!", "whsec_AAA", [], [SECRET, ""], "whsec_é"])
def test_a_secret_that_is_none_is_a_mistake_of_the_receiver_and_not_shown(secret: Any) -> None:
    body, headers = callback()
    with pytest.raises(ValueError, match="a secret is") as caught:
        verify(body, headers, secret, now=NOW)
    assert "é" not in str(caught.value)


def test_a_body_that_was_decoded_is_a_mistake_of_the_receiver() -> None:
    body, headers = callback()
    with pytest.raises(TypeError, match="bytes that arrived"):
        verify(body.decode(), headers, SECRET, now=NOW)  # type: ignore[arg-type]


def test_a_payload_is_not_in_the_repr() -> None:
    body, headers = callback()
    assert "12345" not in repr(verify(body, headers, SECRET, now=NOW)).replace("order-12345", "")


def test_the_file_works_alone(tmp_path: Path) -> None:
    source = Path(duetime_client.webhooks.__file__).read_text(encoding="utf-8")
    (tmp_path / "copied.py").write_text(source, encoding="utf-8")
    command = [sys.executable, "-I", "-S", "-c", f"import sys; sys.path.append({str(tmp_path)!r}); import copied"]
    subprocess.run(command, check=True, timeout=30)


EVENT = (
    '{"id":"e1","type":"ServiceCallFailed","tenantId":"acme","aggregateId":"c1","sequence":7,'
    '"occurredAt":"2026-12-20T15:30:00.000Z","correlationId":"order-12345","causationId":null,"payload":{"attempts":1}}'
)


def test_an_event_is_believed_and_read() -> None:
    event = verify_event(EVENT.encode(), official(EVENT, webhook_id="e1"), SECRET, now=NOW)
    assert (event.event_id, event.type, event.tenant_id, event.aggregate_id) == (
        "e1",
        "ServiceCallFailed",
        "acme",
        "c1",
    )
    assert (event.sequence, event.occurred_at, event.causation_id) == (7, NOW, None)
    assert (event.correlation_id, event.payload) == ("order-12345", {"attempts": 1})


def test_an_event_that_is_signed_by_another_is_not_believed() -> None:
    with pytest.raises(InvalidSignature):
        verify_event(EVENT.encode(), official(EVENT, secret=OTHER_SECRET), SECRET, now=NOW)


@pytest.mark.parametrize("change", [('"acme"', "7"), ('{"attempts":1}', "[]"), ('"sequence":7', '"sequence":"x"')])
def test_what_is_signed_and_no_event_is_said_to_be_none(change: tuple[str, str]) -> None:
    body = EVENT.replace(*change)
    with pytest.raises(InvalidBody, match="no event of a service call"):
        verify_event(body.encode(), official(body), SECRET, now=NOW)


def test_a_timers_callback_is_no_event_and_an_event_no_callback() -> None:
    body, headers = callback()
    with pytest.raises(InvalidBody):
        verify_event(body, headers, SECRET, now=NOW)
    with pytest.raises(InvalidBody):
        verify(EVENT.encode(), official(EVENT), SECRET, now=NOW)


def test_a_callback_of_a_schedule_is_believed_and_read() -> None:
    schedule = make_schedule(make_namespace("orders"), "é")
    signer = Signer((KEY,))
    sent = callback_for(schedule, key=1, fired_at=NOW, signer=signer)
    headers = dict(line.split(": ", 1) for line in sent.headers)
    assert sent.body is not None

    found = verify_schedule(sent.body, headers, SECRET, now=NOW)

    assert (found.namespace, found.schedule_id, found.occurrence, found.attempt) == ("orders", "é", 1, 1)
    assert found.webhook_id == schedule.firing_id
    with pytest.raises(InvalidBody, match="no callback of a timer"):
        verify(sent.body, headers, SECRET, now=NOW)
    body, of_timer = callback()
    with pytest.raises(InvalidBody, match="no callback of a schedule"):
        verify_schedule(body, of_timer, SECRET, now=NOW)


@pytest.mark.parametrize("timer_id", ["t1", "a b?c%d", "größe", "base64url:x", "."])
def test_a_callback_says_where_to_answer(timer_id: str) -> None:
    timer = make_timer(make_namespace(), timer_id, payload_json="1.10")
    urls = FiringUrls("https://timers.example.com", KEY)
    sent = callback_for(timer, key=1, fired_at=NOW, signer=Signer((KEY,)), urls=urls)

    got = verify(sent.body or b"", dict(line.split(": ", 1) for line in sent.headers), SECRET, now=NOW)

    assert got.ack_url is not None
    assert got.ack_url not in repr(got)
    path, _, query = got.ack_url.partition("?")
    assert path.endswith(f"/firings/{timer.firing_id}/ack")
    assert answer_url(got.ack_url, "heartbeat") == f"{path.removesuffix('ack')}heartbeat?{query}"


def test_without_a_public_url_a_callback_has_none() -> None:
    body, headers = callback()

    assert verify(body, headers, SECRET, now=NOW).ack_url is None
    assert b"ackUrl" not in body


def test_the_body_that_takes_work() -> None:
    assert taken(timedelta(minutes=10)) == {"ack": {"within": 600.0}}
    for refused in (timedelta(), timedelta(days=2)):
        with pytest.raises(ValueError, match="24 hours"):
            taken(refused)
