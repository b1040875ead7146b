"""Whether a command that was sent can be answered by one index: found by it, in its order, nothing sorted.

The rules are MongoDB's own for compound indexes: the fields that are compared for equality come first, then those of
the order, and a range may stand on the first field behind the equal ones. A partial index can be used only by a
query that cannot want what the index has not.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tests.integration.mongodb.conftest import Commands

Document = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Query:
    collection: str
    condition: Document
    order: list[tuple[str, int]]
    hint: str | None
    command: Document
    """For ``explain``."""


def queries(commands: Commands) -> Iterator[Query]:
    """Every search of the commands, those of updates and deletes too."""
    for name, command in commands.sent:
        if name == "find":
            order = list(command.get("sort", {}).items())
            wanted: Document = {
                key: command[key] for key in ("find", "filter", "sort", "limit", "hint") if key in command
            }
            yield Query(command["find"], command["filter"], order, command.get("hint"), wanted)
        elif name == "findAndModify":
            wanted = {"find": command["findAndModify"], "filter": command["query"]}
            yield Query(command["findAndModify"], command["query"], [], None, wanted)
        elif name in ("update", "delete"):
            for each in command[f"{name}s"]:
                yield _search(command[name], each["q"], each.get("hint"))
        elif name == "bulkWrite":
            namespaces = [each["ns"].partition(".")[2] for each in command["nsInfo"]]
            for each in command["ops"]:
                kind = next(iter(each))
                if kind != "insert":
                    yield _search(namespaces[each[kind]], each["filter"], each.get("hint"))


def _search(collection: str, condition: Document, hint: str | None) -> Query:
    command: Document = {"find": collection, "filter": condition}
    return Query(collection, condition, [], hint, command if hint is None else {**command, "hint": hint})


def serving_index(query: Query, indexes: dict[str, Document]) -> str:
    """The name of the index that answers ``query``; ``AssertionError`` when there is none."""
    branches = query.condition.get("$or", [query.condition])
    names = {_serving(branch, query, indexes) for branch in branches}
    assert len(names) == 1, query
    return names.pop()


def _serving(condition: Document, query: Query, indexes: dict[str, Document]) -> str:
    """The one of them that is entered by the most fields."""
    candidates = [query.hint] if query.hint is not None else list(indexes)
    depths = {name: _depth(condition, query.order, indexes[name]) for name in candidates}
    best = max(depths, key=lambda name: depths[name])
    assert depths[best] >= 0, f"no index serves {query}; hinted or present: {candidates}"
    return best


def _depth(condition: Document, order: list[tuple[str, int]], index: Document) -> int:
    """How many fields the index is entered by; -1 when it does not answer the search."""
    fields = list(index["key"])
    equal = {field for field, value in condition.items() if _is_equality(value)}
    ranges = {field for field, value in condition.items() if not _is_equality(value) and field in dict(fields)}
    leading = next((at for at, (field, _) in enumerate(fields) if field not in equal), len(fields))
    if not _is_implied(index.get("partialFilterExpression", {}), condition):
        return -1
    if leading == len(fields):
        return leading
    is_entered = leading > 0 or fields[0][0] in ranges
    has_range_in_place = not ranges or fields[leading][0] in ranges
    if not is_entered or not has_range_in_place or not _follows(order, fields, equal):
        return -1
    return leading + (1 if ranges else 0)


def _follows(order: list[tuple[str, int]], fields: list[tuple[str, Any]], equal: set[str]) -> bool:
    """Whether ``order`` is the index's own, forwards or backwards, but for fields that are equal anyway."""
    wanted = [(field, direction) for field, direction in order if field not in equal]
    offered = [(field, direction) for field, direction in fields if field not in equal][: len(wanted)]
    return wanted in (offered, [(field, -direction) for field, direction in offered])


def _is_equality(value: Any) -> bool:
    return not isinstance(value, dict) or set(value) == {"$in"}


def _is_implied(partial: Document, condition: Document) -> bool:
    """Whether all that ``condition`` finds is in a partial index."""
    return all(
        field in condition and condition[field] is not None
        if isinstance(wanted, dict)
        else condition.get(field) == wanted
        for field, wanted in partial.items()
    )
