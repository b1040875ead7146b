"""Work for the store that gathers for a moment and is done in batches, beside the event loop."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Hashable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Generic, TypeVar

from duetime.domain.errors import StoreError, StoreNotReady, StoreUnavailable
from duetime.domain.timers import Timer
from duetime.engine.context import EngineContext
from duetime.engine.waiting import Offload, WakeupEvent, backoff_after

log = logging.getLogger(__name__)

T = TypeVar("T")
R = TypeVar("R")

_IDLE_SECONDS = 3600.0


@dataclass(frozen=True, slots=True)
class Room:
    """What bounds the items that are being written, in all batches.

    ``take`` gets how many there are and a callback, and returns how many may be written now. If not all, it calls
    back when there is more room. ``give_back`` gets the number of items of a batch that is done.
    """

    take: Callable[[int, Callable[[], None]], int]
    give_back: Callable[[int], None]


@dataclass(frozen=True, slots=True)
class Gathering:
    """How many items make a full batch, and how long the first of a batch waits for others.

    ``room`` None: nothing but ``record_concurrency`` bounds what is written at once.
    """

    batch_size: int
    linger_seconds: float
    room: Room | None = None


@dataclass(frozen=True, slots=True)
class Partitions(Generic[T, R]):
    """Tells what is put off by its result, while its partition takes nothing, and the key of an item's partition."""

    is_put_off: Callable[[R], bool]
    key_of: Callable[[T], Hashable]


@dataclass(slots=True)
class _HeldUp(Generic[T]):
    """What waits, and what ends that."""

    items: list[T]
    handle: asyncio.TimerHandle


class Batcher(Generic[T, R]):
    """Collects items for a moment and hands them to ``write`` in a thread.

    While the store cannot be used (``StoreUnavailable``, ``StoreNotReady``) a batch is repeated with back-off, for as
    long as ``run`` runs: an item is never dropped while there is a chance. After any other error the batch is halved,
    and halved again, until what cannot be written stands alone: it harms nobody else. An item that is put off (its
    partition is throttled, say) waits, with back-off, and so does what belongs to the same partition.
    What is queued is bounded by whoever adds. All but ``write`` happens in the event loop's thread.
    """

    def __init__(
        self,
        write: Callable[[Sequence[T]], Sequence[R]],
        context: EngineContext,
        offload: Offload,
        *,
        action: str,
        on_written: Callable[[Sequence[T], Sequence[R]], None],
        on_refused: Callable[[T, Exception], None],
        on_given_up: Callable[[Sequence[T]], None],
        is_wanted: Callable[[T], bool] | None = None,
        partitions: Partitions[T, R] | None = None,
        gathering: Gathering | None = None,
    ) -> None:
        """``write`` blocks, answers with one result per item, and may be called again with the same items after it
        has raised; ``action`` names the log line of a store that cannot be used. ``on_written`` may be called several
        times for a batch, ``on_refused`` for each item that cannot be written even alone, with the reason.
        ``on_given_up`` gets what there is no time for at the end of ``run``, and items that are not ``is_wanted``
        (None: all are) just before they would be written. ``partitions`` None: nothing ever is put off.
        ``gathering`` None: as outcomes are recorded.
        """
        settings = context.settings
        self._write = write
        self._context = context
        self._settings = settings
        self._offload = offload
        self._action = action
        self._on_written = on_written
        self._on_refused = on_refused
        self._on_given_up = on_given_up
        self._is_wanted = is_wanted
        self._partitions = partitions
        self._gathering = gathering or Gathering(settings.record_batch_size, settings.record_linger_seconds)
        self._queue: list[T] = []
        self._held_up: dict[Hashable, _HeldUp[T]] = {}
        self._errors: dict[Hashable, int] = {}
        """How often in a row items of a key were put off and none was written; none: all of the last were written."""
        self._alarm = WakeupEvent()
        self._active: set[asyncio.Task[None]] = set()
        self._is_draining = False
        self._is_back = asyncio.Event()
        self.backlog = 0
        """Items that are not written yet."""

    def add(self, item: T) -> None:
        self.backlog += 1
        if self._held_up and self._partitions is not None:
            held_up = self._held_up.get(self._partitions.key_of(item))
            if held_up is not None:
                held_up.items.append(item)
                return
        self._queue.append(item)
        if len(self._queue) == 1 or len(self._queue) >= self._gathering.batch_size:
            self._alarm.set()

    def is_held_up(self, key: Hashable) -> bool:
        """Tell whether items with this key were put off, and not all of them have been written since."""
        return key in self._errors

    def drain(self) -> None:
        """Write without waiting for company from now on."""
        self._is_draining = True
        self._alarm.set()

    def retry(self) -> None:
        """Try at once what waits since the store did not answer: it does again."""
        self._is_back.set()
        self._is_back = asyncio.Event()
        for key in list(self._held_up):
            self._let_go(key)

    async def run(self) -> None:
        """Write until cancelled. What is left is given up."""
        try:
            while True:
                await self._alarm.wait(_IDLE_SECONDS)
                if self._is_worth_waiting():
                    await self._alarm.wait(self._gathering.linger_seconds)
                self._start_writes()
        finally:
            self._is_draining = False
            for task in self._active:
                task.cancel()
            queue, self._queue = self._queue, []
            for held_up in self._held_up.values():
                held_up.handle.cancel()
                queue += held_up.items
            self._held_up.clear()
            self._errors.clear()
            self._give_up(queue)

    def _is_worth_waiting(self) -> bool:
        return (
            bool(self._queue)
            and self._gathering.linger_seconds > 0
            and not self._is_draining
            and len(self._queue) < self._gathering.batch_size
        )

    def _start_writes(self) -> None:
        room = self._gathering.room
        while self._queue and len(self._active) < self._settings.record_concurrency:
            size = min(self._gathering.batch_size, len(self._queue))
            if room is not None and not (size := room.take(size, self._alarm.set)):
                return
            batch, self._queue = self._queue[:size], self._queue[size:]
            task = asyncio.get_running_loop().create_task(self._write_batch(batch))
            self._active.add(task)
            task.add_done_callback(partial(self._finish_write, size))

    def _finish_write(self, size: int, task: asyncio.Task[None]) -> None:
        self._active.discard(task)
        if self._gathering.room is not None:
            self._gathering.room.give_back(size)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("recording failed", exc_info=error, extra={"action": "record.crashed"})
        if self._queue:
            self._alarm.set()

    async def _write_batch(self, batch: list[T]) -> None:
        """Go on until there is a result, or a refusal, for every item that is still wanted."""
        errors = 0
        pieces = [batch]
        """What is not written yet; the last one is next."""
        try:
            while pieces:
                pieces[-1] = piece = self._still_wanted(pieces[-1])
                if not piece:
                    pieces.pop()
                    continue
                try:
                    results = await self._offload.run(lambda piece=piece: self._write(piece))  # type: ignore[misc]
                except (StoreUnavailable, StoreNotReady) as error:
                    errors += 1
                    self._note_error(error, piece)
                    await self._pause(backoff_after(errors, self._context.random()))
                except Exception as error:
                    pieces[-1:] = self._halves(piece, error)
                else:
                    pieces.pop()
                    errors = 0
                    self._take_results(piece, results)
        except BaseException:
            for piece in pieces:
                self._give_up(piece)
            raise

    def _take_results(self, piece: Sequence[T], results: Sequence[R]) -> None:
        partitions = self._partitions
        if partitions is not None and any(map(partitions.is_put_off, results)):
            put_off: dict[Hashable, list[T]] = {}
            written: list[tuple[T, R]] = []
            for item, result in zip(piece, results, strict=True):
                if partitions.is_put_off(result):
                    put_off.setdefault(partitions.key_of(item), []).append(item)
                else:
                    written.append((item, result))
            for key in {partitions.key_of(item) for item, _ in written}:
                self._errors.pop(key, None)
            for key, items in put_off.items():
                self._hold_up(key, items)
            piece, results = [item for item, _ in written], [result for _, result in written]
        elif partitions is not None and self._errors:
            for item in piece:
                self._errors.pop(partitions.key_of(item), None)
        self.backlog -= len(piece)
        if piece:
            self._on_written(piece, results)

    def _hold_up(self, key: Hashable, items: list[T]) -> None:
        """Keep ``items`` and what comes with their key back for a while."""
        known = self._held_up.get(key)
        if known is not None:  # by another batch
            known.items += items
            return
        errors = self._errors[key] = self._errors.get(key, 0) + 1
        pause = backoff_after(errors, self._context.random())
        handle = asyncio.get_running_loop().call_later(pause, self._let_go, key)
        self._held_up[key] = _HeldUp(items, handle)

    def _let_go(self, key: Hashable) -> None:
        held_up = self._held_up.pop(key)
        held_up.handle.cancel()
        self._queue += held_up.items
        self._alarm.set()

    def _note_error(self, error: StoreError, piece: Sequence[T]) -> None:
        self._context.stats.record_errors += 1
        log.warning(
            "the store did not answer a batch, trying again: %s",
            error,
            extra={"action": self._action, "error": error.code, "items": len(piece)},
        )

    async def _pause(self, seconds: float) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(self._is_back.wait(), seconds)

    def _halves(self, piece: list[T], error: Exception) -> list[list[T]]:
        """Return what to try instead of ``piece``, which was refused: nothing when it is one item."""
        if len(piece) == 1:
            self.backlog -= 1
            self._on_refused(piece[0], error)
            return []
        middle = len(piece) // 2
        return [piece[middle:], piece[:middle]]

    def _still_wanted(self, batch: list[T]) -> list[T]:
        if self._is_wanted is None:
            return batch
        wanted: list[T] = []
        unwanted: list[T] = []
        for item in batch:
            (wanted if self._is_wanted(item) else unwanted).append(item)
        self._give_up(unwanted)
        return wanted

    def _give_up(self, batch: Sequence[T]) -> None:
        self.backlog -= len(batch)
        if batch:
            self._on_given_up(batch)


def bug_in(error: Exception | None) -> Exception | None:
    """Return ``exc_info`` of a log line: a ``StoreError`` says all there is to say, and what is none is a bug."""
    return None if isinstance(error, StoreError) else error


def refusal(timer: Timer, error: Exception | None) -> dict[str, str | None]:
    """Make a log line about what cannot be written even alone. ``error`` None: the store has said why."""
    return {
        "error": error.message if isinstance(error, StoreError) else type(error).__name__ if error else None,
        **timer_facts(timer),
    }


def timer_facts(timer: Timer) -> dict[str, str | None]:
    """Return what a log line about a timer has."""
    return {
        "namespace": timer.namespace,
        "timer_id": timer.timer_id,
        **({} if timer.schedule_id is None else {"schedule_id": timer.schedule_id}),
        "firing_id": timer.firing_id,
        "correlation_id": timer.content.correlation_id,
    }
