"""How each operation of the OpenAPI document is used through the client, with every argument."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import duetime_client as names
from duetime_client import Conflict, Duetime, NewSchedule, NewTimer, RetryPolicy
from duetime_client.bodies import TIMING
from tests.support.tenants import CALLBACK_URL, TARGET_ARN

HOUR = timedelta(hours=1)
AT = datetime(2026, 12, 24, 18, tzinfo=UTC)
POLICY = RetryPolicy(
    max_attempts=3,
    max_attempts_duration=HOUR,
    initial_interval=timedelta(seconds=1),
    backoff_multiplier=1.5,
    max_interval=timedelta(minutes=1),
)
TIMER: dict[str, Any] = {
    "callback_url": CALLBACK_URL,
    "payload": {"n": 1},
    "headers": {"x-a": "b"},
    "retry_policy": replace(POLICY, escalate_url=CALLBACK_URL),
    "timeout": timedelta(seconds=7),
    "expire_after": HOUR,
    "correlation_id": "c",
    "tags": ["a"],
}
TARGET = names.Target(arn=TARGET_ARN)
ON_TARGET: dict[str, Any] = {"target": TARGET, "retry_policy": RetryPolicy(escalate_target=TARGET)}
LOCAL: dict[str, Any] = {"local_time": "2027-03-28T09:00", "time_zone": "Europe/Berlin", "dst": "skip"}
SCHEDULE: dict[str, Any] = {
    **TIMER,
    "cron": ["@daily"],
    "every": HOUR,
    "rrule": ["FREQ=DAILY"],
    "time_zone": "Europe/Berlin",
    "anchor": AT,
    "dst": "both",
    "start_at": AT,
    "end_at": AT + 99 * HOUR,
    "exclude": ["2026-12-25"],
    "calendar": "de",
    "day_off": "skip",
    "jitter": HOUR,
    "window": HOUR,
    "misfire": names.ScheduleMisfire.LATEST,
    "catch_up": HOUR,
    "overlap": "skip",
    "max_firings": 7,
    "pause_after": 3,
    "paused": False,
}
REDRIVE: dict[str, Any] = {
    "reason": names.FailureReason.TIMEOUT,
    "tag": "a",
    "correlation_id": "c",
    "due_from": AT,
    "due_to": AT + HOUR,
    "failed_from": AT,
    "failed_to": AT + HOUR,
    "dry_run": True,
    "page_size": 10,
}
CALL: dict[str, Any] = {
    "name": "n",
    "method": "PUT",
    "url": CALLBACK_URL,
    "headers": {"x-a": "b"},
    "body": {"n": 1},
    "tags": ["a"],
    "starred": True,
}
SUBMITTED = names.NewServiceCall(**CALL)
MESSAGE: dict[str, Any] = {"name": "n", "target": TARGET, "body": {"n": 1}}

Use = Callable[[Duetime, dict[str, str]], Any]
"""Uses an operation with every argument, given what a tenant has."""


def answered(answer: Callable[..., Any], *where: str, **more: Any) -> None:
    """No firing of a tenant waits."""
    kinds: dict[str, dict[str, Any]]
    kinds = {"ack": {}, "nack": {"message": "m", "retry": False}, "heartbeat": {"within": HOUR}}
    for kind, given in kinds.items():
        with pytest.raises(Conflict, match="firing_over"):
            answer(*where, "f", kind, attempt=1, **more, **given)


USES: dict[str, Use] = {
    "putNamespace": lambda d, has: d.namespaces.put(
        has["namespace"],
        num_shards=4,
        dedicated=False,
        retry_policy=POLICY,
        max_in_flight=7,
        rate_limit=1.5,
        misfire="expire",
        min_schedule_interval=HOUR / 60,
        if_revision=d.namespaces.get(has["namespace"]).revision,
    ),
    "createSchedule": lambda d, has: [
        d.schedules.create(has["namespace"], NewSchedule(**SCHEDULE), schedule_id="new"),
        d.schedules.create(has["namespace"], NewSchedule(every=HOUR, callback_url=CALLBACK_URL)),
        d.schedules.create(has["namespace"], NewSchedule(every=HOUR, **ON_TARGET)),
        d.schedules.create(has["namespace"], NewSchedule(every=HOUR, service_call=SUBMITTED), schedule_id="calls"),
    ],
    "putSchedule": lambda d, has: [
        d.schedules.put(has["namespace"], "new", NewSchedule(**SCHEDULE)),
        d.schedules.put(has["namespace"], "new", NewSchedule(**SCHEDULE | {"tags": ()}), if_revision=1),
        d.schedules.put(has["namespace"], "new", NewSchedule(**SCHEDULE), dry_run=True),
        d.schedules.put(has["namespace"], "new", NewSchedule(every=HOUR, **ON_TARGET)),
        d.schedules.put(has["namespace"], "calls", NewSchedule(every=HOUR, service_call=SUBMITTED)),
    ],
    "patchSchedule": lambda d, has: [
        d.schedules.update(
            has["namespace"],
            has["schedule_id"],
            if_revision=1,
            **{name: value for name, value in SCHEDULE.items() if name != "paused"},
        ),
        d.schedules.update(has["namespace"], has["schedule_id"], **ON_TARGET),
        d.schedules.create(has["namespace"], NewSchedule(every=HOUR, service_call=SUBMITTED), schedule_id="calls"),
        d.schedules.update(has["namespace"], "calls", service_call=SUBMITTED),
    ],
    "getSchedule": lambda d, has: d.schedules.get(has["namespace"], has["schedule_id"]),
    "listSchedules": lambda d, has: list(
        d.schedules.list(
            has["namespace"], state="active", tag="a", calendar="de", due_from=AT, due_to=AT + HOUR, page_size=1
        )
    ),
    "pauseSchedules": lambda d, has: d.schedules.pause_many(
        has["namespace"], reason="r", tag="a", due_from=AT, due_to=AT + HOUR, dry_run=True, page_size=1
    ),
    "resumeSchedules": lambda d, has: d.schedules.resume_many(
        has["namespace"], tag="a", due_from=AT, due_to=AT + HOUR, dry_run=True, page_size=1
    ),
    "deleteSchedule": lambda d, has: d.schedules.delete(has["namespace"], has["schedule_id"], if_revision=1),
    "recomputeSchedules": lambda d, has: d.schedules.recompute(has["namespace"], dry_run=True, page_size=1),
    "recomputeTimers": lambda d, has: d.timers(has["namespace"]).recompute(dry_run=True, page_size=1),
    "pauseSchedule": lambda d, has: d.schedules.pause(
        has["namespace"], has["schedule_id"], reason="r", if_revision=1
    ),
    "resumeSchedule": lambda d, has: d.schedules.resume(has["namespace"], has["schedule_id"], if_revision=1),
    "backfillSchedule": lambda d, has: d.schedules.backfill(
        has["namespace"],
        has["schedule_id"],
        from_at=AT - 999 * HOUR,
        to_at=AT,
        rate_limit=2.5,
        dry_run=True,
        page_size=1,
    ),
    "cancelBackfill": lambda d, has: d.schedules.cancel_backfill(
        has["namespace"], has["schedule_id"], dry_run=True, page_size=1
    ),
    "triggerSchedule": lambda d, has: d.schedules.trigger(has["namespace"], has["schedule_id"]),
    "listOccurrences": lambda d, has: d.schedules.occurrences(
        has["namespace"], has["schedule_id"], from_at=AT, count=3
    ),
    "previewSchedule": lambda d, _: d.schedules.preview(
        **{name: value for name, value in SCHEDULE.items() if name in TIMING}, from_at=AT, count=3, schedule_id="a"
    ),
    "putCalendar": lambda d, _: d.calendars.put(
        "de",
        weekdays=["MON"],
        days_off=[AT.date()],
        business_days=["2026-12-26"],
        ics="BEGIN:VCALENDAR",
        if_revision=1,
    ),
    "getCalendar": lambda d, _: d.calendars.get("de"),
    "listCalendars": lambda d, _: list(d.calendars.list()),
    "deleteCalendar": lambda d, _: d.calendars.delete("de", if_revision=1),
    "getNamespace": lambda d, has: d.namespaces.get(has["namespace"]),
    "pauseNamespace": lambda d, has: d.namespaces.pause(
        has["namespace"], reason="r", if_revision=d.namespaces.get(has["namespace"]).revision
    ),
    "resumeNamespace": lambda d, has: d.namespaces.resume(
        has["namespace"], if_revision=d.namespaces.get(has["namespace"]).revision
    ),
    "reshardNamespace": lambda d, has: d.namespaces.reshard(
        has["namespace"], num_shards=64, if_revision=d.namespaces.get(has["namespace"]).revision
    ),
    "deleteNamespace": lambda d, has: d.namespaces.delete(
        has["namespace"], force=True, if_revision=d.namespaces.get(has["namespace"]).revision
    ),
    "listNamespaces": lambda d, has: list(d.namespaces.list(page_size=1)),
    "createSecret": lambda d, has: d.signing_secrets(has["namespace"]).create(
        secret="whsec_" + "A" * 40, overlap=timedelta()
    ),
    "listSecrets": lambda d, has: list(d.signing_secrets(has["namespace"]).list()),
    "deleteSecret": lambda d, has: d.signing_secrets(has["namespace"]).delete(has["secret_id"]),
    "createTimer": lambda d, has: [
        d.timers(has["namespace"]).create(execute_at=AT, timer_id="new", **TIMER),
        d.timers(has["namespace"]).create(delay=HOUR, **TIMER),
        d.timers(has["namespace"]).create(**LOCAL, **TIMER),
        d.timers(has["namespace"]).create(delay=HOUR, **ON_TARGET),
    ],
    "listTimers": lambda d, has: (
        list(
            d.timers(has["namespace"]).list(
                state=names.TimerState.SCHEDULED,
                tag="a",
                due_from=AT,
                due_to=AT + HOUR,
                correlation_id="c",
                reason="Timeout",
                page_size=1,
            ),
        )
        + list(d.timers(has["namespace"]).list(failed_from=AT, failed_to=AT + HOUR))
    ),
    "createTimers": lambda d, has: d.timers(has["namespace"]).create_many(
        [
            NewTimer(id="b", execute_at=AT, **TIMER),
            NewTimer(delay=HOUR, **TIMER),
            NewTimer(**LOCAL, **TIMER),
            NewTimer(delay=HOUR, **ON_TARGET),
        ],
        spread=HOUR,
    ),
    "cancelTimers": lambda d, has: d.timers(has["namespace"]).cancel_many(["t1", "b"], if_revisions={"t1": 1}),
    "deleteTimers": lambda d, has: d.timers(has["namespace"]).delete_many(["t1", "b"], if_revisions={"t1": 1}),
    "putTimer": lambda d, has: [
        d.timers(has["namespace"]).put("put", delay=HOUR, if_absent=True, **TIMER),
        d.timers(has["namespace"]).put("put", execute_at=AT, if_revision=1, **TIMER),
        d.timers(has["namespace"]).put("put", **LOCAL, **TIMER),
        d.timers(has["namespace"]).put("put", delay=HOUR, **ON_TARGET),
    ],
    "getTimer": lambda d, has: d.timers(has["namespace"]).get(has["timer_id"]),
    "patchTimer": lambda d, has: [
        d.timers(has["namespace"]).update(has["timer_id"], execute_at=AT, if_revision=1, **TIMER),
        d.timers(has["namespace"]).update(has["timer_id"], delay=HOUR),
        d.timers(has["namespace"]).update(has["timer_id"], **LOCAL),
        d.timers(has["namespace"]).update(has["timer_id"], **ON_TARGET),
    ],
    "cancelTimer": lambda d, has: d.timers(has["namespace"]).cancel(has["timer_id"], if_revision=1),
    "deleteTimer": lambda d, has: d.timers(has["namespace"]).delete(has["timer_id"], if_revision=1),
    "redriveTimer": lambda d, has: d.timers(has["namespace"]).redrive(has["timer_id"], if_revision=1),
    "fireTimer": lambda d, has: d.timers(has["namespace"]).fire(has["timer_id"], if_revision=1),
    "answerTimer": lambda d, has: answered(d.timers(has["namespace"]).answer, has["timer_id"]),
    "answerOccurrence": lambda d, has: answered(
        d.schedules.answer, has["namespace"], has["schedule_id"], scheduled_at=AT
    ),
    "redriveTimers": lambda d, has: [
        d.timers(has["namespace"]).redrive_many(**REDRIVE),
        d.timers(has["namespace"]).redrive_ids([has["timer_id"]]),
    ],
    "listAttempts": lambda d, has: list(d.timers(has["namespace"]).attempts(has["timer_id"])),
    "createApiKey": lambda d, has: [
        d.api_keys.create(role=names.Role.READER, name="n", expires_at=AT),
        d.api_keys.create(role="writer", expires_in=HOUR),
    ],
    "listApiKeys": lambda d, has: list(d.api_keys.list(page_size=1)),
    "deleteApiKey": lambda d, has: d.api_keys.delete(has["key_id"]),
    "putEventWebhook": lambda d, has: d.event_webhook.put(
        url=CALLBACK_URL,
        event_types=[names.EventType.FAILED],
        enabled=False,
        if_revision=d.event_webhook.get().revision,
    ),
    "getEventWebhook": lambda d, has: d.event_webhook.get(),
    "deleteEventWebhook": lambda d, has: d.event_webhook.delete(if_revision=d.event_webhook.get().revision),
    "createEventSecret": lambda d, has: d.event_webhook.secrets.create(
        secret="whsec_" + "A" * 40, overlap=timedelta()
    ),
    "listEventSecrets": lambda d, has: list(d.event_webhook.secrets.list()),
    "deleteEventSecret": lambda d, has: d.event_webhook.secrets.delete(has["event_secret_id"]),
    "listDeliveries": lambda d, has: [
        *d.event_webhook.deliveries(page_size=1),
        *d.event_webhook.deliveries(state="Failed", type=names.EventType.FAILED),
    ],
    "listDeliveryAttempts": lambda d, has: list(d.event_webhook.attempts(has["delivery_id"])),
    "redriveDeliveries": lambda d, has: [
        d.event_webhook.redrive_many(**REDRIVE),
        d.event_webhook.redrive_ids([has["delivery_id"]]),
    ],
    "submitServiceCall": lambda d, has: [
        d.service_calls.submit(
            due_at=AT, idempotency_key="k", timeout=HOUR / 60, retry_policy=POLICY, correlation_id="c", **CALL
        ),
        d.service_calls.submit(delay=HOUR, **CALL),
        d.service_calls.submit(**MESSAGE),
    ],
    "submitServiceCalls": lambda d, has: d.service_calls.submit_many(
        [
            names.NewServiceCall(
                due_at=AT, idempotency_key="k", timeout=HOUR / 60, retry_policy=POLICY, correlation_id="c", **CALL
            ),
            names.NewServiceCall(delay=HOUR, **CALL),
            names.NewServiceCall(**MESSAGE),
        ]
    ),
    "cancelServiceCalls": lambda d, has: d.service_calls.cancel_many(
        [has["service_call_id"]], if_revisions={has["service_call_id"]: 1}
    ),
    "deleteServiceCalls": lambda d, has: d.service_calls.delete_many(
        [has["service_call_id"]], if_revisions={has["service_call_id"]: 1}
    ),
    "listServiceCalls": lambda d, has: [
        *d.service_calls.list(page_size=1),
        *d.service_calls.list(
            status=names.CallStatus.FAILED,
            tags=["a", "b"],
            created_from=AT,
            created_to=AT + HOUR,
            name="n",
            starred=True,
            correlation_id="c",
        ),
        *d.service_calls.upcoming(due_to=AT),
    ],
    "getServiceCall": lambda d, has: d.service_calls.get(has["service_call_id"]),
    "patchServiceCall": lambda d, has: [
        d.service_calls.update(d.service_calls.submit(delay=HOUR, **CALL).id, due_at=AT, if_revision=1, **CALL),
        d.service_calls.update(d.service_calls.submit(due_at=AT, **CALL).id, delay=HOUR),
        d.service_calls.update(d.service_calls.submit(due_at=AT, **CALL).id, target=TARGET),
        d.service_calls.star(has["service_call_id"]),
        d.service_calls.unstar(has["service_call_id"]),
    ],
    "deleteServiceCall": lambda d, has: d.service_calls.delete(
        has["service_call_id"], if_revision=d.service_calls.get(has["service_call_id"]).revision
    ),
    "cancelServiceCall": lambda d, has: d.service_calls.cancel(
        d.service_calls.submit(delay=HOUR, **CALL).id, if_revision=1
    ),
    "fireServiceCall": lambda d, has: d.service_calls.fire(
        d.service_calls.submit(delay=HOUR, **CALL).id, if_revision=1
    ),
    "rerunServiceCall": lambda d, has: [
        d.service_calls.rerun(has["service_call_id"], due_at=AT, idempotency_key="r", correlation_id="c"),
        d.service_calls.rerun(
            has["service_call_id"], delay=HOUR, if_revision=d.service_calls.get(has["service_call_id"]).revision
        ),
    ],
    "listExecutions": lambda d, has: list(d.service_calls.executions(has["service_call_id"], page_size=1)),
    "getExecution": lambda d, has: d.service_calls.execution(has["service_call_id"], has["execution_id"]),
    "listEvents": lambda d, has: [
        *d.service_calls.events(has["service_call_id"], after=1, page_size=2),
        *d.service_calls.follow(has["service_call_id"], after=1),
    ],
    "getPrincipal": lambda d, has: d.principal(),
    "listShards": lambda d, has: list(d.shards(page_size=1)),
    "getHealth": lambda d, has: d.health(),
    "getOpenApi": lambda d, has: d.openapi(),
}
