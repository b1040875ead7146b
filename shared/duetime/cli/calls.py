"""Commands about service calls: ``duetime calls``. They speak to a server's HTTP API."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar

import click

from duetime.cli.options import LOGS, load, settings_options
from duetime.domain.service_calls import CallStatus, Method
from duetime.runtime.settings import ClientSettings

if TYPE_CHECKING:
    from duetime.cli.call_desk import CallDesk

F = TypeVar("F", bound=Callable[..., Any])

_MAX_STDIN_CHARACTERS = 2 * 1024 * 1024
_JSON_OPTION = click.option("--json", "as_json", is_flag=True, help="Show what the API answers.")
_FOLLOW_OPTION = click.option(
    "--follow", is_flag=True, help="Show the events of the call until it has finished; end with 1 if it failed."
)
_DUE_OPTIONS = (
    click.option("--due-at", metavar="TIME", help="An RFC 3339 time with an offset.  [default: now]"),
    click.option("--delay", metavar="DURATION", help='Instead of a time, like "90s" or "1h30m".'),
)


@click.group()
def calls() -> None:
    """Submit service calls and see what becomes of them.

    An API key is taken from DUETIME_API_KEY.
    """


def _on_server(command: F) -> F:
    """A command with the options of a client, which gets a ``desk`` in their place."""

    @wraps(command)
    def run(*, url: str | None, tenant: str | None, **given: Any) -> Any:
        logs = {name: given.pop(name) for name in LOGS}
        settings = load(ClientSettings, {"url": url, "tenant": tenant, **logs})
        from duetime.cli.api_client import ApiClient
        from duetime.cli.call_desk import CallDesk

        client = ApiClient(settings.url, api_key=settings.api_key)
        return command(desk=CallDesk(client, settings.tenant), **given)

    return settings_options(ClientSettings, "url", "tenant", *LOGS)(run)  # type: ignore[return-value]


def _due(command: F) -> F:
    for option in reversed(_DUE_OPTIONS):
        command = option(command)
    return command


@calls.command()
@click.argument("target", metavar="[URL]", default="")
@click.option("--name", help="For people.  [default: method and URL without its query]")
@click.option(
    "--method",
    type=click.Choice([str(method) for method in Method]),
    help="Of the request.  [default: GET, or POST with a body]",
)
@click.option("--header", "headers", multiple=True, metavar="'NAME: VALUE'", help="Can be repeated.")
@click.option("--body", metavar="TEXT", help="Is sent as this text.")
@click.option("--body-json", metavar="JSON", help="Is sent as this JSON, digit for digit.")
@_due
@click.option("--tag", "tags", multiple=True, help="Can be repeated.")
@click.option("--star", is_flag=True, help="Keep it after its end.")
@click.option("--idempotency-key", metavar="KEY", help="The same content under one key is one call.")
@click.option("--timeout-seconds", type=click.IntRange(1, 900), help="Of one execution.  [default: 30]")
@click.option("--retry-policy", metavar="JSON", help="""Like '{"maxAttempts": 3}'.  [default: one attempt]""")
@click.option("--correlation-id", metavar="ID", help="Is sent along, and in all events.  [default: a new one]")
@click.option(
    "--stdin", "from_stdin", is_flag=True, help="Take the whole body of the submission from standard input."
)
@_FOLLOW_OPTION
@_JSON_OPTION
@_on_server
def submit(*, desk: CallDesk, target: str, from_stdin: bool, follow: bool, as_json: bool, **given: Any) -> int:
    """Submit a service call: a request to URL, now or later. Prints its id.

    Others on this machine can see what a command is called with: give secrets by --stdin.
    """
    from duetime.cli.submissions import submission_text

    is_described = bool(target) or any(value not in (None, (), False) for value in given.values())
    if from_stdin == is_described:
        raise click.UsageError("give a URL with options, or --stdin and nothing else")
    text = sys.stdin.read(_MAX_STDIN_CHARACTERS) if from_stdin else submission_text(target, **given)
    return _shown(desk, desk.submit(text), follow=follow, as_json=as_json)


@calls.command("list")
@click.option("--status", type=click.Choice([str(status) for status in CallStatus]), help="Calls in this status.")
@click.option("--tag", "tags", multiple=True, help="Calls with this tag; repeated: with all of them.")
@click.option("--from", "from_", metavar="TIME", help="Submitted at this RFC 3339 time or later.")
@click.option("--to", metavar="TIME", help="Submitted before this time.")
@click.option("--name", metavar="PREFIX", help="Whose name begins so.")
@click.option("--starred/--not-starred", default=None, help="With a star, or without.")
@click.option("--correlation-id", metavar="ID", help="Calls with this correlation id.")
@click.option("--next", "is_next", is_flag=True, help="Scheduled ones, the earliest first.")
@click.option("--due-to", metavar="TIME", help="With --next: due by then.")
@click.option("--limit", default=50, show_default=True, type=click.IntRange(1, 1_000_000), help="The most to show.")
@click.option("--json", "as_json", is_flag=True, help="A line of JSON for each, as the API answers it.")
@_on_server
def list_calls(
    *, desk: CallDesk, limit: int, as_json: bool, is_next: bool, starred: bool | None, **given: Any
) -> int:
    """List service calls, the newest first."""
    from duetime.cli import call_views

    query = {
        "status": "Scheduled" if is_next and given["status"] is None else given["status"],
        "tag": given["tags"] or None,
        "from": given["from_"],
        "to": given["to"],
        "name": given["name"],
        "starred": None if starred is None else json.dumps(starred),
        "correlationId": given["correlation_id"],
        "order": "dueAt" if is_next else None,
        "dueTo": given["due_to"],
    }
    found = desk.found({name: value for name, value in query.items() if value is not None}, limit=limit + 1)
    call_views.show_list(found, limit=limit, as_json=as_json)
    return 0


@calls.command()
@click.argument("call_id", metavar="ID")
@_JSON_OPTION
@_on_server
def show(*, desk: CallDesk, call_id: str, as_json: bool) -> int:
    """Show a service call."""
    return _shown(desk, desk.read(call_id), follow=False, as_json=as_json, in_full=True)


@calls.command(short_help="List the executions of a service call, or show one.")
@click.argument("call_id", metavar="ID")
@click.argument("execution_id", metavar="[EXECUTION]", default="")
@_JSON_OPTION
@_on_server
def executions(*, desk: CallDesk, call_id: str, execution_id: str, as_json: bool) -> int:
    """List the executions of a service call, or show one: what was sent and what came back."""
    from duetime.cli import call_views

    if execution_id:
        text = desk.execution(call_id, execution_id)
        click.echo(text) if as_json else call_views.show_execution(json.loads(text))
    else:
        call_views.show_executions(desk.executions(call_id), as_json=as_json)
    return 0


@calls.command()
@click.argument("call_id", metavar="ID")
@click.option("--follow", is_flag=True, help="Go on until the call has finished; end with 1 if it failed.")
@click.option("--json", "as_json", is_flag=True, help="A line of JSON for each.")
@_on_server
def events(*, desk: CallDesk, call_id: str, follow: bool, as_json: bool) -> int:
    """Show the events of a service call."""
    from duetime.cli import call_views

    if follow:
        return _followed(desk, call_id, as_json=as_json)
    call_views.show_events(desk.events(call_id), as_json=as_json)
    return 0


@calls.command(short_help="Cancel a service call.")
@click.argument("call_id", metavar="ID")
@_on_server
def cancel(*, desk: CallDesk, call_id: str) -> int:
    """Cancel a service call that waits for its due time or its next attempt. It is kept as Cancelled."""
    desk.cancel(call_id)
    click.echo(f"cancelled {call_id}", err=True)
    return 0


@calls.command(short_help="Make a service call due now.")
@click.argument("call_id", metavar="ID")
@_FOLLOW_OPTION
@_JSON_OPTION
@_on_server
def fire(*, desk: CallDesk, call_id: str, follow: bool, as_json: bool) -> int:
    """Make a service call due now that waits for its due time or its next attempt. Prints its id."""
    return _shown(desk, desk.fire(call_id), follow=follow, as_json=as_json)


@calls.command(short_help="Remove a finished service call.")
@click.argument("call_id", metavar="ID")
@_on_server
def delete(*, desk: CallDesk, call_id: str) -> int:
    """Remove a finished service call with all that it has: executions, events, tags. There is no way back."""
    desk.delete(call_id)
    click.echo(f"removed {call_id}", err=True)
    return 0


@calls.command()
@click.argument("call_id", metavar="ID")
@_due
@click.option("--idempotency-key", metavar="KEY", help="Of the rerun.")
@_FOLLOW_OPTION
@_JSON_OPTION
@_on_server
def rerun(*, desk: CallDesk, call_id: str, follow: bool, as_json: bool, **given: str | None) -> int:
    """Submit a finished service call once more. Prints the id of the new one."""
    members = {"dueAt": given["due_at"], "delay": given["delay"], "idempotencyKey": given["idempotency_key"]}
    text = json.dumps({name: value for name, value in members.items() if value is not None})
    return _shown(desk, desk.rerun(call_id, text), follow=follow, as_json=as_json)


@calls.command()
@click.argument("call_id", metavar="ID")
@click.option("--remove", is_flag=True, help="Take the star away.")
@_on_server
def star(*, desk: CallDesk, call_id: str, remove: bool) -> int:
    """Star a service call, so that it is kept after its end."""
    desk.change(call_id, {"starred": not remove})
    click.echo(f"{'took the star from' if remove else 'starred'} {call_id}", err=True)
    return 0


@calls.command()
@click.argument("call_id", metavar="ID")
@click.option("--add", multiple=True, metavar="TAG", help="Can be repeated.")
@click.option("--remove", multiple=True, metavar="TAG", help="Can be repeated.")
@_on_server
def tag(*, desk: CallDesk, call_id: str, add: tuple[str, ...], remove: tuple[str, ...]) -> int:
    """Add tags to a service call and remove others. Prints those that it has then, one a line."""
    for each in desk.retag(call_id, add=add, remove=remove):
        click.echo(each)
    return 0


def _shown(desk: CallDesk, text: str, *, follow: bool, as_json: bool, in_full: bool = False) -> int:
    """The exit code."""
    from duetime.cli import call_views

    call = json.loads(text)
    if as_json:
        click.echo(text)
    elif in_full:
        call_views.show_call(call)
    else:
        click.echo(call["id"])
    return _followed(desk, call["id"], as_json=as_json) if follow else 0


def _followed(desk: CallDesk, call_id: str, *, as_json: bool) -> int:
    """The exit code: 0 when the call succeeded."""
    from duetime.cli import call_views
    from duetime.cli.api_client import ApiProblem

    last = call_views.show_events(desk.follow(call_id), as_json=as_json)
    if last is not None and last.startswith("ServiceCall"):
        status = last.removeprefix("ServiceCall")
        if status in (CallStatus.SUCCEEDED, CallStatus.FAILED, CallStatus.CANCELLED):
            return int(status != CallStatus.SUCCEEDED)
    try:  # it was removed, or changed after its end, or its events are not kept any more
        return int(json.loads(desk.read(call_id))["status"] in (CallStatus.FAILED, CallStatus.CANCELLED))
    except ApiProblem as problem:
        if problem.status != 404:
            raise
        return 0
