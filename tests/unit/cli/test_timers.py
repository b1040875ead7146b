"""``duetime redrive`` and ``duetime timers list`` on an SQLite store."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from duetime.cli import direct
from duetime.cli.main import run
from duetime.domain.errors import StoreUnavailable
from duetime.domain.namespaces import Namespace
from duetime.domain.outcomes import RecordStatus
from duetime.domain.timers import Failure, FailureReason, TimerState
from duetime.domain.times import format_instant
from duetime.runtime.clock import SystemClock
from duetime.stores.port.store import Store
from duetime.stores.port.timers import PutMode
from tests.support.builders import failed, leased, make_timer
from tests.support.leases import claim_shard

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
    def test_all_failed_timers_are_redriven_with_progress(
        self,
        store: Store,
        orders: Namespace,
        url: str,
        capsys: pytest.CaptureFixture[str],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        ids = [f"t{number:03}" for number in range(2 * PAGE + 20)]
        put_failed(store, orders, *ids)

        assert run(["namespaces", "redrive", "orders", "--store", url]) == 0

        captured = capsys.readouterr()
        assert captured.out == "220 redriven, 0 skipped\n"
        assert captured.err.splitlines() == ["100 redriven, 0 skipped so far", "200 redriven, 0 skipped so far"]
        assert set(states(store, orders, *ids)) == {TimerState.SCHEDULED}
        timer = store.timers.get(orders, "t000", now=NOW)
        assert timer is not None
        assert timer.rearmed_at == timer.next_attempt_at
        assert run(["namespaces", "redrive", "orders", "--store", url]) == 0
        assert capsys.readouterr().out == "0 redriven, 0 skipped\n"

    @pytest.mark.parametrize(
        ("filters", "expected"),
        [
            (["--reason", "network"], ["refused"]),
            (["--tag", "red"], ["tagged"]),
            (["--due-to", format_instant(NOW)], []),
            (["--due-from", format_instant(NOW)], ["plain", "refused", "tagged"]),
            (["--failed-from", format_instant(NOW + timedelta(days=1))], []),
        ],
    )
    def test_filters_and_a_dry_run_of_them(
        self,
        store: Store,
        orders: Namespace,
        url: str,
        capsys: pytest.CaptureFixture[str],
        filters: list[str],
        expected: list[str],
    ) -> None:
        everything = ["plain", "refused", "tagged"]
        put_failed(store, orders, "plain")
        put_failed(store, orders, "refused", reason=FailureReason.NETWORK)
        put_failed(store, orders, "tagged", tags=("red",), correlation_id="c1")

        assert run(["namespaces", "redrive", "orders", "--store", url, "--dry-run", *filters]) == 0
        assert capsys.readouterr().out == f"{len(expected)} would be redriven, 0 skipped\n"
        assert states(store, orders, *everything) == [TimerState.FAILED] * 3

        assert run(["namespaces", "redrive", "orders", "--store", url, *filters]) == 0
        assert capsys.readouterr().out == f"{len(expected)} redriven, 0 skipped\n"
        after = zip(everything, states(store, orders, *everything), strict=True)
        assert [timer_id for timer_id, state in after if state is TimerState.SCHEDULED] == expected

    @pytest.mark.parametrize(("options", "verb"), [([], "redriven"), (["--dry-run"], "would be redriven")])
    def test_named_timers_and_why_not(
        self,
        store: Store,
        orders: Namespace,
        url: str,
        capsys: pytest.CaptureFixture[str],
        options: list[str],
        verb: str,
    ) -> None:
        put_failed(store, orders, "a", "b", "c")
        store.timers.put([make_timer(orders, "waiting", now=NOW)], mode=PutMode.CREATE, now=NOW)
        named = [word for timer_id in ("a", "waiting", "none", "b", "a") for word in ("--timer-id", timer_id)]

        assert run(["namespaces", "redrive", "orders", "--store", url, *named, *options]) == 1

        captured = capsys.readouterr()
        assert captured.out == f"2 {verb}, 2 skipped\n"
        assert captured.err.splitlines() == [
            "skipped: timer 'waiting' is scheduled: only a failed timer can be redriven",
            "skipped: timer 'none' does not exist in namespace 'orders'",
        ]
        expected = TimerState.FAILED if options else TimerState.SCHEDULED
        assert states(store, orders, "a", "b", "c") == [expected, expected, TimerState.FAILED]

    @pytest.mark.parametrize(("error", "code"), [(KeyboardInterrupt(), 130), (StoreUnavailable("locked"), 1)])
    def test_what_was_redriven_before_it_broke_off_is_said(
        self,
        store: Store,
        orders: Namespace,
        url: str,
        capsys: pytest.CaptureFixture[str],
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

        assert run(["namespaces", "redrive", "orders", "--store", url]) == code

        assert "interrupted: 100 redriven, 0 skipped; what was redriven stays redriven" in capsys.readouterr().err
        assert states(store, orders, *ids).count(TimerState.SCHEDULED) == PAGE
        monkeypatch.undo()
        assert run(["namespaces", "redrive", "orders", "--store", url]) == 0
        assert capsys.readouterr().out == "100 redriven, 0 skipped\n"

    @pytest.mark.parametrize("command", [["namespaces", "redrive"], ["timers", "list"]])
    def test_an_unknown_namespace_is_one_line(
        self, store: Store, url: str, capsys: pytest.CaptureFixture[str], command: list[str]
    ) -> None:
        assert run([*command, "other", "--store", url]) == 1
        assert capsys.readouterr().err.startswith("duetime: error: namespace 'other' does not exist (HTTP 404")

    def test_a_store_that_is_not_there_is_not_made(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert run(["namespaces", "redrive", "orders", "--store", f"sqlite:///{tmp_path}/none.db"]) == 1
        assert "duetime init" in capsys.readouterr().err
        assert list(tmp_path.iterdir()) == []


class TestList:
    def test_a_table_of_the_failed(
        self, store: Store, orders: Namespace, url: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        put_failed(store, orders, "a", message="the receiver answered \x1b[31m503")
        put_failed(store, orders, "long-id", reason=FailureReason.NETWORK, message="x" * 200)
        store.timers.put([make_timer(orders, "waiting", now=NOW)], mode=PutMode.CREATE, now=NOW)

        assert run(["timers", "list", "orders", "--state", "failed", "--store", url]) == 0

        captured = capsys.readouterr()
        at = format_instant(NOW)
        assert captured.out.splitlines() == [
            "ID       STATE   ATTEMPTS  NEXT  REASON   AT                        MESSAGE",
            f"a        failed  1         -     timeout  {at}  the receiver answered ?[31m503",
            f"long-id  failed  1         -     network  {at}  {'x' * 97}...",
        ]
        assert captured.err == ""

    def test_lines_of_json_are_what_the_api_answers(
        self, store: Store, orders: Namespace, url: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        put_failed(store, orders, "a", "b", payload_json='{"n": 1.0}')

        assert run(["timers", "list", "orders", "--reason", "timeout", "--json", "--store", url]) == 0

        lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        assert [(line["id"], line["state"], line["failure"]["reason"]) for line in lines] == [
            ("a", "failed", "timeout"),
            ("b", "failed", "timeout"),
        ]

    def test_the_limit_says_when_there_is_more(
        self, store: Store, orders: Namespace, url: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        put_failed(store, orders, *(f"t{number:03}" for number in range(PAGE + 5)))

        assert run(["timers", "list", "orders", "--limit", "103", "--json", "--store", url]) == 0
        captured = capsys.readouterr()
        assert len(captured.out.splitlines()) == 103
        assert captured.err == "there are more than 103: use --limit to show more\n"

        assert run(["timers", "list", "orders", "--limit", "105", "--store", url]) == 0
        captured = capsys.readouterr()
        assert len(captured.out.splitlines()) == 106
        assert captured.err == ""
