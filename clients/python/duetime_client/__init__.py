"""What programs that use Duetime import: the client of its HTTP API, and ``webhooks`` for receivers.

    from duetime_client import Duetime

    with Duetime("http://127.0.0.1:8080") as duetime:
        timer = duetime.timers().create(callback_url="https://example.com/hook", delay=timedelta(hours=1))

``duetime_client.webhooks`` needs the standard library alone, so the names of the client, and httpx with them, are
looked up when they are first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from duetime_client.asynchronous.client import AsyncDuetime
    from duetime_client.blocking.client import Duetime
    from duetime_client.call_models import (
        CallEvent,
        CallFailure,
        CallOutcome,
        CallRequest,
        CallStatus,
        CallTimer,
        CallTimerState,
        Delivery,
        EventType,
        EventWebhook,
        Execution,
        ExecutionStatus,
        Header,
        Method,
        NewServiceCall,
        ReceivedResponse,
        SentRequest,
        ServiceCall,
    )
    from duetime_client.errors import (
        ApiError,
        Conflict,
        DuetimeError,
        FieldError,
        Forbidden,
        InvalidArgument,
        InvalidRequest,
        NotFound,
        PreconditionFailed,
        ServerError,
        Throttled,
        Unauthenticated,
        Unavailable,
        UnexpectedAnswer,
        Unreachable,
    )
    from duetime_client.models import (
        Answered,
        ApiKey,
        Attempt,
        AttemptOutcome,
        ClockChange,
        ClockEffect,
        CreatedApiKey,
        CreatedSecret,
        Deleted,
        Dst,
        EarlierShards,
        Failure,
        FailureReason,
        Health,
        ItemResult,
        Misfire,
        MovedTimers,
        Namespace,
        NamespaceDeletion,
        NamespaceState,
        NewTimer,
        Occurrence,
        Principal,
        Redriven,
        Role,
        SchedulePreview,
        Shard,
        ShardOwner,
        SigningSecret,
        Timer,
        TimerState,
    )
    from duetime_client.retrying import NO_RETRIES, Retries
    from duetime_client.schedule_models import (
        Backfilled,
        Calendar,
        CancelledBackfill,
        ChangedSchedules,
        DayOff,
        NewSchedule,
        OccurrenceKind,
        Occurrences,
        OccurrenceState,
        Overlap,
        PastOccurrence,
        Schedule,
        ScheduleChange,
        ScheduledCall,
        ScheduleEnd,
        ScheduleMisfire,
        ScheduleState,
        Triggered,
        Weekday,
    )
    from duetime_client.values import UNSET, RawJson, RetryPolicy, Target, Unset

__version__ = "0.1.0"

__all__ = [
    "NO_RETRIES",
    "UNSET",
    "Answered",
    "ApiError",
    "ApiKey",
    "AsyncDuetime",
    "Attempt",
    "AttemptOutcome",
    "Backfilled",
    "Calendar",
    "CallEvent",
    "CallFailure",
    "CallOutcome",
    "CallRequest",
    "CallStatus",
    "CallTimer",
    "CallTimerState",
    "CancelledBackfill",
    "ChangedSchedules",
    "ClockChange",
    "ClockEffect",
    "Conflict",
    "CreatedApiKey",
    "CreatedSecret",
    "DayOff",
    "Deleted",
    "Delivery",
    "Dst",
    "Duetime",
    "DuetimeError",
    "EarlierShards",
    "EventType",
    "EventWebhook",
    "Execution",
    "ExecutionStatus",
    "Failure",
    "FailureReason",
    "FieldError",
    "Forbidden",
    "Header",
    "Health",
    "InvalidArgument",
    "InvalidRequest",
    "ItemResult",
    "Method",
    "Misfire",
    "MovedTimers",
    "Namespace",
    "NamespaceDeletion",
    "NamespaceState",
    "NewSchedule",
    "NewServiceCall",
    "NewTimer",
    "NotFound",
    "Occurrence",
    "OccurrenceKind",
    "OccurrenceState",
    "Occurrences",
    "Overlap",
    "PastOccurrence",
    "PreconditionFailed",
    "Principal",
    "RawJson",
    "ReceivedResponse",
    "Redriven",
    "Retries",
    "RetryPolicy",
    "Role",
    "Schedule",
    "ScheduleChange",
    "ScheduleEnd",
    "ScheduleMisfire",
    "SchedulePreview",
    "ScheduleState",
    "ScheduledCall",
    "SentRequest",
    "ServerError",
    "ServiceCall",
    "Shard",
    "ShardOwner",
    "SigningSecret",
    "Target",
    "Throttled",
    "Timer",
    "TimerState",
    "Triggered",
    "Unauthenticated",
    "Unavailable",
    "UnexpectedAnswer",
    "Unreachable",
    "Unset",
    "Weekday",
]

_HOMES = (
    "errors",
    "values",
    "models",
    "call_models",
    "schedule_models",
    "retrying",
    "blocking.client",
    "asynchronous.client",
)
"""Where the names are looked for; httpx is imported by the last two."""


def __getattr__(name: str) -> Any:
    if name in __all__:
        for home in _HOMES:
            module = import_module(f"{__name__}.{home}")
            if hasattr(module, name):
                return getattr(module, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
