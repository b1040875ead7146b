"""The execution log: one entry per attempt of a service call."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

from duetime.domain.hot_dataclass import hot_dataclass
from duetime.domain.service_calls import CallFailure, Method


class ExecutionStatus(StrEnum):
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"


@hot_dataclass(frozen=True, slots=True, kw_only=True)
class LoggedMessage:
    """A request as it was sent, or a response, as the log keeps it: redacted, its body cut to the limit.

    ``headers`` are (name, value) pairs in order; a redacted value is ``REDACTED``. ``body`` is None when there is
    none or it is not kept; ``body_bytes`` is the length of the whole body as far as it was read, and
    ``is_truncated`` tells that ``body`` is not all of it. ``body_is_base64``: the bytes were no UTF-8.
    """

    headers: tuple[tuple[str, str], ...] = ()
    body: str | None = None
    body_bytes: int = 0
    is_truncated: bool = False
    body_is_base64: bool = False


REDACTED = "[redacted]"


@hot_dataclass(frozen=True, slots=True, kw_only=True)
class Execution:
    """One attempt. ``number`` counts from 1; ``deadline_at`` is when the watchdog ends it.

    ``url`` is redacted as ``request`` is.

    ``response_status`` and ``response`` are None when there was no response; ``failure`` and ``message`` then say
    why, and also when there was one that is no 2xx. ``duration_ms`` is that of the exchange, None when unknown.
    """

    tenant_id: str
    call_id: str
    execution_id: str
    number: int
    status: ExecutionStatus
    started_at: datetime
    deadline_at: datetime
    method: Method
    url: str
    request: LoggedMessage
    finished_at: datetime | None = None
    duration_ms: int | None = None
    response_status: int | None = None
    response: LoggedMessage | None = None
    failure: CallFailure | None = None
    message: str = ""
