"""How each access path is read: ranges of a table or of one of its indexes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from duetime.domain.tenants import is_internal
from duetime.domain.times import MAX_INSTANT, read_instant, to_milliseconds
from duetime.stores import entities
from duetime.stores.backends.dynamodb import derived, layouts
from duetime.stores.backends.dynamodb.derived import NUL, SEQUENCE_DIGITS
from duetime.stores.backends.dynamodb.items import Attribute, Item, instant_text, text, whole
from duetime.stores.backends.dynamodb.layouts import LAYOUTS, row_reader
from duetime.stores.backends.dynamodb.schema import CORRELATION_INDEX, DUE_INDEX
from duetime.stores.entities import API_KEY, EVENT, EXECUTION, NAMESPACE, SECRET, SERVICE_CALL, TIMER, WORKER
from duetime.stores.entity import AccessPath, Entity, Key, Kind, Place, Value

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


@dataclass(frozen=True, kw_only=True)
class Access:
    """Where the rows of a path stand: under a hash key, by range keys of a ``prefix`` and the row's place.

    ``hash_of`` and ``prefix`` are given the values of ``path.by``. A place is the texts of its values with NUL
    between them; an id that descends where the first field does not has its digits inverted. ``index`` None: the
    table. ``is_row``: what is found is the row, else it leads to one. ``first_partition``: of the hash keys that are
    read side by side. ``place``: that of an item, where its attributes do not tell. ``leaves_out``: what a filter
    leaves out of the ranges, as parameters of Query. ``special``: the ranges, where these are not all.
    """

    entity: Entity
    path: AccessPath
    index: str | None = None
    is_row: bool = True
    hash_name: str = "tenant_id"
    range_name: str = "sort_key"
    hash_of: Callable[[Key], Attribute] = lambda by: text(by[0])
    first_partition: int | None = None
    prefix: Callable[[Key], str] = lambda _: ""
    place: Callable[[Item], Place] | None = None
    leaves_out: Callable[[Bounds], Mapping[str, Any]] = lambda _: {}
    special: Callable[[Key, Bounds], Sequence[Range]] | None = None

    @property
    def is_descending(self) -> bool:
        return self.path.is_descending[0]

    @cached_property
    def place_of(self) -> Callable[[Item], Place]:
        return self.place or row_reader(self.entity, self.path.order_names)

    @cached_property
    def key_of(self) -> Callable[[Item], Key]:
        return row_reader(self.entity, self.entity.key)

    def ranges(self, by: Key, bounds: Bounds) -> Sequence[Range]:
        if self.special is not None:
            return self.special(by, bounds)
        if self.first_partition is None:
            return [self._range(self.hash_of(by), by, bounds)]
        partitions = range(self.first_partition, self.first_partition + derived.OUTBOX_PARTITIONS)
        return [self._range(whole(each), by, bounds) for each in partitions]

    def _range(self, hash_value: Attribute, by: Key, bounds: Bounds) -> Range:
        prefix, start = self.prefix(by), None
        low, high = prefix, prefix + LAST
        if bounds.since is not None:
            low = prefix + self._written((bounds.since,))
        if bounds.until is not None:
            behind = NUL + LAST if len(self._parts) > 1 else ""
            high = _clipped(prefix + self._written((bounds.until,)) + behind)
        if bounds.after is not None:
            at = prefix + self._written(bounds.after)
            if self.is_descending:
                high = min(high, at)
                start = {self.hash_name: hash_value, self.range_name: text(at)}
                if self.index is not None:  # which wants the key of the table, too
                    start |= layouts.call_item_key(by[0], f"CALL#{bounds.after[-1]}")
            else:
                low = max(low, at + NUL)
        return Range(
            hash_name=self.hash_name,
            hash_value=hash_value,
            range_name=self.range_name,
            low=low or NUL,  # no key is empty
            high=high,
            start=start,
        )

    @cached_property
    def _parts(self) -> list[tuple[Kind, bool]]:
        kinds = [self.entity.by_name[name].kind for name in self.path.order_names]
        return [(kind, each != self.is_descending) for kind, each in zip(kinds, self.path.is_descending, strict=True)]

    def _written(self, place: Place) -> str:
        """``place``, or the beginning of one."""
        return NUL.join([_text(value, *part) for value, part in zip(place, self._parts, strict=False)])


def _text(value: Value, kind: Kind, is_inverted: bool) -> str:
    if kind is Kind.INSTANT:
        return instant_text(value)
    if kind is Kind.WHOLE:
        return f"{value:0{SEQUENCE_DIGITS}}"
    return derived.inverted(value) if is_inverted else str(value)


def _clipped(bound: str) -> str:
    raw = bound.encode()
    return bound if len(raw) <= _MAX_BOUND_BYTES else raw[:_MAX_BOUND_BYTES].decode(errors="ignore")


# -- the table of timers ------------------------------------------------------------------------------------------


def _due(by: Key, bounds: Bounds) -> list[Range]:
    hash_value = whole(by[0])
    since, start = bounds.since or 0, None
    if bounds.after is not None:
        since, key = bounds.after
        at = text(instant_text(since))
        start = {"shard_id": hash_value, "sortKey": text(key.decode()), "timer_execute_at": at}
    until = _MAX_MS if bounds.until is None else bounds.until
    return [
        Range(
            hash_name="shard_id",
            hash_value=hash_value,
            range_name="timer_execute_at",
            low=instant_text(since),
            high=instant_text(until),
            start=start,
        )
    ]


def _shards(by: Key, bounds: Bounds) -> list[Range]:
    prefix = f"TIMER#{by[0]}#"
    first, low = bounds.since, prefix
    if bounds.after is not None:
        first, timer_id = bounds.after
        low = prefix + timer_id + NUL
    return [
        Range(
            hash_name="shard_id",
            hash_value=whole(shard_id),
            range_name="sortKey",
            low=low if shard_id == first else prefix,
            high=prefix + LAST,
        )
        for shard_id in range(first, bounds.until + 1)
    ]


def _in_catalogue(entity: Entity, path: AccessPath, prefix: Callable[[Key], str], **others: Any) -> Access:
    return Access(
        entity=entity,
        path=path,
        hash_name="shard_id",
        range_name="sortKey",
        hash_of=lambda _: whole(layouts.CATALOGUE),
        prefix=prefix,
        **others,
    )


def _of_kind(entity: Entity, path: AccessPath) -> Access:
    return _in_catalogue(entity, path, lambda _: f"{LAYOUTS[entity].row_type}#")


def _of_tenant(entity: Entity, path: AccessPath) -> Access:
    kind = f"{LAYOUTS[entity].row_type}#"
    return _in_catalogue(entity, path, lambda by: layouts.of_tenant(by[0], kind), is_row=False)


def _all_namespaces(by: Key, bounds: Bounds) -> list[Range]:
    """The internal ones first."""
    internal, others = (
        _in_catalogue(NAMESPACE, entities.ALL_NAMESPACES, lambda _, kind=kind: kind)  # type: ignore[misc]
        for kind in (layouts.INTERNAL, layouts.NAMESPACES)
    )
    if bounds.after is not None and not is_internal(bounds.after[0]):
        return [*others.ranges(by, bounds)]
    return [*internal.ranges(by, bounds), *others.ranges(by, Bounds())]


# -- the table of service calls -----------------------------------------------------------------------------------


def _calls(path: AccessPath, **others: Any) -> Access:
    return Access(entity=SERVICE_CALL, path=path, is_row=False, **others)


def _newest(path: AccessPath, hash_name: str, hash_of: Callable[[Key], Attribute]) -> Access:
    """Calls by their ids, in the index that is named like its hash key."""
    return _calls(
        path, index=f"{hash_name}-index", hash_name=hash_name, hash_of=hash_of, prefix=lambda _: _CALL_PREFIX
    )


def _place_of_due_call(item: Item) -> Place:
    at, call_id = item["due_key"]["S"].split(NUL)
    return to_milliseconds(read_instant(at)), call_id


def _executions(by: Key, bounds: Bounds) -> list[Range]:
    del bounds  # they are of the number, by which they are not sorted
    low = f"EXEC#{by[1]}#"
    return [Range(hash_name="tenant_id", hash_value=text(by[0]), range_name="sort_key", low=low, high=low + LAST)]


def _executions_behind(bounds: Bounds) -> Mapping[str, Any]:
    if bounds.after is None:
        return {}
    return {
        "FilterExpression": "#number < :number",
        "ExpressionAttributeNames": {"#number": "execution_number"},
        "ExpressionAttributeValues": {":number": whole(bounds.after[0])},
    }


def _events_of_call(path: AccessPath, leaves_out: Mapping[str, Any]) -> Access:
    return Access(
        entity=EVENT,
        path=path,
        is_row=False,
        prefix=lambda by: f"EVENT#{by[1]}#",
        leaves_out=lambda _: leaves_out,
    )


def _outbox(entity: Entity, path: AccessPath, first_partition: int, **others: Any) -> Access:
    return Access(
        entity=entity,
        path=path,
        index="outbox_key-index",
        is_row=False,
        hash_name="outbox_partition",
        range_name="outbox_key",
        first_partition=first_partition,
        **others,
    )


def _place_of_published(item: Item) -> Place:
    at, tenant_id, call_id, sequence = item["outbox_key"]["S"].split(NUL)
    return to_milliseconds(read_instant(at)), tenant_id, call_id, int(sequence)


_CALL_PREFIX: Final = "CALL#"
_UNPUBLISHED: Final = {
    "FilterExpression": "attribute_not_exists(#published)",
    "ExpressionAttributeNames": {"#published": "published_at"},
}

ACCESSES: Final[dict[AccessPath, Access]] = {
    each.path: each
    for each in (
        Access(entity=TIMER, path=entities.DUE, index=DUE_INDEX, special=_due),
        Access(entity=TIMER, path=entities.OF_NAMESPACE, special=_shards),
        Access(
            entity=TIMER,
            path=entities.CORRELATED,
            index=CORRELATION_INDEX,
            is_row=False,
            hash_name="timer_correlation_id",
            range_name="sortKey",
            hash_of=lambda by: text(by[1]),
            prefix=lambda by: f"TIMER#{by[0]}#",
        ),
        _of_kind(WORKER, entities.ALL_WORKERS),
        _of_kind(SECRET, entities.ALL_SECRETS),
        _of_kind(API_KEY, entities.ALL_API_KEYS),
        _of_tenant(API_KEY, entities.API_KEYS_OF_TENANT),
        _in_catalogue(NAMESPACE, entities.ALL_NAMESPACES, lambda _: "", special=_all_namespaces),
        _of_kind(NAMESPACE, entities.LISTED_NAMESPACES),
        _of_tenant(NAMESPACE, entities.OF_TENANT),
        Access(entity=SERVICE_CALL, path=entities.CALLS, prefix=lambda _: _CALL_PREFIX),
        _newest(entities.CALLS_BY_STATUS, "status_key", lambda by: text(derived.of_tenant(*by))),
        _newest(entities.CORRELATED_CALLS, "correlation_key", lambda by: text(derived.of_tenant(*by))),
        _newest(entities.STARRED_CALLS, "starred_key", lambda by: text(by[0])),
        _calls(entities.TAGGED_CALLS, prefix=lambda by: layouts.tag_prefix(by[1])),
        _calls(entities.CALLS_BY_NAME, index="name_key-index", range_name="name_key"),
        _calls(entities.DUE_CALLS, index="due_key-index", range_name="due_key", place=_place_of_due_call),
        _outbox(SERVICE_CALL, entities.EXPIRED_CALLS, derived.expiring(0)),
        Access(
            entity=EXECUTION, path=entities.EXECUTIONS_OF_CALL, special=_executions, leaves_out=_executions_behind
        ),
        _events_of_call(entities.EVENTS_OF_CALL, {}),
        _events_of_call(entities.UNPUBLISHED_OF_CALL, _UNPUBLISHED),
        _outbox(EVENT, entities.UNPUBLISHED, 0),
        _outbox(EVENT, entities.PUBLISHED, derived.published(0), place=_place_of_published),
    )
}
"""Those of paths that are read by ranges. By an idempotency key there is one item, and all events are of many tenants
(event_scans.py); expired timers and records are removed by the table's TTL, so nothing finds them."""
