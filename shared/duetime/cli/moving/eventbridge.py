"""Reads schedules of EventBridge Scheduler, as ``aws scheduler get-schedule`` prints them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, Final

from duetime.cli.moving.found import NO_URL, Found, target
from duetime.domain.targets import parse_arn
from duetime.domain.times import format_instant

_AT: Final = re.compile(r"at\((\d{4})-(\d\d)-(\d\d)T(\d\d):(\d\d)(?::(\d\d))?\)")
_SAY_NOTHING: Final = frozenset(
    {
        *(
            "Arn",
            "CreationDate",
            "LastModificationDate",
            "Name",
            "GroupName",
            "ScheduleExpression",
            "State",
            "Target",
        ),
        *("ScheduleExpressionTimezone", "FlexibleTimeWindow", "StartDate", "EndDate", "ResponseMetadata"),
    }
)
"""Members that are carried over, or say nothing of the schedule. Of any other is said that it is not."""
_TARGET_SAYS_NOTHING: Final = frozenset({"Arn", "RoleArn", "Input", "RetryPolicy"})
_LOST: Final = {
    "Description": "its description is not carried over",
    "ActionAfterCompletion": "it stays when it has ended",
    "Target.DeadLetterConfig": "what fails for good is an event, and goes to no queue",
}


def read_schedules(text: str, *, url: str | None) -> Iterator[Found]:
    """Yield the schedules of ``text``: objects one after the other, an array of them, or a list of AWS.

    Raises ``ValueError`` when it is not JSON.
    """
    decoder, at = json.JSONDecoder(), 0
    while text[at:].strip():
        at += len(text[at:]) - len(text[at:].lstrip())
        line = text.count("\n", 0, at) + 1
        value, at = decoder.raw_decode(text, at)
        listed = value.get("Schedules", [value]) if isinstance(value, dict) else value
        for each in listed if isinstance(listed, list) else [listed]:
            yield _found(line, each, url) if isinstance(each, dict) else Found(line, notes=("is no schedule",))


def _found(line: int, given: Mapping[str, Any], url: str | None) -> Found:
    name, expression = given.get("Name"), given.get("ScheduleExpression")
    if not isinstance(name, str):
        return Found(line, notes=("is no schedule of EventBridge: it has no Name",))
    if not isinstance(expression, str):
        return Found(line, notes=(f"{name}: has no ScheduleExpression: `aws scheduler get-schedule` prints it",))
    receiver = given.get("Target") or {}
    where = _where(receiver, url, name)
    if where is None:
        return Found(line, notes=(f"{name}: Duetime does not deliver to its target: {NO_URL}",))
    notes = [_lost(member) for member in given if member not in _SAY_NOTHING and given[member] not in (None, "NONE")]
    notes += [_lost(f"Target.{member}") for member in receiver if member not in _TARGET_SAYS_NOTHING]
    if "target" in where:
        notes.append("its target gets Duetime's message, in which the input is the payload")
    schedule: dict[str, Any] = {"id": name, **where}
    try:
        schedule |= _timing(expression, given, notes)
        schedule |= _content(given, receiver, notes)
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError):
        return Found(line, notes=(f"{name}: is not as `aws scheduler get-schedule` prints a schedule",))
    return Found(line, schedule, tuple(f"{name}: {note}" for note in notes))


def _where(receiver: Any, url: str | None, name: str) -> dict[str, Any] | None:
    """Return the members for what the schedule calls; None if that is no target that Duetime delivers to."""
    if url is not None:
        return {"callbackUrl": target(url, name)}
    try:
        return {"target": {"arn": parse_arn(receiver["Arn"]).arn}}
    except (ValueError, TypeError, KeyError):
        return None


def _lost(member: str) -> str:
    return _LOST.get(member, f"{member} is not carried over")


def _timing(expression: str, given: Mapping[str, Any], notes: list[str]) -> dict[str, Any]:
    timing: dict[str, Any] = {"cron": expression}
    if once := _AT.fullmatch(expression):
        year, month, day, hour, minute, second = (int(each or 0) for each in once.groups())
        timing["cron"] = f"cron({minute} {hour} {day} {month} ? {year})"
        notes.append("it occurs once: a timer does that, too")
        if second:
            notes.append("it occurs at the full minute")
    if given.get("ScheduleExpressionTimezone"):
        timing["timeZone"] = given["ScheduleExpressionTimezone"]
    for member, ours in (("StartDate", "startAt"), ("EndDate", "endAt")):
        if given.get(member):
            timing[ours] = _instant(given[member])
    if expression.startswith("rate(") and "startAt" not in timing and given.get("CreationDate"):
        timing["anchor"] = _instant(given["CreationDate"])
    window = given.get("FlexibleTimeWindow") or {}
    if window.get("Mode") == "FLEXIBLE":
        timing["window"] = f"{int(window['MaximumWindowInMinutes'])}m"
    return timing


def _instant(value: str | float) -> str:
    """Return a time of the AWS command line: version 1 prints seconds since 1970, version 2 ISO 8601."""
    at = datetime.fromisoformat(value) if isinstance(value, str) else datetime.fromtimestamp(value, UTC)
    if at.tzinfo is None:
        raise ValueError("a time without an offset")
    return format_instant(at.astimezone(UTC))


def _content(given: Mapping[str, Any], receiver: Mapping[str, Any], notes: list[str]) -> dict[str, Any]:
    from duetime_client import InvalidArgument, RawJson

    content: dict[str, Any] = {}
    if given.get("GroupName", "default") != "default":
        content["tags"] = [given["GroupName"]]
        notes.append("its group is a tag")
    if given.get("State") == "DISABLED":
        content["paused"] = True
    if (text := receiver.get("Input")) is not None:
        if "<aws.scheduler." in text:
            notes.append("<aws.scheduler...> in its input stays as it is: a callback has scheduledAt and scheduleId")
        try:
            content["payload"] = RawJson(text)
        except InvalidArgument:
            content["payload"] = text
            notes.append("its input is not JSON: the payload is a string")
    policy = receiver.get("RetryPolicy") or {}
    ours: dict[str, Any] = {}
    if "MaximumRetryAttempts" in policy:
        ours["maxAttempts"] = int(policy["MaximumRetryAttempts"]) + 1
    if "MaximumEventAgeInSeconds" in policy:
        ours["maxAttemptsDuration"] = f"{int(policy['MaximumEventAgeInSeconds'])}s"
    if ours:
        content["retryPolicy"] = ours
    return content
