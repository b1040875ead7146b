"""The timers of shards: read by their keys, and changed by whoever was not overtaken."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import Final, Generic, TypeVar
from uuid import UUID

from duetime.domain.errors import StoreUnavailable
from duetime.domain.shards import Lease
from duetime.stores.cassandra.changes import Change, hold, new_write_id
from duetime.stores.cassandra.requests import Requests, Row, Statement, Unsettled
from duetime.stores.cassandra.schema import TIMER
from duetime.stores.cassandra.timer_rows import COLUMNS, Key, is_trace, key_of_row
from duetime.stores.rounds import rounds

Holds = Mapping[int, Lease | None]
"""The lease that must be the stored one for the change of a place."""

R = TypeVar("R")
T = TypeVar("T")

CHANGES_PER_BATCH: Final = 30
BYTES_PER_BATCH: Final = 1024 * 1024
_KEYS_PER_READ = 50

WHOLE: Final = ", ".join(("shard_id", "timer_namespace", "timer_id", "write_id", *COLUMNS))
OF_NAMESPACE: Final = (
    f"shard_id = ? AND row_kind = {TIMER} AND sort_at = 0 AND timer_namespace = ? AND sort_text = ''"
)
_READ_MANY = f"SELECT {WHOLE} FROM timers WHERE {OF_NAMESPACE} AND timer_id IN ?"


@dataclass(frozen=True, slots=True)
class Decision(Generic[R]):
    """What becomes of a timer: the ``result`` holds once ``change``, if there is one, was made."""

    result: R
    change: Change | None = None


@dataclass(slots=True)
class Own:
    """Writes whose answers were lost and that seemed not to have been made. ``places`` are those of one of them."""

    places: dict[UUID, frozenset[int]] = field(default_factory=dict)

    def has(self, place: int, row: Row | None) -> bool:
        """Whether the row is what one of them made of ``place`` after all."""
        return row is not None and place in self.places.get(row["write_id"], frozenset())


class Turns:
    """In this process, one conditional write of a shard at a time."""

    def __init__(self, count: int = 64) -> None:
        self._locks = [threading.Lock() for _ in range(count)]

    @contextmanager
    def of(self, shard_ids: Iterable[int]) -> Iterator[None]:
        with ExitStack() as stack:
            # In one order, so that nobody waits in a circle.
            for number in sorted({shard_id % len(self._locks) for shard_id in shard_ids}):
                stack.enter_context(self._locks[number])
            yield


class Timers:
    """One for a whole store."""

    def __init__(self, requests: Requests) -> None:
        self._requests = requests
        self._turns = Turns()

    def find(self, key: Key) -> Row | None:
        return self.find_many([key]).get(key)

    def find_many(self, keys: Sequence[Key]) -> dict[Key, Row]:
        """The whole rows of those that there are."""
        rows = self._rows(keys)
        return {key: row for key, row in rows.items() if not is_trace(row)}

    def _rows(self, keys: Sequence[Key], *, is_serial: bool = False) -> dict[Key, Row]:
        """With the traces of those that were deleted."""
        ids_of: dict[tuple[int, str], list[str]] = defaultdict(list)
        for shard_id, namespace, timer_id in keys:
            ids_of[shard_id, namespace].append(timer_id)
        statements = [
            Statement(_READ_MANY, (*place, timer_ids[at : at + _KEYS_PER_READ]))
            for place, timer_ids in ids_of.items()
            for at in range(0, len(timer_ids), _KEYS_PER_READ)
        ]
        if is_serial:
            found = [self._requests.read(statement, is_serial=True) for statement in statements]
        else:
            found = self._requests.read_each(statements)
        return {key_of_row(row): row for rows in found for row in rows}

    def decide(
        self, keys: Sequence[Key], judge: Callable[[int, Row | None], Decision[R]], *, are_new: bool = False
    ) -> list[R]:
        """The result of each key: what ``judge`` makes of its place in ``keys`` and its row.

        Whoever is overtaken by another writer judges again what that one left. ``are_new``: most probably there are
        no rows, so they are not read first.
        """
        results: dict[int, R] = {}
        attempted: dict[int, R] = {}
        own = Own()
        waiting = list(range(len(keys)))
        for turn in rounds():
            if not waiting:
                return [results[place] for place in range(len(keys))]
            stored = {} if are_new and turn == 0 else self._rows([keys[place] for place in waiting])
            changes: dict[int, Change] = {}
            for place in waiting:
                row = stored.get(keys[place])
                if own.has(place, row):
                    results[place] = attempted[place]
                    continue
                trace = row if row is not None and is_trace(row) else None
                decision = judge(place, None if trace is not None else row)
                if decision.change is None:
                    results[place] = decision.result
                else:
                    attempted[place] = decision.result
                    changes[place] = decision.change
                    if trace is not None:
                        changes[place] = replace(decision.change, if_write_id=trace["write_id"])
            made = self.make(changes, own)
            results |= {place: attempted[place] for place in made}
            waiting = [place for place in changes if place not in made]
        raise StoreUnavailable("other writers changed the timer again and again")

    def make(self, changes: Mapping[int, Change], own: Own, *, holds: Holds | None = None) -> set[int]:
        """The places whose changes were made: those of one batch all or not at all.

        ``holds``: the lease that must be the stored one for a place's change. Raises ``Unsettled`` where it cannot be
        found out whether a batch was carried out; to have all of it done again is then for the client.
        """
        batches = [(new_write_id(), lease, places) for lease, places in _batches(changes, holds or {})]
        groups = [
            [
                *([] if lease is None else [hold(lease)]),
                *(statement for place in places for statement in changes[place].statements(write_id)),
            ]
            for write_id, lease, places in batches
        ]
        made: set[int] = set()
        failed: StoreUnavailable | None = None
        answers = self._decide([changes[places[0]].key[0] for _, _, places in batches], groups)
        for (write_id, _, places), answer in zip(batches, answers, strict=True):
            is_made = answer
            if isinstance(answer, Unsettled):
                is_made = self._settled([changes[place] for place in places], write_id, answer)
                own.places[write_id] = frozenset(places)
            if isinstance(is_made, StoreUnavailable):
                failed = is_made
            elif is_made:
                made.update(places)
        if failed is not None:
            raise failed
        return made

    def _decide(
        self, shard_ids: Sequence[int], groups: Sequence[Sequence[Statement]]
    ) -> list[bool | StoreUnavailable]:
        """Batches of several shards side by side, those of one shard one after another.

        Conditional writes of one partition at once only hold each other up, until some of them end without an answer.
        """
        answers: dict[int, bool | StoreUnavailable] = {}
        waiting = list(range(len(groups)))
        while waiting:
            first_of = {shard_ids[at]: at for at in reversed(waiting)}
            wave = sorted(first_of.values())
            with self._turns.of(first_of):
                answers |= zip(wave, self._requests.decide_each([groups[at] for at in wave]), strict=True)
            waiting = [at for at in waiting if at not in answers]
        return [answers[at] for at in range(len(groups))]

    def _settled(self, changes: Sequence[Change], write_id: UUID, unsettled: Unsettled) -> bool | StoreUnavailable:
        """Whether a batch was carried out whose answer was lost; ``unsettled`` when its rows no longer tell.

        A serial read ends what is under way in the partition: either it is carried out now or never.
        """
        try:
            rows = self._rows([change.key for change in changes], is_serial=True)
        except StoreUnavailable:
            return unsettled
        if any(row["write_id"] == write_id for row in rows.values()):
            return True
        return False if any(change.is_still(rows.get(change.key)) for change in changes) else unsettled


def _batches(changes: Mapping[int, Change], holds: Holds) -> Iterator[tuple[Lease | None, list[int]]]:
    """Places whose changes go together: of one shard, under one lease, and not too much at once."""
    together: dict[tuple[int, Lease | None], list[int]] = defaultdict(list)
    for place, change in changes.items():
        together[change.key[0], holds.get(place)].append(place)
    for (_, lease), places in together.items():
        batch: list[int] = []
        batch_bytes = 0
        for place in places:
            size = changes[place].size_bytes
            if batch and (len(batch) == CHANGES_PER_BATCH or batch_bytes + size > BYTES_PER_BATCH):
                yield lease, batch
                batch, batch_bytes = [], 0
            batch.append(place)
            batch_bytes += size
        yield lease, batch
