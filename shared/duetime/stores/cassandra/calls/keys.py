"""Idempotency keys: who holds one is decided by its own row, before the call is stored."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime
from typing import Final

from duetime.domain.errors import StoreUnavailable
from duetime.stores.cassandra.calls.attempts import Attempts
from duetime.stores.cassandra.calls.partition import Partitions
from duetime.stores.cassandra.requests import Requests, Row, Statement, Unsettled
from duetime.stores.port.calls import CallRef

SETTLE_SECONDS = 2.0
"""How long a key is left to one who holds it and whose call is not there yet; then the key is taken over."""
_PAUSE_SECONDS: Final = 0.02
_TRIES: Final = 200
_KEY: Final = "tenant_id = ? AND idempotency_key = ?"
_READ: Final = f"SELECT call_id, attempt FROM call_keys WHERE {_KEY}"
_CLAIM: Final = (
    "INSERT INTO call_keys (tenant_id, idempotency_key, call_id, attempt) VALUES (?, ?, ?, ?) IF NOT EXISTS"
)
_TAKE_OVER: Final = f"UPDATE call_keys SET call_id = ?, attempt = ? WHERE {_KEY} IF call_id = ? AND attempt = ?"
_RELEASE: Final = f"DELETE FROM call_keys WHERE {_KEY} IF call_id = ?"


class Keys:
    def __init__(
        self,
        requests: Requests,
        partitions: Partitions,
        attempts: Attempts,
        *,
        settle_seconds: float = SETTLE_SECONDS,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self._requests = requests
        self._partitions = partitions
        self._attempts = attempts
        self._settle_seconds = settle_seconds
        self._pause = pause

    def holder(self, tenant_id: str, key: str, *, is_serial: bool = False) -> Row | None:
        rows = self._requests.read(Statement(_READ, (tenant_id, key)), is_serial=is_serial)
        return rows[0] if rows else None

    def claim(self, ref: CallRef, key: str, *, attempt: str, now: datetime) -> bool:
        """Hold ``key`` for the call that ``attempt`` is about to store; False when a call has it."""
        mine = (ref.call_id, attempt)
        if self._decide(Statement(_CLAIM, (ref.tenant_id, key, *mine))):
            return True
        for _ in range(_TRIES):
            row = self.holder(ref.tenant_id, key, is_serial=True)
            if row is None:
                change = Statement(_CLAIM, (ref.tenant_id, key, *mine))
            else:
                held = (row["call_id"], row["attempt"])
                if held == mine:
                    return True
                if held[0] != ref.call_id:
                    is_free = self._is_free(CallRef(ref.tenant_id, held[0]), key, attempt=held[1], now=now)
                    if is_free is not True:
                        if is_free is False:
                            return False
                        continue
                change = Statement(_TAKE_OVER, (*mine, ref.tenant_id, key, *held))
            if self._decide(change):
                return True
        raise StoreUnavailable("the idempotency key is being changed too often")

    def _is_free(self, holder: CallRef, key: str, *, attempt: str, now: datetime) -> bool | None:
        """Whether a key may be taken from ``holder``; None: ask again, ``attempt`` to store it may be under way."""
        stored = self._partitions.read_state(holder, is_serial=True)
        if stored.revision is not None:
            return not (stored.is_there(now) and stored.idempotency_key == key)
        if self._attempts.age_seconds(attempt) < self._settle_seconds:
            self._pause(_PAUSE_SECONDS)
            return None
        return True if self._partitions.bar(holder, attempt).revision is None else None

    def release(self, ref: CallRef, key: str) -> None:
        """Of a call that is gone."""
        self._decide(Statement(_RELEASE, (ref.tenant_id, key, ref.call_id)))

    def _decide(self, statement: Statement) -> bool:
        """Whether it was certainly carried out; if not, who holds the key is read again."""
        try:
            return self._requests.decide([statement])
        except Unsettled:
            return False
