"""From command-line options to the body of a submission. The rules for values are the API's."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import click

from duetime.domain.service_calls import MAX_NAME_CHARACTERS, Method
from duetime.domain.urls import without_query


def submission_text(
    url: str,
    *,
    method: Method | str | None,
    headers: Sequence[str],
    body: str | None,
    body_json: str | None,
    name: str | None,
    tags: Sequence[str],
    star: bool,
    retry_policy: str | None,
    **plain: Any,
) -> str:
    """JSON. What is given as JSON stays as it was written. Raises ``click.UsageError``."""
    if body is not None and body_json is not None:
        raise click.UsageError("--body and --body-json cannot both be given")
    has_body = body is not None or body_json is not None
    method = str(method or (Method.POST if has_body else Method.GET))
    request = {"method": method, "url": url, "headers": dict(map(_header, headers)) or None, "body": body}
    members = {
        # Names are in events and lists: no place for what a query may carry.
        "name": name or f"{method} {without_query(url)}"[:MAX_NAME_CHARACTERS],
        "tags": list(tags) or None,
        "starred": star or None,
        "dueAt": plain["due_at"],
        "delay": plain["delay"],
        "idempotencyKey": plain["idempotency_key"],
        "timeoutSeconds": plain["timeout_seconds"],
        "correlationId": plain["correlation_id"],
    }
    request_text = _spliced(request, "body", _checked("--body-json", body_json))
    text = _spliced(members, "retryPolicy", _checked("--retry-policy", retry_policy))
    return f'{text[:-1]},"request":{request_text}}}'


def _spliced(members: dict[str, Any], name: str, json_text: str | None) -> str:
    """An object of the members that are not None, and of one more whose text is not touched."""
    text = json.dumps({member: value for member, value in members.items() if value is not None})
    return text if json_text is None else f"{text[:-1]},{json.dumps(name)}:{json_text}}}"


def _checked(option: str, json_text: str | None) -> str | None:
    if json_text is None:
        return None
    try:
        json.loads(json_text)
    except (ValueError, RecursionError) as error:
        raise click.UsageError(f"{option}: is no JSON: {error}") from None
    return json_text


def _header(text: str) -> tuple[str, str]:
    name, colon, value = text.partition(":")
    if not colon or not name.strip():
        raise click.UsageError("--header: must be 'NAME: VALUE'")
    return name.strip(), value.strip()
