"""``duetime cost``: arithmetic by hand, the JSON, tables of prices, and errors."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from duetime.cli.cost.prices import Price
from tests.support.commands import Cli
from tests.support.processes import ROOT

Cost = Callable[..., dict[str, Any]]


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str]) -> Cli:
    return Cli(capsys)


@pytest.fixture
def cost(cli: Cli) -> Cost:
    def ask(*words: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(cli("cost", "--json", *words)[0])
        return found

    return ask


@pytest.fixture
def shipped(cli: Cli) -> dict[str, Any]:
    table: dict[str, Any] = json.loads(cli("cost", "--show-prices")[0])
    return table


def usd(bill: dict[str, Any]) -> dict[str, float]:
    return {line["name"]: line["usd"] for line in bill["lines"]}


def quantities(bill: dict[str, Any]) -> dict[str, float]:
    return {line["name"]: line["quantity"] for line in bill["lines"]}


def named(bills: list[dict[str, Any]], name: str) -> dict[str, Any]:
    (found,) = (each for each in bills if each["name"] == name)
    return found


@pytest.mark.parametrize(("quantity", "usd"), [(0, 0), (3, 6), (10, 20), (12, 22), (20, 30), (25, 30 + 2.5)], ids=str)
def test_what_lies_above_a_quantity_has_a_price_of_its_own(quantity: float, usd: float) -> None:
    price = Price(unit="x", usd=2.0, above=((10, 1.0), (20, 0.5)))
    assert price.cost(quantity) == pytest.approx(usd)


@pytest.mark.parametrize(
    ("quantity", "usd"), [(1, 10), (17, 170), (18, 180), (30, 180), (31, 310), (42, 420), (400, 4000)]
)
def test_the_cheapest_plan_that_holds_a_quantity_counts(quantity: float, usd: float) -> None:
    price = Price(unit="million messages", usd=10.0, plans=((30, 180), (300, 420)))
    assert price.cost(quantity) == pytest.approx(usd)


def test_a_million_timers_created_one_by_one(cost: Cost) -> None:
    bill = cost("--timers-per-month", "1000000")

    assert quantities(bill) == pytest.approx(
        {
            "HTTP API: creates": 1.0,
            "API: requests": 1.0,
            "API: time": 0.015 * 1,
            "poller: requests": 0.0438 + 2.628 / 740,
            # Each minute: the shard map, whether pollers sleep, each shard. Each 30 s: a function that creates.
            "watchdog and sleep: read": 0.0438 * (2 + 1 + 4) + 2.628 / 30,
            "poller: time": (0.0438 * 0.15 + 2.628 * 745 / 740) * 0.5,
            "outbox: requests": 0.0438,
            "outbox: time": 0.0438 * 0.2 * 0.5,
            "outbox: read": 0.0438 * 12,
            "timers: written": 4.0,
            "leases: written": 4 * 0.1 * 2.628,
            "timers: read": 2 + 700 / 4096 + 1 + 0.5256 * 0.5,  # a key every 5 s of 730 h
            "polls: read": (4 * (1.25 + 10 * 5 / 740) + 2) * 2.628,
            "tables: storage": (1600 * 24 + 950 * 168) / 730 * 1e6 / 2**30,
            "tables: point-in-time recovery": (1600 * 24 + 950 * 168) / 730 * 1e6 / 2**30,
            "logs": (1200e6 + 35 * 2_628_000 + 1000 * 43_800) / 2**30,
            "metrics": 2 + 5,
            "alarms": 21,
            "key of signing secrets": 1,
        },
        abs=2e-6,
    )
    assert usd(bill)["timers: written"] == 2.5
    assert usd(bill)["poller: time"] == pytest.approx(17.6823, abs=1e-3)
    assert bill["totalUsd"] == pytest.approx(sum(usd(bill).values()), abs=0.001)


def test_batches_take_fewer_requests(cost: Cost) -> None:
    found = quantities(cost("--creates", "batch"))
    assert found["HTTP API: creates"] == 0.002  # 500 a request
    # 4 MiB hold 41 timers of 100 KB, and each such request is metered as 9.
    large = quantities(cost("--creates", "batch", "--payload-bytes", "100000"))
    assert large["HTTP API: creates"] == pytest.approx(8 / 41)


def test_larger_payloads_take_more_units(cost: Cost) -> None:
    # 2,600 bytes: item and index entry 3 units each, when it is created and when it ends.
    assert quantities(cost("--payload-bytes", "2000"))["timers: written"] == 12.0


@pytest.mark.parametrize(
    ("words", "dollars"),
    [
        (("sqs",), 0.4),
        (("sqs", "--payload-bytes", "65000"), 0.8),  # with what Duetime adds more than 64 KB
        (("sns",), 0.5),
        (("eventbridge",), 1.0),
        (("lambda", "--payload-bytes", "200000"), 0.2),
        (("step-functions",), 25.0),
    ],
)
def test_a_target_is_charged_by_its_service(cost: Cost, words: tuple[str, ...], dollars: float) -> None:
    assert usd(cost("--target", *words))["target: messages"] == pytest.approx(dollars)
    assert "target: messages" not in usd(cost())


def test_provisioned_capacity_has_room_to_spare(cost: Cost) -> None:
    bill = cost("--capacity", "provisioned")
    hours = 4e6 / 3600 + 4 * 0.1 * 730
    assert quantities(bill)["timers and leases: written"] == pytest.approx(hours / 0.7)
    assert usd(bill)["timers and leases: written"] == pytest.approx(hours / 0.7 * 0.00065, abs=1e-4)


def test_metrics_are_charged_by_the_hours_that_have_data(cost: Cost) -> None:
    assert quantities(cost("--active-hours", "73"))["metrics"] == pytest.approx(2 + 0.5)
    assert quantities(cost("--timers-per-month", "0"))["metrics"] == 2


def test_what_is_free_goes_to_the_first_lines(cost: Cost) -> None:
    bill = cost("--free-tier")
    assert usd(bill)["API: time"] == 0
    assert usd(bill)["poller: time"] == pytest.approx((1.326165 - (0.4 - 0.015)) * 13.3334, abs=1e-3)
    assert usd(cost("--free-tier", "--dashboard"))["dashboard"] == 0
    assert usd(cost("--dashboard"))["dashboard"] == 3


def test_a_stack_with_nothing_to_do_costs_less_than_four_dollars(cost: Cost) -> None:
    assert cost("--timers-per-month", "0")["totalUsd"] < 4


def test_pollers_are_awake_for_as_long_as_timers_need_them(cost: Cost) -> None:
    def awake_hours(*words: str) -> float:
        requests = quantities(cost(*words))["poller: requests"]
        return (requests - 0.0438) * 1e6 * 740 / 3600

    assert awake_hours("--timers-per-month", "0") == pytest.approx(0, abs=0.01)
    assert awake_hours("--timers-per-month", "100") == pytest.approx(100 * 430 / 3600, abs=0.3)
    assert awake_hours("--active-hours", "200") == pytest.approx(200, abs=0.3)
    assert awake_hours() == pytest.approx(730, abs=0.3)
    assert awake_hours("--timers-per-month", "0", "--sleep", "never") == pytest.approx(730, abs=0.3)


@pytest.mark.parametrize(
    ("name", "words", "total"),
    [
        ("EventBridge Scheduler", (), 1 + 1 + 0.2),
        ("EventBridge Scheduler", ("--free-tier", "--timers-per-month", "20000000"), 6 + 20 + 4),
        ("EventBridge Scheduler", ("--payload-bytes", "70000"), 1 + 2 + 0.2),
        ("EventBridge Scheduler", ("--target", "sqs"), 1),
        ("Step Functions", (), 100),
        ("Lambda durable functions", ("--payload-bytes", "0"), 3 * 8 + 2 * 0.2 + 0.00375 * 13.3334),
        ("Cloud Tasks", (), 0.8),
        ("Cloud Tasks", ("--free-tier",), 0.4),
        ("Cloud Tasks", ("--payload-bytes", "40000"), 1.6),
        ("QStash", (), 10),
        ("QStash", ("--timers-per-month", "30000000"), 180),
    ],
)
def test_the_same_timers_elsewhere(cost: Cost, name: str, words: tuple[str, ...], total: float) -> None:
    assert named(cost(*words)["others"], name)["totalUsd"] == pytest.approx(total, abs=1e-3)


def test_a_worker_takes_the_place_of_the_lambda_poller(cost: Cost) -> None:
    bill = cost("--timers-per-month", "0", "--sleep", "never")
    task = named(bill["workers"], "Fargate task")

    worker = sum(line["usd"] for line in task["lines"] if line["name"] == "worker")
    assert worker == pytest.approx(730 * (0.25 * 0.03238 + 0.5 * 0.00356 + 0.005), abs=1e-3)
    assert not any(line["name"].startswith("poller") for line in task["lines"])
    assert task["totalUsd"] < bill["totalUsd"]
    assert task["cheaperAtTimersPerMonth"][0]["from"] == 0


def test_it_is_told_at_which_volumes_a_worker_is_cheaper(cost: Cost) -> None:
    small = ("--poller-memory-mb", "128", "--shards", "1", "--sleep", "never")
    volumes = named(cost(*small)["workers"], "Fargate task")["cheaperAtTimersPerMonth"]

    def is_cheaper(timers: int) -> bool:
        bill = cost(*small, "--timers-per-month", str(timers))
        return bool(named(bill["workers"], "Fargate task")["totalUsd"] < bill["totalUsd"])

    (first, *_) = volumes
    assert is_cheaper(first["from"])
    assert not is_cheaper(first["from"] // 10)
    assert volumes[-1]["to"] is None


def test_the_json_names_its_prices_and_what_it_assumes(cost: Cost, shipped: dict[str, Any]) -> None:
    bill = cost("--api-milliseconds", "33")

    assert bill.keys() == {"pricesOf", "region", "totalUsd", "lines", "workers", "others", "assumptions"}
    assert (bill["pricesOf"], bill["region"]) == (shipped["date"], shipped["region"])
    for line in bill["lines"]:
        assert line.keys() == {"name", "quantity", "unit", "price", "usd"}
    assert any("33 ms" in assumption for assumption in bill["assumptions"])


def test_people_read_the_same(cli: Cli, cost: Cost) -> None:
    words = ("--timers-per-month", "30000000")
    text, _ = cli("cost", *words)
    bill = cost(*words)
    assert f"{bill['totalUsd']:,.2f}" in text
    for each in [*bill["workers"], *bill["others"]]:
        assert f"{each['totalUsd']:,.2f}" in text


def test_prices_of_ones_own(cost: Cost, shipped: dict[str, Any], tmp_path: Path) -> None:
    shipped["prices"]["writeUnits"]["usd"] = 1.0
    shipped |= {"date": "2030-01-02", "region": "eu-central-1"}
    path = tmp_path / "prices.json"
    path.write_text(json.dumps(shipped))

    bill = cost("--prices", str(path))

    assert (bill["pricesOf"], bill["region"]) == ("2030-01-02", "eu-central-1")
    assert usd(bill)["timers: written"] == 4.0


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda table: table["prices"].pop("logs"), "prices lacks logs"),
        (lambda table: table["prices"].update(tea={"unit": "cups", "usd": 1}), "prices has unknown tea"),
        (lambda table: table["prices"]["logs"].update(usd=-1), "prices.logs.usd: "),
        (lambda table: table["prices"]["logs"].update(usd="much"), "prices.logs.usd: "),
        (lambda table: table["prices"]["logs"].update(eur=1), "prices.logs.eur: "),
        (lambda table: table.update(date="yesterday"), "date: "),
        (lambda table: table.clear(), "date: Field required"),
    ],
)
def test_a_table_of_prices_that_cannot_be_used(
    cli: Cli, shipped: dict[str, Any], tmp_path: Path, change: Callable[[dict[str, Any]], object], reason: str
) -> None:
    change(shipped)
    path = tmp_path / "prices.json"
    path.write_text(json.dumps(shipped))

    assert f"Invalid value for --prices: {reason}" in cli.fails("cost", "--prices", str(path), code=2)


@pytest.mark.parametrize(
    ("words", "option"),
    [
        (("--timers-per-month", "-1"), "--timers-per-month"),
        (("--timers-per-month", "nan"), "--timers-per-month"),
        (("--payload-bytes", "262145"), "--payload-bytes"),
        (("--active-hours", "0"), "--active-hours"),
        (("--shards", "0"), "--shards"),
        (("--creates", "many"), "--creates"),
        (("--capacity", "some"), "--capacity"),
        (("--prices", "/nowhere/prices.json"), "--prices"),
    ],
)
def test_a_value_that_cannot_be_used(cli: Cli, words: tuple[str, ...], option: str) -> None:
    assert f"Invalid value for '{option}'" in cli.fails("cost", *words, code=2)


def test_a_file_that_is_no_json(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "prices.json"
    path.write_bytes(b"\xff{")
    assert "Invalid value for --prices: " in cli.fails("cost", "--prices", str(path), code=2)


def test_the_page_shows_the_bill_that_the_command_prints(cli: Cli) -> None:
    page = (ROOT / "docs" / "cost.md").read_text(encoding="utf-8")
    assert cli("cost")[0] in page
