"""Hints lead to rows of other partitions. What a row says of itself decides, never what leads to it.

A hint is written before the change that needs it, under the name of the attempt to make it, and removed after the
change that makes it wrong. So there is one for whatever is stored, however a process ends, and a wrong one names its
attempt. Names sort by the time they were made, and a partition takes changes in the order of their names alone
(``last_attempt``). So a hint can be judged once its partition has had a later name. A reader that finds an old one
whose attempt may still be in flight gives the partition its name first, and the attempt begins again with new hints.
"""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final
from uuid import UUID, uuid4

from duetime.domain.errors import StoreUnavailable
from duetime.stores.backend import rounds
from duetime.stores.backends.cassandra import layout, places
from duetime.stores.backends.cassandra.changes import Hint
from duetime.stores.backends.cassandra.layout import Partition
from duetime.stores.backends.cassandra.requests import Statement, Unsettled
from duetime.stores.backends.cassandra.session import CassandraSession
from duetime.stores.entity import AccessPath, Entity, Value

GRACE_SECONDS: Final = 60.0
"""How long a hint whose change is not there yet is left alone. Only courtesy: removing one earlier makes the change
begin again."""
SETTLE_SECONDS: Final = 2.0
"""How long a value of a unique path is left to one who took it and whose row is not there yet."""
KEPT_SECONDS: Final = 86_400
"""How long a partition without a row keeps the last name: longer than any request is in flight."""
_PAUSE_SECONDS: Final = 0.02
_MOST_PER_READ: Final = 20
"""Hints that a reader may spend requests on to have them removed, so that reading stays bounded."""
_KEY: Final = "tenant_id = ? AND service_call_id = ?"
_AT: Final = "path = ? AND by_values = ? AND slice = ? AND place = ? AND target = ?"
_PUT: Final = "INSERT INTO hints (path, by_values, slice, place, target, attempt) VALUES (?, ?, ?, ?, ?, ?)"
_REMOVE: Final = f"DELETE FROM hints WHERE {_AT} AND attempt = ?"
_REMOVE_EARLIER: Final = f"DELETE FROM hints WHERE {_AT} AND attempt < ?"
_LAST: Final = f"SELECT last_attempt, TTL(last_attempt) AS ttl FROM service_calls WHERE {_KEY} LIMIT 1"
_BAR: Final = f"UPDATE service_calls USING TTL ? SET last_attempt = ? WHERE {_KEY} IF last_attempt = ?"
_HOLDER: Final = "SELECT target, attempt FROM unique_values WHERE path = ? AND by_values = ?"
_TAKE: Final = "INSERT INTO unique_values (path, by_values, target, attempt) VALUES (?, ?, ?, ?) IF NOT EXISTS"
_TAKE_OVER: Final = (
    "UPDATE unique_values SET target = ?, attempt = ? WHERE path = ? AND by_values = ? IF target = ? AND attempt = ?"
)
_RELEASE: Final = "DELETE FROM unique_values WHERE path = ? AND by_values = ? IF target = ?"

Found = tuple[Hint, str]
"""A hint, and the name of the attempt that wrote it."""
Fits = Callable[[Hint], bool]
"""Whether the row that a hint leads to stands where it says, after all that had been accepted before."""


class Attempts:
    """Names of attempts, each later than the last of this process. ``now_s``: seconds since the epoch; the clocks of
    processes may differ by seconds."""

    def __init__(self, now_s: Callable[[], float] = time.time) -> None:
        self._now_s = now_s
        self._last = 0
        self._lock = threading.Lock()

    def next(self, write_id: UUID, *, above: str | None = None) -> str:
        """Return the name for a write; it sorts behind ``above``."""
        with self._lock:
            behind = max(self._last, 0 if above is None else _microseconds(above))
            self._last = max(int(self._now_s() * 1_000_000), behind + 1)
            return f"{self._last:017d}-{write_id.hex}"

    def age_seconds(self, attempt: str) -> float:
        return self._now_s() - _microseconds(attempt) / 1_000_000


class Hints:
    def __init__(self, session: CassandraSession, attempts: Attempts) -> None:
        self._session = session
        self.attempts = attempts

    # -- writers ---------------------------------------------------------------------------------------------

    def put(self, hints: Iterable[Found]) -> None:
        self._write(_PUT, hints)

    def remove(self, hints: Iterable[Found]) -> None:
        """Exactly these."""
        self._write(_REMOVE, hints)

    def remove_earlier(self, hints: Sequence[Found]) -> None:
        """Those of earlier attempts, and what a row leaves of a unique path."""
        self._write(_REMOVE_EARLIER, hints)
        for hint, _ in hints:
            if hint.path.is_unique:
                self._decide(Statement(_RELEASE, (hint.path.name, hint.by, _target(hint))))

    def _write(self, cql: str, hints: Iterable[Found]) -> None:
        """Those of one partition in one request."""
        together: dict[tuple[Value, ...], list[Statement]] = {}
        for hint, attempt in hints:
            if not hint.path.is_unique:
                at = _at(hint)
                together.setdefault(at[:3], []).append(Statement(cql, (*at, attempt)))
        self._session.write_each(list(together.values()))

    def take(self, hint: Hint, attempt: str, fits: Fits) -> bool:
        """Hold a place of a unique path for the row that ``attempt`` is about to store; False when a row has it."""
        mine = (_target(hint), attempt)
        place = (hint.path.name, hint.by)
        if self._decide(Statement(_TAKE, (*place, *mine))):
            return True
        for _ in rounds():
            rows = self._session.read(Statement(_HOLDER, place), is_serial=True)
            if not rows:
                change = Statement(_TAKE, (*place, *mine))
            else:
                held = (rows[0]["target"], rows[0]["attempt"])
                if held == mine:
                    return True
                if held[0] != mine[0]:
                    is_free = self._is_free(_of_target(hint, held[0]), held[1], fits)
                    if is_free is False:
                        return False
                    if is_free is None:
                        continue
                change = Statement(_TAKE_OVER, (*mine, *place, *held))
            if self._decide(change):
                return True
        raise StoreUnavailable("the key is being changed too often")

    def _is_free(self, holder: Hint, attempt: str, fits: Fits) -> bool | None:
        """Tell whether a place may be taken from ``holder``; None: ask again, ``attempt`` to store it may be in
        flight."""
        if fits(holder):
            return False
        partition = _partition(holder)
        if (self.last_attempt(partition) or "") < attempt:
            if self.attempts.age_seconds(attempt) < SETTLE_SECONDS:
                time.sleep(_PAUSE_SECONDS)
                return None
            self._bar(partition, attempt)
        return None if fits(holder) else True

    def holder(self, path: AccessPath, by: bytes, entity: Entity) -> Hint | None:
        """Return what a place of a unique path leads to."""
        rows = self._session.read(Statement(_HOLDER, (path.name, by)))
        return Hint(path, by, b"", _key(entity, rows[0]["target"])) if rows else None

    # -- readers ---------------------------------------------------------------------------------------------

    def read(
        self,
        entity: Entity,
        path: AccessPath,
        by: bytes,
        slices: Sequence[int],
        *,
        low: bytes,
        high: bytes,
        limit: int,
    ) -> list[list[Found]]:
        """From ``low`` up to before ``high``, of each slice, all asked for side by side."""
        cql = (
            "SELECT place, target, attempt FROM hints WHERE path = ? AND by_values = ? AND slice = ? "
            "AND place >= ? AND place < ? LIMIT ?"
        )
        looks = [Statement(cql, (path.name, by, number, low, high, limit)) for number in slices]
        return [
            [(Hint(path, by, row["place"], _key(entity, row["target"])), row["attempt"]) for row in rows]
            for rows in self._session.read_each(looks)
        ]

    def settle(self, wrong: Sequence[Found], fits: Fits) -> None:
        """Ask again of hints that seemed wrong, and remove those that are so for good.

        The last in order first: so nothing is found of a change that comes meanwhile without all that stands before.
        """
        doomed: list[Found] = []
        lasts: dict[Partition, str] = {}
        for number, (hint, attempt) in enumerate(reversed(wrong)):
            partition = _partition(hint)
            if partition not in lasts:
                lasts[partition] = self.last_attempt(partition) or ""
            is_decided = lasts[partition] >= attempt
            if fits(hint):
                continue
            is_old = self.attempts.age_seconds(attempt) >= GRACE_SECONDS
            if not is_decided and is_old and number < _MOST_PER_READ:
                lasts[partition] = self._bar(partition, attempt)
                is_decided = not fits(hint)
            if is_decided:
                doomed.append((hint, attempt))
        self.remove(doomed)

    def last_attempt(self, partition: Partition) -> str | None:
        """After whatever change of the partition had been accepted."""
        rows = self._session.read(Statement(_LAST, partition.values), is_serial=True)
        return rows[0]["last_attempt"] if rows else None

    def _bar(self, partition: Partition, attempt: str) -> str:
        """Return the partition's last name, once ``attempt`` and all before it can change nothing there any more."""
        for _ in rounds():
            rows = self._session.read(Statement(_LAST, partition.values), is_serial=True)
            last, ttl = (rows[0]["last_attempt"], rows[0]["ttl"]) if rows else (None, None)
            if last is not None and last >= attempt:
                return str(last)
            kept = KEPT_SECONDS if last is None or ttl is not None else 0
            if self._decide(Statement(_BAR, (kept, attempt, *partition.values, last))):
                return attempt
        raise StoreUnavailable("the partition is being changed too often")

    def _decide(self, statement: Statement) -> bool:
        """Whether it was certainly carried out; if not, what is stored is read again."""
        try:
            return self._session.decide([statement])
        except Unsettled:
            return False


def _microseconds(attempt: str) -> int:
    return int(attempt[:17])


def slice_of(hint: Hint) -> int:
    if layout.is_sliced_by_order(_entity(hint), hint.path):
        return slice_for(hint.path, hint.target[0])
    return slice_for(hint.path, *hint.target)


def slice_for(path: AccessPath, *values: Value) -> int:
    digest = hashlib.blake2b("\0".join(map(str, values)).encode(errors="surrogatepass"), digest_size=4).digest()
    return int.from_bytes(digest, "big") % layout.slices_of(path)


def new_write_id() -> UUID:
    return uuid4()


def _entity(hint: Hint) -> Entity:
    return _ENTITIES[hint.path]


_ENTITIES: Final[Mapping[AccessPath, Entity]] = {
    path: entity for entities in layout.ENTITIES_OF.values() for entity in entities for path in entity.paths
}


def _at(hint: Hint) -> tuple[Value, ...]:
    return hint.path.name, hint.by, slice_of(hint), hint.place, _target(hint)


def _target(hint: Hint) -> bytes:
    return places.encode(layout.key_parts(_entity(hint)), hint.target)


def _key(entity: Entity, target: bytes) -> tuple[Value, ...]:
    return places.decode(layout.key_parts(entity), target)[0]


def _of_target(hint: Hint, target: bytes) -> Hint:
    return Hint(hint.path, hint.by, hint.place, _key(_entity(hint), target))


def _partition(hint: Hint) -> Partition:
    return layout.partition_of(_entity(hint), hint.target)
