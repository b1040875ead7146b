"""Service calls, executions and events as people read them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import click

from duetime.cli.tables import printable, show_table

_MAX_CELL = 60


def show_list(found: Iterator[dict[str, Any]], *, limit: int, as_json: bool) -> None:
    """Lines of JSON as they come, or a table of all. ``found`` may have one more than ``limit``."""
    rows = [("ID", "NAME", "STATUS", "DUE", "ATTEMPTS", "OUTCOME", "TAGS")]
    for shown, call in enumerate(found):
        if shown == limit:
            click.echo(f"there are more than {limit}; --limit shows more", err=True)
            break
        if as_json:
            click.echo(json.dumps(call))
        else:
            rows.append(_row(call))
    if not as_json:
        show_table(rows)


def show_call(call: Mapping[str, Any]) -> None:
    request = call["request"]
    lines = {
        "id": call["id"],
        "name": call["name"],
        "status": call["status"],
        "request": f"{request['method']} {request['url']}",
        "headers": ", ".join(f"{name}: {value}" for name, value in (request["headers"] or {}).items()),
        "body": _body_size(request["bodyBytes"]),
        "submitted": call["submittedAt"],
        "due": call["dueAt"],
        "started": call["startedAt"],
        "finished": call["finishedAt"],
        "expires": call["expiresAt"],
        "attempts": call["attempts"],
        "next attempt": call["nextAttemptAt"],
        "outcome": _outcome(call["outcome"]),
        "execution": (call["outcome"] or {}).get("executionId") or call["executionId"],
        "tags": ", ".join(call["tags"]),
        "starred": "yes" if call["starred"] else None,
        "correlation id": call["correlationId"],
        "rerun of": call["rerunOf"],
        "revision": call["revision"],
    }
    _show_lines(lines)


def show_executions(found: Iterator[dict[str, Any]], *, as_json: bool) -> None:
    rows = [("NUMBER", "ID", "STATUS", "STARTED", "MS", "HTTP", "REASON", "MESSAGE")]
    for execution in found:
        if as_json:
            click.echo(json.dumps(execution))
            continue
        response = execution["response"] or {}
        cells = (
            execution["number"],
            execution["id"],
            execution["status"],
            execution["startedAt"],
            execution["durationMs"],
            response.get("status"),
            execution["reason"],
            execution["message"],
        )
        rows.append(tuple(map(_cell, cells)))  # type: ignore[arg-type]  # as many as the head
    if not as_json:
        show_table(rows)


def show_execution(execution: Mapping[str, Any]) -> None:
    _show_lines(
        {
            "id": execution["id"],
            "number": execution["number"],
            "status": execution["status"],
            "started": execution["startedAt"],
            "finished": execution["finishedAt"],
            "ms": execution["durationMs"],
            "reason": execution["reason"],
            "message": execution["message"],
        }
    )
    request, response = execution["request"], execution["response"]
    _show_message(f"> {request['method']} {request['url']}", request, ">")
    if response is not None:
        _show_message(f"< {response['status']}", response, "<")


def show_events(events: Iterator[dict[str, Any]], *, as_json: bool) -> str | None:
    """One line each, as they come; the type of the last one."""
    last = None
    for event in events:
        if as_json:
            click.echo(json.dumps(event))
        else:
            facts = "  ".join(f"{name}={_value(value)}" for name, value in event["payload"].items() if value)
            click.echo(f"{event['occurredAt']}  {event['sequence']:>3}  {event['type']:<20}  {facts}".rstrip())
        last = event["type"]
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
    notes += [f"cut off, {message['bodyBytes']} bytes"] if message["bodyTruncated"] else []
    if notes:
        click.echo(f"{mark} ({', '.join(notes)})")


def _row(call: Mapping[str, Any]) -> tuple[str, str, str, str, str, str, str]:
    star = "* " if call["starred"] else ""
    return (
        call["id"],
        star + _cell(call["name"]),
        call["status"],
        call["dueAt"],
        str(call["attempts"]),
        _cell(_outcome(call["outcome"])),
        _cell(", ".join(call["tags"])),
    )


def _outcome(outcome: Mapping[str, Any] | None) -> str:
    if outcome is None:
        return ""
    return " ".join(str(part) for part in (outcome["status"], outcome["reason"], outcome["message"]) if part)


def _body_size(size_bytes: int) -> str | None:
    return f"{size_bytes} bytes of JSON" if size_bytes else None


def _cell(value: object) -> str:
    text = "" if value is None else printable(str(value))
    return text if len(text) <= _MAX_CELL else text[: _MAX_CELL - 3] + "..."


def _value(value: object) -> str:
    return printable(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))


def _show_lines(lines: Mapping[str, object]) -> None:
    for name, value in lines.items():
        if value not in (None, ""):
            click.echo(f"{name:<15} {printable(str(value))}")
