"""What schedules have beside timers: their lists, their history, and their occurrences that go on."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Final

from duetime.domain.ids import is_schedule, occurrence_timer_id, schedule_id_of, schedule_timer_id
from duetime.domain.namespaces import Namespace
from duetime.domain.occurrences import KEPT_OCCURRENCES, OccurrenceRecord, PastOccurrence
from duetime.domain.timers import Timer
from duetime.stores import backend as writes
from duetime.stores.backend import NOW, Backend, Condition, Guard, Query, Scan, Write
from duetime.stores.core.cursors import cursor_of, place_of
from duetime.stores.core.deciding import Decision, decide
from duetime.stores.core.schedule_codec import decode_occurrence, encode_occurrence
from duetime.stores.core.timer_codec import decode_or_salvage, encode_changed, keys_of
from duetime.stores.decoding import UnreadableError
from duetime.stores.entities import OCCURRENCE, OF_NAMESPACE, TIMER
from duetime.stores.entity import DAMAGED, Key, Place, Row
from duetime.stores.port.pages import PAGE_BYTES, Page
from duetime.stores.port.timers import ChangeResult, ChangeStatus

SHARDS_PER_PAGE: Final = 64
"""How many shards one page of a list looks into."""
BEFORE_ALL: Final = schedule_timer_id("")
"""Where a scan of a shard begins: no timer has this id."""


class ScheduleStore:
    """A schedule is a timer (``Timer.is_schedule``): it is put, read, deleted, found due and recorded by
    ``TimerStore``. ``TimerStore.delete`` removes its history, too."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    def history(self, schedule: Timer, *, limit: int) -> list[OccurrenceRecord]:
        """Return the last lines, the latest first: up to ``limit``, of the ``KEPT_OCCURRENCES`` that are kept.

        Lines that cannot be read are left out.
        """
        if schedule.schedule is None:  # it cannot be read
            return []
        last = schedule.schedule.number - 1
        numbers = range(last, max(0, last - min(limit, KEPT_OCCURRENCES)), -1)
        if not numbers:
            return []
        rows = self._backend.read(OCCURRENCE, [slot_of(schedule, number) for number in numbers])
        found: list[OccurrenceRecord] = []
        for number, row in zip(numbers, rows, strict=True):
            try:
                record = None if row is None else decode_occurrence(row)
            except UnreadableError:
                continue
            if record is not None and record.number == number:
                found.append(record)
        return found

    def ongoing(self, schedules: Sequence[Timer], *, now: datetime) -> list[Timer | None]:
        """Return the timer that the occurrence at ``schedule.open_at`` goes on as, of each; None when it has
        ended."""
        rows = self._backend.read(TIMER, [_open_key(each) for each in schedules]) if schedules else []
        timers = [None if row is None else decode_or_salvage(row) for row in rows]
        return [None if each is None or each.state.is_finished or each.is_expired(now) else each for each in timers]

    def change(
        self,
        namespace: Namespace,
        schedule_id: str,
        change: Callable[[Timer], Timer],
        *,
        now: datetime,
    ) -> ChangeResult:
        """Apply ``change`` to a schedule atomically; when others write in between it is called again.

        It returns the next revision (``domain.schedule_timers.standing_at``), or the schedule itself when nothing
        is to be written. Judged in this order: NOT_FOUND, UNREADABLE. Raises what ``change``
        raises.
        """
        timer_id = schedule_timer_id(schedule_id)
        return self._change(keys_of(namespace, timer_id, now), change, now)

    def change_of(self, occurrence: Timer, change: Callable[[Timer], Timer], *, now: datetime) -> ChangeResult:
        """As ``change``, of the schedule that ``occurrence``, a timer, is of."""
        timer_id = schedule_timer_id(occurrence.schedule_id or "")
        return self._change([(occurrence.shard_id, occurrence.namespace, timer_id)], change, now)

    def _change(self, keys: Sequence[Key], change: Callable[[Timer], Timer], now: datetime) -> ChangeResult:
        def judge(_: int, row: Row | None) -> Decision[ChangeResult]:
            stored = None if row is None else decode_or_salvage(row)
            if row is None or stored is None:
                return Decision(ChangeResult(ChangeStatus.NOT_FOUND))
            if stored.is_unreadable:
                return Decision(ChangeResult(ChangeStatus.UNREADABLE, stored))
            timer = change(stored)
            result = ChangeResult(ChangeStatus.APPLIED, timer)
            if timer is stored:
                return Decision(result)
            is_same = Condition("timer_revision", stored.revision)
            return Decision(result, writes.difference(TIMER, row, encode_changed(timer), is_same))

        (result,) = decide(self._backend, TIMER, keys[:1], judge, now=now, others={0: keys[1:]})
        return result

    def beside(
        self, namespace: Namespace, prefix: str, *, cursor: str | None, limit: int, now: datetime
    ) -> Page[Timer]:
        """Return the timers of a schedule's triggers, or of its backfills, in any state, by their ids, which begin
        with ``prefix`` (``domain.ids.trigger_timer_id``, ``backfill_timer_id``).

        A page may be short, even empty, and not be the last.
        """
        shards = sorted(namespace.shards_of(prefix, now))
        after: Place = (shards[0], prefix) if cursor is None else place_of(cursor, TIMER, OF_NAMESPACE)
        scan = self._scan(namespace, after, limit)
        found: list[Timer] = []
        end = scan.end
        for row in scan.rows:
            timer_id = row[TIMER.places["timer_id"]]
            if timer_id is DAMAGED:
                continue
            if not timer_id.startswith(prefix):
                end = None
                break
            timer = decode_or_salvage(row)
            if not timer.is_expired(now):
                found.append(timer)
        following = bisect_right(shards, after[0])
        if end is None and following < len(shards):
            end = shards[following], prefix
        return Page(found, None if end is None else cursor_of(end))

    def _scan(self, namespace: Namespace, after: Place, limit: int) -> Scan:
        """Read a page of the shard of ``after``, from there on."""
        shard_id = after[0]
        return self._backend.scan(
            Query(
                TIMER,
                OF_NAMESPACE,
                by=(namespace.name,),
                after=after,
                since=shard_id,
                until=shard_id,
                limit=limit,
                budget=PAGE_BYTES,
            )
        )

    def _read_shard(self, namespace: Namespace, after: Place, limit: int, found: list[Timer]) -> Place | None:
        """Add those of one shard behind ``after`` to ``found``. Return where to go on; None: there are no more."""
        scan = self._scan(namespace, after, limit)
        for row in scan.rows:
            timer_id = row[TIMER.places["timer_id"]]
            if timer_id is not DAMAGED and schedule_id_of(timer_id) is None:
                return None  # those of schedules come first
            if timer_id is DAMAGED or is_schedule(timer_id):
                found.append(decode_or_salvage(row))
        return scan.end

    def list(self, namespace: Namespace, *, cursor: str | None, limit: int, now: datetime) -> Page[Timer]:
        """Schedules in the order of shard, then id. One that is not changed meanwhile appears exactly once.

        The work of one call is bounded: a page may be short, even empty, and not be the last.
        """
        shards = namespace.shard_ids()
        after: Place = (shards[0], BEFORE_ALL) if cursor is None else place_of(cursor, TIMER, OF_NAMESPACE)
        found: list[Timer] = []
        for _ in range(SHARDS_PER_PAGE):
            shard_id = after[0]
            end = self._read_shard(namespace, after, limit - len(found), found)
            if end is None:
                following = bisect_right(shards, shard_id)
                if following == len(shards):
                    return Page([each for each in found if not each.is_expired(now)], None)
                end = shards[following], BEFORE_ALL
            after = end
            if len(found) >= limit:
                break
        return Page([each for each in found if not each.is_expired(now)], cursor_of(after))


def _open_key(schedule: Timer) -> Key:
    assert schedule.schedule is not None
    assert schedule.schedule.open_at is not None
    timer_id = occurrence_timer_id(schedule.schedule_id or "", schedule.schedule.open_at)
    return schedule.shard_id, schedule.namespace, timer_id


def slot_of(timer: Timer, number: int) -> Key:
    """Return the key of the line of an occurrence, by the timer that is the schedule or the occurrence."""
    return _slot(timer.shard_id, timer.namespace, timer.schedule_id or "", number)


def _slot(shard_id: int, namespace: str, schedule_id: str, number: int) -> Key:
    return shard_id, namespace, schedule_timer_id(schedule_id), number % KEPT_OCCURRENCES


def encode_past(past: PastOccurrence) -> Row:
    """Return the whole row of a line."""
    key = _slot(past.shard_id, past.namespace, past.schedule_id, past.line.number)
    return *key, *encode_occurrence(past.line)


def line_of(timer: Timer, record: OccurrenceRecord, guard: Guard | None) -> Write:
    """Return the write of a line. ``timer``: the one whose outcome it is of.

    An occurrence that ends as a timer of its own may end so late that its slot is another one's.
    """
    row = (*slot_of(timer, record.number), *encode_occurrence(record, recorded_at=NOW))
    if timer.is_schedule:
        is_new = record.number <= KEPT_OCCURRENCES
        like = "first line of an occurrence" if is_new else "line of an occurrence"
        return writes.put(OCCURRENCE, row, is_new=is_new, guard=guard, like=like)
    key = OCCURRENCE.key_of(row)
    changes = dict(zip(OCCURRENCE.names[len(key) :], row[len(key) :], strict=True))
    same = Condition("occurrence_number", changes.pop("occurrence_number"))
    return writes.update(OCCURRENCE, key, changes, same, guard=guard)


def removals_of_history(schedule: Timer) -> list[Write]:
    """Return the writes that remove all lines of a schedule that is removed."""
    kept = KEPT_OCCURRENCES if schedule.schedule is None else min(schedule.schedule.number, KEPT_OCCURRENCES)
    return [writes.delete(OCCURRENCE, slot_of(schedule, number)) for number in range(kept)]
