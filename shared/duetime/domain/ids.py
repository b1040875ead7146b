"""The rules for names and ids, and the ids that are derived from them."""

from __future__ import annotations

import base64
import hashlib
import re
from datetime import datetime
from typing import Final
from urllib.parse import quote
from uuid import UUID

from duetime.domain.times import MAX_INSTANT, to_milliseconds

MAX_TIMER_ID_CHARACTERS = 255
MAX_KEY_BYTES = 1024
"""DynamoDB's limit for a sort key; the whole of ``TIMER#<namespace>#<timer_id>`` must fit."""

MAX_NAMESPACE_CHARACTERS = 63
NAMESPACE_PATTERN = f"[a-z0-9][a-z0-9._-]{{0,{MAX_NAMESPACE_CHARACTERS - 1}}}"
_NAMESPACE = re.compile(NAMESPACE_PATTERN)
# C0, DEL and C1 control characters, and lone surrogates, which have no UTF-8 form.
_FORBIDDEN = re.compile(r"[\x00-\x1f\x7f-\x9f/\ud800-\udfff]")


def check_namespace(name: str) -> str:
    """Return ``name``; raise ``ValueError`` saying what a namespace may be."""
    if _NAMESPACE.fullmatch(name) is None:
        raise ValueError(f"must match {NAMESPACE_PATTERN}")
    return name


def check_timer_id(namespace: str, timer_id: str) -> str:
    """Return ``timer_id``; raise ``ValueError`` when it cannot name a timer of ``namespace``."""
    if not 1 <= len(timer_id) <= MAX_TIMER_ID_CHARACTERS:
        raise ValueError(f"must have 1 to {MAX_TIMER_ID_CHARACTERS} characters")
    if _FORBIDDEN.search(timer_id):
        raise ValueError("must not contain '/', control characters or lone surrogates")
    if len(sort_key(namespace, timer_id).encode()) > MAX_KEY_BYTES:
        raise ValueError(f"is too long: the key must fit {MAX_KEY_BYTES} bytes of UTF-8")
    return timer_id


MAX_SCHEDULE_ID_CHARACTERS = 230
"""The ids of its timers are longer, and their keys fit ``MAX_KEY_BYTES`` with this."""
_OF_SCHEDULE = "\x01"
"""No client's timer has it in its id. It sorts before what they have."""


def schedule_timer_id(schedule_id: str) -> str:
    """Return the id of the timer that is a schedule."""
    return _OF_SCHEDULE + schedule_id


def occurrence_timer_id(schedule_id: str, scheduled_at: datetime) -> str:
    """Return the id of the timer that an occurrence becomes which goes on while its schedule moves on."""
    return f"{_OF_SCHEDULE}{schedule_id}{_OF_SCHEDULE}{to_milliseconds(scheduled_at)}"


def trigger_timer_id(schedule_id: str, at: datetime | None = None) -> str:
    """Return the id of the timer that fires a schedule by hand. None: what all of those begin with.

    They sort by time, the latest first. So do those of backfills.
    """
    return f"{_OF_SCHEDULE}{schedule_id}{_OF_SCHEDULE}t{_latest_first(at)}"


def backfill_timer_id(schedule_id: str, scheduled_at: datetime | None = None) -> str:
    """Return the id of the timer that sends an occurrence once more. None: what all of those begin with."""
    return f"{_OF_SCHEDULE}{schedule_id}{_OF_SCHEDULE}b{_latest_first(scheduled_at)}"


def _latest_first(at: datetime | None) -> str:
    return "" if at is None else f"{to_milliseconds(MAX_INSTANT) - to_milliseconds(at):015}"


def schedule_id_of(timer_id: str) -> str | None:
    """Return the schedule that a timer is, or is an occurrence of; None for any other timer."""
    return timer_id.split(_OF_SCHEDULE, 2)[1] if timer_id.startswith(_OF_SCHEDULE) else None


def is_schedule(timer_id: str) -> bool:
    """Tell whether a timer is a schedule, by its id."""
    return timer_id.startswith(_OF_SCHEDULE) and timer_id.count(_OF_SCHEDULE) == 1


def occurrence_firing_id(namespace: str, schedule_id: str, scheduled_at: datetime) -> str:
    """Return the same for an occurrence however often, and by whichever timer, it is sent."""
    return str(timer_uuid(namespace, occurrence_timer_id(schedule_id, scheduled_at)))


_ESCALATION = re.compile(r"escalation:([0-9a-f]{8}):[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def escalation_timer_id(shard_hash: int, event_id: UUID) -> str:
    """Return the id of the timer that escalates a failure, which is on the shard of what has failed.

    ``event_id`` is that of the failure's event. Nobody who does not know it can make the id.
    """
    return f"escalation:{shard_hash:08x}:{event_id}"


def escalation_shard_hash(timer_id: str) -> int | None:
    """Return what the shard of an escalation is computed from; None for any other timer."""
    match = _ESCALATION.fullmatch(timer_id)
    return None if match is None else int(match[1], 16)


def check_schedule_id(namespace: str, schedule_id: str) -> str:
    """Return ``schedule_id``; raise ``ValueError`` when it cannot name a schedule of ``namespace``."""
    if len(schedule_id) > MAX_SCHEDULE_ID_CHARACTERS:
        raise ValueError(f"must have 1 to {MAX_SCHEDULE_ID_CHARACTERS} characters")
    return check_timer_id(namespace, schedule_id)


def sort_key(namespace: str, timer_id: str) -> str:
    """Return ``TIMER#<namespace>#<timer_id>``: a namespace has no ``#``, so the first two are unambiguous."""
    return f"TIMER#{namespace}#{timer_id}"


SAFE_PREFIX: Final = "base64url:"
"""Begins a spelling of an id in a path by safe characters alone: what follows is the unpadded base64url of its UTF-8.
An API Gateway HTTP API hands over the path decoded, and not faithfully: it cuts it at an encoded '?', and decodes '%'
more than once (docs/decisions/0010). An id that itself begins so must be written so."""

# Seen to arrive unchanged through every gateway: unreserved and most of sub-delims, space, '#', all beyond ASCII.
_FAITHFUL = re.compile(r"[A-Za-z0-9._~!$&'()*,;=:@ #\u00a0-\U0010ffff-]+")


def item_path(namespace: str, items: str, item_id: str) -> str:
    """Return the path in the API of one of ``items``, timers or schedules, in the spelling that arrives anywhere."""
    is_faithful = _FAITHFUL.fullmatch(item_id) and item_id not in (".", "..")
    if is_faithful and not item_id.startswith(SAFE_PREFIX):
        segment = quote(item_id, safe="!$&'()*,;=:@")
    else:
        segment = SAFE_PREFIX + base64.urlsafe_b64encode(item_id.encode()).rstrip(b"=").decode()
    return f"/v1/namespaces/{namespace}/{items}/{segment}"


UUID7_RANDOM_BITS = 74
_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def is_uuid(text: str) -> bool:
    """Tell whether ``text`` is a UUID in our form, so that it has to be looked up."""
    return _UUID.fullmatch(text) is not None


def uuid7_at(instant: datetime, random_bits: int) -> str:
    """Return the UUID version 7 (RFC 9562) of exactly ``instant``, in whole milliseconds, and of
    ``UUID7_RANDOM_BITS`` bits.

    So an index by such ids is one by time. ``runtime.ids.new_id`` runs ahead of the clock when many are made at once.
    """
    high, low = random_bits >> 62, random_bits & ((1 << 62) - 1)
    return str(UUID(int=to_milliseconds(instant) << 80 | 0x7 << 76 | high << 64 | 0b10 << 62 | low))


def timer_uuid(namespace: str, timer_id: str) -> UUID:
    """Return the MD5 of ``namespace:timer_id`` as a UUID: stable for the two (durable-timer seed)."""
    return UUID(bytes=timer_uuid_bytes(namespace, timer_id))


def timer_uuid_bytes(namespace: str, timer_id: str) -> bytes:
    """Return the 16 bytes of ``timer_uuid``, as stores keep it."""
    return hashlib.md5(f"{namespace}:{timer_id}".encode(), usedforsecurity=False).digest()
