"""Commands about namespaces: ``duetime namespaces``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import click

from duetime.cli.options import Group
from duetime.cli.remote import (
    Remote,
    given,
    if_revision_option,
    json_option,
    limit_option,
    on_server,
    path,
)
from duetime.cli.tables import printable, show_item, show_items
from duetime.cli.values import NONE, Json, OrNone, choice, options, timer_filter_options

if TYPE_CHECKING:
    from duetime_client import Redriven

_TRIES = 5
_COLUMNS = {
    "NAME": "name",
    "TENANT": "tenantId",
    "STATE": "state",
    "SHARDS": "numShards",
    "DEDICATED": "dedicated",
    "MAX-IN-FLIGHT": "maxInFlight",
    "RATE-LIMIT": "rateLimit",
    "RETRY-POLICY": lambda item: item.get("unreadable") or item["retryPolicy"],
}

_settings_options = options(
    click.option(
        "--max-in-flight",
        type=OrNone(click.IntRange(1)),
        metavar=f"N|{NONE}",
        help="Callbacks in flight at once, but at least one for each poller.",
    ),
    click.option(
        "--rate-limit",
        type=OrNone(click.FloatRange(0.001, 1e9)),
        metavar=f"N|{NONE}",
        help="Attempts started per second.",
    ),
    click.option(
        "--retry-policy",
        type=OrNone(Json()),
        metavar=f"JSON|{NONE}",
        help="""Retry policy of timers without their own, like '{"maxAttempts": 5, "initialInterval": "10s"}'.""",
    ),
    click.option(
        "--misfire",
        type=OrNone(choice(["fire", "expire"])),
        metavar=f"fire|expire|{NONE}",
        help="What happens to timers that came due in a pause.",
    ),
    click.option(
        "--min-schedule-interval",
        metavar=f"DURATION|{NONE}",
        type=OrNone(click.STRING),
        help="Refuse schedules that occur more often, like 1m.",
    ),
)


@click.group(cls=Group, short_help="Create, change, pause, reshard and redrive namespaces.")
def namespaces() -> None:
    """Create namespaces, change their settings and shards, pause them, redrive their failed timers.

    \b
      duetime namespaces create orders --num-shards 16
      duetime namespaces update orders --max-in-flight 50 --rate-limit none
      duetime namespaces redrive orders --reason Timeout --dry-run
    """


@namespaces.command()
@click.argument("namespace")
@click.option("--num-shards", type=click.IntRange(1), help="Can be changed by reshard.  [default: the server's]")
@click.option("--dedicated", is_flag=True, help="Use shards that no other namespace shares.")
@_settings_options
@json_option
@on_server("putNamespace")
def create(
    *, remote: Remote, namespace: str, num_shards: int | None, dedicated: bool, as_json: bool, **settings: Any
) -> None:
    """Create NAMESPACE. One that exists with these shards is left as it is."""
    body = settings | {"num_shards": num_shards, "dedicated": dedicated or None}
    show_item(remote.call("PUT", _path(namespace), body=body, has="name").content, as_json=as_json)


@namespaces.command("list", short_help="List namespaces by name.")
@limit_option
@json_option
@on_server("listNamespaces")
def list_namespaces(*, remote: Remote, limit: int, as_json: bool) -> None:
    """List namespaces by name: those of the API key's tenant, or all if the server requires no key."""
    show_items(remote.items("/v1/namespaces", limit=limit), _COLUMNS, as_json=as_json, limit=limit)


@namespaces.command()
@click.argument("namespace")
@json_option
@on_server("getNamespace")
def show(*, remote: Remote, namespace: str, as_json: bool) -> None:
    """Show NAMESPACE."""
    show_item(remote.call("GET", _path(namespace), has="name").content, as_json=as_json)


@namespaces.command()
@click.argument("namespace")
@_settings_options
@if_revision_option
@json_option
@on_server("putNamespace")
def update(*, remote: Remote, namespace: str, if_revision: int | None, as_json: bool, **settings: Any) -> None:
    """Change settings of NAMESPACE. Other settings stay; "none" resets one to its default.

    Pollers apply the change within seconds, to stored timers too.
    """
    from duetime_client import PreconditionFailed

    if not given(settings):
        raise click.UsageError(
            "give at least one of --max-in-flight, --rate-limit, --retry-policy, --misfire, --min-schedule-interval"
        )
    for tries_left in reversed(range(_TRIES)):
        # PUT would create one that is not there.
        revision = if_revision or remote.call("GET", _path(namespace), has="name").json()["revision"]
        try:
            response = remote.call("PUT", _path(namespace), body=settings, if_revision=revision, has="name")
        except PreconditionFailed:
            if if_revision or not tries_left:
                raise
        else:
            show_item(response.content, as_json=as_json)
            return


@namespaces.command(short_help="Pause a namespace: none of its timers fire.")
@click.argument("namespace")
@click.option("--reason", help="Why, for people (at most 255 characters).")
@if_revision_option
@json_option
@on_server("pauseNamespace")
def pause(*, remote: Remote, namespace: str, reason: str | None, if_revision: int | None, as_json: bool) -> None:
    """Pause NAMESPACE: none of its timers fire until it is resumed. They can be created and changed as before.

    Pollers apply the change within seconds. Attempts in flight finish.
    """
    response = remote.call(
        "POST", _path(namespace, "/pause"), body={"reason": reason}, if_revision=if_revision, has="name"
    )
    show_item(response.content, as_json=as_json)


@namespaces.command(short_help="Resume a paused namespace.")
@click.argument("namespace")
@if_revision_option
@json_option
@on_server("resumeNamespace")
def resume(*, remote: Remote, namespace: str, if_revision: int | None, as_json: bool) -> None:
    """Resume NAMESPACE. Its setting --misfire says whether timers that came due meanwhile fire or expire."""
    response = remote.call("POST", _path(namespace, "/resume"), if_revision=if_revision, has="name")
    show_item(response.content, as_json=as_json)


@namespaces.command(short_help="Give a namespace another number of shards.")
@click.argument("namespace")
@click.option("--num-shards", type=click.IntRange(1), required=True, help="More or fewer than before.")
@if_revision_option
@json_option
@on_server("reshardNamespace")
def reshard(*, remote: Remote, namespace: str, num_shards: int, if_revision: int | None, as_json: bool) -> None:
    """Give NAMESPACE another number of shards while it runs.

    New timers go there after two minutes; the others stay and fire where they are. In the 20 seconds before, creating
    a timer whose shard changes is refused with a time to try again.
    """
    body = {"num_shards": num_shards}
    response = remote.call("POST", _path(namespace, "/reshard"), body=body, if_revision=if_revision, has="name")
    show_item(response.content, as_json=as_json)


@namespaces.command(short_help="Delete a namespace.")
@click.argument("namespace")
@click.option("--force", is_flag=True, help="Delete its timers, too.")
@if_revision_option
@on_server("deleteNamespace")
def delete(*, remote: Remote, namespace: str, force: bool, if_revision: int | None) -> None:
    """Delete NAMESPACE. Takes about twenty seconds, until no process can create timers in it any more.

    A namespace with timers is kept unless --force is given. After an interruption, run the same command again.
    """
    import time

    removed = 0
    while True:
        # The first step changes the revision.
        step = remote.client.namespaces.delete(namespace, force=force, if_revision=if_revision)
        if_revision = None
        removed += step.removed
        if step.done:
            break
        time.sleep(1)
    click.echo(f"deleted namespace {namespace} with {removed} timers")


@namespaces.command(short_help="Redrive failed timers.")
@click.argument("namespace")
@timer_filter_options
@click.option("--timer-id", "timer_ids", multiple=True, help="This timer. Can be repeated; excludes filters.")
@click.option("--dry-run", is_flag=True, help="Count the timers to redrive; change nothing.")
@on_server("redriveTimers")
def redrive(*, remote: Remote, namespace: str, timer_ids: tuple[str, ...], dry_run: bool, **filters: Any) -> int:
    """Redrive the failed timers of NAMESPACE: all, those that match all filters, or the named ones.

    They are due at once, as the same firing (webhook-id), with all attempts again. Progress goes to standard error.
    After an interruption, run it again for the rest. Exit code 1: timers were skipped, because they are unreadable,
    were changed meanwhile or, if named, have not failed.
    """
    if timer_ids and any(value is not None for value in filters.values()):
        raise click.UsageError("--timer-id cannot be combined with filters")
    timers = remote.client.timers(namespace)
    if dry_run:
        return _count(remote, namespace, timer_ids, filters)
    if timer_ids:
        return show_redriven(timers.redrive_ids(dict.fromkeys(timer_ids)))
    with Progress() as progress:
        timers.redrive_many(**filters, on_page=progress.add)
    return progress.finish()


class Progress:
    """Counts what a redrive has done, and prints it on standard error while it continues."""

    def __init__(self) -> None:
        self._redriven = self._skipped = 0
        self._is_first = True

    def __str__(self) -> str:
        return f"{self._redriven} redriven, {self._skipped} skipped"

    def add(self, page: Redriven) -> None:
        """Add the result of one request. Prints the count before it: that was not the last one."""
        if not self._is_first:
            click.echo(f"{self} so far", err=True)
        self._is_first = False
        self._redriven += page.redriven
        self._skipped += page.skipped

    def finish(self) -> int:
        """Print the sum. Returns the exit code."""
        click.echo(str(self))
        return int(self._skipped > 0)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        if kind is not None and not self._is_first:
            click.echo(f"interrupted: {self}; what was redriven stays redriven", err=True)


def show_redriven(results: Any) -> int:
    """Print why each skipped one was skipped. Returns the exit code."""
    skipped = [result for result in results if not result.is_ok]
    for result in skipped:
        click.echo(f"skipped: {printable(getattr(result.error, 'detail', '') or str(result.error))}", err=True)
    click.echo(f"{len(results) - len(skipped)} redriven, {len(skipped)} skipped")
    return int(bool(skipped))


def _count(remote: Remote, namespace: str, timer_ids: tuple[str, ...], filters: dict[str, Any]) -> int:
    """Print what a redrive would do. Returns the exit code."""
    from duetime_client import NotFound, TimerState

    timers = remote.client.timers(namespace)
    if not timer_ids:
        counted = timers.redrive_many(**filters, dry_run=True)
        click.echo(f"{counted.redriven} would be redriven, {counted.skipped} skipped")
        return int(counted.skipped > 0)
    found = skipped = 0
    for timer_id in dict.fromkeys(timer_ids):
        try:
            state = timers.get(timer_id).state
            refusal = (
                None
                if state is TimerState.FAILED
                else f"timer {timer_id!r} is {state}: only a failed timer can be redriven"
            )
        except NotFound as error:
            if error.code != "timer_not_found":
                raise
            refusal = error.detail
        if refusal is None:
            found += 1
            continue
        skipped += 1
        click.echo(f"skipped: {printable(refusal)}", err=True)
    click.echo(f"{found} would be redriven, {skipped} skipped")
    return int(skipped > 0)


def _path(namespace: str, action: str = "") -> str:
    return path("/v1/namespaces/{}", namespace) + action
