"""Who makes a request: the check of API keys, the same behind ``duetime serve --auth`` and on Lambda."""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from dataclasses import dataclass
from hashlib import sha256
from typing import Protocol
from urllib.parse import parse_qsl, unquote

from duetime.api.http.errors import Unauthenticated
from duetime.api.http.request import Request
from duetime.domain.api_keys import KEY_PREFIX, ApiKey, parse_key
from duetime.domain.clock import Clock
from duetime.domain.errors import InvalidInput
from duetime.domain.principals import Principal

MAX_CACHED_KEYS = 10_000
MAX_HEADER_CHARACTERS = 512
_SCHEME = "bearer"

_log = logging.getLogger(__name__)


class KeyStore(Protocol):
    """The one operation of ``stores.core.catalogue.Catalogue`` that is needed here."""

    def get_api_key(self, key_id: str) -> ApiKey | None: ...


@dataclass(frozen=True, slots=True)
class _Checked:
    key: ApiKey
    fresh_until: float
    """Monotonic seconds."""


class KeyAuthenticator:
    """Finds the principal of an ``Authorization`` header. Thread-safe.

    A key that was good is not asked for again for ``cache_seconds``: a deleted one works on for that long at most.
    The cache is bounded and holds hashes of keys. What was refused is not kept: it costs a read each time.
    """

    def __init__(self, store: KeyStore, clock: Clock, *, cache_seconds: float) -> None:
        self._store = store
        self._clock = clock
        self._cache_seconds = cache_seconds
        self._checked: OrderedDict[bytes, _Checked] = OrderedDict()
        self._lock = threading.Lock()

    def __call__(self, request: Request) -> Principal:
        return self.authenticate(request.header("authorization"))

    def authenticate(self, header: str | None) -> Principal:
        """Return who sends ``header``. Raises ``Unauthenticated``, and the store's errors: a store that does not
        answer lets nobody in.
        """
        text = _bearer(header)
        digest = sha256(text.encode()).digest()
        key = self._recall(digest) or self._check(text, digest)
        if key.is_expired(self._clock.now()):
            raise _refused("expired", "the API key has expired", key_id=key.key_id)
        return key.principal()

    def _check(self, text: str, digest: bytes) -> ApiKey:
        parsed = parse_key(text)
        if parsed is None:
            raise _refused("malformed", "the API key is not valid")
        key_id, secret = parsed
        started = self._clock.monotonic()
        key = self._store.get_api_key(key_id)
        # One message for both: who has no secret learns nothing about ids.
        if key is None:
            raise _refused("unknown", "the API key is not valid", key_id=key_id)
        if not key.has_secret(secret):
            raise _refused("wrong_secret", "the API key is not valid", key_id=key_id)
        if key.role is None:
            raise _refused("unreadable", "this API key cannot be read", key_id=key_id)
        with self._lock:
            self._checked[digest] = _Checked(key, started + self._cache_seconds)
            while len(self._checked) > MAX_CACHED_KEYS:
                self._checked.popitem(last=False)
        return key

    def _recall(self, digest: bytes) -> ApiKey | None:
        with self._lock:
            checked = self._checked.get(digest)
            if checked is None:
                return None
            if self._clock.monotonic() < checked.fresh_until:
                self._checked.move_to_end(digest)
                return checked.key
            del self._checked[digest]
            return None


def refuse_key_in_query(request: Request) -> None:
    """Refuse a key in the query: it has leaked into logs, histories and referrers. Raises ``InvalidInput``."""
    if KEY_PREFIX in request.query or KEY_PREFIX in unquote(request.query):
        raise InvalidInput(
            "",
            "an API key belongs in the Authorization header; one that was sent in a query may have been seen:"
            " delete it",
        )


def has_signature(request: Request) -> bool:
    """Tell whether a request comes with a signature in place of a key, for those routes that take one."""
    return any(name == "signature" for name, _ in parse_qsl(request.query, keep_blank_values=True))


def _bearer(header: str | None) -> str:
    if not header:
        raise _refused("missing", "an API key is needed: Authorization: Bearer <API key>", was_given=False)
    scheme, _, text = header.strip().partition(" ")
    if scheme.lower() != _SCHEME or len(header) > MAX_HEADER_CHARACTERS or not header.isascii():
        raise _refused("malformed", "the Authorization header must be: Bearer <API key>")
    return text.strip()


def _refused(reason: str, message: str, *, key_id: str | None = None, was_given: bool = True) -> Unauthenticated:
    facts = {"action": "auth.refused", "reason": reason} | ({} if key_id is None else {"key_id": key_id})
    _log.info("a request was refused", extra=facts)
    return Unauthenticated(message, was_given=was_given)
