"""Hypothesis strategies for everything that is transferred: each field has values of its type."""

from __future__ import annotations

from dataclasses import fields, is_dataclass, replace
from datetime import date, datetime, timedelta
from types import UnionType
from typing import Any, Final, Union, get_args, get_origin, get_type_hints

from hypothesis import strategies as st

from duetime.domain.namespaces import Namespace
from duetime.domain.principals import Role
from duetime.domain.service_calls import ServiceCall
from duetime.domain.timers import Timer
from duetime.domain.times import MIN_INSTANT
from duetime.transfer.records import KINDS, OF_STORE, Value

TEXTS = st.text(st.characters(codec="utf-8"), max_size=20)
INSTANTS = st.integers(0, 253_402_300_799_999).map(lambda ms: MIN_INSTANT + timedelta(milliseconds=ms))
_BY_TYPE: Final[dict[Any, st.SearchStrategy[Any]]] = {
    str: TEXTS,
    bytes: st.binary(max_size=40),
    bool: st.booleans(),
    int: st.integers(1, 2**53),
    float: st.floats(0.001, 1e9),
    datetime: INSTANTS,
    date: st.dates(),
    type(None): st.none(),
}
_BY_NAME: Final = {
    **{name: st.just(value) for name, value in OF_STORE.items()},
    "num_shards": st.integers(1, 4096),
    "role": st.sampled_from(Role),
    "unknown_json": st.sampled_from([None, "{}", '{"later": [1.10]}']),
}


def _values_of(hint: Any) -> st.SearchStrategy[Any]:
    if isinstance(hint, type) and is_dataclass(hint):
        hints = get_type_hints(hint)
        of_fields = {
            each.name: _BY_NAME[each.name] if each.name in _BY_NAME else _values_of(hints[each.name])
            for each in fields(hint)
        }
        return st.builds(hint, **of_fields)
    origin, parts = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return st.one_of(*map(_values_of, parts))
    if origin is tuple and parts[-1] is ...:
        return st.lists(_values_of(parts[0]), max_size=3).map(tuple)
    if origin is frozenset:
        return st.frozensets(_values_of(parts[0]), max_size=3)
    if origin is tuple:
        return st.tuples(*map(_values_of, parts))
    return _BY_TYPE[hint] if hint in _BY_TYPE else st.sampled_from(list(hint))


def _sound(value: Any) -> Any:
    """``value`` with the fields that its other fields ask for."""
    match value:
        case Namespace():
            return replace(value, name=value.name or "n")
        case Timer() if value.state.is_finished:
            return replace(value, next_attempt_at=None)
        case Timer():
            return replace(value, next_attempt_at=value.next_attempt_at or value.created_at)
        case ServiceCall() if value.status.is_finished:
            return replace(value, wake_at=None, finished_at=value.finished_at or value.updated_at)
        case ServiceCall():
            return replace(value, wake_at=value.wake_at or value.due_at, finished_at=None)
    return value


values: st.SearchStrategy[Value] = st.one_of([_values_of(cls) for cls in KINDS]).map(_sound)
