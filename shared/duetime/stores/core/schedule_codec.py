"""Schedules and the lines of their history as they are stored, and back."""

from __future__ import annotations

from functools import lru_cache

import msgspec

from duetime.domain.namespaces import Pause
from duetime.domain.occurrences import OccurrenceRecord, OccurrenceState
from duetime.domain.schedules import (
    DEFAULT_CATCH_UP_MS,
    FailuresInARow,
    Occurrence,
    Overlap,
    Schedule,
    ScheduleEnd,
    ScheduleMisfire,
    SchedulePolicy,
)
from duetime.stores.backend import Now
from duetime.stores.core.failure_codec import decode_failure, encode_failure
from duetime.stores.core.instants import instant, milliseconds
from duetime.stores.decoding import DECODING_ERRORS, UnreadableError, whole
from duetime.stores.entities import OCCURRENCE
from duetime.stores.entity import DAMAGED, Row
from duetime.stores.json_texts import as_json


class _Stored(msgspec.Struct, frozen=True, gc=False, omit_defaults=True, rename="camel"):
    """A schedule without what is as it is by default: it is written once for each occurrence. Milliseconds."""

    passed_at: int
    number: int
    pending: tuple[int, int] | None = None
    firings: int = 0
    open_at: int | None = None
    is_buffered: bool = False
    kept_to: int | None = None
    end: ScheduleEnd | None = None
    pause: tuple[int, str | None] | None = None
    misfire: ScheduleMisfire | None = None
    catch_up_ms: int | None = None
    overlap: Overlap | None = None
    max_firings: int | None = None
    pause_after: int | None = None
    failures: tuple[int, int] | None = None
    call_id: str | None = None


_decode = msgspec.json.Decoder(_Stored).decode


def encode_schedule(schedule: Schedule) -> str:
    policy, pending, pause, failures = schedule.policy, schedule.pending, schedule.pause, schedule.failures
    stored = _Stored(
        milliseconds(schedule.passed_at),
        schedule.number,
        None if pending is None else (milliseconds(pending.scheduled_at), milliseconds(pending.due_at)),
        schedule.firings,
        None if schedule.open_at is None else milliseconds(schedule.open_at),
        schedule.is_buffered,
        None if schedule.kept_to is None else milliseconds(schedule.kept_to),
        schedule.end,
        None if pause is None else (milliseconds(pause.at), pause.reason),
        None if policy.misfire is ScheduleMisfire.ALL else policy.misfire,
        None if policy.catch_up_ms == DEFAULT_CATCH_UP_MS else policy.catch_up_ms,
        None if policy.overlap is Overlap.ALLOW else policy.overlap,
        policy.max_firings,
        policy.pause_after,
        None if failures is None else (failures.count, milliseconds(failures.last)),
        schedule.call_id,
    )
    return as_json(stored)


def decode_schedule(text: str) -> Schedule:
    """Return the schedule. Raises one of ``DECODING_ERRORS`` for anything that ``encode_schedule`` did not write."""
    try:
        stored = _decode(text)
    except msgspec.DecodeError as error:
        raise ValueError("not a schedule") from error
    pending, pause, failures = stored.pending, stored.pause, stored.failures
    return Schedule(
        policy=_policy(stored.misfire, stored.catch_up_ms, stored.overlap, stored.max_firings, stored.pause_after),
        passed_at=instant(stored.passed_at),
        pending=None if pending is None else Occurrence(instant(pending[0]), instant(pending[1])),
        number=stored.number,
        firings=stored.firings,
        open_at=None if stored.open_at is None else instant(stored.open_at),
        is_buffered=stored.is_buffered,
        kept_to=None if stored.kept_to is None else instant(stored.kept_to),
        end=stored.end,
        pause=None if pause is None else Pause(instant(pause[0]), pause[1]),
        failures=None if failures is None else FailuresInARow(failures[0], instant(failures[1])),
        call_id=stored.call_id,
    )


@lru_cache(maxsize=1024)
def _policy(
    misfire: ScheduleMisfire | None,
    catch_up_ms: int | None,
    overlap: Overlap | None,
    max_firings: int | None,
    pause_after: int | None,
) -> SchedulePolicy:
    """Most schedules have one of a few."""
    return SchedulePolicy(
        misfire=misfire or ScheduleMisfire.ALL,
        catch_up_ms=DEFAULT_CATCH_UP_MS if catch_up_ms is None else catch_up_ms,
        overlap=overlap or Overlap.ALLOW,
        max_firings=max_firings,
        pause_after=pause_after,
    )


def encode_occurrence(record: OccurrenceRecord, *, recorded_at: Now | None = None) -> Row:
    """Return the fields of ``OCCURRENCE`` behind its key. ``recorded_at`` None: the line's own."""
    return (
        record.number,
        record.state._value_,
        milliseconds(record.scheduled_at),
        recorded_at or milliseconds(record.recorded_at),
        None if record.last_scheduled_at is None else milliseconds(record.last_scheduled_at),
        record.count,
        None if record.started_at is None else milliseconds(record.started_at),
        record.attempts,
        encode_failure(record.failure),
        record.attempt_log,
        record.call_id,
    )


def decode_occurrence(row: Row) -> OccurrenceRecord:
    """Return the line that a row holds. Raises ``UnreadableError``."""
    number, state, scheduled_at, recorded_at, last_at, count, started_at, attempts, failure, log, call_id = row[4:]
    try:
        if DAMAGED in row:
            raise UnreadableError(OCCURRENCE.names[row.index(DAMAGED)])
        return OccurrenceRecord(
            number=number,
            state=OccurrenceState(state),
            scheduled_at=instant(scheduled_at),
            recorded_at=instant(recorded_at),
            last_scheduled_at=None if last_at is None else instant(last_at),
            count=count,
            started_at=None if started_at is None else instant(started_at),
            attempts=attempts,
            failure=None if failure is None else decode_failure(failure),
            attempt_log=None if log is None else whole(log),
            call_id=whole(call_id),
        )
    except DECODING_ERRORS as error:
        raise UnreadableError(type(error).__name__) from error
