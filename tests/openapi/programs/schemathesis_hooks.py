"""What Schemathesis cannot know of the API: `make test-openapi` loads this into its environment."""

import os
import unicodedata
from typing import Any
from urllib.parse import unquote

import schemathesis
from hypothesis import strategies as st

DURATIONS = ("1s", "90s", "1h30m", "1500ms", "PT5M", "P1D", "30")
"""Good for every duration: none is shorter or longer than any of them may be."""
MAX_CURSOR_CHARACTERS = 1000
CRONS = ("30 9 * * MON-FRI", "*/10 * * * * *", "@daily", "cron(0 10 ? * MON#2 *)", "rate(5 minutes)")
RRULES = ("FREQ=DAILY", "FREQ=MONTHLY;BYDAY=-1FR;BYHOUR=17", "FREQ=WEEKLY;INTERVAL=2;BYDAY=MO,FR")
EXCLUSIONS = ("2026-12-25", "* * * * 0", "0 0 1 1 *")
TIME_ZONES = ("UTC", "Europe/Berlin", "Australia/Lord_Howe", "America/New_York")
LOCAL_TIMES = ("2027-03-28T09:00", "2027-06-01T12:00:30", "2027-10-31T02:30")
"""None is in a gap of ``TIME_ZONES``: with ``dst`` "skip" that would be refused."""
TARGETS = ("arn:aws:sqs:eu-central-1:123456789012:orders",)
"""Of the examples; the server allows it."""
URLS = ("https://example.com/", "http://shop.example.com:8443/hooks?kind=order", "HTTPS://EXAMPLE.COM")

schemathesis.openapi.format("duetime-duration", st.sampled_from(DURATIONS))
schemathesis.openapi.format("duetime-cron", st.sampled_from(CRONS))
schemathesis.openapi.format("duetime-rrule", st.sampled_from(RRULES))
schemathesis.openapi.format("duetime-exclusion", st.sampled_from(EXCLUSIONS))
schemathesis.openapi.format("duetime-time-zone", st.sampled_from(TIME_ZONES))
schemathesis.openapi.format("duetime-local-time", st.sampled_from(LOCAL_TIMES))
schemathesis.openapi.format("duetime-target-arn", st.sampled_from(TARGETS))
schemathesis.openapi.format("uri", st.sampled_from(URLS))


@schemathesis.hook  # type: ignore[untyped-decorator]  # not installed here
def before_call(context: Any, case: schemathesis.Case, kwargs: Any) -> None:
    """Mend requests that the document cannot tell to be bad. What is to be refused stays as it is."""
    headers, query, body = case.headers or {}, case.query or {}, case.body
    if case.operation.label.startswith("DELETE /v1/tenants/{tenant}/api-keys/"):
        _spare_own_key(case)
    # The server itself refuses a head that is too long, before it can answer with a problem.
    if len(str(query.get("cursor", ""))) > MAX_CURSOR_CHARACTERS:
        query["cursor"] = query["cursor"][:MAX_CURSOR_CHARACTERS]
    if case.meta is None or not case.meta.generation.mode.is_positive:
        return
    # Only a cursor that a page has given is good; an order and times of failure go with one state alone.
    for name in ("cursor", "order", "dueTo", "failedFrom", "failedTo"):
        query.pop(name, None)
    _allow_targets(body)
    if isinstance(body, dict):
        body.pop("cursor", None)
        if case.method == "PUT":  # the id in the path counts
            body.pop("id", None)
        if "Idempotency-Key" in headers:  # two that differ are refused
            body.pop("idempotencyKey", None)
    # Schemathesis puts nothing but letters and digits into some headers, whatever their pattern.
    for name in ("If-Match", "If-None-Match"):
        if headers.get(name, "").isalnum():
            headers[name] = f'"{headers[name]}"'
    _replace_refused_ids(case)
    if "If-Match" in headers:
        headers.pop("If-None-Match", None)


def _allow_targets(value: Any) -> None:
    """What is as long as an ARN may be is made of its pattern, whatever its format."""
    if isinstance(value, dict):
        if value.get("arn") not in (None, *TARGETS):
            value["arn"] = TARGETS[0]
        value = list(value.values())
    if isinstance(value, list):
        for item in value:
            _allow_targets(item)


def _replace_refused_ids(case: schemathesis.Case) -> None:
    """The result of an item that was refused has its id: Schemathesis takes it for that of a timer or a schedule."""
    for name in ("timerId", "scheduleId"):
        given = unquote(str(case.path_parameters.get(name, "")))
        if any(unicodedata.category(character) in ("Cc", "Cs") or character == "/" for character in given):
            case.path_parameters[name] = "another"


def _spare_own_key(case: schemathesis.Case) -> None:
    """The key of the whole run must live: nothing else would be tried after its end."""
    key_id = str(case.path_parameters.get("keyId", ""))
    if key_id and key_id in os.environ["DUETIME_API_KEY"]:
        case.path_parameters["keyId"] = "another"
