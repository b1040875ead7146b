"""moto, without what costs it most.

- It copies a whole table for each item of a transaction, to be able to take it back. Here the conditions of a
  transaction are checked first, then its writes are carried out, and nothing is copied. That is enough for one
  thread, whose conditions do not change in between.
- It looks for each of the ten types, under several names, in each attribute of an answer: half of its time. Here an
  attribute with a simple value is sent as it is stored.
- It asks a text for five other types whenever it compares it, which is what sorting does.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from moto.core.serialize import BaseJSONSerializer
from moto.dynamodb.models import DynamoDBBackend
from moto.dynamodb.models.dynamo_type import DynamoType
from moto.dynamodb.models.table import Table

_transact: Any = DynamoDBBackend.transact_write_items
_serialize: Any = BaseJSONSerializer._serialize_type_structure
_cast: Any = DynamoType.cast_value
_SIMPLE = ({"S"}, {"N"}, {"BOOL"}, {"NULL"})


@contextmanager
def cheap_moto() -> Iterator[None]:
    with (
        patch.object(DynamoDBBackend, "transact_write_items", _check_then_write),
        patch.object(DynamoType, "cast_value", property(_value_of)),
        patch.object(BaseJSONSerializer, "_serialize_type_structure", _serialize_simple_values),
    ):
        yield


def _value_of(value: Any) -> Any:
    return value.value if value.type == "S" else _cast.fget(value)


def _serialize_simple_values(serializer: Any, serialized: Any, value: Any, shape: Any, key: str) -> None:
    if shape.name == "AttributeValue" and isinstance(value, dict) and value.keys() in _SIMPLE:
        serializer._default_serialize(serialized, value, shape, key)
    else:
        _serialize(serializer, serialized, value, shape, key)


def _check_then_write(backend: DynamoDBBackend, transact_items: list[dict[str, Any]]) -> None:
    with patch.object(Table, "__deepcopy__", lambda table, memo: table, create=True):
        _transact(backend, [{"ConditionCheck": _check(backend, write)} for write in transact_items])
        _transact(backend, transact_items)


def _check(backend: DynamoDBBackend, write: dict[str, Any]) -> dict[str, Any]:
    """The condition of ``write`` alone."""
    ((kind, operation),) = write.items()
    key = operation.get("Key")
    if kind == "Put":
        table = backend.get_table(operation["TableName"])
        names = [table.hash_key_attr, *([table.range_key_attr] if table.range_key_attr else [])]
        key = {name: operation["Item"][name] for name in names}
    left_out = ("Item", "UpdateExpression")
    check = {name: value for name, value in operation.items() if name not in left_out}
    if "ConditionExpression" not in check:
        check.pop("ExpressionAttributeNames", None)
        check.pop("ExpressionAttributeValues", None)
    return {**check, "Key": key}
