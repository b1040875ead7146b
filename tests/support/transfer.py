"""Fills stores with something of everything that is transferred, and transfers it without the command."""

from __future__ import annotations

import io
from dataclasses import replace
from datetime import datetime
from typing import Any

from duetime.domain.api_keys import ApiKey, hash_of
from duetime.domain.event_webhooks import EventWebhook
from duetime.domain.namespaces import EncryptedSecret, Namespace, NamespaceSettings
from duetime.domain.occurrences import PastOccurrence
from duetime.domain.outcomes import recorded
from duetime.domain.principals import Role
from duetime.domain.schedule_timers import triggered
from duetime.domain.timers import Timer, TimerState
from duetime.stores.core.store import Store
from duetime.stores.port.calls import CallRef
from duetime.testing.contract import call_builders as make
from duetime.testing.contract import call_steps as steps
from duetime.testing.contract.builders import RETENTION, make_failure, make_timer, make_timers, retried, seconds
from duetime.testing.contract.schedules import after, make_schedule
from duetime.testing.contract.steps import create
from duetime.transfer.exporting import export
from duetime.transfer.importing import Importer, Loaded, verify
from duetime.transfer.lines import Header
from duetime.transfer.reading import ExportReader
from tests.support.clock import NOW

HEADER = Header.model_construct(exported_at=NOW, source="sqlite", source_mark="0" * 16, program="duetime test")
LOCAL = '{"local_time":"2026-12-20T16:30:00","time_zone":"Europe/Berlin"}'
PAYLOAD = '{"price": 1.10, "text": "é \\u2028\u2028\\n"}'


def fill(store: Store, *, timers: int = 30) -> None:
    """Namespaces of three tenants, keys, secrets, timers in every state, service calls in every state, events."""
    store.catalogue.secret("cursor", b"\x01" * 32)
    _fill_catalogue(store)
    orders = store.catalogue.create_namespace("orders", num_shards=4, dedicated=False, now=NOW)[0]
    own = store.catalogue.create_namespace("own", num_shards=3, dedicated=True, now=NOW, tenant_id="acme")[0]
    create(store, *make_timers(orders, timers, payload_json=PAYLOAD, execute_at=NOW + seconds(60)))
    for namespace, name in ((orders, "s1"), (own, "é s")):
        _fill_schedule(store, make_schedule(namespace, name))
    create(store, make_timer(own, "local", timing_json=LOCAL))
    create(store, *make_timers(own, 7, tags=("a", "b"), correlation_id="corr", expire_after_ms=9000))
    for namespace in (orders, own):
        store.transfer.load_timers(in_every_state(namespace), now=NOW)
    _fill_calls(store, "acme")
    _fill_calls(store, "zeta")


def _fill_schedule(store: Store, schedule: Timer) -> None:
    """Store one whose first occurrence goes on as a timer, and which was triggered."""
    outcome = after(retried(schedule, next_attempt_at=NOW + seconds(90)))
    assert outcome.schedule is not None
    assert outcome.schedule.detached is not None
    by_hand = triggered(schedule, NOW, trigger_id="t", now=NOW)
    store.transfer.load_timers([recorded(outcome, now=NOW), outcome.schedule.detached, by_hand], now=NOW)
    (line,) = outcome.schedule.occurrences
    past = PastOccurrence(
        namespace=schedule.namespace, schedule_id=schedule.schedule_id or "", shard_id=schedule.shard_id, line=line
    )
    store.transfer.load_occurrences([past])


def in_every_state(namespace: Namespace) -> list[Timer]:
    """Timers as they are only after attempts, too."""
    timer = make_timer(namespace, "é/x", headers_json='{"A": "1"}', retry_policy_json='{"maxAttempts": 3}')
    tried = replace(
        timer,
        revision=7,
        attempts=2,
        updated_at=NOW - seconds(3),
        rearmed_at=NOW - seconds(9),
        failure=make_failure(at=NOW - seconds(4)),
        attempt_log='[[1,"f",1700000000000,12,"Retry",503]]',
    )
    ended = replace(tried, next_attempt_at=None, expires_at=NOW + RETENTION)
    states = [
        timer,
        replace(tried, next_attempt_at=NOW + seconds(8)),
        replace(tried, state=TimerState.FIRING, next_attempt_at=NOW + seconds(30)),
        replace(ended, state=TimerState.FIRED, fired_at=NOW, failure=None),
        replace(ended, state=TimerState.FAILED),
    ]
    ids = [f"é state {number}" for number in range(len(states))]
    return [
        replace(each, timer_id=timer_id, shard_id=namespace.shard_of(timer_id))
        for each, timer_id in zip(states, ids, strict=True)
    ]


def _fill_catalogue(store: Store) -> None:
    changed = store.catalogue.create_namespace("changed", num_shards=2, dedicated=False, now=NOW)[0]
    settings = NamespaceSettings(retry_policy_json='{"maxAttempts": 2}', max_in_flight=3, rate_limit_per_second=5)
    secrets = (
        EncryptedSecret("s1", b"\x02ciphertext", NOW, NOW + seconds(60)),
        EncryptedSecret("s2", b"\x02new", NOW),
    )
    store.catalogue.update_namespace(replace(changed, settings=settings, secrets=secrets), if_revision=1, now=NOW)
    hooks = store.catalogue.create_namespace("events@acme", num_shards=2, dedicated=False, now=NOW, tenant_id="acme")[
        0
    ]
    webhook = NamespaceSettings(webhook=EventWebhook(url="https://hooks.test/in?key=1"))
    store.catalogue.update_namespace(replace(hooks, settings=webhook), if_revision=1, now=NOW)
    for number, role in enumerate(Role):
        expires_at = NOW - seconds(1) if number else None
        key = ApiKey(
            key_id=f"k{number}",
            tenant_id="acme",
            role=role,
            name="Büro" if number else "",
            secret_hash=hash_of(f"secret {number}"),
            created_at=NOW,
            expires_at=expires_at,
        )
        assert store.catalogue.create_api_key(key)


def _fill_calls(store: Store, tenant_id: str) -> None:
    calls = store.calls
    store.catalogue.create_namespace(
        f"calls@{tenant_id}", num_shards=4, dedicated=False, now=NOW, tenant_id=tenant_id
    )

    def submit(number: int, **fields: Any) -> Any:
        call_id = make.id_at(NOW, number)
        return steps.submit(calls, tenant_id=tenant_id, call_id=call_id, **fields)

    submit(1, due_at=NOW + seconds(60), tags=("a", "b"), idempotency_key="k1", starred=True)
    steps.begin(calls, submit(2))
    steps.run(calls, submit(3, body_json=f'"{"x" * 3000}"', idempotency_key="k3"))
    steps.run(calls, submit(4, retry_policy_json=make.RETRIED), is_ok=False)
    done = steps.run(calls, submit(5), is_ok=False)
    store.outbox.mark_published(store.outbox.unpublished_of(CallRef(tenant_id, done.call_id), limit=3), now=NOW)
    gone = steps.run(calls, submit(6))
    calls.delete(tenant_id, gone.call_id, now=NOW)


def exported(store: Store, *, now: datetime = NOW) -> bytes:
    file = io.BytesIO()
    export(store, file, now=now, header=HEADER)
    return file.getvalue()


def imported(store: Store, data: bytes, *, now: datetime = NOW) -> Loaded:
    """Load ``data`` into ``store``; the two must be the same then."""
    reader = ExportReader(io.BytesIO(data))
    loaded = Importer(store, now=now).run(reader)
    assert verify(store, reader.totals, now=now) == []
    return loaded
