"""Commands about stored timers: ``duetime timers list`` and ``duetime redrive``. They work on the store itself."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any, TypeVar

import click

from duetime.cli.options import LOGS, opened, settings_options
from duetime.domain.timers import FailureReason, TimerState
from duetime.domain.times import parse_instant
from duetime.runtime.tuning import StoreSettings
from duetime.stores.port import TimerFilter

F = TypeVar("F", bound=Callable[..., Any])


class _Instant(click.ParamType[datetime]):
    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> datetime:
        try:
            return value if isinstance(value, datetime) else parse_instant(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


_TIME = _Instant()
_FILTERS = (
    click.option(
        "--reason", type=click.Choice([str(reason) for reason in FailureReason]), help="Of the last failure."
    ),
    click.option("--tag", help="Timers with this tag."),
    click.option("--correlation-id", help="Timers with this correlation id."),
    click.option("--due-from", type=_TIME, help="Due at this RFC 3339 time or later."),
    click.option("--due-to", type=_TIME, help="Due before this time."),
    click.option("--failed-from", type=_TIME, help="Failed at this time or later."),
    click.option("--failed-to", type=_TIME, help="Failed before this time."),
)


def _filters(command: F) -> F:
    for option in reversed(_FILTERS):
        command = option(command)
    return command


@click.command(short_help="Redrive failed timers.")
@click.argument("namespace")
@_filters
@click.option("--timer-id", "timer_ids", multiple=True, help="This timer; can be repeated, and goes without filters.")
@click.option("--dry-run", is_flag=True, help="Count what would be redriven and change nothing.")
@settings_options(StoreSettings, "store", *LOGS)
def redrive(*, namespace: str, timer_ids: tuple[str, ...], dry_run: bool, **given: Any) -> int:
    """Redrive the failed timers of NAMESPACE: all of them, those that fit all filters, or those that are named.

    They are due at once, as the same firing (webhook-id) with all attempts ahead. Progress goes to standard error.
    When it is interrupted, what was redriven stays redriven; run it again for the rest. Ends with 1 when timers were
    skipped: they are unreadable, were changed meanwhile or, where they are named, have not failed.
    """
    from duetime.cli import dead_letters

    timer_filter, correlation_id = _take_filter(given)
    if timer_ids and (correlation_id is not None or timer_filter != TimerFilter()):
        raise click.UsageError("--timer-id goes without filters")
    with opened(StoreSettings, given) as (_, store):
        if timer_ids:
            return dead_letters.redrive_named(store, namespace, timer_ids, dry_run=dry_run)
        return dead_letters.redrive_all(
            store, namespace, timer_filter, correlation_id=correlation_id, dry_run=dry_run
        )


@click.group()
def timers() -> None:
    """Look at stored timers."""


@timers.command("list")
@click.argument("namespace")
@click.option("--state", type=click.Choice([str(state) for state in TimerState]), help="Timers in this state.")
@_filters
@click.option(
    "--limit", default=100, show_default=True, type=click.IntRange(1, 1_000_000), help="The most timers to show."
)
@click.option("--json", "as_json", is_flag=True, help="A line of JSON for each, as the API answers it.")
@settings_options(StoreSettings, "store", *LOGS)
def list_timers(*, namespace: str, state: str | None, limit: int, as_json: bool, **given: Any) -> int:
    """List timers of NAMESPACE with their last failure, by shard and id.

    The times of --failed-from and --failed-to are those of the last change: of a failed timer, when it failed.
    """
    from duetime.cli import dead_letters

    timer_filter, correlation_id = _take_filter(given, state=None if state is None else TimerState(state))
    with opened(StoreSettings, given) as (_, store):
        dead_letters.show_timers(
            store, namespace, timer_filter, correlation_id=correlation_id, limit=limit, as_json=as_json
        )
    return 0


def _take_filter(given: dict[str, Any], *, state: TimerState | None = None) -> tuple[TimerFilter, str | None]:
    """The filter in ``given``, which loses it, and the correlation id."""
    reason = given.pop("reason")
    timer_filter = TimerFilter(
        state=state,
        failure_reason=None if reason is None else FailureReason(reason),
        tag=given.pop("tag"),
        due_from=given.pop("due_from"),
        due_to=given.pop("due_to"),
        updated_from=given.pop("failed_from"),
        updated_to=given.pop("failed_to"),
    )
    return timer_filter, given.pop("correlation_id")
