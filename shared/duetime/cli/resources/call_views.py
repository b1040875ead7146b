"""Prints service calls, executions and events."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import fields
from typing import Any

import click

from duetime.cli.tables import flat, printable, show_items, show_lines, text_of
from duetime.domain.times import format_instant
from duetime_client.call_models import CallEvent, EventType
from duetime_client.values import camel

_COLUMNS = {
    "ID": "id",
    "NAME": lambda call: ("* " if call["starred"] else "") + call["name"],
    "STATUS": "status",
    "DUE": "dueAt",
    "ATTEMPTS": "attempts",
    "OUTCOME": lambda call: _outcome(call["outcome"]) or None,
    "TAGS": "tags",
}
_EXECUTION_COLUMNS = {
    "NUMBER": "number",
    "ID": "id",
    "STATUS": "status",
    "STARTED": "startedAt",
    "MS": "durationMs",
    "HTTP": "response.status",
    "REASON": "reason",
    "MESSAGE": "message",
}


def show_list(found: Iterator[dict[str, Any]], *, limit: int, as_json: bool) -> None:
    """Print a table, or lines of JSON. ``found`` may have one more than ``limit``."""
    show_items(found, _COLUMNS, as_json=as_json, limit=limit)


def show_call(call: Mapping[str, Any]) -> None:
    request, outcome = call["request"], call["outcome"]
    shown = {
        "execution id": (outcome or {}).get("executionId") or call["executionId"],
        "outcome": _outcome(outcome),
        "timer": None,  # what else it tells stands beside it
        "request": f"{request['method']} {request['url'] or request['target']['arn']}",
        "headers": ", ".join(f"{name}: {value}" for name, value in (request["headers"] or {}).items()),
        "body": _body_size(request["bodyBytes"]),
    }
    show_lines(flat(call) | shown)


def show_executions(found: Iterator[dict[str, Any]], *, as_json: bool) -> None:
    """Print a table, or lines of JSON."""
    show_items(found, _EXECUTION_COLUMNS, as_json=as_json)


def show_execution(execution: Mapping[str, Any]) -> None:
    show_lines(flat(execution) | {"request": None, "response": None})
    request, response = execution["request"], execution["response"]
    _show_message(f"> {request['method']} {request['url']}", request, ">")
    if response is not None:
        _show_message(f"< {response['status']}", response, "<")


def show_events(events: Iterator[CallEvent], *, as_json: bool) -> EventType | None:
    """Print one line per event, as they come. Returns the type of the last one."""
    last = None
    for event in events:
        at = format_instant(event.occurred_at)
        if as_json:
            members = {camel(each.name): getattr(event, each.name) for each in fields(event)}
            click.echo(json.dumps(members | {"type": event.type.value, "occurredAt": at}))
        else:
            facts = "  ".join(f"{name}={text_of(value)}" for name, value in event.payload.items() if value)
            click.echo(f"{at}  {event.sequence:>3}  {event.type.value:<20}  {facts}".rstrip())
        last = event.type
    return last


def _show_message(first: str, message: Mapping[str, Any], mark: str) -> None:
    click.echo(f"\n{printable(first)}")
    for header in message["headers"]:
        click.echo(printable(f"{mark} {header['name']}: {header['value']}"))
    if message["body"] is None:
        return
    click.echo(mark)
    for line in message["body"].splitlines():
        click.echo(printable(line))
    notes = ["base64"] if message["bodyIsBase64"] else []
    notes += [f"truncated, {message['bodyBytes']} bytes"] if message["bodyTruncated"] else []
    if notes:
        click.echo(f"{mark} ({', '.join(notes)})")


def _outcome(outcome: Mapping[str, Any] | None) -> str:
    if outcome is None:
        return ""
    return " ".join(str(part) for part in (outcome["status"], outcome["reason"], outcome["message"]) if part)


def _body_size(size_bytes: int) -> str | None:
    return f"{size_bytes} bytes of JSON" if size_bytes else None
