"""How each access path is read: ranges of a table or of one of its indexes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from duetime.domain.tenants import is_internal
from duetime.domain.times import MAX_INSTANT, read_instant, to_milliseconds
from duetime.stores import entities
from duetime.stores.backends.dynamodb import derived, layouts
from duetime.stores.backends.dynamodb.derived import NUL, SEQUENCE_DIGITS
from duetime.stores.backends.dynamodb.items import Attribute, Item, instant_of, instant_text, text, whole
from duetime.stores.backends.dynamodb.layouts import LAYOUTS
from duetime.stores.backends.dynamodb.schema import CORRELATION_INDEX, DUE_INDEX
from duetime.stores.entities import EVENT, EXECUTION, NAMESPACE, TIMER
from duetime.stores.entity import AccessPath, Entity, Key, Place, Value

LAST: Final = "\U0010ffff"
"""Sorts after all that stands in keys."""
_MAX_BOUND_BYTES = 1000
"""Of what a range key is compared with; DynamoDB takes 1,024."""
_MAX_MS = to_milliseconds(MAX_INSTANT)


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """Items of one hash key whose range key is between ``low`` and ``high``, both inclusive; behind ``start``."""

    hash_name: str
    hash_value: Attribute
    range_name: str
    low: str
    high: str
    start: Item | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """As in ``Backend.scan``."""

    after: Place | None = None
    since: Value = None
    until: Value = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """``index`` None: the table. ``place_of``: that of an item that was found. ``key_of``: the key of the row that it
    leads to; None: the item is the row. ``is_merged``: the ranges are read side by side, else one after the other.
    ``leaves_out``: what a filter leaves out of the ranges, as parameters of Query."""

    index: str | None = None
    ranges: Callable[[Key, Bounds], Sequence[Range]]
    place_of: Callable[[Item], Place]
    key_of: Callable[[Item], Key] | None = None
    is_descending: bool = False
    is_merged: bool = False
    leaves_out: Callable[[Bounds], Mapping[str, Any]] = lambda _: {}


# -- ranges of texts ----------------------------------------------------------------------------------------------


def _range(
    hash_name: str,
    hash_value: Attribute,
    range_name: str,
    prefix: str,
    bounds: Bounds,
    *,
    written: Callable[[Place], str],
    is_whole: bool = True,
    is_descending: bool = False,
    table_key: Callable[[Place], Item] | None = None,
) -> Range:
    """Range keys are ``prefix`` and a ``written`` place. ``is_whole``: the first part of the place is all of it.
    ``table_key``: that of a place's item, where the range is one of an index and descends."""
    low, high = prefix, prefix + LAST
    if bounds.since is not None:
        low = prefix + written((bounds.since,))
    if bounds.until is not None:
        high = _clipped(prefix + written((bounds.until,)) + ("" if is_whole else NUL + LAST))
    start = None
    if bounds.after is not None:
        at = prefix + written(bounds.after)
        if is_descending:
            high = min(high, at)
            start = {hash_name: hash_value, range_name: text(at)}
            start |= table_key(bounds.after) if table_key is not None else {}
        else:
            low = max(low, at + NUL)
    low = low or NUL  # no key is empty
    return Range(hash_name=hash_name, hash_value=hash_value, range_name=range_name, low=low, high=high, start=start)


def _clipped(bound: str) -> str:
    raw = bound.encode()
    return bound if len(raw) <= _MAX_BOUND_BYTES else raw[:_MAX_BOUND_BYTES].decode(errors="ignore")


def _one(make: Callable[[Key, Bounds], Range]) -> Callable[[Key, Bounds], Sequence[Range]]:
    return lambda by, bounds: [make(by, bounds)]


def _text_of(place: Place) -> str:
    return str(place[0])


# -- the table of timers ------------------------------------------------------------------------------------------


def _due(by: Key, bounds: Bounds) -> Range:
    hash_value = whole(by[0])
    since, start = bounds.since or 0, None
    if bounds.after is not None:
        since, key = bounds.after
        at = text(instant_text(since))
        start = {"shard_id": hash_value, "sortKey": text(key.decode()), "timer_execute_at": at}
    until = _MAX_MS if bounds.until is None else bounds.until
    return Range(
        hash_name="shard_id",
        hash_value=hash_value,
        range_name="timer_execute_at",
        low=instant_text(since),
        high=instant_text(until),
        start=start,
    )


def _place_of_due(item: Item) -> Place:
    readers = LAYOUTS[TIMER].readers
    return readers["timer_execute_at"](item), readers["timer_uuid"](item)


def _shards(by: Key, bounds: Bounds) -> list[Range]:
    prefix = f"TIMER#{by[0]}#"
    first, after = bounds.since, None
    if bounds.after is not None:
        first, timer_id = bounds.after
        after = (timer_id,)
    ranges = []
    for shard_id in range(first, bounds.until + 1):
        of_shard = Bounds(after=after)
        ranges.append(_range("shard_id", whole(shard_id), "sortKey", prefix, of_shard, written=_text_of))
        after = None
    return ranges


def _correlated(by: Key, bounds: Bounds) -> Range:
    namespace, correlation_id = by
    return _range(
        "timer_correlation_id", text(correlation_id), "sortKey", f"TIMER#{namespace}#", bounds, written=_text_of
    )


def _in_catalogue(prefix: str) -> Callable[[Key, Bounds], Range]:
    return lambda _, bounds: _range("shard_id", whole(layouts.CATALOGUE), "sortKey", prefix, bounds, written=_text_of)


def _of_tenant(kind: str) -> Callable[[Key, Bounds], Range]:
    return lambda by, bounds: _in_catalogue(layouts.of_tenant(by[0], kind))(by, bounds)


def _all_namespaces(by: Key, bounds: Bounds) -> list[Range]:
    """The internal ones first."""
    internal, others = _in_catalogue(layouts.INTERNAL), _in_catalogue(layouts.NAMESPACES)
    if bounds.after is None:
        return [internal(by, bounds), others(by, bounds)]
    if is_internal(bounds.after[0]):
        return [internal(by, bounds), others(by, Bounds())]
    return [others(by, bounds)]


def _last_part(item: Item) -> Key:
    return (item["sortKey"]["S"].rpartition("#")[2],)


def _in_catalogue_access(entity: Entity, prefix: str) -> Access:
    return Access(ranges=_one(_in_catalogue(prefix)), place_of=LAYOUTS[entity].parts_of)


# -- the table of service calls -----------------------------------------------------------------------------------


def _call_id(item: Item) -> str:
    """What the sort keys of calls and of their tags end with."""
    return str(item["sort_key"]["S"]).rpartition(NUL)[2].removeprefix("CALL#")


def _call_of(item: Item) -> Key:
    return item["tenant_id"]["S"], _call_id(item)


def _place_of_call(item: Item) -> Place:
    return (_call_id(item),)


def _table_key(tenant_id: str, place: Place) -> Item:
    return layouts.call_item_key(tenant_id, f"CALL#{place[-1]}")


def _newest(
    hash_name: str = "tenant_id",
    hash_of: Callable[..., str] = lambda tenant_id, *_: tenant_id,
    *,
    prefix: Callable[[Key], str] = lambda _: "CALL#",
    is_row: bool = False,
) -> Access:
    """Calls by their ids, in the table or in the index that is named like its hash key."""
    index = None if hash_name == "tenant_id" else f"{hash_name}-index"

    def ranges(by: Key, bounds: Bounds) -> Range:
        return _range(
            hash_name,
            text(hash_of(*by)),
            "sort_key",
            prefix(by),
            bounds,
            written=_text_of,
            is_descending=True,
            table_key=partial(_table_key, by[0]) if index else None,
        )

    key_of = None if is_row else _call_of
    return Access(index=index, ranges=_one(ranges), place_of=_place_of_call, key_of=key_of, is_descending=True)


def _by_name(by: Key, bounds: Bounds) -> Range:
    def written(place: Place) -> str:
        return str(place[0]) if len(place) == 1 else f"{place[0]}{NUL}{derived.inverted(place[1])}"

    return _range("tenant_id", text(by[0]), "name_key", "", bounds, written=written, is_whole=False)


def _place_by_name(item: Item) -> Place:
    return item["name_key"]["S"].rpartition(NUL)[0], _call_id(item)


def _due_calls(by: Key, bounds: Bounds) -> Range:
    return _range("tenant_id", text(by[0]), "due_key", "", bounds, written=_timed, is_whole=False)


def _timed(place: Place) -> str:
    """A place that begins with a time."""
    return NUL.join([instant_text(place[0]), *map(_part, place[1:])])


def _part(value: Value) -> str:
    return f"{value:0{SEQUENCE_DIGITS}}" if isinstance(value, int) else str(value)


def _place_of_due_call(item: Item) -> Place:
    at, call_id = item["due_key"]["S"].split(NUL)
    return to_milliseconds(read_instant(at)), call_id


def _executions(by: Key, bounds: Bounds) -> Range:
    del bounds  # they are of the number, by which they are not sorted
    prefix = f"EXEC#{by[1]}#"
    return _range("tenant_id", text(by[0]), "sort_key", prefix, Bounds(), written=_text_of)


def _executions_behind(bounds: Bounds) -> Mapping[str, Any]:
    if bounds.after is None:
        return {}
    return {
        "FilterExpression": "#number < :number",
        "ExpressionAttributeNames": {"#number": "execution_number"},
        "ExpressionAttributeValues": {":number": whole(bounds.after[0])},
    }


def _events(by: Key, bounds: Bounds) -> Range:
    return _range(
        "tenant_id",
        text(by[0]),
        "sort_key",
        f"EVENT#{by[1]}#",
        bounds,
        written=lambda place: _part(place[0]),
    )


def _published_place(item: Item) -> Place:
    at, tenant_id, call_id, sequence = item["outbox_key"]["S"].split(NUL)
    return to_milliseconds(read_instant(at)), tenant_id, call_id, int(sequence)


_UNPUBLISHED = {
    "FilterExpression": "attribute_not_exists(#published)",
    "ExpressionAttributeNames": {"#published": "published_at"},
}


def _partitions(
    first: int, written: Callable[[Place], str], *, is_whole: bool
) -> Callable[[Key, Bounds], list[Range]]:
    def ranges(_: Key, bounds: Bounds) -> list[Range]:
        return [
            _range(
                "outbox_partition", whole(first + each), "outbox_key", "", bounds, written=written, is_whole=is_whole
            )
            for each in range(derived.OUTBOX_PARTITIONS)
        ]

    return ranges


def _joined(place: Place) -> str:
    return NUL.join(map(_part, place))


_OUTBOX_INDEX: Final = "outbox_key-index"

ACCESSES: Final[dict[AccessPath, Access]] = {
    entities.DUE: Access(index=DUE_INDEX, ranges=_one(_due), place_of=_place_of_due),
    entities.OF_NAMESPACE: Access(
        ranges=_shards, place_of=lambda item: (int(item["shard_id"]["N"]), LAYOUTS[TIMER].parts_of(item)[2])
    ),
    entities.CORRELATED: Access(
        index=CORRELATION_INDEX,
        ranges=_one(_correlated),
        place_of=lambda item: (LAYOUTS[TIMER].parts_of(item)[2],),
        key_of=LAYOUTS[TIMER].parts_of,
    ),
    entities.ALL_WORKERS: _in_catalogue_access(entities.WORKER, "WORKER#"),
    entities.ALL_SECRETS: _in_catalogue_access(entities.SECRET, "SECRET#"),
    entities.ALL_API_KEYS: _in_catalogue_access(entities.API_KEY, "APIKEY#"),
    entities.API_KEYS_OF_TENANT: Access(ranges=_one(_of_tenant("APIKEY#")), place_of=_last_part, key_of=_last_part),
    entities.ALL_NAMESPACES: Access(ranges=_all_namespaces, place_of=LAYOUTS[NAMESPACE].parts_of),
    entities.LISTED_NAMESPACES: _in_catalogue_access(NAMESPACE, layouts.NAMESPACES),
    entities.OF_TENANT: Access(ranges=_one(_of_tenant(layouts.NAMESPACES)), place_of=_last_part, key_of=_last_part),
    entities.CALLS: _newest(is_row=True),
    entities.CALLS_BY_STATUS: _newest("status_key", derived.of_tenant),
    entities.CORRELATED_CALLS: _newest("correlation_key", derived.of_tenant),
    entities.STARRED_CALLS: _newest("starred_key", lambda tenant_id: tenant_id),
    entities.TAGGED_CALLS: _newest(prefix=lambda by: layouts.tag_prefix(by[1])),
    entities.CALLS_BY_NAME: Access(
        index="name_key-index", ranges=_one(_by_name), place_of=_place_by_name, key_of=_call_of
    ),
    entities.DUE_CALLS: Access(
        index="due_key-index", ranges=_one(_due_calls), place_of=_place_of_due_call, key_of=_call_of
    ),
    entities.EXPIRED_CALLS: Access(
        index=_OUTBOX_INDEX,
        ranges=_partitions(derived.expiring(0), _timed, is_whole=False),
        place_of=lambda item: (instant_of(item["outbox_key"]),),
        key_of=_call_of,
        is_merged=True,
    ),
    entities.EXECUTIONS_OF_CALL: Access(
        ranges=_one(_executions),
        place_of=lambda item: (LAYOUTS[EXECUTION].readers["execution_number"](item),),
        is_descending=True,
        leaves_out=_executions_behind,
    ),
    entities.EVENTS_OF_CALL: Access(
        ranges=_one(_events),
        place_of=lambda item: (LAYOUTS[EVENT].parts_of(item)[2],),
        key_of=LAYOUTS[EVENT].parts_of,
    ),
    entities.UNPUBLISHED_OF_CALL: Access(
        ranges=_one(_events),
        place_of=lambda item: (LAYOUTS[EVENT].parts_of(item)[2],),
        key_of=LAYOUTS[EVENT].parts_of,
        leaves_out=lambda _: _UNPUBLISHED,
    ),
    entities.UNPUBLISHED: Access(
        index=_OUTBOX_INDEX,
        ranges=_partitions(0, _joined, is_whole=False),
        place_of=LAYOUTS[EVENT].parts_of,
        key_of=LAYOUTS[EVENT].parts_of,
        is_merged=True,
    ),
    entities.PUBLISHED: Access(
        index=_OUTBOX_INDEX,
        ranges=_partitions(derived.published(0), _timed, is_whole=False),
        place_of=_published_place,
        key_of=LAYOUTS[EVENT].parts_of,
        is_merged=True,
    ),
}
"""Those of paths that are read by ranges. By an idempotency key there is one item, and all events are of many tenants
(event_scans.py); expired timers and records are removed by the table's TTL, so nothing finds them."""
