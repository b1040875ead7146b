"""A conditional change of one item, and its two spellings: an update expression and a PartiQL statement."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

Item: TypeAlias = dict[str, Any]
"""Attribute name -> low-level attribute value, e.g. ``{"shard_id": {"N": "7"}}``."""


def text(value: str) -> dict[str, str]:
    return {"S": value}


def whole(value: int) -> dict[str, str]:
    """A whole number. Nothing in the table is ever stored from a float."""
    return {"N": str(value)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """Applies only while every attribute in ``unchanged`` has the value given there (None: does not exist)."""

    key: Item
    sets: Item
    removes: tuple[str, ...] = ()
    unchanged: Item

    def is_reflected_in(self, item: Item) -> bool:
        """Whether ``item`` looks as this change leaves it."""
        is_set = all(item.get(name) == value for name, value in self.sets.items())
        return is_set and not any(name in item for name in self.removes)


def difference(old: Item, new: Item) -> tuple[Item, tuple[str, ...]]:
    """What to set and what to remove to make ``old`` into ``new``."""
    sets = {name: value for name, value in new.items() if old.get(name) != value}
    return sets, tuple(name for name in old if name not in new)


def as_update(change: Change) -> dict[str, Any]:
    """Parameters of UpdateItem. No attribute of ours is a reserved word, so names stand for themselves."""
    values: Item = {}
    sets = []
    for number, (name, value) in enumerate(change.sets.items()):
        sets.append(f"{name} = :s{number}")
        values[f":s{number}"] = value
    conditions = []
    for number, (name, value) in enumerate(change.unchanged.items()):
        if value is None:
            conditions.append(f"attribute_not_exists({name})")
        else:
            conditions.append(f"{name} = :c{number}")
            values[f":c{number}"] = value
    clauses = [f"SET {', '.join(sets)}"] if sets else []
    clauses += [f"REMOVE {', '.join(change.removes)}"] if change.removes else []
    return {
        "Key": change.key,
        "UpdateExpression": " ".join(clauses),
        "ConditionExpression": " AND ".join(conditions),
        "ExpressionAttributeValues": values,
    }


def as_update_statement(table_name: str, change: Change) -> dict[str, Any]:
    """A statement of BatchExecuteStatement. UPDATE of an item that does not exist fails its condition."""
    sets = "".join(f' SET "{name}"=?' for name in change.sets)
    removes = "".join(f' REMOVE "{name}"' for name in change.removes)
    conditions = [f'"{name}"=?' for name in change.key]
    conditions += [
        f'"{name}" IS MISSING' if value is None else f'"{name}"=?' for name, value in change.unchanged.items()
    ]
    parameters = [*change.sets.values(), *change.key.values()]
    parameters += [value for value in change.unchanged.values() if value is not None]
    return {
        "Statement": f'UPDATE "{table_name}"{sets}{removes} WHERE {" AND ".join(conditions)}',
        "Parameters": parameters,
        "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
    }


def as_insert_statement(table_name: str, item: Item) -> dict[str, Any]:
    """A statement of BatchExecuteStatement. INSERT over an item that exists fails with DuplicateItem."""
    value = ", ".join(f"'{name}': ?" for name in item)
    return {"Statement": f'INSERT INTO "{table_name}" VALUE {{{value}}}', "Parameters": list(item.values())}
