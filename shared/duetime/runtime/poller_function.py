"""The poller on Lambda: what one invocation does, and how it asks for further ones.

Two events are understood:

- EventBridge's scheduled event (``"detail-type": "Scheduled Event"``): poll all shards. This invocation takes the
  first ``shards_per_poller`` of them and invokes the function again, asynchronously, for each further part. It goes
  on to do so for shards that appear while it runs, so that a new namespace does not wait for the next minute.
- ``{"shardRanges": [[first, last], ...]}``, both ends inclusive: poll these shards. That is what it sends itself.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import Any, Protocol, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from duetime.domain.clock import Clock
from duetime.domain.errors import DuetimeError, InvalidInput, StoreError
from duetime.domain.shards import MAX_DEDICATED_SHARD
from duetime.engine.stats import EngineSnapshot
from duetime.runtime.logs import log_context
from duetime.runtime.settings import MAX_SHARDS_PER_POLLER, PollerSettings
from duetime.stores.port.store import Store

T = TypeVar("T")

METRICS_INTERVAL_SECONDS = 10.0
SHARD_MAP_INTERVAL_SECONDS = 1.0
"""How often the scheduled invocation looks for new shards."""

Invoke = Callable[[str, dict[str, Any]], None]
"""Invoke the function of this ARN asynchronously with this event. Raises ``FanOutFailed``."""

logger = logging.getLogger(__name__)


class FanOutFailed(DuetimeError):
    """Lambda did not take an asynchronous invocation."""

    code = "fan_out_failed"


class LambdaContext(Protocol):
    """The part of Lambda's context object that is used."""

    aws_request_id: str
    invoked_function_arn: str

    def get_remaining_time_in_millis(self) -> int: ...


class Polling(Protocol):
    """The part of ``engine.poller.Poller`` that is used."""

    async def run(
        self, stop: asyncio.Event, *, shard_ids: Sequence[int] | None = None, deadline: float | None = None
    ) -> None: ...

    def stats(self) -> dict[str, int]: ...

    def snapshot(self) -> EngineSnapshot: ...


class Reporter(Protocol):
    """Takes what the poller has counted: ``runtime.emf.EmfReporter``."""

    def report(self, snapshot: EngineSnapshot, **properties: object) -> None: ...


class _ShardRangesEvent(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    shard_ranges: list[tuple[int, int]] = Field(alias="shardRanges", min_length=1)


class PollerFunction:
    """The Lambda handler. Kept, with its connections, between the invocations of one execution environment."""

    def __init__(
        self,
        poller: Polling,
        store: Store,
        *,
        clock: Clock,
        settings: PollerSettings,
        invoke: Invoke,
        reporter: Reporter,
        shard_map_interval_seconds: float = SHARD_MAP_INTERVAL_SECONDS,
        metrics_interval_seconds: float = METRICS_INTERVAL_SECONDS,
    ) -> None:
        self._poller = poller
        self._store = store
        self._clock = clock
        self._settings = settings
        self._invoke = invoke
        self._reporter = reporter
        self._shard_map_interval_seconds = shard_map_interval_seconds
        self._metrics_interval_seconds = metrics_interval_seconds

    def __call__(self, event: dict[str, Any], context: LambdaContext) -> dict[str, Any]:
        """Poll until shortly before Lambda's deadline. Says which shards, and what the poller counted so far.

        Raises ``InvalidInput`` for another event, ``StoreError`` when the shards could not be read in all that time,
        and, after its own part is done, ``FanOutFailed`` when another part could not be handed on.
        """
        remaining_seconds = context.get_remaining_time_in_millis() / 1000
        deadline = self._clock.monotonic() + remaining_seconds - self._settings.deadline_margin_seconds
        with log_context(request_id=context.aws_request_id):
            given = read_shard_ids(event)
            if given is None:
                work = self._poll_all(context.invoked_function_arn, deadline)
            else:
                work = self._poll(given, deadline)
            polled = asyncio.run(self._reported(work, context.aws_request_id))
            summary = {"shardRanges": to_ranges(polled), "stats": self._poller.stats()}
            logger.info("the poller is done", extra={"action": "poller.done", **summary})
            return summary

    async def _reported(self, work: Coroutine[Any, Any, T], request_id: str) -> T:
        """Do ``work`` and report what is counted, every now and then and at its end, however it ends."""

        async def report() -> None:
            while True:
                await asyncio.sleep(self._metrics_interval_seconds)
                self._reporter.report(self._poller.snapshot(), request_id=request_id)

        reporting = asyncio.create_task(report())
        try:
            return await work
        finally:
            reporting.cancel()
            await asyncio.gather(reporting, return_exceptions=True)
            self._reporter.report(self._poller.snapshot(), request_id=request_id)

    async def _poll(self, shard_ids: list[int], deadline: float) -> list[int]:
        await self._poller.run(asyncio.Event(), shard_ids=shard_ids, deadline=deadline)
        return shard_ids

    async def _poll_all(self, function_arn: str, deadline: float) -> list[int]:
        """Poll the first part and hand on the others; the shards of the first part."""
        shard_ids = await self._wait_for_shards(deadline)
        if not shard_ids:
            return []
        own = shard_ids[: self._settings.shards_per_poller]
        fan_out = _FanOut(self._invoke, function_arn, self._settings.shards_per_poller, own)
        handing_on = asyncio.create_task(self._hand_on(fan_out, shard_ids))
        try:
            await self._poller.run(asyncio.Event(), shard_ids=own, deadline=deadline)
        finally:
            handing_on.cancel()
            await asyncio.gather(handing_on, return_exceptions=True)
        if fan_out.failed:
            raise FanOutFailed(f"{fan_out.failed} parts of the shards could not be handed on")
        return own

    async def _wait_for_shards(self, deadline: float) -> list[int]:
        """The shards as soon as there are any (the first namespace may come any moment); none by ``deadline``."""
        while True:
            try:
                shard_ids = await asyncio.to_thread(lambda: self._store.catalogue.shard_map().shard_ids())
            except StoreError as error:
                if self._clock.monotonic() + self._shard_map_interval_seconds >= deadline:
                    raise
                _warn_unreadable(error)
                shard_ids = []
            if shard_ids or self._clock.monotonic() + self._shard_map_interval_seconds >= deadline:
                return shard_ids
            await asyncio.sleep(self._shard_map_interval_seconds)

    async def _hand_on(self, fan_out: _FanOut, shard_ids: list[int]) -> None:
        """Hand on ``shard_ids`` at once, and for as long as this runs those that appear."""
        await asyncio.to_thread(fan_out.hand_on, shard_ids)
        while True:
            await asyncio.sleep(self._shard_map_interval_seconds)
            try:
                await asyncio.to_thread(lambda: fan_out.hand_on(self._store.catalogue.shard_map().shard_ids()))
            except StoreError as error:
                _warn_unreadable(error)


def _warn_unreadable(error: StoreError) -> None:
    logger.warning("the shard map could not be read", extra={"action": "shard_map.unreadable", "error": error.code})


class _FanOut:
    """Remembers which shards somebody has been asked to poll, and asks for the others."""

    def __init__(self, invoke: Invoke, function_arn: str, shards_per_poller: int, own: Iterable[int]) -> None:
        self._invoke = invoke
        self._function_arn = function_arn
        self._size = shards_per_poller
        self._handed_on = set(own)
        self.failed = 0

    def hand_on(self, shard_ids: Iterable[int]) -> None:
        """Invoke the function for what nobody has been asked to poll. A failure is counted and not repeated: the
        next scheduled invocation is the retry."""
        new = [shard_id for shard_id in shard_ids if shard_id not in self._handed_on]
        self._handed_on.update(new)
        for start in range(0, len(new), self._size):
            ranges = to_ranges(new[start : start + self._size])
            try:
                self._invoke(self._function_arn, {"shardRanges": ranges})
            except FanOutFailed as error:
                self.failed += 1
                logger.error(
                    "shards could not be handed on",
                    extra={"action": "fan_out.failed", "shard_ranges": ranges, "error": error.message},
                )
            else:
                logger.info("shards handed on", extra={"action": "fan_out.invoked", "shard_ranges": ranges})


def read_shard_ids(event: object) -> list[int] | None:
    """The shards that the event names; None for all. Raises ``InvalidInput`` for an event of another kind."""
    if isinstance(event, dict) and event.get("detail-type") == "Scheduled Event":
        return None
    try:
        # Through JSON, whose arrays are what a strict tuple is read from.
        ranges = _ShardRangesEvent.model_validate_json(json.dumps(event)).shard_ranges
    except (ValidationError, TypeError):
        raise InvalidInput(
            "", 'expected EventBridge\'s scheduled event or {"shardRanges": [[first, last], ...]}'
        ) from None
    for position, (first, last) in enumerate(ranges):
        if not 0 <= first <= last <= MAX_DEDICATED_SHARD:
            raise InvalidInput(f"shardRanges[{position}]", f"must be [first, last] within 0 to {MAX_DEDICATED_SHARD}")
    if sum(last - first + 1 for first, last in ranges) > MAX_SHARDS_PER_POLLER:
        raise InvalidInput("shardRanges", f"must name at most {MAX_SHARDS_PER_POLLER} shards")
    return sorted({shard_id for first, last in ranges for shard_id in range(first, last + 1)})


def to_ranges(shard_ids: Sequence[int]) -> list[list[int]]:
    """Ascending ids as ``[first, last]`` pairs, both ends inclusive."""
    ranges: list[list[int]] = []
    for shard_id in shard_ids:
        if ranges and ranges[-1][1] == shard_id - 1:
            ranges[-1][1] = shard_id
        else:
            ranges.append([shard_id, shard_id])
    return ranges
