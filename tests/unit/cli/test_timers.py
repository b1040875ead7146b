"""``duetime redrive`` and ``duetime timers list`` on an SQLite store."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta
from typing import Any

import httpx
import pytest

from duetime.cli import direct
from duetime.domain.errors import StoreUnavailable
from duetime.domain.namespaces import Namespace
from duetime.domain.outcomes import RecordStatus
from duetime.domain.timers import Failure, FailureReason, TimerState
from duetime.domain.times import format_instant
from duetime.recurrence import zones
from duetime.runtime.clock import SystemClock
from duetime.stores.core.store import Store
from duetime.stores.port.timers import PutMode
from duetime.testing.contract.builders import failed, leased, make_timer
from duetime.testing.contract.steps import claim_shard
from duetime.testing.contract.timers.answers import make_waiting
from tests.support.commands import Cli
from tests.support.tenants import TARGET_ARN

NOW = SystemClock().now()
PAGE = 100
"""The commands read the real clock."""


@pytest.fixture
def orders(store: Store) -> Namespace:
    return store.catalogue.create_namespace("orders", num_shards=1, dedicated=False, now=NOW)[0]


def put_failed(
    store: Store,
    orders: Namespace,
    *timer_ids: str,
    reason: FailureReason = FailureReason.TIMEOUT,
    message: str = "no answer",
    **fields: Any,
) -> None:
    timers = [make_timer(orders, timer_id, execute_at=NOW, now=NOW, **fields) for timer_id in timer_ids]
    store.timers.put(timers, mode=PutMode.CREATE, now=NOW)
    lease = claim_shard(store, 0, "w", lease_seconds=60, now=NOW)
    assert lease is not None
    outcomes = [replace(failed(timer, at=NOW), failure=Failure(reason, message, NOW)) for timer in timers]
    assert set(store.timers.record(leased(outcomes, lease), now=NOW)) == {RecordStatus.APPLIED}
    store.leases.release([lease], now=NOW)


def states(store: Store, orders: Namespace, *timer_ids: str) -> list[TimerState]:
    timers = [store.timers.get(orders, timer_id, now=NOW) for timer_id in timer_ids]
    return [timer.state for timer in timers if timer is not None]


class TestRedrive:
    def test_all_failed_timers_are_redriven_with_progress(self, store: Store, orders: Namespace, cli: Cli) -> None:
        ids = [f"t{number:03}" for number in range(2 * PAGE + 20)]
        put_failed(store, orders, *ids)

        assert cli("namespaces", "redrive", "orders") == (
            "220 redriven, 0 skipped\n",
            "100 redriven, 0 skipped so far\n200 redriven, 0 skipped so far\n",
        )
        assert set(states(store, orders, *ids)) == {TimerState.SCHEDULED}
        timer = store.timers.get(orders, "t000", now=NOW)
        assert timer is not None
        assert timer.rearmed_at == timer.next_attempt_at
        assert cli("namespaces", "redrive", "orders")[0] == "0 redriven, 0 skipped\n"

    @pytest.mark.parametrize(
        ("filters", "expected"),
        [
            (["--reason", "Network"], ["refused"]),
            (["--tag", "red"], ["tagged"]),
            (["--due-to", format_instant(NOW)], []),
            (["--due-from", format_instant(NOW)], ["plain", "refused", "tagged"]),
            (["--failed-from", format_instant(NOW + timedelta(days=1))], []),
        ],
    )
    def test_filters_and_a_dry_run_of_them(
        self, store: Store, orders: Namespace, cli: Cli, filters: list[str], expected: list[str]
    ) -> None:
        everything = ["plain", "refused", "tagged"]
        put_failed(store, orders, "plain")
        put_failed(store, orders, "refused", reason=FailureReason.NETWORK)
        put_failed(store, orders, "tagged", tags=("red",), correlation_id="c1")

        told, _ = cli("namespaces", "redrive", "orders", "--dry-run", *filters)
        assert told == f"{len(expected)} would be redriven, 0 skipped\n"
        assert states(store, orders, *everything) == [TimerState.FAILED] * 3
        listed, _ = cli("timers", "list", "orders", "--json", *filters)
        assert sorted(json.loads(line)["id"] for line in listed.splitlines()) == expected

        assert cli("namespaces", "redrive", "orders", *filters)[0] == f"{len(expected)} redriven, 0 skipped\n"
        after = zip(everything, states(store, orders, *everything), strict=True)
        assert [timer_id for timer_id, state in after if state is TimerState.SCHEDULED] == expected

    @pytest.mark.parametrize(("options", "verb"), [([], "redriven"), (["--dry-run"], "would be redriven")])
    def test_named_timers_and_why_not(
        self, store: Store, orders: Namespace, cli: Cli, options: list[str], verb: str
    ) -> None:
        put_failed(store, orders, "a", "b", "c")
        store.timers.put([make_timer(orders, "waiting", now=NOW)], mode=PutMode.CREATE, now=NOW)
        named = [word for timer_id in ("a", "waiting", "none", "b", "a") for word in ("--timer-id", timer_id)]

        assert cli("namespaces", "redrive", "orders", *named, *options, code=1) == (
            f"2 {verb}, 2 skipped\n",
            (
                "skipped: timer 'waiting' is Scheduled: only a failed timer can be redriven\n"
                "skipped: timer 'none' does not exist in namespace 'orders'\n"
            ),
        )
        expected = TimerState.FAILED if options else TimerState.SCHEDULED
        assert states(store, orders, "a", "b", "c") == [expected, expected, TimerState.FAILED]

    @pytest.mark.parametrize(("error", "code"), [(KeyboardInterrupt(), 130), (StoreUnavailable("locked"), 1)])
    def test_what_was_redriven_before_it_broke_off_is_said(
        self,
        store: Store,
        orders: Namespace,
        cli: Cli,
        monkeypatch: pytest.MonkeyPatch,
        error: BaseException,
        code: int,
    ) -> None:
        ids = [f"t{number:03}" for number in range(2 * PAGE)]
        put_failed(store, orders, *ids)
        handle, calls = direct.HandlerTransport.handle_request, []

        def break_off(transport: direct.HandlerTransport, request: httpx.Request) -> httpx.Response:
            calls.append(1)
            if len(calls) == 2:
                raise error
            return handle(transport, request)

        monkeypatch.setattr(direct.HandlerTransport, "handle_request", break_off)

        _, told = cli("namespaces", "redrive", "orders", code=code)

        assert "interrupted: 100 redriven, 0 skipped; what was redriven stays redriven" in told
        assert states(store, orders, *ids).count(TimerState.SCHEDULED) == PAGE
        monkeypatch.undo()
        assert cli("namespaces", "redrive", "orders")[0] == "100 redriven, 0 skipped\n"

    @pytest.mark.parametrize("command", [["namespaces", "redrive"], ["timers", "list"]])
    def test_an_unknown_namespace_is_one_line(self, store: Store, cli: Cli, command: list[str]) -> None:
        assert cli.fails(*command, "other", code=1).startswith("namespace 'other' does not exist (HTTP 404")


class TestList:
    def test_a_table_of_the_failed(self, store: Store, orders: Namespace, cli: Cli) -> None:
        put_failed(store, orders, "a", message="the receiver answered \x1b[31m503")
        put_failed(store, orders, "long-id", reason=FailureReason.NETWORK, message="x" * 200)
        store.timers.put([make_timer(orders, "waiting", now=NOW)], mode=PutMode.CREATE, now=NOW)

        out, err = cli("timers", "list", "orders", "--state", "Failed")

        at = format_instant(NOW)
        assert out.splitlines() == [
            "ID       STATE   ATTEMPTS  NEXT  REASON   AT                        MESSAGE",
            f"a        Failed  1         -     Timeout  {at}  the receiver answered ?[31m503",
            f"long-id  Failed  1         -     Network  {at}  {'x' * 97}...",
        ]
        assert err == ""

    def test_lines_of_json_are_what_the_api_answers(self, store: Store, orders: Namespace, cli: Cli) -> None:
        put_failed(store, orders, "a", "b", payload_json='{"n": 1.0}')

        out, _ = cli("timers", "list", "orders", "--reason", "Timeout", "--json")

        assert [
            (line["id"], line["state"], line["failure"]["reason"]) for line in map(json.loads, out.splitlines())
        ] == [("a", "Failed", "Timeout"), ("b", "Failed", "Timeout")]

    def test_the_limit_says_when_there_is_more(self, store: Store, orders: Namespace, cli: Cli) -> None:
        put_failed(store, orders, *(f"t{number:03}" for number in range(PAGE + 5)))

        out, err = cli("timers", "list", "orders", "--limit", "103", "--json")
        assert (len(out.splitlines()), err) == (103, "there are more than 103: use --limit to show more\n")
        out, err = cli("timers", "list", "orders", "--limit", "105")
        assert (len(out.splitlines()), err) == (106, "")


def test_a_timer_at_a_local_time_is_made_changed_and_recomputed(
    orders: Namespace, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    berlin = ("--local-time", "2099-03-29T09:00", "--tz", "Europe/Berlin")
    cli("timers", "create", "orders", "https://example.com/", "--id", "t1", *berlin)
    shown = json.loads(cli("timers", "show", "orders", "t1", "--json")[0])
    assert (shown["executeAt"], shown["timeZone"]) == ("2099-03-29T07:00:00.000Z", "Europe/Berlin")
    gap = ("--local-time", "2099-03-29T02:30", "--tz", "Europe/Berlin", "--dst", "skip")
    assert "does not exist in Europe/Berlin" in cli.fails("timers", "update", "orders", "t1", *gap, code=1)

    before = zones.zone
    monkeypatch.setattr(zones, "zone", lambda _: before("Europe/Moscow"))
    assert cli("timers", "recompute", "--dry-run")[0] == "1 would be moved, 0 skipped\n"
    assert cli("timers", "recompute", "orders")[0] == "1 moved, 0 skipped\n"
    assert cli("timers", "recompute")[0] == "0 moved, 0 skipped\n"


@pytest.mark.parametrize("kind", [("timers", "--delay"), ("schedules", "--every")], ids=lambda kind: str(kind[0]))
def test_an_empty_id_is_refused_and_not_replaced_by_a_new_one(
    kind: tuple[str, str], orders: Namespace, cli: Cli
) -> None:
    words = (kind[0], "create", "orders", "https://receiver.test/hook", kind[1], "1h", "--id", "")

    assert cli.fails(*words, code=1).startswith("id: must have 1 to 255 characters")


def test_work_that_was_taken_is_answered_for(store: Store, orders: Namespace, cli: Cli) -> None:
    timer = make_waiting(store, orders)
    name = ("orders", timer.timer_id, timer.firing_id)

    goes_on, _ = cli("timers", "heartbeat", *name, "--within", "20m", "--json")
    gone, _ = cli("timers", "nack", *name, "--message", "no ink", "--no-retry", "--attempt", "1", "--json")

    assert json.loads(goes_on)["outcome"] == "Waiting"
    expected = {"firingId": timer.firing_id, "attempt": 1, "outcome": "Failed", "answerBy": None}
    assert json.loads(gone) == expected
    assert "has ended or has another answer" in cli.fails("timers", "ack", *name, code=1)
    scheduled_at = ("--scheduled-at", "2026-12-20T15:30:00Z")
    assert "schedule 's' does not exist" in cli.fails("schedules", "ack", "orders", "s", "f", *scheduled_at, code=1)


@pytest.mark.usefixtures("orders")
def test_an_escalation_is_a_part_of_the_retry_policy(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    url, alerts = "https://example.com/", "https://alerts.example.com/"
    policy = ("--retry-policy", '{"maxAttempts": 2}', "--escalate-url", alerts)
    cli("timers", "create", "orders", url, "--id", "t1", "--delay", "1h", *policy)
    cli("timers", "put", "orders", "t2", url, "--delay", "1h", "--escalate-url", alerts)
    cli("schedules", "create", "orders", url, "--id", "s1", "--every", "1h", *policy)

    shown = [
        json.loads(cli(*kind, "show", "orders", name, "--json")[0])["retryPolicy"]
        for *kind, name in (("timers", "t1"), ("timers", "t2"), ("schedules", "s1"))
    ]
    assert [(each["maxAttempts"], each["escalateUrl"]) for each in shown] == [(2, alerts), (10, alerts), (2, alerts)]
    monkeypatch.setenv("DUETIME_ALLOWED_TARGETS", TARGET_ARN)
    cli("timers", "put", "orders", "t2", url, "--delay", "1h", "--escalate-url", TARGET_ARN)
    of_target = json.loads(cli("timers", "show", "orders", "t2", "--json")[0])["retryPolicy"]
    assert (of_target["escalateUrl"], of_target["escalateTarget"]) == (None, {"arn": TARGET_ARN})
    array = ("--retry-policy", "[]", "--escalate-url", alerts)
    assert "must be a JSON object" in cli.fails("timers", "put", "orders", "t2", url, "--delay", "1h", *array, code=2)
