"""How many requests an operation takes, whatever the size of its batch; and the same results from an older server."""

from __future__ import annotations

from collections.abc import Callable
from unittest.mock import PropertyMock, patch

import pytest
from pymongo import MongoClient
from pymongo.errors import ClientBulkWriteException, OperationFailure

from duetime.domain.outcomes import RecordStatus
from duetime.domain.timers import TimerChange
from duetime.stores.backends.mongodb.database import Database
from duetime.stores.core.store import Store
from duetime.stores.port.calls import ApplyStatus
from duetime.stores.port.timers import ChangeStatus, PutMode, PutStatus, TimerFilter, TimerRef
from duetime.stores.time_source import TimeSource
from duetime.testing.contract import call_builders as make
from duetime.testing.contract import call_steps as steps
from duetime.testing.contract.builders import fired, make_timer, make_timers, seconds
from duetime.testing.contract.steps import claim, claim_shard, create, record
from tests.integration.mongodb.conftest import Commands, opened
from tests.support.clock import NOW


def sent(commands: Commands, operation: Callable[[], object]) -> int:
    commands.clear()
    operation()
    return len(commands.names())


def test_a_batch_takes_the_requests_of_one(store: Store, commands: Commands) -> None:
    namespace = store.catalogue.create_namespace("orders", num_shards=4, dedicated=False, now=NOW)[0]
    timers = make_timers(namespace, 150)
    leases = [claim(store, shard) for shard in namespace.shard_ids()]

    assert sent(commands, lambda: create(store, *timers)) == 1
    others = make_timers(namespace, 150, payload_json="2")
    replaced = sent(commands, lambda: store.timers.put(others, mode=PutMode.REPLACE, now=NOW))
    assert replaced == 3
    due = [timer for shard in range(4) for timer in store.timers.due(shard, until=NOW, limit=100).timers]
    assert len(due) == 150
    listed = sent(commands, lambda: store.timers.list(namespace, TimerFilter(), cursor=None, limit=150, now=NOW))
    assert listed == 1
    assert sent(commands, lambda: record(store, [fired(timer) for timer in due], *leases)) == 2
    refs = [TimerRef(timer.timer_id) for timer in timers]
    deleted = sent(commands, lambda: store.timers.delete(namespace, refs, now=NOW))
    assert deleted == 2


def test_what_pollers_ask_again_and_again_is_one_request(store: Store, commands: Commands) -> None:
    namespace = store.catalogue.create_namespace("single", num_shards=1, dedicated=False, now=NOW)[0]
    create(store, *make_timers(namespace, 3, execute_at=NOW + seconds(60)))
    leases = [claim(store, shard) for shard in range(3)]

    assert sent(commands, lambda: store.timers.due(0, until=NOW, limit=100)) == 1
    assert sent(commands, lambda: store.timers.due(1, until=NOW, limit=100)) == 1
    assert sent(commands, store.catalogue.shard_map) == 1
    assert sent(commands, lambda: store.leases.renew(leases, lease_seconds=5, now=NOW)) == 1
    assert sent(commands, store.check) == 1


def test_leases_by_the_servers_clock_are_read_again(mongodb_url: str, commands: Commands) -> None:
    """A claim reads the shards first, and both read when the leases end."""
    with opened(mongodb_url, commands, time_source=TimeSource.DATABASE) as store:
        assert sent(commands, lambda: claim(store)) == 3
        assert sent(commands, lambda: claim_shard(store, 0, "w", lease_seconds=5, now=NOW)) == 2
        lease = claim(store, 1)
        renewed = sent(commands, lambda: store.leases.renew([lease], lease_seconds=5, now=NOW))
        assert renewed == 2


def test_the_outbox_takes_a_request_for_each_tenant_and_one_to_find_them(store: Store, commands: Commands) -> None:
    assert sent(commands, lambda: store.outbox.unpublished(limit=100)) == 1
    steps.submit(store.calls)
    steps.submit(store.calls)
    assert sent(commands, lambda: store.outbox.unpublished(limit=100)) == 2
    events = store.outbox.unpublished(limit=100)
    assert sent(commands, lambda: store.outbox.mark_published(events, now=NOW)) == 1


def test_a_batch_of_transitions_is_one_transaction_of_two_requests(store: Store, commands: Commands) -> None:
    batch = [make.submitted(idempotency_key=f"k{number}") for number in range(10)]

    assert sent(commands, lambda: steps.applied(store.calls, *batch)) == 2
    begun = [make.begun(each.after) for each in batch]
    assert sent(commands, lambda: steps.applied(store.calls, *begun)) == 2


def test_reads_and_writes_ask_for_the_majority(store: Store, commands: Commands) -> None:
    namespace = store.catalogue.create_namespace("orders", num_shards=4, dedicated=False, now=NOW)[0]
    commands.clear()

    create(store, *make_timers(namespace, 2))
    store.timers.due(0, until=NOW, limit=5)
    store.timers.update(namespace, "t0001", TimerChange(), firing_id="f", now=NOW)

    assert {name == "find" for name, _ in commands.sent} == {True, False}
    for name, command in commands.sent:
        if name == "find":
            assert command["readConcern"]["level"] == "majority"
        else:
            assert command["writeConcern"]["w"] == "majority"


def test_an_older_server_gets_a_request_per_write(store: Store, commands: Commands) -> None:
    with patch.object(Database, "tells_each_write", new_callable=PropertyMock, return_value=False):
        namespace = store.catalogue.create_namespace("orders", num_shards=1, dedicated=False, now=NOW)[0]
        lease = claim(store)
        timers = create(store, *make_timers(namespace, 6))
        (again, other) = store.timers.put(
            [timers[0], *make_timers(namespace, 1, prefix="new")], mode=PutMode.CREATE, now=NOW
        )
        assert [again.status, other.status] == [PutStatus.UNCHANGED, PutStatus.CREATED]
        (replaced,) = store.timers.put(
            [make_timer(namespace, timers[1].timer_id, payload_json="2")], mode=PutMode.REPLACE, now=NOW
        )
        assert replaced.status is PutStatus.REPLACED
        refs = [TimerRef(timers[2].timer_id), TimerRef("none"), TimerRef(timers[3].timer_id, 9)]
        deleted = store.timers.delete(namespace, refs, now=NOW)
        assert [each.status for each in deleted] == [
            ChangeStatus.APPLIED,
            ChangeStatus.NOT_FOUND,
            ChangeStatus.REVISION_MISMATCH,
        ]
        assert record(store, [fired(timer) for timer in timers], lease) == [
            RecordStatus.APPLIED,
            RecordStatus.SUPERSEDED,
            RecordStatus.SUPERSEDED,
            *[RecordStatus.APPLIED] * 3,
        ]

        call = steps.submit(store.calls, idempotency_key="k")
        stale = make.begun(call)
        running = steps.begin(store.calls, call)
        taken, new = make.submitted(idempotency_key="k"), make.submitted()
        assert steps.apply(store.calls, stale, taken, new) == [
            ApplyStatus.SUPERSEDED,
            ApplyStatus.EXISTS,
            ApplyStatus.APPLIED,
        ]
        assert steps.got(store.calls, call) == running
        assert steps.got(store.calls, taken.after) is None
        store.outbox.mark_published(store.outbox.unpublished(limit=100), now=NOW)
        assert store.outbox.unpublished(limit=100) == []
    assert "bulkWrite" not in commands.names()


@pytest.mark.parametrize("is_call_first", [False, True])
def test_a_server_that_works_as_an_older_version_gets_a_request_per_write(
    store: Store, commands: Commands, is_call_first: bool
) -> None:
    """MongoDB 8.0 refuses ``bulkWrite`` while its feature compatibility version is 7.0; ``hello`` does not tell."""
    refusal = OperationFailure("refused", 115, {"code": 115, "codeName": "CommandNotSupported"})
    namespace = store.catalogue.create_namespace("orders", num_shards=1, dedicated=False, now=NOW)[0]
    commands.clear()
    with patch.object(
        MongoClient, "bulk_write", side_effect=ClientBulkWriteException({"error": refusal}, True)
    ) as refused:
        if is_call_first:
            call = steps.submit(store.calls)
            assert commands.names()[-1] == "commitTransaction"
        timers = create(store, *make_timers(namespace, 3))
        if not is_call_first:
            call = steps.submit(store.calls)
        assert record(store, [fired(timer) for timer in timers], claim(store)) == [RecordStatus.APPLIED] * 3
        assert steps.got(store.calls, steps.begin(store.calls, call)) is not None

    assert refused.call_count == 1
    assert "abortTransaction" not in commands.names()
