"""Which range of which index gives the candidates of a list: decided by the order, then by what leaves the fewest."""

from __future__ import annotations

from dataclasses import dataclass

from duetime.domain.service_calls import CallStatus
from duetime.domain.times import format_instant
from duetime.stores.dynamodb.calls import keys
from duetime.stores.dynamodb.changes import Item, text
from duetime.stores.port.calls import CallFilter, CallOrder

_BY_ID = frozenset({"submitted_from", "submitted_to"})
"""Conditions that bound the ids, where an id ends the range key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Path:
    """A range of one index, or of the table (``index`` None), in one direction.

    ``between``: inclusive bounds of the range key. None: the range keys that begin with ``prefix``, all if it is "".
    ``covers``: conditions of the filter that hold for all of the range.
    """

    index: str | None = None
    hash_name: str = "tenant_id"
    hash_value: str
    range_name: str
    between: tuple[str, str] | None = None
    prefix: str = ""
    is_ascending: bool = False
    covers: frozenset[str] = frozenset()

    @property
    def is_empty(self) -> bool:
        """From after to, which DynamoDB refuses."""
        return self.between is not None and self.between[0] > self.between[1]

    @property
    def finds_items(self) -> bool:
        """Whether the candidates are the calls' items themselves."""
        return self.index is None and self.between is not None and self.between[0].startswith(keys.CALL)

    def condition(self) -> tuple[str, Item]:
        """The key condition and its values."""
        condition, values = f"{self.hash_name} = :hash", {":hash": text(self.hash_value)}
        if self.between is not None:
            condition += f" AND {self.range_name} BETWEEN :first AND :last"
            values |= {":first": text(self.between[0]), ":last": text(self.between[1])}
        elif self.prefix:
            condition += f" AND begins_with({self.range_name}, :prefix)"
            values[":prefix"] = text(self.prefix)
        return condition, values


def path_for(tenant_id: str, wanted: CallFilter) -> Path:
    """Raises ``ValueError`` for the order by due time of any but Scheduled calls."""
    if wanted.order is CallOrder.DUE:
        return _by_due_time(tenant_id, wanted)
    if wanted.name_prefix is not None:
        return _by_name(tenant_id, wanted.name_prefix)
    ids = keys.first_id(wanted.submitted_from), keys.last_id(wanted.submitted_to)
    if wanted.correlation_id is not None:
        return _by_correlation(tenant_id, wanted.correlation_id, ids)
    if wanted.tags:
        return _by_tag(tenant_id, wanted.tags, ids)
    if wanted.starred:
        return _by_star(tenant_id, ids)
    if wanted.status is not None:
        return _by_status(tenant_id, wanted.status, ids)
    return Path(hash_value=tenant_id, range_name="sort_key", between=_bounds(keys.CALL, ids), covers=_BY_ID)


def _by_due_time(tenant_id: str, wanted: CallFilter) -> Path:
    if wanted.status is not CallStatus.SCHEDULED:
        raise ValueError("by due time there are only Scheduled calls")
    last = keys.LAST if wanted.due_to is None else f"{format_instant(wanted.due_to)}#{keys.LAST}"
    return Path(
        index=keys.DUE_INDEX,
        hash_value=tenant_id,
        range_name="due_key",
        between=("0", last),
        is_ascending=True,
        covers=frozenset({"status", "due_to"}),
    )


def _by_name(tenant_id: str, prefix: str) -> Path:
    return Path(
        index=keys.NAME_INDEX,
        hash_value=tenant_id,
        range_name="name_key",
        prefix=prefix,
        is_ascending=True,
        covers=frozenset({"name_prefix"}),
    )


def _by_correlation(tenant_id: str, correlation_id: str, ids: tuple[str, str]) -> Path:
    return Path(
        index=keys.CORRELATION_INDEX,
        hash_name="correlation_key",
        hash_value=keys.correlation_index_key(tenant_id, correlation_id),
        range_name="sort_key",
        between=_bounds(keys.CALL, ids),
        covers=_BY_ID | {"correlation_id"},
    )


def _by_tag(tenant_id: str, tags: tuple[str, ...], ids: tuple[str, str]) -> Path:
    """Strongly consistent: tags are items of the table."""
    return Path(
        hash_value=tenant_id,
        range_name="sort_key",
        between=_bounds(keys.tag_prefix(tags[0]), ids),
        covers=_BY_ID | ({"tags"} if len(tags) == 1 else set()),
    )


def _by_star(tenant_id: str, ids: tuple[str, str]) -> Path:
    return Path(
        index=keys.STARRED_INDEX,
        hash_value=tenant_id,
        range_name="starred_key",
        between=ids,
        covers=_BY_ID | {"starred"},
    )


def _by_status(tenant_id: str, status: CallStatus, ids: tuple[str, str]) -> Path:
    return Path(
        index=keys.STATUS_INDEX,
        hash_value=tenant_id,
        range_name="status_key",
        between=_bounds(keys.status_prefix(status), ids),
        covers=_BY_ID | {"status"},
    )


def _bounds(prefix: str, ids: tuple[str, str]) -> tuple[str, str]:
    return prefix + ids[0], prefix + ids[1]
