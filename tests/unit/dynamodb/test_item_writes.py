"""A conditional write of one item: as a statement, and how it is known again."""

from __future__ import annotations

from duetime.stores.backend import Condition
from duetime.stores.backends.dynamodb.item_writes import ItemWrite
from duetime.stores.backends.dynamodb.items import text, whole
from duetime.stores.backends.dynamodb.layouts import timer_item_key

KEY = timer_item_key(7, 'TIMER#ns#it\'s "x"')
UPDATE = ItemWrite(
    table="timers",
    key=KEY,
    sets={"timer_state": text("Fired"), "expires_at": whole(5)},
    removes=("timer_execute_at", "timer_failure"),
    expected=(Condition("timer_revision", whole(1)), Condition("timer_tags", None)),
)
INSERT = ItemWrite(table="timers", key=KEY, item={**KEY, "a": text("b")}, is_there=False)


def test_as_a_statement_it_uses_the_documented_grammar_and_parameters_only() -> None:
    # Documented: SET and REMOVE are repeated, a comma between assignments is not in the grammar.
    assert UPDATE.statement() == {
        "Statement": (
            'UPDATE "timers" SET "timer_state"=? SET "expires_at"=? REMOVE "timer_execute_at" REMOVE "timer_failure" '
            'WHERE "shard_id"=? AND "sortKey"=? AND "timer_revision"=? AND "timer_tags" IS MISSING'
        ),
        "Parameters": [text("Fired"), whole(5), whole(7), KEY["sortKey"], whole(1)],
        "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
    }
    assert INSERT.statement() == {
        "Statement": "INSERT INTO \"timers\" VALUE {'shard_id': ?, 'sortKey': ?, 'a': ?}",
        "Parameters": [*KEY.values(), text("b")],
    }


def test_a_write_is_reflected_in_an_item_that_looks_as_it_leaves_it() -> None:
    done = {**KEY, "timer_state": text("Fired"), "expires_at": whole(5), "timer_revision": whole(2)}

    assert UPDATE.is_reflected_in(done)
    assert not UPDATE.is_reflected_in({**done, "timer_state": text("Scheduled")})
    assert not UPDATE.is_reflected_in({**done, "timer_failure": text("{}")})
    assert not UPDATE.is_reflected_in(None)
    assert INSERT.is_reflected_in({**KEY, "a": text("b")})
    assert not INSERT.is_reflected_in({**KEY, "a": text("b"), "c": text("d")})
    delete = ItemWrite(table="timers", key=KEY)
    assert [delete.is_reflected_in(found) for found in (None, done)] == [True, False]
