"""Events on AWS, those of failed timers and those of service calls: EventBridge's PutEvents."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from duetime.domain.call_events import CallEvent
from duetime.domain.clock import Clock
from duetime.domain.events import Event, EventsUndelivered

SOURCE = "duetime.timers"
CALLS_SOURCE = "duetime.calls"
MAX_ENTRIES = 10
"""What PutEvents takes in one request."""
PUBLISH_SECONDS = 2.0
"""No request begins later than this after the first one."""
CALL_EVENTS_SECONDS = 5.0
"""The same for events of service calls: they wait in the outbox, so nothing waits for them."""
_CONFIG: dict[str, Any] = {"connect_timeout": 1, "read_timeout": 1.5, "retries": {"total_max_attempts": 1}}
"""Seconds. Who publishes tries again; the sum stays below the engine's patience."""


def eventbridge_client() -> Any:
    """Make a client of the own region."""
    import boto3
    from botocore.config import Config

    return boto3.client("events", config=Config(**_CONFIG))


class _Bus:
    """The client is made when there is something to send: most pollers see no timer fail."""

    def __init__(self, bus: str, seconds: float, clock: Clock, make_client: Callable[[], Any]) -> None:
        self._bus = bus
        self._seconds = seconds
        self._clock = clock
        self._make_client = make_client
        self._client: Any = None

    def put(self, entries: Sequence[dict[str, Any]]) -> dict[int, str]:
        """Send entries. Returns by index why an entry was not accepted, or that there was no time for it."""
        give_up_at = self._clock.monotonic() + self._seconds
        refused: dict[int, str] = {}
        for start in range(0, len(entries), MAX_ENTRIES):
            if self._clock.monotonic() >= give_up_at:
                return refused | dict.fromkeys(range(start, len(entries)), "no time left")
            try:
                codes = self._put(entries[start : start + MAX_ENTRIES])
            except _Unreachable as error:  # the others would only wait as long
                return refused | dict.fromkeys(range(start, len(entries)), str(error))
            refused |= {start + index: code for index, code in enumerate(codes) if code is not None}
        return refused

    def _put(self, entries: Sequence[dict[str, Any]]) -> list[str | None]:
        """Send one request. Returns per entry the error code, None for an accepted one."""
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            if self._client is None:
                self._client = self._make_client()
            addressed = [{**entry, "EventBusName": self._bus} for entry in entries]
            results = self._client.put_events(Entries=addressed)["Entries"]
        except ClientError as error:
            raise _Unreachable(error.response["Error"]["Code"]) from error
        except BotoCoreError as error:
            raise _Unreachable(type(error).__name__) from error
        codes = [None if "EventId" in result else str(result.get("ErrorCode", "refused")) for result in results]
        if len(codes) != len(entries):
            raise _Unreachable("the answer has another number of entries")
        return codes


class EventBridgeEvents:
    """``engine.response.failure_events.FailureEvents``."""

    def __init__(self, bus: str, *, clock: Clock, make_client: Callable[[], Any] = eventbridge_client) -> None:
        """``bus``: name or ARN of the event bus."""
        self._bus = _Bus(bus, PUBLISH_SECONDS, clock, make_client)

    def publish(self, events: Sequence[Event]) -> None:
        """Put the events. Raises ``EventsUndelivered`` with those that EventBridge refused or that there was no time
        for.
        """
        entries = [
            {
                "Source": SOURCE,
                "DetailType": event.type.replace(".", " ").title(),
                "Detail": event.to_json(),
                "Time": event.at,
            }
            for event in events
        ]
        refused = self._bus.put(entries)
        if refused:
            why = next(iter(refused.values()))
            raise EventsUndelivered(why, [events[index] for index in sorted(refused)])


class EventBridgePublisher:
    """``calls.publishing.EventPublisher``: the type of the event is the detail type, its envelope the detail."""

    name = "eventbridge"

    def __init__(self, bus: str, *, clock: Clock, make_client: Callable[[], Any] = eventbridge_client) -> None:
        """``bus``: name or ARN of the event bus."""
        self._bus = _Bus(bus, CALL_EVENTS_SECONDS, clock, make_client)

    def publish(self, events: Sequence[CallEvent]) -> Mapping[str, str]:
        entries = [
            {
                "Source": CALLS_SOURCE,
                "DetailType": str(event.type),
                "Detail": event.to_json(),
                "Time": event.occurred_at,
            }
            for event in events
        ]
        return {events[index].event_id: code for index, code in self._bus.put(entries).items()}

    def close(self) -> None:
        """Do nothing: the client closes with the process."""


class _Unreachable(Exception):
    """EventBridge did not take the request at all."""
