"""``dynamodb://<table>?calls=<table>&region=...&endpoint_url=...&partiql=off&event_retention=30d``."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import timedelta
from urllib.parse import parse_qsl, urlsplit

from duetime.domain.errors import InvalidSettings
from duetime.domain.times import parse_duration

_TABLE_NAME = re.compile(r"[A-Za-z0-9_.-]{3,255}")


@dataclass(frozen=True, slots=True)
class DynamoDbUrl:
    """``endpoint_url`` and ``region`` None: what the AWS configuration of the process says.

    ``calls_table_name``: the table of service calls; None: ``default_calls_table_name``. ``event_retention``: how
    long published events stay readable; None: as the store has it.
    """

    table_name: str
    endpoint_url: str | None = None
    region: str | None = None
    batch_statements: bool = True
    calls_table_name: str | None = None
    event_retention: timedelta | None = None


def default_calls_table_name(table_name: str) -> str:
    return f"{table_name}-service-calls"


def parse_dynamodb_url(url: str) -> DynamoDbUrl:
    """Parse ``url``. Raises ``InvalidSettings`` for anything that is not such a URL."""
    parts = urlsplit(url)
    if parts.scheme != "dynamodb" or parts.path not in ("", "/") or parts.fragment or "@" in parts.netloc:
        raise InvalidSettings("a DynamoDB store URL looks like dynamodb://<table>?region=eu-west-1")
    # Not parts.hostname, which is lower case: table names are case-sensitive.
    if _TABLE_NAME.fullmatch(parts.netloc) is None:
        raise InvalidSettings("a DynamoDB table name has 3 to 255 letters, digits, '_', '.' and '-'")
    try:
        given = parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query))
    except ValueError as error:
        raise InvalidSettings(f"the options of the store URL are malformed: {error}") from None
    options = dict(given)
    unknown = options.keys() - {"calls", "endpoint_url", "region", "partiql", "event_retention"}
    if unknown:
        raise InvalidSettings(f"unknown options of a DynamoDB store URL: {', '.join(sorted(unknown))}")
    if len(options) != len(given) or "" in options.values():
        raise InvalidSettings("each option of a store URL is given once and has a value")
    endpoint_url = options.get("endpoint_url")
    if endpoint_url is not None and (
        urlsplit(endpoint_url).scheme not in ("http", "https") or not urlsplit(endpoint_url).hostname
    ):
        raise InvalidSettings("endpoint_url must be an http or https URL")
    partiql = options.get("partiql", "on")
    if partiql not in ("on", "off"):
        raise InvalidSettings("partiql must be on or off")
    calls = options.get("calls")
    if _TABLE_NAME.fullmatch(calls or default_calls_table_name(parts.netloc)) is None or calls == parts.netloc:
        raise InvalidSettings("calls must be the name of another DynamoDB table, of 3 to 255 characters")
    retention = _retention(options.get("event_retention"))
    return DynamoDbUrl(parts.netloc, endpoint_url, options.get("region"), partiql == "on", calls, retention)


def _retention(text: str | None) -> timedelta | None:
    if text is None:
        return None
    try:
        seconds = parse_duration(text)
    except ValueError:
        seconds = 0.0
    if not seconds:
        raise InvalidSettings("event_retention must be a duration above 0, like 30d")
    return timedelta(seconds=seconds)
