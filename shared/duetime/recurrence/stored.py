"""The times of a schedule as its timer keeps them: a JSON object of what is not as it is by default."""

from __future__ import annotations

import json
from dataclasses import fields
from datetime import datetime
from functools import lru_cache
from typing import Any

from duetime.domain.schedules import Occurrences
from duetime.domain.times import format_instant, read_instant
from duetime.recurrence.spec import Dst, TimingSpec

_CACHED = 4096
_INSTANTS = ("anchor", "start_at", "end_at")
_LISTS = ("cron", "rrule", "exclude")


def timing_json(spec: TimingSpec) -> str:
    given = {each.name: getattr(spec, each.name) for each in fields(spec)}
    values = {each.name: given[each.name] for each in fields(spec) if given[each.name] != each.default}
    return json.dumps(values, ensure_ascii=False, separators=(",", ":"), default=_as_json)


def _as_json(value: datetime) -> str:
    return format_instant(value)


@lru_cache(maxsize=_CACHED)
def read_timing(text: str) -> TimingSpec:
    """Return what ``timing_json`` has written. Raises ``ValueError``, ``TypeError`` or ``AttributeError`` for any
    other."""
    values: dict[str, Any] = dict(json.loads(text))
    values |= {name: read_instant(values[name]) for name in _INSTANTS if name in values}
    values |= {name: tuple(values[name]) for name in _LISTS if name in values}
    if "dst" in values:
        values["dst"] = Dst(values["dst"])
    return TimingSpec(**values)


def stored_occurrences(text: str, schedule_id: str) -> Occurrences:
    """Return the occurrences of a schedule with this ``timing_json``. Raises as ``read_timing``, and
    ``InvalidInput``."""
    # Loading the calendars takes long, and whoever has no schedule does without.
    from duetime.recurrence.occurrences import ScheduleOccurrences, recurrence

    return ScheduleOccurrences(recurrence(read_timing(text)), schedule_id)
