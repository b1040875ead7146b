"""The command ``cost``."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from typing import IO, Any, TypeVar

import click

from duetime.cli.cost import counts
from duetime.cli.cost.bill import Bill, bill_of
from duetime.cli.cost.others import OTHERS
from duetime.cli.cost.prices import PricesInvalid, PriceTable, read_prices, shipped_text
from duetime.cli.cost.stack import HOSTS, TARGETS, cheaper_at, lambda_pollers, stack
from duetime.cli.cost.workload import HOURS, Workload
from duetime.cli.options import Command
from duetime.cli.tables import show_table
from duetime.cli.values import choice, options

F = TypeVar("F", bound=Callable[..., Any])

_MAX_PAYLOAD_BYTES = 256 * 1024


def _number(name: str, within: tuple[int, int], default: int | None, help_: str) -> Callable[[F], F]:
    kind = click.IntRange(*within)
    return click.option(name, type=kind, default=default, show_default=default is not None, metavar="N", help=help_)


_workload_options = options(
    _number("--timers-per-month", (0, 10**12), 1_000_000, "Timers that are created and fire, each with one attempt."),
    _number("--payload-bytes", (0, _MAX_PAYLOAD_BYTES), 100, "Bytes of a payload."),
    click.option(
        "--creates",
        type=choice(["single", "batch"]),
        default="single",
        show_default=True,
        help="One timer a request, or as many as a batch takes.",
    ),
    _number("--active-hours", (1, HOURS), HOURS, "Hours of the month in which timers are created and fire, evenly."),
    _number("--shards", (1, 65_536), 4, "Shards of all namespaces together."),
    click.option(
        "--sleep",
        type=choice(["auto", "never"]),
        default="auto",
        show_default=True,
        help="Whether pollers on Lambda end while nothing is due.",
    ),
    click.option(
        "--target",
        type=choice(sorted(TARGETS)),
        help="Service of the targets that timers have in the place of a URL.",
    ),
    click.option("--dashboard", "has_dashboard", is_flag=True, default=False, help="Count the dashboard."),
    click.option(
        "--capacity",
        type=choice(["on-demand", "provisioned"]),
        default="on-demand",
        show_default=True,
        help="How the table is billed. Provisioned: it follows the load and is used to 70 %.",
    ),
    _number("--pending-hours", (0, 10**6), 24, "Hours that a timer waits until it fires."),
    _number("--retention-days", (0, 36_600), 7, "Days for which a fired timer stays readable."),
    _number("--api-milliseconds", (1, 30_000), None, "Lambda time of a request.  [default: 15; 400 for a batch]"),
    _number("--api-memory-mb", (128, 10_240), 1024, "Memory of the API's functions."),
    _number("--poller-memory-mb", (128, 10_240), 512, "Memory of a poller."),
    _number("--cpu-microseconds", (1, 10**6), 1000, "Processor time of firing a timer; it decides how many pollers."),
)


@click.command(cls=Command, short_help="Compute what the AWS stack costs a month.")
@_workload_options
@click.option("--free-tier", is_flag=True, help="Subtract what each account has free for ever.")
@click.option(
    "--prices", type=click.File(encoding="utf-8"), help="Table of list prices.  [default: the one of --show-prices]"
)
@click.option("--show-prices", is_flag=True, help="Print the table of list prices that comes with this version.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def cost(
    *,
    free_tier: bool,
    prices: IO[str] | None,
    show_prices: bool,
    as_json: bool,
    creates: str,
    capacity: str,
    sleep: str,
    api_milliseconds: int | None,
    **given: Any,
) -> None:
    """Compute what the AWS stack costs a month, and what the same timers cost elsewhere.

    The quantities are counted from this version of the stack. The prices are list prices of one day and one region:
    check them, and give your own with --prices. Taxes, support, data transfer and callbacks' own cost are left out.
    """
    if show_prices:
        click.echo(shipped_text(), nl=False)
        return
    table = _table(prices)
    is_batched = creates == "batch"
    workload = Workload(
        is_batched=is_batched,
        is_provisioned=capacity == "provisioned",
        may_sleep=sleep == "auto",
        api_milliseconds=api_milliseconds or (400 if is_batched else 15),
        **given,
    )
    make_bill = partial(bill_of, table=table, has_free_tier=free_tier)
    found = {
        "pricesOf": table.date.isoformat(),
        "region": table.region,
        **_totals(make_bill(stack(workload))),
        "workers": [
            {
                "name": host.name,
                **_totals(make_bill(stack(workload, host))),
                "cheaperAtTimersPerMonth": [
                    {"from": since, "to": until}
                    for since, until in cheaper_at(workload, host, lambda charges: make_bill(charges).total_usd)
                ],
            }
            for host in HOSTS
        ],
        "others": [
            {"name": other.name, **_totals(make_bill(other.charges(workload))), "note": other.note}
            for other in OTHERS
        ],
        "assumptions": _assumptions(workload, has_free_tier=free_tier),
    }
    if as_json:
        click.echo(json.dumps(found))
    else:
        _show(found)


def _table(file: IO[str] | None) -> PriceTable:
    try:
        return read_prices(shipped_text() if file is None else file.read())
    except (PricesInvalid, UnicodeDecodeError) as error:
        raise click.BadParameter(str(error), param_hint="--prices") from None


def _totals(bill: Bill) -> dict[str, Any]:
    lines = [{**asdict(line), "quantity": round(line.quantity, 6), "usd": round(line.usd, 4)} for line in bill.lines]
    return {"totalUsd": round(bill.total_usd, 4), "lines": lines}


def _assumptions(workload: Workload, *, has_free_tier: bool) -> list[str]:
    return [
        f"A request to the API takes {workload.api_milliseconds} ms of Lambda at {workload.api_memory_mb} MB.",
        f"Firing takes {workload.cpu_microseconds} us of a processor.",
        f"An idle shard takes {counts.IDLE_CORES_PER_SHARD:.1%} of a processor.",
        f"Lambda pollers: {lambda_pollers(workload)}, of {workload.poller_memory_mb} MB.",
        f"They are awake for {workload.awake_seconds / 3600:,.1f} of {HOURS} hours.",
        f"A request logs {counts.LOG_BYTES_PER_REQUEST} bytes, AWS's own lines included.",
        f"A timer waits for {workload.pending_hours} hours and is kept for {workload.retention_days} days.",
        "It takes one attempt and has no correlation id. Nobody reads or changes it.",
        f"What an account has free is {'' if has_free_tier else 'not '}subtracted.",
    ]


def _show(found: dict[str, Any]) -> None:
    click.echo(f"A month of {HOURS} hours at list prices of {found['pricesOf']} in {found['region']}. Check them.\n")
    rows = [["THE STACK", "QUANTITY", "UNIT", "PRICE", "USD"]]
    rows += [
        [line["name"], f"{line['quantity']:,.3f}", line["unit"], f"{line['price']:.8g}", f"{line['usd']:,.2f}"]
        for line in found["lines"]
    ]
    show_table([*rows, ["total", "", "", "", f"{found['totalUsd']:,.2f}"]])
    click.echo()
    rows = [[each["name"], f"{each['totalUsd']:,.2f}", _volumes(each)] for each in found["workers"]]
    show_table([["WORKERS INSTEAD OF LAMBDA POLLERS", "USD", "CHEAPER AT TIMERS A MONTH"], *rows])
    click.echo()
    rows = [[each["name"], f"{each['totalUsd']:,.2f}", each["note"]] for each in found["others"]]
    show_table([["THE SAME TIMERS ELSEWHERE", "USD", "HOW"], *rows])
    click.echo("\nAssumed:")
    for assumption in found["assumptions"]:
        click.echo(f"- {assumption}")


def _volumes(worker: dict[str, Any]) -> str:
    def text(since: int, until: int | None) -> str:
        if until is None:
            return f"{since:,} and more" if since else "any number"
        return f"{since:,} to {until:,}"

    return ", ".join(text(each["from"], each["to"]) for each in worker["cheaperAtTimersPerMonth"]) or "none"
