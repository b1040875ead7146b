"""The poller on Lambda: what one invocation does, and how it asks for further ones.

The shards are divided into parts of ``shards_per_poller``. A part has one poller at a time, which lives almost as
long as Lambda lets it. Two events are understood:

- EventBridge's scheduled event (``"detail-type": "Scheduled Event"``), every minute: a watchdog. It looks for parts
  with a free shard, or whose poller ends soon, polls the first of them and invokes the function again,
  asynchronously, for each other one. Mostly there are none, and it ends at once.
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
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from duetime.domain.clock import Clock
from duetime.domain.errors import DuetimeError, InvalidInput, StoreError
from duetime.domain.shards import MAX_DEDICATED_SHARD, Lease
from duetime.engine.poller import FINAL_WRITES_SECONDS
from duetime.engine.stats import EngineSnapshot
from duetime.engine.waiting import Offload
from duetime.runtime.logs import log_context
from duetime.runtime.settings import MAX_SHARDS_PER_POLLER, PollerSettings
from duetime.stores.port.store import Store

T = TypeVar("T")

METRICS_INTERVAL_SECONDS = 10.0
TEND_INTERVAL_SECONDS = 1.0
"""How often a poller looks after its part: new shards, its seat, its successor."""
TICK_SECONDS = 60.0
"""Between two scheduled events."""
_LATE_TICK_SECONDS = 30.0
_SELF_STARTED_SECONDS = 30.0
"""What a successor that the schedule did not start has for its own start."""
_INVOKE_INTERVAL_SECONDS = 10.0
_WAIT_SECONDS = 60.0
"""The longest that a seat is held."""
_SEATS = 2 * MAX_DEDICATED_SHARD
"""No shard has such a number: seats begin here."""

Invoke = Callable[[str, dict[str, Any]], None]
"""Invoke the function of this ARN asynchronously with this event. Raises ``FanOutFailed``."""
InvokeSelf = Callable[[dict[str, Any]], None]

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

    def set_shards(self, shard_ids: Sequence[int]) -> None: ...

    def stats(self) -> dict[str, int]: ...

    def snapshot(self) -> EngineSnapshot: ...


class Reporter(Protocol):
    """Takes what the poller has counted: ``runtime.emf.EmfReporter``."""

    def report(self, snapshot: EngineSnapshot, **properties: object) -> None: ...


class _ShardRangesEvent(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    shard_ranges: list[tuple[int, int]] = Field(alias="shardRanges", min_length=1)


@dataclass(frozen=True, slots=True)
class Life:
    """The times of a poller's life, in monotonic seconds.

    From ``succession_at`` on a successor may wait, which the schedule starts in one of the ticks up to
    ``planned_end``; then the poller starts it itself. The poller stops as soon as one waits, and at the latest when
    callbacks would no longer have ``drain_seconds`` until the ``deadline``.
    """

    started: float
    deadline: float
    planned_end: float
    succession_at: float

    @classmethod
    def of(cls, remaining_seconds: float, started: float, settings: PollerSettings) -> Life:
        """Plan a life of ``remaining_seconds``. One that is too short for a tick and a start has no successor."""
        left = max(0.0, remaining_seconds - settings.deadline_margin_seconds)
        polling = left - min(settings.drain_seconds + FINAL_WRITES_SECONDS, left / 2)
        until_end = polling - _SELF_STARTED_SECONDS
        until_succession = until_end - TICK_SECONDS - _LATE_TICK_SECONDS
        if until_succession <= 0:
            until_end = until_succession = float("inf")
        return cls(started, started + left, started + until_end, started + until_succession)

    @property
    def seconds_to_succession(self) -> float:
        return self.succession_at - self.started


class _Seat:
    """A part's seat, as one poller sees it. Its calls block."""

    def __init__(self, store: Store, clock: Clock, owner_id: str, lease_seconds: float) -> None:
        self._store = store
        self._clock = clock
        self._owner_id = owner_id
        self._lease_seconds = lease_seconds
        self._lease: Lease | None = None
        self._taken_at = self._renewed_at = float("-inf")

    @property
    def is_held(self) -> bool:
        return self._lease is not None

    def take(self, head: int) -> bool:
        """Take the seat of the part that begins with shard ``head``, unless another holds it."""
        self._taken_at = self._renewed_at = self._clock.monotonic()
        (self._lease,) = self._store.leases.claim(
            [_SEATS + head],
            self._owner_id,
            lease_seconds=self._lease_seconds,
            metadata="{}",
            now=self._clock.now(),
        )
        return self.is_held

    def keep(self, *, head: int, owned: int, wanted: int) -> bool:
        """Hold the seat until the part is owned, for a while at most; take it again when all is lost."""
        monotonic = self._clock.monotonic()
        if self._lease is None:
            return owned == 0 and self.take(head)
        if owned >= wanted or monotonic - self._taken_at >= _WAIT_SECONDS:
            self.leave()
        elif monotonic - self._renewed_at >= self._lease_seconds / 3:
            self._renewed_at = monotonic
            (self._lease,) = self._store.leases.renew(
                [self._lease], lease_seconds=self._lease_seconds, now=self._clock.now()
            )
        return self.is_held

    def leave(self) -> None:
        """Let others have the seat."""
        lease, self._lease = self._lease, None
        if lease is not None:
            with suppress(StoreError):  # it is free when the lease ends
                self._store.leases.release([lease], now=self._clock.now())

    def is_taken(self, head: int) -> bool:
        """Whether another holds the seat."""
        (status,) = self._store.leases.statuses([_SEATS + head], now=self._clock.now())
        return not status.is_free and status.owner_id != self._owner_id


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
        tend_interval_seconds: float = TEND_INTERVAL_SECONDS,
        metrics_interval_seconds: float = METRICS_INTERVAL_SECONDS,
    ) -> None:
        """``owner_id``: whose its seats are. ``offload`` runs calls that block."""
        self._poller = poller
        self._store = store
        self._clock = clock
        self._settings = settings
        self._invoke = invoke
        self._reporter = reporter
        self._owner_id = owner_id
        self._offload = offload
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
        with log_context(request_id=context.aws_request_id):
            invoke = partial(self._invoke, context.invoked_function_arn)
            given = read_shard_ids(event)
            failures = 0
            if given is None:
                given, failures = await self._watch(invoke, life)
            seat = _Seat(self._store, self._clock, self._owner_id, self._settings.lease_seconds)
            polled: list[int] = []
            if given:
                is_alone = await self._offload.run(partial(seat.take, given[0]))
                if is_alone:
                    polled = await self._reported(self._poll(given, seat, invoke, life), context.aws_request_id)
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

    async def _watch(self, invoke: InvokeSelf, life: Life) -> tuple[list[int], int]:
        """Return the first part that needs a poller, and hand on the others; and how many could not be handed on."""
        needy = await self._wait_for_needy(life)
        failures = 0
        for part in needy[1:]:
            failures += not await self._start(part, invoke)
        return needy[0] if needy else [], failures

    async def _wait_for_needy(self, life: Life) -> list[list[int]]:
        """Return the parts that need a poller. While the store has no shards, or does not answer, it is asked until
        the next tick: the first namespace may come at any moment."""
        end = min(self._clock.monotonic() + TICK_SECONDS, life.deadline)
        while True:
            is_last = self._clock.monotonic() + self._tend_interval_seconds >= end
            try:
                parts = await self._offload.run(self._parts)
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

    def _needy(self, parts: Sequence[Sequence[int]], life: Life) -> list[list[int]]:
        """Those with a free shard, or with a poller that ends soon."""
        now = self._clock.now()
        statuses = self._store.leases.statuses([shard_id for part in parts for shard_id in part], now=now)
        by_shard = {status.shard_id: status for status in statuses}

        def is_needy(part: Sequence[int]) -> bool:
            found = [by_shard[shard_id] for shard_id in part]
            claimed = [status.claimed_at for status in found if status.claimed_at is not None]
            is_old = bool(claimed) and (now - min(claimed)).total_seconds() >= life.seconds_to_succession
            return is_old or any(status.is_free for status in found)

        return [list(part) for part in parts if is_needy(part)]

    async def _start(self, part: Sequence[int], invoke: InvokeSelf) -> bool:
        """Invoke the function for a part. A failure is not repeated: the next tick is the retry."""
        ranges = to_ranges(part)
        try:
            await self._offload.run(lambda: invoke({"shardRanges": ranges}))
        except FanOutFailed as error:
            logger.error(
                "a poller could not be started",
                extra={"action": "fan_out.failed", "shard_ranges": ranges, "error": error.message},
            )
            return False
        logger.info("a poller was started", extra={"action": "fan_out.invoked", "shard_ranges": ranges})
        return True

    # -- the poller ------------------------------------------------------------------------------------------

    async def _poll(self, part: list[int], seat: _Seat, invoke: InvokeSelf, life: Life) -> list[int]:
        """Poll ``part``, and the shards that join it, until a successor waits or the deadline draws near."""
        stop = asyncio.Event()
        tending = asyncio.create_task(self._tend(part, seat, invoke, life, stop))
        try:
            await self._poller.run(stop, shard_ids=part, deadline=life.deadline)
        finally:
            tending.cancel()
            (ended,) = await asyncio.gather(tending, return_exceptions=True)
            await self._offload.run(seat.leave)
        if isinstance(ended, Exception):
            raise ended
        return part

    async def _tend(self, part: list[int], seat: _Seat, invoke: InvokeSelf, life: Life, stop: asyncio.Event) -> None:
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
                if part[0] == min(heads, default=part[0]):
                    for other in parts:
                        if known is not None and other[0] not in known and other[0] not in part:
                            await self._start(other, invoke)
                    known = heads | (known or set())
                owned = self._poller.stats()["shards_owned"]
                keep = partial(seat.keep, head=part[0], owned=owned, wanted=len(part))
                if not await self._offload.run(keep) and owned == 0:
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


def _warn_unreadable(error: StoreError) -> None:
    logger.warning("the shard map could not be read", extra={"action": "shard_map.unreadable", "error": error.code})


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
