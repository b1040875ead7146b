"""A conditional write of one item, as an operation, as a PartiQL statement and as a part of a transaction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from duetime.stores.backend import Comparison, Condition
from duetime.stores.backends.dynamodb.items import Attribute, Item


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemWrite:
    """``item``: is put whole. Else ``sets`` and ``removes`` change what is there; neither: it is deleted.

    ``is_there``: the write is made only if there is an item (True), or none (False). ``expected``: conditions of
    attributes.
    """

    table: str
    key: Item
    item: Item | None = None
    sets: Item = field(default_factory=dict)
    removes: Sequence[str] = ()
    is_there: bool | None = None
    expected: Sequence[Condition] = ()

    @property
    def is_update(self) -> bool:
        return bool(self.sets or self.removes)

    @property
    def is_insert(self) -> bool:
        return self.item is not None and self.is_there is False

    @property
    def is_statement(self) -> bool:
        """Whether PartiQL can say it: its DELETE succeeds on nothing, and it has no PUT."""
        return self.is_insert or (self.is_update and all(each.comparison is Comparison.IS for each in self.expected))

    @property
    def is_conditional(self) -> bool:
        return self.is_there is not None or bool(self.expected)

    def is_reflected_in(self, item: Item | None) -> bool:
        """Tell whether ``item``, what there is now, looks as this write leaves it."""
        if self.item is not None:
            return item == self.item
        if not self.is_update:
            return item is None
        if item is None:
            return False
        return all(item.get(name) == value for name, value in self.sets.items()) and not any(
            name in item for name in self.removes
        )

    # -- spellings -------------------------------------------------------------------------------------------

    @property
    def operation(self) -> str:
        return "put_item" if self.item is not None else "update_item" if self.is_update else "delete_item"

    def parameters(self) -> dict[str, Any]:
        """Of PutItem, UpdateItem or DeleteItem, and in a transaction."""
        given: dict[str, Any] = {"TableName": self.table}
        names: dict[str, str] = {}
        values: Item = {}
        if self.item is not None:
            given["Item"] = self.item
        else:
            given["Key"] = self.key
        if self.is_update:
            given["UpdateExpression"] = self._update_expression(names, values)
        if self.is_conditional:
            given["ConditionExpression"] = self._condition(names, values)
            given["ReturnValuesOnConditionCheckFailure"] = "ALL_OLD"
        if names:
            given["ExpressionAttributeNames"] = names
        if values:
            given["ExpressionAttributeValues"] = values
        return given

    def in_transaction(self) -> dict[str, Any]:
        kind = "Put" if self.item is not None else "Update" if self.is_update else "Delete"
        return {kind: self.parameters()}

    def _update_expression(self, names: dict[str, str], values: Item) -> str:
        sets = [f"{_name(name, names)} = {_value(value, values)}" for name, value in self.sets.items()]
        removes = [_name(name, names) for name in self.removes]
        clauses = [f"SET {', '.join(sets)}"] if sets else []
        clauses += [f"REMOVE {', '.join(removes)}"] if removes else []
        return " ".join(clauses)

    def _condition(self, names: dict[str, str], values: Item) -> str:
        parts = []
        if self.is_there is not None:
            function = "attribute_exists" if self.is_there else "attribute_not_exists"
            parts.append(f"{function}({_name(next(reversed(self.key)), names)})")
        for each in self.expected:
            name = _name(each.name, names)
            if each.value is None:
                parts.append(f"attribute_not_exists({name})")
            elif each.comparison is Comparison.IS:
                parts.append(f"{name} = {_value(each.value, values)}")
            else:
                parts.append(f"(attribute_not_exists({name}) OR {name} <= {_value(each.value, values)})")
        return " AND ".join(parts)

    def statement(self) -> dict[str, Any]:
        """Of BatchExecuteStatement. INSERT over an item that exists fails with DuplicateItem; UPDATE of an item that
        does not exist fails its condition."""
        if self.item is not None:
            return {"Statement": _insert(self.table, tuple(self.item)), "Parameters": list(self.item.values())}
        parameters = [*self.sets.values(), *self.key.values()]
        parameters += [each.value for each in self.expected if each.value is not None]
        conditions = tuple([(each.name, each.value is None) for each in self.expected])
        return {
            "Statement": _update(self.table, tuple(self.sets), tuple(self.removes), tuple(self.key), conditions),
            "Parameters": parameters,
            "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
        }


@lru_cache(maxsize=256)
def _update(
    table: str,
    sets: tuple[str, ...],
    removes: tuple[str, ...],
    key: tuple[str, ...],
    expected: tuple[tuple[str, bool], ...],
) -> str:
    """Make an update. ``expected``: attributes, and whether they are to be missing."""
    changes = "".join([f' SET "{name}"=?' for name in sets] + [f' REMOVE "{name}"' for name in removes])
    conditions = [f'"{name}"=?' for name in key]
    conditions += [f'"{name}" IS MISSING' if is_missing else f'"{name}"=?' for name, is_missing in expected]
    return f'UPDATE "{table}"{changes} WHERE {" AND ".join(conditions)}'


@lru_cache(maxsize=256)
def _insert(table: str, names: tuple[str, ...]) -> str:
    """Most rows of an entity have the same attributes."""
    value = ", ".join(f"'{name}': ?" for name in names)
    return f'INSERT INTO "{table}" VALUE {{{value}}}'


def _name(name: str, names: dict[str, str]) -> str:
    """Return the placeholder of a name: some of ours are reserved words."""
    placeholder = f"#{name}"
    names[placeholder] = name
    return placeholder


def _value(value: Attribute, values: Item) -> str:
    placeholder = f":{len(values)}"
    values[placeholder] = value
    return placeholder


def projection(names: Sequence[str]) -> Mapping[str, Any]:
    """Return the parameters that have a read return nothing but these attributes."""
    return {
        "ProjectionExpression": ", ".join(f"#{name}" for name in names),
        "ExpressionAttributeNames": {f"#{name}": name for name in names},
    }
