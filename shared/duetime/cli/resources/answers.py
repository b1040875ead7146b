"""Commands that say what came of work which a receiver took: of ``duetime timers`` and of ``duetime schedules``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from duetime.cli.remote import Remote, item_path, json_option, on_server, path
from duetime.cli.tables import show_item
from duetime.cli.values import options

Decorator = Callable[[Any], Any]

_KINDS: dict[str, tuple[str, tuple[Decorator, ...]]] = {
    "ack": ("is done", ()),
    "nack": (
        "has failed",
        (
            click.option("--message", help="Why it failed."),
            click.option(
                "--retry/--no-retry", default=None, help="Whether there may be another attempt.  [default: yes]"
            ),
        ),
    ),
    "heartbeat": (
        "goes on",
        (click.option("--within", required=True, metavar="DURATION", help='Until the next answer, like "10m".'),),
    ),
}


def add_answers(group: click.Group, items: str, operation: str, *arguments: Decorator) -> None:
    """Add ``ack``, ``nack`` and ``heartbeat``. ``arguments`` name one of ``items``: the namespace, the id, and what
    else its query has."""
    for answer, (fate, more) in _KINDS.items():
        _add(group, answer, f"Say that work which a receiver took {fate}.", items, operation, (*arguments, *more))


def _add(group: click.Group, answer: str, text: str, items: str, operation: str, more: tuple[Decorator, ...]) -> None:
    @group.command(answer, short_help=text, help=f"{text} FIRING is the webhook-id of its callback.")
    @options(*more[:1])
    @click.argument("firing_id", metavar="FIRING")
    @options(*more[1:])
    @click.option("--attempt", type=int, help="The attempt that is answered for.  [default: the present one]")
    @json_option
    @on_server(operation)
    def act(*, remote: Remote, namespace: str, firing_id: str, as_json: bool, **given: Any) -> None:
        item_id = given.pop("timer_id", None) or given.pop("schedule_id")
        query: dict[str, Any] = {name: given.pop(name) for name in ("attempt", "scheduled_at") if name in given}
        where = item_path(namespace, items, item_id, path("/firings/{}/{}", firing_id, answer))
        response = remote.call("POST", where, body=given, query=query, has="outcome")
        show_item(response.content, as_json=as_json)
