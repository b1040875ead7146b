"""Commands about timers: ``duetime timers``."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import wraps
from typing import IO, TYPE_CHECKING, Any, TypeVar

import click

from duetime.cli.options import Group
from duetime.cli.remote import (
    Remote,
    if_revision_option,
    item_path,
    json_option,
    limit_option,
    on_server,
    path,
)
from duetime.cli.resources.answers import add_answers
from duetime.cli.resources.batches import act_on_lines, make_of_lines
from duetime.cli.tables import show_item, show_items, show_moved
from duetime.cli.values import (
    Duration,
    Json,
    aimed,
    choice,
    cleared,
    dry_run_option,
    headers_option,
    options,
    parsed,
    tags_option,
    timer_filter_options,
)

if TYPE_CHECKING:
    from duetime_client import RawJson

F = TypeVar("F", bound=Callable[..., Any])

TIMER_CLEARABLE = ("payload", "headers", "tags", "retry-policy", "timeout-seconds", "expire-after", "correlation-id")
_COLUMNS = {
    "ID": "id",
    "STATE": "state",
    "ATTEMPTS": "attempts",
    "NEXT": "nextAttemptAt",
    "REASON": "failure.reason",
    "AT": lambda timer: (timer["failure"] or {}).get("at") or timer["updatedAt"],
    "MESSAGE": "failure.message",
}
ATTEMPT_COLUMNS = {
    "NUMBER": "number",
    "STARTED": "startedAt",
    "MS": "durationMs",
    "OUTCOME": "outcome",
    "HTTP": "status",
    "REASON": "reason",
    "MESSAGE": "message",
}

_timer_arguments = options(click.argument("namespace"), click.argument("timer_id", metavar="ID"))
_due_options = options(
    click.option("--execute-at", metavar="TIME", help="Due time in RFC 3339, with an offset."),
    click.option("--delay", metavar="DURATION", help='Due after this duration, like "90s" or "1h30m".'),
    click.option(
        "--local-time", metavar="TIME", help="Due at this time by the clocks of --tz, like 2027-03-28T09:00."
    ),
    click.option("--time-zone", "--tz", metavar="ZONE", help="Time zone of --local-time, like Europe/Berlin."),
    click.option(
        "--dst",
        type=choice(["once", "skip"]),
        help="A --local-time that does not exist fires right after the gap, or is refused.  [default: once]",
    ),
)
content_options = options(
    click.option("--payload", type=Json(), metavar="JSON", help="Payload, sent exactly as given."),
    headers_option,
    tags_option,
    click.option("--retry-policy", type=Json(), metavar="JSON", help="""Retry policy, like '{"maxAttempts": 3}'."""),
    click.option("--timeout-seconds", type=click.IntRange(1), help="Timeout of one attempt."),
    click.option("--expire-after", metavar="DURATION", help="How long after its due time it may still fire."),
    click.option("--correlation-id", metavar="ID", help="Correlation id, sent with callbacks and logged."),
)


def escalate_option(command: F) -> F:
    """Add ``--escalate-url``, which is a part of the retry policy."""

    @wraps(command)
    def run(*, escalate_url: str | None, retry_policy: RawJson | None, **given: Any) -> Any:
        from duetime_client import RawJson

        if escalate_url is not None:
            policy = {} if retry_policy is None else parsed(retry_policy)
            if not isinstance(policy, dict):
                raise click.UsageError("--retry-policy must be a JSON object")
            policy |= {"escalateUrl": escalate_url}
            retry_policy = RawJson(json.dumps(aimed(policy, "escalateUrl", target="escalateTarget")))
        return command(retry_policy=retry_policy, **given)

    option = click.option(
        "--escalate-url",
        metavar="URL",
        help="Called when it has failed, or the ARN of a target: a part of --retry-policy.",
    )
    return option(run)  # type: ignore[return-value]


@click.group(cls=Group)
def timers() -> None:
    """Create, list, change, cancel, remove and redrive timers.

    \b
      duetime timers create default https://example.com/hook --delay 1h --payload '{"order": 7}'
      duetime timers list default --state Failed
      duetime timers create-batch default timers.jsonl
    """


@timers.command()
@click.argument("namespace")
@click.argument("callback_url", metavar="URL")
@click.option("--id", "timer_id", metavar="ID", help="Id, unique in the namespace.  [default: a new one]")
@_due_options
@content_options
@escalate_option
@json_option
@on_server("createTimer")
def create(*, remote: Remote, namespace: str, timer_id: str | None, as_json: bool, **given: Any) -> None:
    """Create a timer that calls URL. Prints its id.

    The ARN of a target on AWS may be given in the place of URL.

    Give --delay, --execute-at or --local-time. Other users of this machine can see the arguments of a command;
    `duetime timers create-batch` reads standard input instead.
    """
    from duetime_client.bodies import new_id

    body = aimed(given) | {"id": new_id() if timer_id is None else timer_id}
    response = remote.call("POST", path("/v1/namespaces/{}/timers", namespace), body=body)
    click.echo(response.content.decode() if as_json else response.json()["id"])


@timers.command()
@_timer_arguments
@click.argument("callback_url", metavar="URL")
@_due_options
@content_options
@escalate_option
@if_revision_option
@json_option
@on_server("putTimer")
def put(
    *,
    remote: Remote,
    namespace: str,
    timer_id: str,
    if_revision: int | None,
    as_json: bool,
    **given: Any,
) -> None:
    """Create or replace the timer ID, even after it fired. The options are those of `create`."""
    response = remote.call(
        "PUT", item_path(namespace, "timers", timer_id), body=aimed(given), if_revision=if_revision
    )
    show_item(response.content, as_json=as_json)


@timers.command()
@_timer_arguments
@json_option
@on_server("getTimer")
def show(*, remote: Remote, namespace: str, timer_id: str, as_json: bool) -> None:
    """Show a timer."""
    show_item(remote.call("GET", item_path(namespace, "timers", timer_id)).content, as_json=as_json)


@timers.command("list", short_help="List the timers of a namespace.")
@click.argument("namespace")
@click.option("--state", metavar="STATE", help="Timers in this state, like Scheduled or Failed.")
@timer_filter_options
@limit_option
@json_option
@on_server("listTimers")
def list_timers(*, remote: Remote, namespace: str, limit: int, as_json: bool, **given: Any) -> None:
    """List the timers of NAMESPACE that match all filters, by shard and id, with their last failure."""
    found = remote.items(path("/v1/namespaces/{}/timers", namespace), given, limit=limit)
    show_items(found, _COLUMNS, as_json=as_json, limit=limit)


@timers.command(short_help="Change a timer that has not finished.")
@_timer_arguments
@click.option("--callback-url", metavar="URL", help="New callback URL, or ARN of a target.")
@_due_options
@content_options
@click.option(
    "--clear",
    type=choice(TIMER_CLEARABLE),
    multiple=True,
    help="Value to clear. Can be repeated.",
)
@if_revision_option
@json_option
@on_server("patchTimer")
def update(
    *,
    remote: Remote,
    namespace: str,
    timer_id: str,
    clear: Sequence[str],
    if_revision: int | None,
    as_json: bool,
    **given: Any,
) -> None:
    """Change the given values of a timer that has not finished; keep the rest."""
    body = aimed(given) | cleared(clear, given)
    response = remote.call("PATCH", item_path(namespace, "timers", timer_id), body=body, if_revision=if_revision)
    show_item(response.content, as_json=as_json)


@timers.command()
@_timer_arguments
@if_revision_option
@json_option
@on_server("deleteTimer")
def delete(*, remote: Remote, namespace: str, timer_id: str, if_revision: int | None, as_json: bool) -> None:
    """Remove a timer in any state."""
    response = remote.call("DELETE", item_path(namespace, "timers", timer_id), if_revision=if_revision)
    if as_json:
        click.echo(response.content.decode())
    in_flight = b'"attemptInFlight":true' in response.content
    note = "; an attempt is in flight, so its receiver may see one more callback" if in_flight else ""
    click.echo(f"removed {timer_id}{note}", err=True)


def _action(action: str, operation: str, text: str) -> None:
    """Add a command that does something to a timer and shows what becomes of it."""

    @timers.command(action, help=text)
    @_timer_arguments
    @if_revision_option
    @json_option
    @on_server(operation)
    def act(*, remote: Remote, namespace: str, timer_id: str, if_revision: int | None, as_json: bool) -> None:
        response = remote.call(
            "POST", item_path(namespace, "timers", timer_id, f"/{action}"), if_revision=if_revision
        )
        show_item(response.content, as_json=as_json)


_action("cancel", "cancelTimer", "Cancel a waiting timer and keep it as Cancelled.")
_action("fire", "fireTimer", "Fire a waiting timer now.")
_action(
    "redrive",
    "redriveTimer",
    "Schedule a failed timer again, due now. For many, see `duetime namespaces redrive`.",
)


add_answers(timers, "timers", "answerTimer", _timer_arguments)


@timers.command()
@_timer_arguments
@json_option
@on_server("listAttempts")
def attempts(*, remote: Remote, namespace: str, timer_id: str, as_json: bool) -> None:
    """List the last attempts of a timer, oldest first."""
    show_items(remote.items(item_path(namespace, "timers", timer_id, "/attempts")), ATTEMPT_COLUMNS, as_json=as_json)


@timers.command(short_help="Compute again when timers with a local time are due.")
@click.argument("namespace", required=False)
@dry_run_option
@on_server("recomputeTimers", "listNamespaces")
def recompute(*, remote: Remote, namespace: str | None, dry_run: bool) -> int:
    """Compute again when the timers of NAMESPACE, or of all, that have a local time are due: for a new release of
    tzdata.

    Those that are due as before are left alone. After an interruption, run it again.
    """
    done = [remote.client.timers(name).recompute(dry_run=dry_run) for name in remote.namespaces(namespace)]
    return show_moved(done, is_rehearsal=dry_run)


@timers.command("create-batch", short_help="Create many timers from lines of JSON.")
@click.argument("namespace")
@click.argument("file", type=click.File(encoding="utf-8"), default="-")
@click.option("--spread", type=Duration(), help="Make each due up to this much later, evenly, by its id.")
@json_option
@on_server("createTimers")
def create_batch(*, remote: Remote, namespace: str, file: IO[str], spread: timedelta | None, as_json: bool) -> int:
    """Create many timers from FILE or standard input, which has one timer per line, as JSON of the API.

    Prints their ids. Exit code 1: some were not created; standard error says which and why.
    """
    return make_of_lines(
        file, lambda lines: remote.client.timers(namespace).create_many(lines, spread=spread), as_json=as_json
    )


@timers.command("cancel-batch", short_help="Cancel many timers from lines of JSON.")
@click.argument("namespace")
@click.argument("file", type=click.File(encoding="utf-8"), default="-")
@json_option
@on_server("cancelTimers")
def cancel_batch(*, remote: Remote, namespace: str, file: IO[str], as_json: bool) -> int:
    """Cancel many waiting timers. FILE or standard input has one per line.

    A line is the id as a JSON string, or {"id": "...", "revision": N}; a timer with another revision is left alone.
    """
    return act_on_lines(file, remote.client.timers(namespace).cancel_many, as_json=as_json)


@timers.command("delete-batch", short_help="Remove many timers from lines of JSON.")
@click.argument("namespace")
@click.argument("file", type=click.File(encoding="utf-8"), default="-")
@json_option
@on_server("deleteTimers")
def delete_batch(*, remote: Remote, namespace: str, file: IO[str], as_json: bool) -> int:
    """Remove many timers in any state. FILE or standard input is as for `cancel-batch`."""
    return act_on_lines(file, remote.client.timers(namespace).delete_many, as_json=as_json)
