"""For receivers: is this callback from Duetime, unchanged and recent, and what does it say?

Nothing but the standard library is used, and nothing else of Duetime: this file can be copied as it is. Signatures
are those of the Standard Webhooks specification (https://www.standardwebhooks.com, scheme ``v1``), so any library for
it does as well.

    from duetime_client.webhooks import VerificationError, verify

    try:
        callback = verify(body, request.headers, secrets)
    except VerificationError:
        return 400
    if not already_done(callback.webhook_id):
        ...

Work that takes longer than a callback may: respond 202 with ``taken(timedelta(minutes=10))`` as JSON, and POST to
``answer_url(callback.ack_url, "ack")`` when it is done.
"""

from __future__ import annotations

import binascii
import hashlib
import hmac
import json
import re
from base64 import b64decode, b64encode
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, Protocol

DEFAULT_TOLERANCE_SECONDS = 300.0

_SECRET_PREFIX = "whsec_"  # noqa: S105  (not a secret)
_TIMESTAMP = re.compile(r"[0-9]{1,11}")


class VerificationError(Exception):
    """The callback is not to be believed. Answer 400: then it is not sent again."""


class MissingHeader(VerificationError):
    """There is no ``webhook-id``, ``webhook-timestamp`` or ``webhook-signature``."""


class InvalidTimestamp(VerificationError):
    """``webhook-timestamp`` is no time, or too far from now: a replay, or a clock that is wrong."""


class InvalidSignature(VerificationError):
    """No signature was made with a secret that is known here: forged, changed on its way, or for another receiver."""


class InvalidBody(VerificationError):
    """The signature is good, but this is not what was expected: something else is signed with the same secret."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Callback:
    """What arrived. ``webhook_id`` names the firing: all attempts of one have the same.

    ``attempt`` counts from 1. ``execute_at`` is when it was due, ``fired_at`` when this attempt began. ``ack_url`` is
    where to say what came of work that was taken (``answer_url``): it is a secret, as good for that as an API key.
    """

    webhook_id: str
    timestamp: datetime
    namespace: str
    timer_id: str
    execute_at: datetime
    fired_at: datetime
    attempt: int
    payload: Any = field(repr=False)
    correlation_id: str | None = None
    ack_url: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleCallback:
    """What arrived of a schedule. ``webhook_id`` names the occurrence: all attempts of it have the same, and repeats.

    ``scheduled_at`` is by the schedule, ``execute_at`` that with its delay. ``occurrence`` counts from 1; it is 0
    when somebody fired the schedule by hand.
    """

    webhook_id: str
    timestamp: datetime
    namespace: str
    schedule_id: str
    scheduled_at: datetime
    occurrence: int
    execute_at: datetime
    fired_at: datetime
    attempt: int
    payload: Any = field(repr=False)
    correlation_id: str | None = None
    ack_url: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """What happened to a service call. ``event_id`` is the same however often it arrives: deduplicate by it.

    ``sequence`` counts the events of the call ``aggregate_id`` from 1 and is their order.
    """

    event_id: str
    type: str
    tenant_id: str
    aggregate_id: str
    sequence: int
    occurred_at: datetime
    correlation_id: str
    causation_id: str | None
    payload: Mapping[str, Any] = field(repr=False)


class Headers(Protocol):
    """Any mapping of names to values; also what web frameworks have for headers."""

    def items(self) -> Iterable[tuple[str, str]]: ...


def verify(
    body: bytes,
    headers: Headers | Mapping[str, str],
    secret: str | Sequence[str],
    *,
    now: datetime | None = None,
    tolerance_seconds: float = DEFAULT_TOLERANCE_SECONDS,
) -> Callback:
    """Return the callback, if it is signed with ``secret`` (``whsec_...``), or with one of several during a rotation.

    ``body`` is what arrived, byte for byte: JSON that was read and written again does not verify. Names of
    ``headers`` may be in upper or lower case. ``now`` is the time of day unless it is given; the callback's time may
    differ from it by ``tolerance_seconds`` either way.

    Raises ``VerificationError``; and ``ValueError`` or ``TypeError`` for a call that could never succeed: a secret
    that is none, a body that is not bytes.
    """
    given = _believed(body, headers, secret, now or datetime.now(UTC), tolerance_seconds)
    try:
        value = json.loads(body)
        return Callback(
            timer_id=_text(value["timerId"]),
            **_sent(given, value),
        )
    except (ValueError, TypeError, KeyError, RecursionError):
        raise InvalidBody("it is signed, but it is no callback of a timer") from None


def verify_schedule(
    body: bytes,
    headers: Headers | Mapping[str, str],
    secret: str | Sequence[str],
    *,
    now: datetime | None = None,
    tolerance_seconds: float = DEFAULT_TOLERANCE_SECONDS,
) -> ScheduleCallback:
    """Return the callback of a schedule, if it is signed. Everything is as for ``verify``."""
    given = _believed(body, headers, secret, now or datetime.now(UTC), tolerance_seconds)
    try:
        value = json.loads(body)
        return ScheduleCallback(
            schedule_id=_text(value["scheduleId"]),
            scheduled_at=datetime.fromisoformat(value["scheduledAt"]),
            occurrence=int(value["occurrence"]),
            **_sent(given, value),
        )
    except (ValueError, TypeError, KeyError, RecursionError):
        raise InvalidBody("it is signed, but it is no callback of a schedule") from None


def _sent(given: Mapping[str, str], value: Mapping[str, Any]) -> dict[str, Any]:
    """Return what all callbacks have."""
    return {
        "webhook_id": given["webhook-id"],
        "timestamp": datetime.fromtimestamp(int(given["webhook-timestamp"]), UTC),
        "namespace": _text(value["namespace"]),
        "execute_at": datetime.fromisoformat(value["executeAt"]),
        "fired_at": datetime.fromisoformat(value["firedAt"]),
        "attempt": int(value["attempt"]),
        "payload": value["payload"],
        "correlation_id": given.get("x-correlation-id"),
        "ack_url": None if value.get("ackUrl") is None else _text(value["ackUrl"]),
    }


def taken(within: timedelta) -> dict[str, Any]:
    """Return the body, as JSON, of a 202 that takes the work of a callback: an answer will come ``within`` that time.

    Silence until then is a failed attempt. All waiting is 24 hours at most, from the start of the attempt.
    """
    if not timedelta() < within <= timedelta(hours=24):
        raise ValueError("within must be more than 0 and at most 24 hours")
    return {"ack": {"within": within.total_seconds()}}


def answer_url(ack_url: str, answer: Literal["ack", "nack", "heartbeat"]) -> str:
    """Return the URL to POST an answer to, no API key needed. ``ack_url`` is that of the callback.

    A heartbeat has the JSON body ``taken(...)["ack"]``; a nack may have ``{"message": "...", "retry": false}``.
    """
    path, _, query = ack_url.partition("?")
    return f"{path.rpartition('/')[0]}/{answer}?{query}"


def verify_event(
    body: bytes,
    headers: Headers | Mapping[str, str],
    secret: str | Sequence[str],
    *,
    now: datetime | None = None,
    tolerance_seconds: float = DEFAULT_TOLERANCE_SECONDS,
) -> Event:
    """Return the event that a tenant's webhook received, if it is signed with its secret. Else as ``verify``."""
    _believed(body, headers, secret, now or datetime.now(UTC), tolerance_seconds)
    try:
        value = json.loads(body)
        causation_id = value["causationId"]
        payload = value["payload"]
        if not isinstance(payload, dict):
            raise TypeError
        return Event(
            event_id=_text(value["id"]),
            type=_text(value["type"]),
            tenant_id=_text(value["tenantId"]),
            aggregate_id=_text(value["aggregateId"]),
            sequence=int(value["sequence"]),
            occurred_at=datetime.fromisoformat(value["occurredAt"]),
            correlation_id=_text(value["correlationId"]),
            causation_id=None if causation_id is None else _text(causation_id),
            payload=payload,
        )
    except (ValueError, TypeError, KeyError, RecursionError):
        raise InvalidBody("it is signed, but it is no event of a service call") from None


def _believed(
    body: bytes,
    headers: Headers | Mapping[str, str],
    secret: str | Sequence[str],
    now: datetime,
    tolerance_seconds: float,
) -> Mapping[str, str]:
    """Return the headers, names in lower case, of a request that is signed and recent. Raises as ``verify``."""
    if not isinstance(body, bytes):
        raise TypeError("body must be the bytes that arrived")
    keys = _keys(secret)
    given = {name.lower(): value for name, value in headers.items()}
    webhook_id, timestamp = _required(given, "webhook-id"), _required(given, "webhook-timestamp")
    signatures = _required(given, "webhook-signature")
    _check_recent(timestamp, now, tolerance_seconds)
    signed = f"{webhook_id}.{timestamp}.".encode(errors="replace") + body
    if not _is_signed(signed, signatures, keys):
        raise InvalidSignature("no signature was made with a secret that is known here")
    return given


def _keys(secret: str | Sequence[str]) -> list[bytes]:
    texts = [secret] if isinstance(secret, str) else list(secret)
    if not texts:
        raise ValueError("a secret is needed")
    keys = []
    for text in texts:
        try:
            key = b64decode(text.removeprefix(_SECRET_PREFIX), validate=True)
        except (binascii.Error, ValueError):
            key = b""
        if not key:
            raise ValueError("a secret is whsec_ and base64")  # and is not shown
        keys.append(key)
    return keys


def _required(headers: Mapping[str, str], name: str) -> str:
    value = headers.get(name)
    if not value:
        raise MissingHeader(f"there is no {name}")
    return value


def _check_recent(timestamp: str, now: datetime, tolerance_seconds: float) -> None:
    if _TIMESTAMP.fullmatch(timestamp) is None:
        raise InvalidTimestamp("webhook-timestamp must be seconds since 1970")
    sent_at = datetime.fromtimestamp(int(timestamp), UTC)
    if abs((now - sent_at).total_seconds()) > tolerance_seconds:
        raise InvalidTimestamp(f"webhook-timestamp is more than {tolerance_seconds:g} s from now")


def _is_signed(signed: bytes, signatures: str, keys: Iterable[bytes]) -> bool:
    """Tell whether one of the signatures is by one of the keys; those of unknown versions are passed over."""
    given = [text.encode(errors="replace") for text in signatures.split(" ") if text.startswith("v1,")]
    expected = [b"v1," + b64encode(hmac.new(key, signed, hashlib.sha256).digest()) for key in keys]
    # Which of them fits, if any, is no secret; each comparison takes the same time whatever differs.
    return any(hmac.compare_digest(one, other) for one in expected for other in given)


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value
