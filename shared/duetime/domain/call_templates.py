"""What a schedule submits: the template of its service calls, and the submission of one occurrence. Pure."""

from __future__ import annotations

import json
from dataclasses import asdict, fields

from duetime.domain.ids import occurrence_firing_id
from duetime.domain.service_calls import CallContent, Method, RequestSpec, Submission, digest
from duetime.domain.timers import Timer


def template_json(template: CallContent) -> str:
    """Return the text that is stored of a template. Its ``correlation_id`` may be empty: each call has its own."""
    return json.dumps(asdict(template), ensure_ascii=False, separators=(",", ":"))


def read_template(text: str | None) -> CallContent:
    """Return what ``template_json`` has written. Raises ``ValueError``, ``TypeError`` or ``KeyError`` for any
    other."""
    values = dict(json.loads(text or ""))
    request = dict(values["request"])
    request["method"] = Method(request["method"])
    return CallContent(**values | {"request": RequestSpec(**request), "tags": tuple(values["tags"])})


def readable_template(schedule: Timer) -> CallContent | None:
    """Return the template of a schedule; None if it has none, or what is stored cannot be read."""
    if not schedule.submits_call:
        return None
    try:
        return read_template(schedule.content.payload_json)
    except (ValueError, TypeError, KeyError):
        return None


def schedule_tag(namespace: str, schedule_id: str) -> str:
    """Return the tag that all calls of a schedule have."""
    return f"schedule:{namespace}/{schedule_id}"


def submission_of(occurrence: Timer) -> Submission:
    """Return what the pending occurrence of a schedule, or of a timer beside it, submits.

    Its idempotency key makes it one call however often it is submitted, and its digest is the same whatever the
    template has become meanwhile. Raises as ``read_template``.
    """
    template, key = read_template(occurrence.content.payload_json), _key(occurrence)
    content = {each.name: getattr(template, each.name) for each in fields(CallContent)}
    tag = schedule_tag(occurrence.namespace, occurrence.schedule_id or "")
    tags = template.tags if tag in template.tags else (*template.tags, tag)
    return Submission(
        **content | {"tags": tags, "correlation_id": template.correlation_id or key},
        digest=digest(["occurrence", key]),
        due_at=occurrence.content.execute_at,
        idempotency_key=key,
    )


def open_key(schedule: Timer) -> str:
    """Return the idempotency key of the call that was submitted at ``schedule.open_at``."""
    assert schedule.schedule is not None
    assert schedule.schedule.open_at is not None
    return occurrence_firing_id(schedule.namespace, schedule.schedule_id or "", schedule.schedule.open_at)


def _key(occurrence: Timer) -> str:
    """Return the firing of an occurrence; of a timer beside the schedule with its digest, which tells backfills
    apart: each submits once more what was submitted before it."""
    assert occurrence.schedule is not None
    if occurrence.schedule.number:
        return occurrence.firing_id
    return f"{occurrence.firing_id}-{occurrence.digest}"
