"""Schedules and the lines of their history as they are stored, and back."""

from __future__ import annotations

from datetime import datetime, timedelta
from functools import lru_cache

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
from duetime.domain.times import MIN_INSTANT, to_milliseconds
from duetime.stores.backend import Now
from duetime.stores.core.failure_codec import decode_failure, encode_failure
from duetime.stores.decoding import DECODING_ERRORS, UnreadableError, whole
from duetime.stores.entities import OCCURRENCE
from duetime.stores.entity import DAMAGED, Row
from duetime.stores.json_texts import as_json, read_json


def encode_schedule(schedule: Schedule) -> str:
    """Return JSON without what is as it is by default: it is written once for each occurrence."""
    policy, pending, pause, failures = schedule.policy, schedule.pending, schedule.pause, schedule.failures
    values = {
        "passedAt": to_milliseconds(schedule.passed_at),
        "number": schedule.number,
        "pending": None if pending is None else [_ms(pending.scheduled_at), _ms(pending.due_at)],
        "firings": schedule.firings or None,
        "openAt": None if schedule.open_at is None else _ms(schedule.open_at),
        "isBuffered": schedule.is_buffered or None,
        "keptTo": None if schedule.kept_to is None else _ms(schedule.kept_to),
        "end": schedule.end,
        "pause": None if pause is None else [_ms(pause.at), pause.reason],
        "misfire": None if policy.misfire is ScheduleMisfire.ALL else policy.misfire,
        "catchUpMs": None if policy.catch_up_ms == DEFAULT_CATCH_UP_MS else policy.catch_up_ms,
        "overlap": None if policy.overlap is Overlap.ALLOW else policy.overlap,
        "maxFirings": policy.max_firings,
        "pauseAfter": policy.pause_after,
        "failures": None if failures is None else [failures.count, _ms(failures.last)],
        "callId": schedule.call_id,
    }
    return as_json({name: value for name, value in values.items() if value is not None})


def decode_schedule(text: str) -> Schedule:
    """Return the schedule. Raises one of ``DECODING_ERRORS`` for anything that ``encode_schedule`` did not write."""
    values = read_json(text)
    pending, pause, end = (values.get(name) for name in ("pending", "pause", "end"))
    open_at, kept_to, failures = (values.get(name) for name in ("openAt", "keptTo", "failures"))
    return Schedule(
        policy=_policy(
            values.get("misfire", ScheduleMisfire.ALL),
            values.get("catchUpMs", DEFAULT_CATCH_UP_MS),
            values.get("overlap", Overlap.ALLOW),
            values.get("maxFirings"),
            values.get("pauseAfter"),
        ),
        passed_at=_at(values["passedAt"]),
        pending=None if pending is None else Occurrence(*map(_at, pending)),
        number=int(values["number"]),
        firings=int(values.get("firings", 0)),
        open_at=None if open_at is None else _at(open_at),
        is_buffered=values.get("isBuffered", False),
        kept_to=None if kept_to is None else _at(kept_to),
        end=None if end is None else ScheduleEnd(end),
        pause=None if pause is None else Pause(_at(pause[0]), pause[1]),
        failures=None if failures is None else FailuresInARow(int(failures[0]), _at(failures[1])),
        call_id=whole(values.get("callId")),
    )


@lru_cache(maxsize=1024)
def _policy(
    misfire: str, catch_up_ms: int, overlap: str, max_firings: int | None, pause_after: int | None
) -> SchedulePolicy:
    """Most schedules have one of a few."""
    return SchedulePolicy(
        misfire=ScheduleMisfire(misfire),
        catch_up_ms=catch_up_ms,
        overlap=Overlap(overlap),
        max_firings=max_firings,
        pause_after=pause_after,
    )


_ms = to_milliseconds


def _at(ms: int) -> datetime:
    return MIN_INSTANT + timedelta(milliseconds=ms)


def encode_occurrence(record: OccurrenceRecord, *, recorded_at: Now | None = None) -> Row:
    """Return the fields of ``OCCURRENCE`` behind its key. ``recorded_at`` None: the line's own."""
    return (
        record.number,
        record.state._value_,
        _ms(record.scheduled_at),
        recorded_at or _ms(record.recorded_at),
        None if record.last_scheduled_at is None else _ms(record.last_scheduled_at),
        record.count,
        None if record.started_at is None else _ms(record.started_at),
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
            scheduled_at=_at(scheduled_at),
            recorded_at=_at(recorded_at),
            last_scheduled_at=None if last_at is None else _at(last_at),
            count=count,
            started_at=None if started_at is None else _at(started_at),
            attempts=attempts,
            failure=None if failure is None else decode_failure(failure),
            attempt_log=None if log is None else whole(log),
            call_id=whole(call_id),
        )
    except DECODING_ERRORS as error:
        raise UnreadableError(type(error).__name__) from error
