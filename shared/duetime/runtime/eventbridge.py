"""Events of failed timers on AWS: EventBridge's PutEvents."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from duetime.domain.clock import Clock
from duetime.domain.events import TimerFailed
from duetime.engine.announcing import EventsUndelivered

SOURCE = "duetime.timers"
DETAIL_TYPE = "Timer Failed"
MAX_ENTRIES = 10
"""What PutEvents takes in one request."""
PUBLISH_SECONDS = 2.0
"""No request begins later than this after the first one."""
_CONFIG: dict[str, Any] = {"connect_timeout": 1, "read_timeout": 1.5, "retries": {"total_max_attempts": 1}}
"""Seconds. The engine tries again; the sum stays below its patience."""


def eventbridge_client() -> Any:
    """A client of the own region."""
    import boto3
    from botocore.config import Config

    return boto3.client("events", config=Config(**_CONFIG))


class EventBridgeEvents:
    """``engine.announcing.FailureEvents``. The client is made when the first timer fails: most pollers see none."""

    def __init__(self, bus: str, *, clock: Clock, make_client: Callable[[], Any] = eventbridge_client) -> None:
        """``bus``: name or ARN of the event bus."""
        self._bus = bus
        self._clock = clock
        self._make_client = make_client
        self._client: Any = None

    def publish(self, events: Sequence[TimerFailed]) -> None:
        """Raises ``EventsUndelivered`` with those that EventBridge refused or that there was no time for."""
        give_up_at = self._clock.monotonic() + PUBLISH_SECONDS
        left: list[TimerFailed] = []
        why = "no time left"
        remaining = list(events)
        while remaining and self._clock.monotonic() < give_up_at:
            batch, remaining = remaining[:MAX_ENTRIES], remaining[MAX_ENTRIES:]
            try:
                refused, code = self._put(batch)
            except _Unreachable as error:
                left, why = [*left, *batch], str(error)
                break  # the others would only wait as long
            if refused:
                left, why = [*left, *refused], code
        left += remaining
        if left:
            raise EventsUndelivered(why, left)

    def _put(self, events: Sequence[TimerFailed]) -> tuple[list[TimerFailed], str]:
        """The events that were refused, and the code of the last refusal."""
        from botocore.exceptions import BotoCoreError, ClientError

        entries = [
            {
                "Source": SOURCE,
                "DetailType": DETAIL_TYPE,
                "Detail": event.to_json(),
                "Time": event.failed_at,
                "EventBusName": self._bus,
            }
            for event in events
        ]
        try:
            if self._client is None:
                self._client = self._make_client()
            results = self._client.put_events(Entries=entries)["Entries"]
        except ClientError as error:
            raise _Unreachable(error.response["Error"]["Code"]) from error
        except BotoCoreError as error:
            raise _Unreachable(type(error).__name__) from error
        refused = [event for event, result in zip(events, results, strict=True) if "EventId" not in result]
        codes = [str(result["ErrorCode"]) for result in results if "ErrorCode" in result]
        return refused, codes[-1] if codes else ""


class _Unreachable(Exception):
    """EventBridge did not take the request at all."""
