"""How each access path is read: ranges of a table or of one of its indexes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from duetime.domain.times import MAX_INSTANT, to_milliseconds
from duetime.stores import entities
from duetime.stores.backend import Query
from duetime.stores.backends.dynamodb import derived, layouts, places
from duetime.stores.backends.dynamodb.derived import CALL_INDEXES, CallIndex, hash_key
from duetime.stores.backends.dynamodb.items import Attribute, Item, instant_text, text, whole
from duetime.stores.backends.dynamodb.layouts import LAYOUTS, row_reader
from duetime.stores.backends.dynamodb.places import LAST, NUL, Range
from duetime.stores.backends.dynamodb.schema import CORRELATION_INDEX, DUE_INDEX, OUTBOX_INDEX
from duetime.stores.entities import API_KEY, EVENT, EXECUTION, NAMESPACE, SECRET, SERVICE_CALL, TIMER, WORKER
from duetime.stores.entity import AccessPath, Entity, Key, Place

_MAX_BOUND_BYTES = 1000
"""Of what a range key is compared with; DynamoDB takes 1,024."""
_MAX_MS = to_milliseconds(MAX_INSTANT)


@dataclass(frozen=True, kw_only=True)
class Access:
    """Where the rows of a path stand: under a hash key, by range keys of a ``prefix`` and the row's place.

    ``hash_of`` and ``prefix`` are given the values of ``path.by``. ``index`` None: the table. ``is_row``: what is
    found is the row, else it leads to one. ``first_partition``: of the hash keys that are read side by side.
    ``has_place``: the range key tells the place of an item, whose attributes do not. ``leaves_out``: what a filter
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
    has_place: bool = False
    leaves_out: Callable[[Query], Mapping[str, Any]] = lambda _: {}
    special: Callable[[Query], Sequence[Range]] | None = None

    @property
    def is_descending(self) -> bool:
        return self.path.is_descending[0]

    @cached_property
    def place_of(self) -> Callable[[Item], Place]:
        if self.has_place:
            return lambda item: places.read(self.entity, self.path, item[self.range_name]["S"])
        return row_reader(self.entity, self.path.order_names)

    @cached_property
    def key_of(self) -> Callable[[Item], Key]:
        return row_reader(self.entity, self.entity.key)

    def ranges(self, query: Query) -> Sequence[Range]:
        if self.special is not None:
            return self.special(query)
        if self.first_partition is None:
            return [self._range(self.hash_of(query.by), query)]
        partitions = range(self.first_partition, self.first_partition + derived.OUTBOX_PARTITIONS)
        return [self._range(whole(each), query) for each in partitions]

    def _range(self, hash_value: Attribute, query: Query) -> Range:
        prefix, start = self.prefix(query.by), None
        low, high = prefix, prefix + LAST
        if query.since is not None:
            low = prefix + self._written((query.since,))
        if query.until is not None:
            behind = NUL + LAST if len(self.path.order) > 1 else ""
            high = _clipped(prefix + self._written((query.until,)) + behind)
        if query.after is not None:
            at = prefix + self._written(query.after)
            if self.is_descending:
                high = min(high, at)
                start = {self.hash_name: hash_value, self.range_name: text(at)}
                if self.index is not None:  # which wants the key of the table, too
                    start |= layouts.call_item_key(query.by[0], f"CALL#{query.after[-1]}")
            else:
                low = max(low, at + NUL)
        return Range(self.hash_name, hash_value, self.range_name, low or NUL, high, start)  # no key is empty

    def _written(self, place: Place) -> str:
        return places.write(self.entity, self.path, place)


def _clipped(bound: str) -> str:
    raw = bound.encode()
    return bound if len(raw) <= _MAX_BOUND_BYTES else raw[:_MAX_BOUND_BYTES].decode(errors="ignore")


# -- the table of timers ------------------------------------------------------------------------------------------


def _due(query: Query) -> list[Range]:
    hash_value = whole(query.by[0])
    since, start = query.since or 0, None
    if query.after is not None:
        since, key = query.after
        at = text(instant_text(since))
        start = {"shard_id": hash_value, "sortKey": text(key.decode()), "timer_execute_at": at}
    until = _MAX_MS if query.until is None else query.until
    return [Range("shard_id", hash_value, "timer_execute_at", instant_text(since), instant_text(until), start)]


def _shards(query: Query) -> list[Range]:
    prefix = f"TIMER#{query.by[0]}#"
    first, low = query.since, prefix
    if query.after is not None:
        first, timer_id = query.after
        low = prefix + timer_id + NUL
    return [
        Range("shard_id", whole(shard_id), "sortKey", low if shard_id == first else prefix, prefix + LAST)
        for shard_id in range(first, query.until + 1)
    ]


def _in_catalogue(entity: Entity, path: AccessPath, *, is_of_tenant: bool = False) -> Access:
    kind = f"{LAYOUTS[entity].row_type}#"
    return Access(
        entity=entity,
        path=path,
        is_row=not is_of_tenant,
        hash_name="shard_id",
        range_name="sortKey",
        hash_of=lambda _: whole(layouts.CATALOGUE),
        prefix=lambda by: layouts.of_tenant(by[0]) + NUL + kind if is_of_tenant else kind,
    )


def _all_namespaces(query: Query) -> list[Range]:
    """Return the ranges, the internal ones first: nothing else stands between them and the others."""
    low = f"{layouts.INTERNAL}#"
    if query.after is not None:
        low = LAYOUTS[NAMESPACE].key_of(query.after)["sortKey"]["S"] + NUL
    return [Range("shard_id", whole(layouts.CATALOGUE), "sortKey", low, f"NAMESPACE#{LAST}")]


# -- the table of service calls -----------------------------------------------------------------------------------


def _by_index(index: CallIndex) -> Access:
    hash_name, range_name = index.keys
    return Access(
        entity=SERVICE_CALL,
        path=index.path,
        index=index.name,
        is_row=False,
        hash_name=hash_name,
        range_name=range_name,
        hash_of=(lambda by: text(hash_key(by))) if index.is_hash else (lambda by: text(by[0])),
        prefix=lambda _: _CALL_PREFIX if index.is_hash else "",
        has_place=not index.is_hash,
    )


def _executions_behind(query: Query) -> Mapping[str, Any]:
    if query.after is None:
        return {}
    return {
        "FilterExpression": "#number < :number",
        "ExpressionAttributeNames": {"#number": "execution_number"},
        "ExpressionAttributeValues": {":number": whole(query.after[0])},
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
        index=OUTBOX_INDEX,
        is_row=False,
        hash_name="outbox_partition",
        range_name="outbox_key",
        first_partition=first_partition,
        **others,
    )


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
        _in_catalogue(WORKER, entities.ALL_WORKERS),
        _in_catalogue(SECRET, entities.ALL_SECRETS),
        _in_catalogue(API_KEY, entities.ALL_API_KEYS),
        _in_catalogue(API_KEY, entities.API_KEYS_OF_TENANT, is_of_tenant=True),
        Access(entity=NAMESPACE, path=entities.ALL_NAMESPACES, special=_all_namespaces),
        _in_catalogue(NAMESPACE, entities.LISTED_NAMESPACES),
        _in_catalogue(NAMESPACE, entities.OF_TENANT, is_of_tenant=True),
        Access(entity=SERVICE_CALL, path=entities.CALLS, prefix=lambda _: _CALL_PREFIX),
        *map(_by_index, CALL_INDEXES),
        Access(
            entity=SERVICE_CALL,
            path=entities.TAGGED_CALLS,
            is_row=False,
            prefix=lambda by: layouts.of_tag(by[1]) + NUL + _CALL_PREFIX,
        ),
        _outbox(SERVICE_CALL, entities.EXPIRED_CALLS, derived.expiring(0)),
        Access(
            entity=EXECUTION,
            path=entities.EXECUTIONS_OF_CALL,
            special=lambda query: [layouts.executions_of(query.by)],
            leaves_out=_executions_behind,
        ),
        _events_of_call(entities.EVENTS_OF_CALL, {}),
        _events_of_call(entities.UNPUBLISHED_OF_CALL, _UNPUBLISHED),
        _outbox(EVENT, entities.UNPUBLISHED, 0),
        _outbox(EVENT, entities.PUBLISHED, derived.published(0), has_place=True),
    )
}
"""Those of paths that are read by ranges. By an idempotency key there is one item, and all events are of many tenants
(event_scans.py); expired timers and records are removed by the table's TTL, so nothing finds them."""
