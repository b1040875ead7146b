"""Bodies and queries of requests, as tables: the argument, the API's name of it, and how it is written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import Field, fields
from datetime import datetime, timedelta
from types import UnionType
from typing import Any, Final, get_args, get_origin, get_type_hints

from uuid6 import uuid7

from duetime_client.call_models import Method, NewServiceCall
from duetime_client.decoding import json_name
from duetime_client.errors import InvalidArgument
from duetime_client.models import NewTimer
from duetime_client.schedule_models import NewSchedule
from duetime_client.values import (
    Encoder,
    RetryPolicy,
    Target,
    camel,
    duration,
    headers,
    instant,
    members,
    of_type,
    one_or_more,
    payload,
    plain,
    policy,
    query_pairs,
    target,
    texts,
    whole_seconds,
    without_nulls,
)

Table = Mapping[str, tuple[str, Encoder]]

PAGE_ITEMS: Final = 100

_BY_TYPE: Final[Mapping[Any, Encoder]] = {
    datetime: instant,
    timedelta: duration,
    RetryPolicy: policy,
    Mapping: headers,
    tuple: texts,
    Any: payload,
    Target: target,
    NewServiceCall: lambda name, call: _call(of_type(NewServiceCall, name, call)),
}


def _table(model: type) -> dict[str, tuple[str, Encoder]]:
    """Return how the fields of ``model`` are sent: by their types, and by the names that answers have for them."""
    hints = get_type_hints(model)
    return {each.name: (json_name(each), _encoder(each, hints[each.name])) for each in fields(model)}


def _encoder(field: Field[Any], hint: Any) -> Encoder:
    if "unit" in field.metadata:
        return whole_seconds
    kinds = get_args(hint) if get_origin(hint) is UnionType else (hint,)
    kind = kinds[0]
    if get_origin(kind) is tuple and str in kinds:
        return one_or_more
    return _BY_TYPE.get(get_origin(kind) or kind, plain)


TIMER: Final = _table(NewTimer)
SCHEDULE: Final = _table(NewSchedule) | {"id": ("id", plain)}
CALL: Final = _table(NewServiceCall)
CALL_REQUEST: Final = {name: CALL.pop(name) for name in ("method", "url", "target", "headers", "body")}
BATCH: Table = {"spread": ("spread", duration)}
NAMESPACE: Table = {
    "num_shards": ("numShards", plain),
    "dedicated": ("dedicated", plain),
    "retry_policy": ("retryPolicy", policy),
    "max_in_flight": ("maxInFlight", plain),
    "rate_limit": ("rateLimit", plain),
    "misfire": ("misfire", plain),
    "min_schedule_interval": ("minScheduleInterval", duration),
}
TIMING: Table = {
    name: SCHEDULE[name]
    for name in (
        *("cron", "every", "rrule", "time_zone", "anchor", "dst", "start_at", "end_at", "exclude", "calendar"),
        *("day_off", "jitter", "window"),
    )
} | {"from_at": ("from", instant), "count": ("count", plain), "schedule_id": ("id", plain)}
CALENDAR: Table = {
    "weekdays": ("weekdays", texts),
    "days_off": ("daysOff", texts),
    "business_days": ("businessDays", texts),
    "ics": ("ics", plain),
}
SECRET: Table = {"secret": ("secret", plain), "overlap": ("overlap", duration)}
API_KEY: Table = {
    "role": ("role", plain),
    "name": ("name", plain),
    "expires_at": ("expiresAt", instant),
    "expires_in": ("expiresIn", duration),
}
WEBHOOK: Table = {"url": ("url", plain), "event_types": ("eventTypes", texts), "enabled": ("enabled", plain)}


def body(table: Table, **given: Any) -> dict[str, Any]:
    """Leave out what is None."""
    return without_nulls(members(table, given))


def patch(table: Table, **given: Any) -> dict[str, Any]:
    """Make a merge patch: None clears; UNSET, and what is not given, stays as it is."""
    return members(table, given)


def conditions(**given: Any) -> dict[str, Any]:
    """Name what a list or a redrive asks for as the API does. None is as good as nothing."""
    plain = {name: instant(name, value) if isinstance(value, datetime) else value for name, value in given.items()}
    return {camel(name): value for name, value in plain.items() if value is not None}


def query(**given: Any) -> list[tuple[str, str]]:
    return query_pairs(conditions(**given))


def new_id() -> str:
    return str(uuid7())


def timer_body(timer: NewTimer) -> dict[str, Any]:
    if [timer.execute_at, timer.delay, timer.local_time].count(None) != 2:
        raise InvalidArgument("give one of execute_at, delay and local_time")
    return body(TIMER, **_given(timer))


def schedule_body(schedule: NewSchedule, *, id: str | None) -> dict[str, Any]:  # noqa: A002
    return body(SCHEDULE, **_given(of_type(NewSchedule, "schedule", schedule)) | {"id": id})


def call_body(call: NewServiceCall) -> dict[str, Any]:
    """Make a body with an idempotency key, so that a request whose answer was lost can be repeated."""
    key = new_id() if call.idempotency_key is None else call.idempotency_key
    return _call(call) | {"idempotencyKey": key}


def _call(call: NewServiceCall) -> dict[str, Any]:
    request = body(CALL_REQUEST, **{name: getattr(call, name) for name in CALL_REQUEST})
    if call.target is None:
        request.setdefault("method", Method.GET)
    given = {name: value for name, value in _given(call).items() if name in CALL}
    return body(CALL, **given) | {"request": request}


def _given(model: NewTimer | NewSchedule | NewServiceCall) -> dict[str, Any]:
    """Return the fields that are not the default."""
    return {each.name: value for each in fields(model) if (value := getattr(model, each.name)) is not each.default}
