"""The poller on Lambda: what one invocation does, and how it asks for further ones.

The shards are divided into parts of ``shards_per_poller``. A part has one poller at a time, which lives almost as
long as Lambda lets it. Three events are understood:

- EventBridge's scheduled event (``"detail-type": "Scheduled Event"``), every minute: a watchdog. It looks for parts
  with a free shard, or whose poller ends soon, polls the first of them and invokes the function again,
  asynchronously, for each other one. Mostly there are none, and it ends at once.
- ``{"wake": true}``, from those that store a timer while all pollers sleep (``sleeping``): the same, at once.
- ``{"shardRanges": [[first, last], ...]}``, both ends inclusive: poll these shards. That is what it sends itself.

A part has a *seat*, a lease beside those of its shards. Only a poller that holds it may begin to poll the part, so of
several that are started at once one remains. A poller whose seat is taken knows that its successor waits, and hands
over. When none has come by its planned end it invokes its successor itself, and polls on for as long as the callbacks
in flight leave it time.
"""

from __future__ import annotations

import asyncio
import json
import logging
import threading
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any, Protocol, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from duetime.domain.clock import Clock
from duetime.domain.errors import InvalidInput, StoreError
from duetime.domain.shards import MAX_DEDICATED_SHARD
from duetime.engine.stats import EngineSnapshot
from duetime.engine.waiting import Offload
from duetime.runtime.logs import LogContext
from duetime.runtime.poller_life import TICK_SECONDS, Life, Seat
from duetime.runtime.settings import MAX_SHARDS_PER_POLLER, PollerSettings, Sleep
from duetime.runtime.sleeping import FallingAsleep, sleeps_on
from duetime.runtime.waking import WAKE_EVENT, FanOutFailed, Invoke
from duetime.stores.core.store import Store

T = TypeVar("T")

METRICS_INTERVAL_SECONDS = 10.0
TEND_INTERVAL_SECONDS = 1.0
"""How often a poller looks after its part: new shards, its seat, its successor."""
_INVOKE_INTERVAL_SECONDS = 10.0
InvokeSelf = Callable[[dict[str, Any]], None]

logger = logging.getLogger(__name__)


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

    def set_shards(self, shard_ids: Sequence[int]) -> None: ...

    def stats(self) -> dict[str, int]: ...

    def snapshot(self) -> EngineSnapshot: ...


class Reporter(Protocol):
    """Takes what the poller has counted: ``runtime.emf.EmfReporter``."""

    def report(self, snapshot: EngineSnapshot, **properties: object) -> None: ...


class Background(Protocol):
    """Works in a thread beside the poller: ``app.tzdata_release.TzdataRelease``."""

    def run(self, stop: threading.Event, *, may_wait: bool) -> None: ...


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
        owner_id: str,
        offload: Offload,
        background: Background,
        background_offload: Offload,
        tend_interval_seconds: float = TEND_INTERVAL_SECONDS,
        metrics_interval_seconds: float = METRICS_INTERVAL_SECONDS,
    ) -> None:
        """``owner_id``: whose its seats are. ``offload`` runs calls that block, ``background_offload`` all of
        ``background``."""
        self._poller = poller
        self._store = store
        self._clock = clock
        self._settings = settings
        self._invoke = invoke
        self._reporter = reporter
        self._owner_id = owner_id
        self._offload = offload
        self._background = background
        self._background_offload = background_offload
        self._may_sleep = settings.sleep is Sleep.AUTO
        self._tend_interval_seconds = tend_interval_seconds
        self._metrics_interval_seconds = metrics_interval_seconds

    def __call__(self, event: dict[str, Any], context: LambdaContext) -> dict[str, Any]:
        """Say which shards were polled, and what the poller has counted so far.

        Raises ``InvalidInput`` for another event, ``StoreError`` when the shards could not be read, and
        ``FanOutFailed`` when another part could not be handed on.
        """
        return asyncio.run(self.invocation(event, context))

    async def invocation(self, event: dict[str, Any], context: LambdaContext) -> dict[str, Any]:
        """Do what ``event`` asks for, in the loop of the caller."""
        life = Life.of(context.get_remaining_time_in_millis() / 1000, self._clock.monotonic(), self._settings)
        with LogContext(request_id=context.aws_request_id):
            invoke = partial(self._invoke, context.invoked_function_arn)
            given = read_shard_ids(event)
            failures = 0
            if given is None:
                given, failures = await self._watch(invoke, life, is_woken=event == WAKE_EVENT)
            seat = Seat(self._store, self._clock, self._owner_id, self._settings.lease_seconds)
            polled: list[int] = []
            if given:
                is_alone = await self._offload.run(partial(seat.take, given[0]))
                if is_alone:
                    polled = await self._reported(self._poll(given, seat, invoke, life), context.aws_request_id)
            if not polled:
                await self._work_alone(life)
            summary = {"shardRanges": to_ranges(polled), "stats": self._poller.stats()}
            logger.info("the poller is done", extra={"action": "poller.done", **summary})
            if failures:
                raise FanOutFailed(f"{failures} parts of the shards could not be handed on")
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

    # -- the watchdog ----------------------------------------------------------------------------------------

    async def _watch(self, invoke: InvokeSelf, life: Life, *, is_woken: bool) -> tuple[list[int], int]:
        """Return the first part that needs a poller, and hand on the others; and how many could not be handed on."""
        needy = await self._wait_for_needy(life, is_woken=is_woken)
        failures = 0
        for part in needy[1:]:
            failures += not await self._start(part, invoke)
        return needy[0] if needy else [], failures

    async def _wait_for_needy(self, life: Life, *, is_woken: bool) -> list[list[int]]:
        """Return the parts that need a poller.

        While the store does not answer, or has no shards and nobody would wake the pollers, it is asked until the
        next tick: the first namespace may come at any moment.
        """
        end = min(self._clock.monotonic() + TICK_SECONDS, life.deadline)
        while True:
            is_last = self._clock.monotonic() + self._tend_interval_seconds >= end
            try:
                parts = await self._offload.run(self._parts)
                if self._may_sleep and await self._offload.run(partial(self._sleeps_on, parts, is_woken)):
                    self._reporter.report(self._poller.snapshot())  # or else it would be taken for dead
                    return []
                if parts or is_last:
                    return await self._offload.run(partial(self._needy, parts, life))
            except StoreError as error:
                if is_last:
                    raise
                _warn_unreadable(error)
            await asyncio.sleep(self._tend_interval_seconds)

    def _parts(self) -> list[list[int]]:
        shard_ids, size = self._store.catalogue.shard_map().shard_ids(), self._settings.shards_per_poller
        return [shard_ids[start : start + size] for start in range(0, len(shard_ids), size)]

    def _sleeps_on(self, parts: Sequence[Sequence[int]], is_woken: bool) -> bool:
        return sleeps_on(self._store, _all(parts), clock=self._clock, is_woken=is_woken)

    def _needy(self, parts: Sequence[Sequence[int]], life: Life) -> list[list[int]]:
        """Return those with a free shard, or with a poller that ends soon."""
        now = self._clock.now()
        statuses = self._store.leases.statuses(_all(parts), now=now)
        by_shard = {status.shard_id: status for status in statuses}

        def is_needy(part: Sequence[int]) -> bool:
            found = [by_shard[shard_id] for shard_id in part]
            claimed = [status.claimed_at for status in found if status.claimed_at is not None]
            is_old = bool(claimed) and (now - min(claimed)).total_seconds() >= life.seconds_to_succession
            return is_old or any(status.is_free for status in found)

        return [list(part) for part in parts if is_needy(part)]

    async def _start(self, part: Sequence[int] | None, invoke: InvokeSelf) -> bool:
        """Invoke the function for a part; None: for all. A failure is not repeated: the next tick is the retry."""
        event = WAKE_EVENT if part is None else {"shardRanges": to_ranges(part)}
        try:
            await self._offload.run(lambda: invoke(event))
        except FanOutFailed as error:
            logger.error(
                "a poller could not be started",
                extra={"action": "fan_out.failed", "event": event, "error": error.message},
            )
            return False
        logger.info("a poller was started", extra={"action": "fan_out.invoked", "event": event})
        return True

    async def _work_alone(self, life: Life) -> None:
        """Do what is to be done beside polling: while all pollers sleep, or live on from before, nobody else does."""
        stop = threading.Event()
        loop = asyncio.get_running_loop()
        ending = loop.call_later(max(0.0, life.deadline - self._clock.monotonic()), stop.set)
        await self._background_offload.run(partial(self._background.run, stop, may_wait=False))
        ending.cancel()

    # -- the poller ------------------------------------------------------------------------------------------

    async def _poll(self, part: list[int], seat: Seat, invoke: InvokeSelf, life: Life) -> list[int]:
        """Poll ``part``, and the shards that join it, until a successor waits, the deadline draws near, or nothing
        is due for long."""
        stop = asyncio.Event()
        drowsy = FallingAsleep(self._store, self._clock, longest_drain_seconds=self._settings.drain_seconds)
        tending = asyncio.create_task(self._tend(part, seat, invoke, life=life, drowsy=drowsy, stop=stop))
        background_stop = threading.Event()
        background = self._background_offload.run(partial(self._background.run, background_stop, may_wait=True))
        try:
            await self._poller.run(stop, shard_ids=part, deadline=life.deadline)
        finally:
            background_stop.set()
            tending.cancel()
            ended = await asyncio.gather(tending, self._offload.run(seat.leave), background, return_exceptions=True)
        for error in ended:
            if isinstance(error, Exception):
                raise error
        if drowsy.is_over and not await self._offload.run(partial(drowsy.is_asleep, part)):
            await self._start(None, invoke)
        return part

    async def _tend(
        self,
        part: list[int],
        seat: Seat,
        invoke: InvokeSelf,
        *,
        life: Life,
        drowsy: FallingAsleep,
        stop: asyncio.Event,
    ) -> None:
        known: set[int] | None = None
        invoked_at = float("-inf")
        while not stop.is_set():
            await asyncio.sleep(self._tend_interval_seconds)
            monotonic = self._clock.monotonic()
            try:
                parts = await self._offload.run(self._parts)
                part[:] = sorted({*part, *(each for other in parts if part[0] in other for each in other)})
                self._poller.set_shards(part)
                heads = {other[0] for other in parts}
                is_first = part[0] == min(heads, default=part[0])
                if is_first:
                    for other in parts:
                        if known is not None and other[0] not in known and other[0] not in part:
                            await self._start(other, invoke)
                    known = heads | (known or set())
                stats = self._poller.stats()
                owned = stats["shards_owned"]
                keep = partial(seat.keep, head=part[0], owned=owned, wanted=len(part))
                is_time = partial(drowsy.is_time, stats, shards=len(part), all_shards=_all(parts), is_first=is_first)
                if not await self._offload.run(keep) and owned == 0:
                    stop.set()
                elif self._may_sleep and await self._offload.run(is_time):
                    logger.info("nothing is due: the pollers fall asleep", extra={"action": "poller.slept"})
                    stop.set()
                elif owned and monotonic >= life.succession_at and not seat.is_held:
                    if await self._offload.run(lambda: seat.is_taken(part[0])):
                        logger.info("a successor waits", extra={"action": "poller.succeeded"})
                        stop.set()
                    elif monotonic >= max(life.planned_end, invoked_at + _INVOKE_INTERVAL_SECONDS):
                        invoked_at = monotonic
                        await self._start(part, invoke)
            except StoreError as error:
                _warn_unreadable(error)


def _all(parts: Sequence[Sequence[int]]) -> list[int]:
    return [shard_id for part in parts for shard_id in part]


def _warn_unreadable(error: StoreError) -> None:
    logger.warning("the shard map could not be read", extra={"action": "shard_map.unreadable", "error": error.code})


def read_shard_ids(event: object) -> list[int] | None:
    """Return the shards that the event names; None for all. Raises ``InvalidInput`` for an event of another kind."""
    if event == WAKE_EVENT or (isinstance(event, dict) and event.get("detail-type") == "Scheduled Event"):
        return None
    try:
        # Through JSON, whose arrays are what a strict tuple is read from.
        ranges = _ShardRangesEvent.model_validate_json(json.dumps(event)).shard_ranges
    except (ValidationError, TypeError):
        raise InvalidInput(
            "", 'expected EventBridge\'s scheduled event, {"wake": true} or {"shardRanges": [[first, last], ...]}'
        ) from None
    for position, (first, last) in enumerate(ranges):
        if not 0 <= first <= last <= MAX_DEDICATED_SHARD:
            raise InvalidInput(f"shardRanges[{position}]", f"must be [first, last] within 0 to {MAX_DEDICATED_SHARD}")
    if sum(last - first + 1 for first, last in ranges) > MAX_SHARDS_PER_POLLER:
        raise InvalidInput("shardRanges", f"must name at most {MAX_SHARDS_PER_POLLER} shards")
    return sorted({shard_id for first, last in ranges for shard_id in range(first, last + 1)})


def to_ranges(shard_ids: Sequence[int]) -> list[list[int]]:
    """Return ascending ids as ``[first, last]`` pairs, both ends inclusive."""
    ranges: list[list[int]] = []
    for shard_id in shard_ids:
        if ranges and ranges[-1][1] == shard_id - 1:
            ranges[-1][1] = shard_id
        else:
            ranges.append([shard_id, shard_id])
    return ranges
