"""What the commands about timers do and show."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Self

import click

from duetime.api.encoding import timer_json
from duetime.cli.tables import printable, show_table
from duetime.domain.clock import Clock
from duetime.domain.errors import InvalidSettings, NamespaceNotFound
from duetime.domain.ids import check_namespace, check_timer_id
from duetime.domain.namespaces import Namespace
from duetime.domain.timers import Timer, TimerState
from duetime.domain.times import format_instant
from duetime.runtime.wiring import measured_clock
from duetime.stores.port import ChangeResult, ChangeStatus, Store, TimerFilter, TimerRef
from duetime.stores.redriving import find_timers, in_order, redrive_page, redrive_refs, refusal_to_redrive

PAGE = 100
"""Timers of one step: a step is what is not undone by an interruption, and what progress counts."""
_PROGRESS_SECONDS = 1.0
_MAX_MESSAGE = 100


class Progress:
    """Counts, shown on standard error once a second while there is more to come, and in the end."""

    def __init__(self, clock: Clock, *, dry_run: bool) -> None:
        self._clock = clock
        self._verb = "would be redriven" if dry_run else "redriven"
        self._shown_at = -_PROGRESS_SECONDS
        self.redriven = 0
        self.skipped = 0

    def __str__(self) -> str:
        return f"{self.redriven} {self._verb}, {self.skipped} skipped"

    def add(self, redriven: int, skipped: int, *, is_last: bool) -> None:
        self.redriven += redriven
        self.skipped += skipped
        now = self._clock.monotonic()
        if not is_last and now - self._shown_at >= _PROGRESS_SECONDS:
            self._shown_at = now
            click.echo(f"{self} so far", err=True)

    def finish(self) -> int:
        """The exit code."""
        click.echo(str(self))
        return 1 if self.skipped else 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        if kind is not None:
            click.echo(f"broken off: {self}; what was redriven stays redriven", err=True)


def redrive_all(
    store: Store, name: str, timer_filter: TimerFilter, *, correlation_id: str | None, dry_run: bool
) -> int:
    """Redrive the failed timers that fit, step by step; the exit code."""
    clock = measured_clock(store)
    namespace = _namespace(store, name)
    cursor: str | None = None
    with Progress(clock, dry_run=dry_run) as progress:
        while True:
            page = redrive_page(
                store,
                namespace,
                timer_filter,
                correlation_id=correlation_id,
                cursor=cursor,
                limit=PAGE,
                now=clock.now(),
                dry_run=dry_run,
            )
            cursor = page.next_cursor
            progress.add(len(page.redriven), page.skipped, is_last=cursor is None)
            if cursor is None:
                break
    return progress.finish()


def redrive_named(store: Store, name: str, timer_ids: Sequence[str], *, dry_run: bool) -> int:
    """Redrive these timers, and say of each that cannot be why; the exit code."""
    clock = measured_clock(store)
    namespace = _namespace(store, name)
    ids = in_order(list(dict.fromkeys(timer_ids)))
    for timer_id in ids:
        _check_id(namespace, timer_id)
    with Progress(clock, dry_run=dry_run) as progress:
        for start in range(0, len(ids), PAGE):
            chunk = ids[start : start + PAGE]
            now = clock.now()
            if dry_run:
                results = [_judged(store.get_timer(namespace, timer_id, now=now)) for timer_id in chunk]
            else:
                refs = [TimerRef(timer_id) for timer_id in chunk]
                results = redrive_refs(store, namespace, refs, now=now).results
            refusals = [
                error
                for timer_id, result in zip(chunk, results, strict=True)
                if (error := refusal_to_redrive(namespace, timer_id, result)) is not None
            ]
            for error in refusals:
                click.echo(f"skipped: {printable(error.message)}", err=True)
            progress.add(len(chunk) - len(refusals), len(refusals), is_last=start + PAGE >= len(ids))
    return progress.finish()


def show_timers(
    store: Store, name: str, timer_filter: TimerFilter, *, correlation_id: str | None, limit: int, as_json: bool
) -> None:
    """Lines of JSON as they come, or a table of all that was found."""
    namespace = _namespace(store, name)
    rows = [("ID", "STATE", "ATTEMPTS", "REASON", "AT", "MESSAGE")]
    for shown, timer in enumerate(_found(store, namespace, timer_filter, correlation_id, limit + 1)):
        if shown == limit:
            click.echo(f"there are more than {limit}; --limit shows more", err=True)
            break
        if as_json:
            click.echo(timer_json(timer, namespace.settings.retry_policy))
        else:
            rows.append(_row(timer))
    if not as_json:
        show_table(rows)


def _found(
    store: Store, namespace: Namespace, timer_filter: TimerFilter, correlation_id: str | None, limit: int
) -> Iterator[Timer]:
    clock = measured_clock(store)
    cursor: str | None = None
    while True:
        page = find_timers(
            store,
            namespace,
            timer_filter,
            correlation_id=correlation_id,
            cursor=cursor,
            limit=min(limit, PAGE),
            now=clock.now(),
        )
        yield from page.items
        cursor = page.next_cursor
        if cursor is None:
            return


def _row(timer: Timer) -> tuple[str, str, str, str, str, str]:
    failure = timer.failure
    message = "" if failure is None else printable(failure.message)
    if len(message) > _MAX_MESSAGE:
        message = message[: _MAX_MESSAGE - 3] + "..."
    return (
        printable(timer.timer_id),
        timer.state,
        str(timer.attempts),
        "" if failure is None else failure.reason,
        format_instant(timer.updated_at if failure is None else failure.at),
        message,
    )


def _judged(timer: Timer | None) -> ChangeResult:
    """What a redrive would come to."""
    if timer is None:
        return ChangeResult(ChangeStatus.NOT_FOUND)
    return ChangeResult(ChangeStatus.APPLIED if timer.state is TimerState.FAILED else ChangeStatus.WRONG_STATE, timer)


def _namespace(store: Store, name: str) -> Namespace:
    try:
        namespace = store.get_namespace(check_namespace(name))
    except ValueError:
        namespace = None
    if namespace is None:
        raise NamespaceNotFound(name)
    return namespace


def _check_id(namespace: Namespace, timer_id: str) -> None:
    try:
        check_timer_id(namespace.name, timer_id)
    except ValueError as error:
        raise InvalidSettings(f"--timer-id: {error}") from None
