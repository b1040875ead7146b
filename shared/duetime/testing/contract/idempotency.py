"""put_idempotency_record: one of several who want a key gets it, and only who has it may write on."""

from __future__ import annotations

from datetime import datetime

import pytest

from duetime.domain.idempotency import IdempotencyRecord
from duetime.stores.core.store import Store
from duetime.testing.contract.builders import NOW, seconds
from duetime.testing.contract.fixtures import AtOnce
from duetime.testing.contract.subject import Subject

KEY = "0" * 63 + "f"
LATER = NOW + seconds(86_400)


def record(
    claim_id: str, *, key: str = KEY, content: str = "in progress", expires_at: datetime = LATER
) -> IdempotencyRecord:
    return IdempotencyRecord(key=key, claim_id=claim_id, content=content, expires_at=expires_at)


def test_the_first_claim_is_stored_and_others_are_told_of_it(store: Store) -> None:
    first = record("a")
    assert store.catalogue.put_idempotency_record(first, now=NOW) == first
    assert store.catalogue.put_idempotency_record(record("b", content="other"), now=NOW) == first
    other = record("b", key="1" * 64)
    assert store.catalogue.put_idempotency_record(other, now=NOW) == other


def test_a_claim_is_written_anew_by_its_owner_alone(store: Store) -> None:
    store.catalogue.put_idempotency_record(record("a"), now=NOW)
    done = record("a", content="done", expires_at=LATER + seconds(1))
    assert store.catalogue.put_idempotency_record(done, now=NOW) == done
    assert store.catalogue.put_idempotency_record(record("b"), now=NOW) == done


def test_a_repeated_claim_is_the_same_claim(store: Store) -> None:
    """As a driver repeats it whose answer was lost."""
    first = record("a")
    assert [store.catalogue.put_idempotency_record(first, now=NOW) for _ in range(2)] == [first, first]


def test_who_knows_the_claim_may_take_it_over_once(store: Store) -> None:
    store.catalogue.put_idempotency_record(record("a"), now=NOW)
    second = record("b", content="again")
    assert store.catalogue.put_idempotency_record(second, if_claim="a", now=NOW) == second
    assert store.catalogue.put_idempotency_record(record("c"), if_claim="a", now=NOW) == second
    assert store.catalogue.put_idempotency_record(record("a", content="late"), now=NOW) == second


def test_a_takeover_of_what_is_gone_is_a_claim(store: Store) -> None:
    second = record("b")
    assert store.catalogue.put_idempotency_record(second, if_claim="a", now=NOW) == second


def test_an_expired_record_reads_as_absent(store: Store) -> None:
    first = record("a", expires_at=NOW + seconds(10))
    store.catalogue.put_idempotency_record(first, now=NOW)
    assert store.catalogue.put_idempotency_record(record("b"), now=NOW + seconds(9.999)) == first
    second = record("b", expires_at=LATER)
    assert store.catalogue.put_idempotency_record(second, now=NOW + seconds(10)) == second


def test_expired_records_are_pruned(subject: Subject) -> None:
    store = subject.store
    for number in range(3):
        store.catalogue.put_idempotency_record(
            record("a", key=f"{number:064}", expires_at=NOW + seconds(number)), now=NOW
        )
    wanted = 0 if subject.expires_by_itself else 1
    assert [store.timers.prune(now=NOW + seconds(1), limit=1) for _ in range(3)] == [wanted, wanted, 0]
    assert store.catalogue.put_idempotency_record(record("b", key=f"{2:064}"), now=NOW + seconds(1)).claim_id == "a"


@pytest.mark.parametrize("content", ["x" * 320_000, '{"ü": "😀\\u0000"}\n  ', " "])
def test_any_text_is_kept_to_the_character(store: Store, content: str) -> None:
    first = record("a", content=content)
    store.catalogue.put_idempotency_record(first, now=NOW)
    assert store.catalogue.put_idempotency_record(record("b"), now=NOW) == first


def test_one_of_many_at_once_gets_the_key(store: Store, at_once: AtOnce) -> None:
    stored = at_once(lambda number: store.catalogue.put_idempotency_record(record(f"claim-{number}"), now=NOW))

    assert len({each.claim_id for each in stored}) == 1
