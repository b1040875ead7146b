"""Every error that Duetime raises on purpose. One root; one mapping to HTTP (api/problems.py).

Losing a race is never an error: store operations report it in their return value.
"""

from __future__ import annotations

from typing import TypeVar

ResultT = TypeVar("ResultT")


class DuetimeError(Exception):
    """Root of all deliberate errors. ``code`` is stable and part of the public API."""

    code = "internal"

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


def or_raise(result: ResultT | DuetimeError) -> ResultT:
    if isinstance(result, DuetimeError):
        raise result
    return result


class InvalidInput(DuetimeError):
    """Something a caller sent is not acceptable.

    ``field`` is the path of the offending value as the caller wrote it, e.g. ``retryPolicy.maxAttempts``
    or ``timers[3].executeAt``; empty when the input as a whole is at fault.
    """

    code = "invalid_input"

    def __init__(self, field: str, message: str) -> None:
        super().__init__(message)
        self.field = field


class PayloadTooLarge(InvalidInput):
    """A payload or body is over its limit."""

    code = "payload_too_large"


class InvalidCursor(InvalidInput):
    """A cursor was tampered with or belongs to another query."""

    code = "invalid_cursor"


class NamespaceNotFound(DuetimeError):
    code = "namespace_not_found"

    def __init__(self, name: str) -> None:
        super().__init__(f"namespace {name!r} does not exist")
        self.name = name


class NamespaceConflict(DuetimeError):
    """A namespace exists with another ``num_shards`` or ``dedicated``, or cannot be resharded now."""

    code = "namespace_conflict"


class NamespaceResharding(DuetimeError):
    """New timers with this id are about to go to another shard: until then none is created."""

    code = "namespace_resharding"

    def __init__(self, name: str, *, retry_after_seconds: float) -> None:
        super().__init__(f"namespace {name!r} is about to go over to its new shards: create it again after that")
        self.retry_after_seconds = retry_after_seconds


class NamespaceDeleting(DuetimeError):
    """The namespace is being deleted: nothing can be created in it any more."""

    code = "namespace_deleting"

    def __init__(self, name: str) -> None:
        super().__init__(f"namespace {name!r} is being deleted")


class NamespaceNotEmpty(DuetimeError):
    """The namespace has timers, and the deletion is not forced."""

    code = "namespace_not_empty"

    def __init__(self, name: str) -> None:
        super().__init__(f"namespace {name!r} has timers; force=true deletes them with it")


class SecretNotFound(DuetimeError):
    code = "secret_not_found"

    def __init__(self, namespace: str, secret_id: str) -> None:
        super().__init__(f"namespace {namespace!r} has no valid secret {secret_id!r}")


class SecretShownOnce(DuetimeError):
    """The request repeats an earlier one, whose response had the secret."""

    code = "secret_shown_once"

    def __init__(self) -> None:
        super().__init__(
            "this was made before by the same request, and its secret is shown once: list what there is, delete it,"
            " and make another with a new idempotency key"
        )


class SecretRotationInProgress(DuetimeError):
    """Two secrets are valid, which is the maximum; one has to end first."""

    code = "secret_rotation_in_progress"


class TimerNotFound(DuetimeError):
    code = "timer_not_found"

    def __init__(self, namespace: str, timer_id: str) -> None:
        super().__init__(f"timer {timer_id!r} does not exist in namespace {namespace!r}")


class FiringOver(DuetimeError):
    """The timer is at another firing or attempt by now, or has another answer: nothing is taken any more."""

    code = "firing_over"


class FiringNotWaiting(DuetimeError):
    """It is not stored, or not yet, that the receiver answered 202."""

    code = "firing_not_waiting"


class TimerConflict(DuetimeError):
    """A timer with this id exists and has other content."""

    code = "timer_conflict"


class ScheduleNotFound(DuetimeError):
    code = "schedule_not_found"

    def __init__(self, namespace: str, schedule_id: str) -> None:
        super().__init__(f"schedule {schedule_id!r} does not exist in namespace {namespace!r}")


class ScheduleConflict(DuetimeError):
    """A schedule with this id exists and is another one."""

    code = "schedule_conflict"


class ScheduleEnded(DuetimeError):
    """The schedule has no occurrence any more; it can be replaced or deleted, not paused."""

    code = "schedule_ended"


class ScheduleUnreadable(DuetimeError):
    """The stored schedule cannot be read, so it cannot fire; it can be replaced or deleted."""

    code = "schedule_unreadable"

    def __init__(self, schedule_id: str) -> None:
        super().__init__(f"schedule {schedule_id!r} cannot be read as it is stored: replace or delete it")


class CalendarNotFound(DuetimeError):
    code = "calendar_not_found"

    def __init__(self, name: str) -> None:
        super().__init__(f"calendar {name!r} does not exist")


class CalendarMissing(DuetimeError):
    """The calendar that a stored schedule names does not exist any more: it waits for one."""

    code = "calendar_missing"

    def __init__(self, schedule_id: str, name: str) -> None:
        super().__init__(f"schedule {schedule_id!r} waits for its calendar {name!r}, which does not exist")


class TimerFinished(DuetimeError):
    """The timer has fired or failed; it can be replaced or redriven, not changed."""

    code = "timer_finished"


class TimerNotFailed(DuetimeError):
    """Only a failed timer can be redriven."""

    code = "timer_not_failed"


class TimerUnreadable(DuetimeError):
    """The stored timer cannot be read, so it cannot be fired; it can be replaced or deleted."""

    code = "timer_unreadable"


class AttemptInFlight(DuetimeError):
    """An attempt of the timer is in flight (the timer is parked)."""

    code = "attempt_in_flight"


class CallNotFound(DuetimeError):
    code = "service_call_not_found"

    def __init__(self, tenant_id: str, call_id: str) -> None:
        super().__init__(f"service call {call_id!r} does not exist in tenant {tenant_id!r}")


class ExecutionNotFound(DuetimeError):
    code = "execution_not_found"

    def __init__(self, call_id: str, execution_id: str) -> None:
        super().__init__(f"service call {call_id!r} has no execution {execution_id!r}")


class CallConflict(DuetimeError):
    """The idempotency key was used before, to submit something else."""

    code = "service_call_conflict"


class CallFinished(DuetimeError):
    """The service call has ended: there is nothing to cancel, to fire, or to send differently."""

    code = "service_call_finished"


class CallRunning(DuetimeError):
    """An execution of the service call is in flight: its request may have been sent."""

    code = "service_call_running"


class CallNotFinished(DuetimeError):
    """Only a service call that has ended can be rerun or removed."""

    code = "service_call_not_finished"


class RevisionMismatch(DuetimeError):
    """``If-Match`` names another revision than the stored one."""

    code = "revision_mismatch"


class StoreError(DuetimeError):
    """The store failed in a way that a repeat will not mend."""

    code = "store_error"


class StoreUnavailable(StoreError):
    """The store is unreachable, locked or throttled; the same call may succeed later."""

    code = "store_unavailable"

    def __init__(self, message: str, *, retry_after_seconds: float = 1.0) -> None:
        super().__init__(message)
        self.retry_after_seconds = retry_after_seconds


class StoreThrottled(StoreUnavailable):
    """The store takes fewer requests than it gets; the same call may succeed later."""

    code = "store_throttled"


class StoreNotReady(StoreError):
    """The store's tables are missing or of another schema version; ``duetime init`` makes them."""

    code = "store_not_ready"


class StoreEmpty(StoreNotReady):
    """The store has no tables, or not yet all of them: no process uses it, so they can be created."""


class NamespaceUnreadable(StoreError):
    """The stored namespace is unreadable; a repeat will not help."""

    code = "namespace_unreadable"

    def __init__(self, name: str) -> None:
        super().__init__(
            f"what is stored of namespace {name!r} cannot be read: it is damaged, or a newer version has written it"
        )
        self.name = name


class StoreRefused(StoreError):
    """The database refuses a row for good: it is too large, for example, or its partition is full."""

    code = "store_refused"


class CallUnreadable(StoreError):
    """The stored service call is unreadable; a repeat will not help."""

    code = "service_call_unreadable"


class InvalidSettings(DuetimeError):
    """A setting, store URL or command-line value cannot be used."""

    code = "invalid_settings"
