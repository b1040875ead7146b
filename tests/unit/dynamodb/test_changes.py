"""A change in both spellings, and the difference of two items."""

from __future__ import annotations

from duetime.stores.dynamodb.changes import (
    Change,
    as_insert_statement,
    as_update,
    as_update_statement,
    difference,
    text,
    whole,
)

KEY = {"shard_id": whole(7), "sortKey": text('TIMER#ns#it\'s "x"')}
CHANGE = Change(
    key=KEY,
    sets={"timer_state": text("Fired"), "expires_at": whole(5)},
    removes=("timer_execute_at", "timer_failure"),
    unchanged={"timer_revision": whole(1), "timer_tags": None},
)


def test_as_a_statement_it_uses_the_documented_grammar_and_parameters_only() -> None:
    # Documented: SET and REMOVE are repeated, a comma between assignments is not in the grammar.
    assert as_update_statement("timers", CHANGE) == {
        "Statement": (
            'UPDATE "timers" SET "timer_state"=? SET "expires_at"=? REMOVE "timer_execute_at" REMOVE "timer_failure" '
            'WHERE "shard_id"=? AND "sortKey"=? AND "timer_revision"=? AND "timer_tags" IS MISSING'
        ),
        "Parameters": [text("Fired"), whole(5), whole(7), KEY["sortKey"], whole(1)],
        "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
    }


def test_as_an_update_it_says_the_same() -> None:
    assert as_update(CHANGE) == {
        "Key": KEY,
        "UpdateExpression": "SET timer_state = :s0, expires_at = :s1 REMOVE timer_execute_at, timer_failure",
        "ConditionExpression": "timer_revision = :c0 AND attribute_not_exists(timer_tags)",
        "ExpressionAttributeValues": {":s0": text("Fired"), ":s1": whole(5), ":c0": whole(1)},
    }


def test_an_insert_names_every_attribute() -> None:
    assert as_insert_statement("timers", {"shard_id": whole(7), "a": text("b")}) == {
        "Statement": "INSERT INTO \"timers\" VALUE {'shard_id': ?, 'a': ?}",
        "Parameters": [whole(7), text("b")],
    }


def test_the_difference_is_what_must_be_written() -> None:
    old = {"a": text("1"), "b": text("2"), "c": text("3")}
    new = {"a": text("1"), "b": text("9"), "d": text("4")}

    assert difference(old, new) == ({"b": text("9"), "d": text("4")}, ("c",))
    assert difference(old, old) == ({}, ())


def test_a_change_is_reflected_in_an_item_that_looks_as_it_leaves_it() -> None:
    done = {**KEY, "timer_state": text("Fired"), "expires_at": whole(5), "timer_revision": whole(2)}

    assert CHANGE.is_reflected_in(done)
    assert not CHANGE.is_reflected_in({**done, "timer_state": text("Scheduled")})
    assert not CHANGE.is_reflected_in({**done, "timer_failure": text("{}")})
