"""``Idempotency-Key``: a write is carried out once, however often its client sends it.

As draft-ietf-httpapi-idempotency-key-header has it. The first request under a key claims a record in the store, is
carried out, and leaves its response there for a day; the same request again gets that response. A refusal (4xx) is
not kept: nothing was done, so the key is free again. Decision 0012 has the reasons.

Who dies between the effect and its record leaves a claim without a response. Once the claim has lapsed, the same
request is carried out again with the ids of the first time: they are made of the key, so what it creates meets
itself.
"""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from hashlib import blake2b, sha256
from itertools import count
from typing import Any, Final

from duetime.api.http import validators
from duetime.api.http.errors import IdempotencyKeyInUse, IdempotencyKeyReused, ResponseNotKept
from duetime.api.http.preconditions import IF_MATCH, IF_NONE_MATCH
from duetime.api.http.problems import status_of
from duetime.api.http.request import Reply, Request
from duetime.api.http.route import Keeps
from duetime.domain.errors import InvalidInput, SecretShownOnce, StoreError
from duetime.domain.idempotency import IdempotencyRecord
from duetime.domain.ids import UUID7_RANDOM_BITS, uuid7_at
from duetime.domain.principals import own_tenant
from duetime.domain.times import from_milliseconds, to_milliseconds
from duetime.stores.core.catalogue import Catalogue

IDEMPOTENCY_KEY: Final = "Idempotency-Key"
REPLAYED: Final = "Idempotent-Replayed"
"""On a response that was given before: ``true``."""

KEPT_FOR: Final = timedelta(days=1)
CLAIM_SECONDS: Final = 30.0
"""A request that takes longer has died: no gateway waits for one longer than that."""
MAX_RESPONSE_BYTES: Final = 320 * 1024
"""The longest response about one timer fits, and with it the record into an item of DynamoDB."""

NewId = Callable[[], str]

_log = logging.getLogger(__name__)


def given_key(request: Request) -> str | None:
    """Return the key in the header, bare or as a structured string in quotes. Raises ``InvalidInput``."""
    header = request.header(IDEMPOTENCY_KEY.lower())
    if header is None:
        return None
    if len(header) > 1 and header[0] == header[-1] == '"' and not {'"', "\\"} & set(header[1:-1]):
        header = header[1:-1]
    try:
        return validators.header_text(header)
    except ValueError as error:
        raise InvalidInput(IDEMPOTENCY_KEY, str(error)) from None


def replayed(reply: Reply) -> Reply:
    return replace(reply, headers={**reply.headers, REPLAYED.lower(): "true"})


@dataclass(frozen=True, slots=True)
class _Content:
    """What a record holds. ``reply`` None: in progress, unless ``is_done``, when the response was not kept."""

    fingerprint: str
    first_at: datetime
    claimed_at: datetime
    is_done: bool = False
    reply: Reply | None = None

    def text(self) -> str:
        reply = self.reply
        head: dict[str, Any] = {
            "fingerprint": self.fingerprint,
            "firstAt": to_milliseconds(self.first_at),
            "claimedAt": to_milliseconds(self.claimed_at),
            "isDone": self.is_done,
        }
        if reply is None:
            return json.dumps(head)
        head |= {"status": reply.status, "contentType": reply.content_type, "headers": dict(reply.headers)}
        return f"{json.dumps(head)}\n{reply.body}"

    @classmethod
    def read(cls, text: str) -> _Content:
        first, _, body = text.partition("\n")
        head = json.loads(first)
        reply = None
        if "status" in head:
            status, content_type, headers = head["status"], head["contentType"], head["headers"]
            reply = Reply(status=status, body=body, content_type=content_type, headers=headers)
        first_at, claimed_at = from_milliseconds(head["firstAt"]), from_milliseconds(head["claimedAt"])
        return cls(head["fingerprint"], first_at, claimed_at, head["isDone"], reply)


def carried_out_once(
    request: Request,
    key: str,
    act: Callable[[NewId, datetime], Reply],
    *,
    keeps: Keeps,
    catalogue: Catalogue,
    now: datetime,
    claim_id: str,
) -> Reply:
    """Return the response of ``act``, now or the first time. Raises what it raises, and the errors of reused keys.

    ``act`` gets a maker of ids that makes the same ones whenever it is called for this key, and the time of the first
    claim. ``claim_id`` is new.
    """
    attempt = _Attempt(request, key, catalogue=catalogue, now=now, claim_id=claim_id)
    known = attempt.claim()
    if known is not None:
        return _respond_again(known, keeps)
    try:
        reply = act(attempt.new_id(), attempt.first_at)
    except Exception as error:
        attempt.give_up(error)
        raise
    attempt.complete(reply, keeps)
    return reply


def _respond_again(known: _Content, keeps: Keeps) -> Reply:
    if known.reply is not None:
        return replayed(known.reply)
    if keeps is Keeps.FACT:
        raise SecretShownOnce
    raise ResponseNotKept


class _Attempt:
    """One request with a key, from its claim to its response."""

    def __init__(self, request: Request, key: str, *, catalogue: Catalogue, now: datetime, claim_id: str) -> None:
        self._catalogue = catalogue
        self._now = now
        self._claim_id = claim_id
        scope = [own_tenant(request.principal), request.method, request.path, key]
        self._key = sha256(json.dumps(scope).encode()).hexdigest()
        self._content = _Content(_fingerprint(request), self._now, self._now)

    @property
    def first_at(self) -> datetime:
        return self._content.first_at

    def new_id(self) -> NewId:
        """Make an id for whoever carries it out."""
        return _ids_of(self._key, self.first_at)

    def claim(self) -> _Content | None:
        """Claim the key. None: carry the request out; else what is known of the first time, which is done.

        Raises ``IdempotencyKeyReused`` and ``IdempotencyKeyInUse``.
        """
        stored = self._put()
        if stored.claim_id == self._claim_id:
            return None
        known = _Content.read(stored.content)
        if known.fingerprint != self._content.fingerprint:
            raise IdempotencyKeyReused
        if known.is_done:
            return known
        age_seconds = max((self._now - known.claimed_at).total_seconds(), 0.0)
        if age_seconds < CLAIM_SECONDS:
            # As long again as it has taken.
            wait_seconds = min(age_seconds, CLAIM_SECONDS - age_seconds)
            raise IdempotencyKeyInUse(retry_after_seconds=max(1, math.ceil(wait_seconds)))
        # Whoever claimed it has died, or does not know what it led to.
        self._content = replace(self._content, first_at=known.first_at)
        if self._put(if_claim=stored.claim_id).claim_id != self._claim_id:
            raise IdempotencyKeyInUse(retry_after_seconds=1)
        return None

    def complete(self, reply: Reply, keeps: Keeps) -> None:
        is_kept = keeps is Keeps.RESPONSE and len(reply.body.encode()) <= MAX_RESPONSE_BYTES
        self._write(replace(self._content, is_done=True, reply=reply if is_kept else None), KEPT_FOR)

    def give_up(self, error: Exception) -> None:
        """Leave the key to the next request: as unused when ``error`` is a refusal, else with the ids of this one."""
        if status_of(error) < 500:
            self._write(self._content, -KEPT_FOR)  # it has expired, whoever's clock is asked
        else:
            lapsed = self._now - timedelta(seconds=CLAIM_SECONDS)
            self._write(replace(self._content, claimed_at=lapsed), KEPT_FOR)

    def _write(self, content: _Content, kept_for: timedelta) -> None:
        """Write the row. The request is answered even when this fails: a claim that is left behind lapses."""
        self._content = content
        try:
            self._put(kept_for=kept_for)
        except StoreError as error:
            facts = {"action": "idempotency.unrecorded", "error": error.code}
            _log.warning("the response to a request with an idempotency key could not be kept", extra=facts)

    def _put(self, *, if_claim: str | None = None, kept_for: timedelta = KEPT_FOR) -> IdempotencyRecord:
        record = IdempotencyRecord(
            key=self._key,
            claim_id=self._claim_id,
            content=self._content.text(),
            expires_at=self._now + kept_for,
        )
        return self._catalogue.put_idempotency_record(record, if_claim=if_claim, now=self._now)


def _fingerprint(request: Request) -> str:
    """Digest all that decides what is done, as it was sent."""
    conditions = [request.header(name.lower()) for name in (IF_MATCH, IF_NONE_MATCH)]
    parts = [request.query, conditions, request.body, request.body_is_base64]
    return sha256(json.dumps(parts).encode()).hexdigest()


def _ids_of(key: str, first_at: datetime) -> NewId:
    """Return what makes UUIDs of version 7 as ``new_id`` does: for one key at one time always the same ones."""
    numbers = count()

    def new_id() -> str:
        digest = blake2b(f"{key} {to_milliseconds(first_at)} {next(numbers)}".encode(), digest_size=16).digest()
        return uuid7_at(first_at, int.from_bytes(digest) >> (128 - UUID7_RANDOM_BITS))

    return new_id
