"""Commands about service calls: ``duetime calls``."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import IO, TYPE_CHECKING, Any, TypeVar

import click

from duetime.cli.options import Group
from duetime.cli.remote import Remote, checked, given, if_revision_option, json_option, limit_option, on_server, path
from duetime.cli.resources.batches import act_on_lines, make_of_lines
from duetime.cli.values import Json, aimed, choice, headers_option, options, read_stdin, tags_option
from duetime.domain.service_calls import MAX_NAME_CHARACTERS, CallStatus, Method
from duetime.domain.targets import is_arn

if TYPE_CHECKING:
    from duetime_client.requests import Answer

F = TypeVar("F", bound=Callable[..., Any])

_CALLS = "/v1/tenants/{tenant}/service-calls"
_TRIES = 5
_follow_option = click.option(
    "--follow", is_flag=True, help="Print the events of the call until it ends. Exit code 1: it failed."
)
_due_options = options(
    click.option("--due-at", metavar="TIME", help="Due time in RFC 3339, with an offset.  [default: now]"),
    click.option("--delay", metavar="DURATION", help='Due after this duration, like "90s" or "1h30m".'),
)
_request_options = options(
    click.option(
        "--method",
        type=choice([str(method) for method in Method]),
        help="Method of the request.  [default: GET, or POST with a body]",
    ),
    headers_option,
    click.option("--body", metavar="TEXT", help="Body, sent as this text."),
    click.option("--body-json", type=Json(), metavar="JSON", help="Body, sent as this JSON exactly as given."),
)


@click.group(cls=Group)
def calls() -> None:
    """Submit, list, change, cancel and rerun service calls.

    \b
      duetime calls submit https://example.com/jobs --body-json '{"n": 1}' --delay 1h --follow
      duetime calls list --status Failed --tag jobs
    """


@calls.command()
@click.argument("target", metavar="[URL]", default="")
@click.option("--name", help="A name for people.  [default: method and URL without its query]")
@_request_options
@_due_options
@tags_option
@click.option("--star", "starred", flag_value=True, type=bool, help="Keep the call after its end.")
@click.option("--idempotency-key", metavar="KEY", help="Makes repeats of the same submission one call.")
@click.option("--timeout-seconds", type=click.IntRange(1, 900), help="Timeout of one execution.  [default: 30]")
@click.option(
    "--retry-policy", type=Json(), metavar="JSON", help="""Like '{"maxAttempts": 3}'.  [default: one attempt]"""
)
@click.option("--correlation-id", metavar="ID", help="Sent with the request and in all events.  [default: a new one]")
@click.option(
    "--stdin", "from_stdin", is_flag=True, help="Read the whole submission, as JSON of the API, from standard input."
)
@_follow_option
@json_option
@on_server("submitServiceCall", tenant=True)
def submit(*, remote: Remote, target: str, from_stdin: bool, follow: bool, as_json: bool, **options: Any) -> int:
    """Submit a service call: a request to URL, now or later. Prints its id.

    The ARN of a target on AWS may be given in the place of URL.

    Other users of this machine can see the arguments of a command: use --stdin for secrets.
    """
    from duetime_client import InvalidArgument, RawJson

    is_described = bool(target) or any(value not in (None, (), {}, False) for value in options.values())
    if from_stdin == is_described:
        raise click.UsageError("give a URL with options, or --stdin and nothing else")
    if not from_stdin:
        response = remote.call("POST", _CALLS, body=_submission(target, options))
        return _shown(remote, response, follow=follow, as_json=as_json)
    try:
        body = RawJson(read_stdin("the JSON of a submission"))
    except InvalidArgument as error:
        raise click.UsageError(f"standard input: {error}") from None
    return _shown(
        remote, checked(remote.client.request("POST", _CALLS, body=body), "id"), follow=follow, as_json=as_json
    )


@calls.command("list")
@click.option(
    "--status",
    type=choice([str(status) for status in CallStatus]),
    help="Calls in this status.",
)
@click.option("--tag", multiple=True, help="Calls with this tag; repeated: with all of them.")
@click.option("--created-from", metavar="TIME", help="Created at this RFC 3339 time or later.")
@click.option("--created-to", metavar="TIME", help="Created before this time.")
@click.option("--name", metavar="PREFIX", help="Calls whose name begins with this.")
@click.option("--starred/--not-starred", default=None, help="Calls with a star, or without.")
@click.option("--correlation-id", metavar="ID", help="Calls with this correlation id.")
@click.option("--next", "is_next", is_flag=True, help="Scheduled calls, earliest first.")
@click.option("--due-to", metavar="TIME", help="With --next: due before this time.")
@limit_option
@json_option
@on_server("listServiceCalls", tenant=True)
def list_calls(*, remote: Remote, limit: int, as_json: bool, is_next: bool, **filters: Any) -> None:
    """List service calls, newest first."""
    from duetime.cli.resources import call_views

    if is_next:
        filters |= {"status": filters["status"] or CallStatus.SCHEDULED, "order": "dueAt"}
    call_views.show_list(remote.items(_CALLS, filters, limit=limit), limit=limit, as_json=as_json)


@calls.command()
@click.argument("call_id", metavar="ID")
@json_option
@on_server("getServiceCall", tenant=True)
def show(*, remote: Remote, call_id: str, as_json: bool) -> int:
    """Show a service call."""
    return _shown(remote, remote.call("GET", _path(call_id)), follow=False, as_json=as_json, in_full=True)


@calls.command(short_help="Change a service call that has not finished.")
@click.argument("call_id", metavar="ID")
@click.option("--name", help="New name.")
@click.option("--target", metavar="URL", help="New URL of the request, or ARN of a target.")
@_request_options
@_due_options
@if_revision_option
@json_option
@on_server("patchServiceCall", tenant=True)
def update(
    *, remote: Remote, call_id: str, target: str | None, if_revision: int | None, as_json: bool, **options: Any
) -> int:
    """Change the given values of a service call; keep the rest.

    The name can always be changed, due time and request only while no execution is in flight. See `tag` and `star`
    for tags and stars.
    """
    body = _beside_request(options) | {"request": _request(options) | given(aimed({"url": target}, "url"))}
    response = remote.call("PATCH", _path(call_id), body=body, if_revision=if_revision)
    return _shown(remote, response, follow=False, as_json=as_json, in_full=True)


@calls.command(short_help="List the executions of a service call, or show one.")
@click.argument("call_id", metavar="ID")
@click.argument("execution_id", metavar="[EXECUTION]", default="")
@json_option
@on_server("listExecutions", "getExecution", tenant=True)
def executions(*, remote: Remote, call_id: str, execution_id: str, as_json: bool) -> None:
    """List the executions of a service call, or show the request and response of one."""
    from duetime.cli.resources import call_views

    if not execution_id:
        call_views.show_executions(remote.items(_path(call_id, "/executions")), as_json=as_json)
        return
    response = remote.call("GET", _path(call_id) + path("/executions/{}", execution_id))
    if as_json:
        click.echo(response.content.decode())
    else:
        call_views.show_execution(json.loads(response.content))


@calls.command()
@click.argument("call_id", metavar="ID")
@click.option("--follow", is_flag=True, help="Continue until the call ends. Exit code 1: it failed.")
@json_option
@on_server("listEvents", tenant=True)
def events(*, remote: Remote, call_id: str, follow: bool, as_json: bool) -> int:
    """Show the events of a service call."""
    from duetime.cli.resources import call_views

    if follow:
        return _followed(remote, call_id, as_json=as_json)
    call_views.show_events(remote.client.service_calls.events(call_id), as_json=as_json)
    return 0


@calls.command(short_help="Cancel a service call.")
@click.argument("call_id", metavar="ID")
@if_revision_option
@on_server("cancelServiceCall", tenant=True)
def cancel(*, remote: Remote, call_id: str, if_revision: int | None) -> None:
    """Cancel a service call that waits for its due time or next attempt. It stays readable as Cancelled."""
    remote.client.service_calls.cancel(call_id, if_revision=if_revision)
    click.echo(f"cancelled {call_id}", err=True)


@calls.command(short_help="Make a service call due now.")
@click.argument("call_id", metavar="ID")
@if_revision_option
@_follow_option
@json_option
@on_server("fireServiceCall", tenant=True)
def fire(*, remote: Remote, call_id: str, if_revision: int | None, follow: bool, as_json: bool) -> int:
    """Make a service call due now that waits for its due time or next attempt. Prints its id."""
    response = remote.call("POST", _path(call_id, "/fire"), if_revision=if_revision)
    return _shown(remote, response, follow=follow, as_json=as_json)


@calls.command(short_help="Remove a finished service call.")
@click.argument("call_id", metavar="ID")
@if_revision_option
@on_server("deleteServiceCall", tenant=True)
def delete(*, remote: Remote, call_id: str, if_revision: int | None) -> None:
    """Remove a finished service call with its executions, events and tags, for good."""
    remote.client.service_calls.delete(call_id, if_revision=if_revision)
    click.echo(f"removed {call_id}", err=True)


@calls.command("submit-batch", short_help="Submit many service calls from lines of JSON.")
@click.argument("file", type=click.File(encoding="utf-8"), default="-")
@json_option
@on_server("submitServiceCalls", tenant=True)
def submit_batch(*, remote: Remote, file: IO[str], as_json: bool) -> int:
    """Submit many service calls from FILE or standard input, which has one per line, as JSON of the API.

    Prints their ids. Exit code 1: some were not submitted; standard error says which and why.
    """
    return make_of_lines(file, remote.client.service_calls.submit_many, as_json=as_json)


@calls.command("cancel-batch", short_help="Cancel many service calls from lines of JSON.")
@click.argument("file", type=click.File(encoding="utf-8"), default="-")
@json_option
@on_server("cancelServiceCalls", tenant=True)
def cancel_batch(*, remote: Remote, file: IO[str], as_json: bool) -> int:
    """Cancel many waiting service calls. FILE or standard input has one per line.

    A line is the id as a JSON string, or {"id": "...", "revision": N}; a call with another revision is left alone.
    """
    return act_on_lines(file, remote.client.service_calls.cancel_many, as_json=as_json)


@calls.command("delete-batch", short_help="Remove many finished service calls from lines of JSON.")
@click.argument("file", type=click.File(encoding="utf-8"), default="-")
@json_option
@on_server("deleteServiceCalls", tenant=True)
def delete_batch(*, remote: Remote, file: IO[str], as_json: bool) -> int:
    """Remove many finished service calls for good. FILE or standard input is as for `cancel-batch`."""
    return act_on_lines(file, remote.client.service_calls.delete_many, as_json=as_json)


@calls.command()
@click.argument("call_id", metavar="ID")
@_due_options
@click.option("--idempotency-key", metavar="KEY", help="Makes repeats of this rerun one call.")
@if_revision_option
@_follow_option
@json_option
@on_server("rerunServiceCall", tenant=True)
def rerun(
    *, remote: Remote, call_id: str, if_revision: int | None, follow: bool, as_json: bool, **options: str | None
) -> int:
    """Submit a finished service call again. Prints the id of the new call."""
    response = remote.call("POST", _path(call_id, "/rerun"), body=options, if_revision=if_revision)
    return _shown(remote, response, follow=follow, as_json=as_json)


@calls.command()
@click.argument("call_id", metavar="ID")
@click.option("--remove", is_flag=True, help="Remove the star.")
@on_server("patchServiceCall", tenant=True)
def star(*, remote: Remote, call_id: str, remove: bool) -> None:
    """Star a service call, so that it is kept after it ends."""
    remote.client.service_calls.update(call_id, starred=not remove)
    click.echo(f"{'removed the star of' if remove else 'starred'} {call_id}", err=True)


@calls.command()
@click.argument("call_id", metavar="ID")
@click.option("--add", multiple=True, metavar="TAG", help="Tag to add. Can be repeated.")
@click.option("--remove", multiple=True, metavar="TAG", help="Tag to remove. Can be repeated.")
@on_server("patchServiceCall", tenant=True)
def tag(*, remote: Remote, call_id: str, add: tuple[str, ...], remove: tuple[str, ...]) -> None:
    """Add and remove tags of a service call. Prints its tags, one per line.

    Concurrent changes of other tags are kept.
    """
    from duetime_client import PreconditionFailed

    service_calls = remote.client.service_calls
    for tries_left in reversed(range(_TRIES)):
        call = service_calls.get(call_id)
        tags = [each for each in dict.fromkeys([*call.tags, *add]) if each not in remove]
        try:
            service_calls.update(call_id, tags=tags, if_revision=call.revision)
        except PreconditionFailed:
            if not tries_left:
                raise
        else:
            for each in tags:
                click.echo(each)
            return


def _submission(url: str, options: dict[str, Any]) -> dict[str, Any]:
    """Make the body of a submission. Raises ``click.UsageError``."""
    from duetime.domain.urls import without_query

    has_body = options["body"] is not None or options["body_json"] is not None
    method = str(options["method"] or (Method.POST if has_body or is_arn(url) else Method.GET))
    return _beside_request(options) | {
        # Names are in events and lists, so they must not hold secrets of a query.
        "name": options["name"] or f"{method} {without_query(url)}"[:MAX_NAME_CHARACTERS],
        "request": _request(options) | aimed({"url": url, "method": method}, "url"),
    }


def _request(options: dict[str, Any]) -> dict[str, Any]:
    if options["body"] is not None and options["body_json"] is not None:
        raise click.UsageError("--body and --body-json cannot both be given")
    body = options["body_json"] if options["body"] is None else options["body"]
    return given({"method": options["method"], "headers": options["headers"], "body": body})


def _beside_request(options: dict[str, Any]) -> dict[str, Any]:
    """Return the members of a submission or a change that do not belong to its request."""
    return {name: value for name, value in options.items() if name not in ("method", "headers", "body", "body_json")}


def _shown(remote: Remote, response: Answer, *, follow: bool, as_json: bool, in_full: bool = False) -> int:
    """Print a call. Returns the exit code."""
    from duetime.cli.resources import call_views

    call = json.loads(response.content)
    if as_json:
        click.echo(response.content.decode())
    elif in_full:
        call_views.show_call(call)
    else:
        click.echo(call["id"])
    return _followed(remote, call["id"], as_json=as_json) if follow else 0


def _followed(remote: Remote, call_id: str, *, as_json: bool) -> int:
    """Print the events of a call as they come. Returns the exit code: 0 if the call succeeded."""
    from duetime.cli.resources import call_views
    from duetime_client import CallStatus as Status
    from duetime_client import EventType, NotFound

    last = call_views.show_events(remote.client.service_calls.follow(call_id), as_json=as_json)
    if last is not None and last.is_last:
        return int(last is not EventType.SUCCEEDED)
    try:  # it was removed, changed after its end, or its events have expired
        return int(remote.client.service_calls.get(call_id).status in (Status.FAILED, Status.CANCELLED))
    except NotFound:
        return 0


def _path(call_id: str, action: str = "") -> str:
    return _CALLS + path("/{}", call_id) + action
