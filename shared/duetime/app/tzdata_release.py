"""After a new release of tzdata what is pending is computed again: schedules, and timers at a local time.

The first process with a newer release than that of the store does it, a piece at a time, in two passes: one at once,
and one ``SETTLE_SECONDS`` later for what processes of the release before have computed meanwhile. A process with an
older release changes nothing.

One process works at a time: whoever has the lease of ``TZDATA_SHARD``, a shard without timers. Its metadata says
where the work stands, so that another process goes on there. A piece that is done twice changes nothing the second
time.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Annotated, Protocol, TypeAlias

import msgspec
from msgspec.structs import replace

from duetime.app.pages import ChangedPage, PageOfWork
from duetime.domain.clock import Clock
from duetime.domain.errors import DuetimeError, StoreNotReady, StoreUnavailable
from duetime.domain.namespaces import Namespace
from duetime.domain.times import to_milliseconds
from duetime.recurrence import zones
from duetime.stores.core.leases import HasDied, nobody_has
from duetime.stores.core.store import Store

TZDATA_SHARD = -3
"""Reserved: -1 is the catalogue's partition on DynamoDB, -2 the lease of the outbox."""
PASSES = 2
SETTLE_SECONDS = 1800
"""Longer than a process of the release before runs beside those of the new one."""
PIECE_SECONDS = 5.0
REST_SECONDS = 9.0
"""For each second of work, for the sake of what fires meanwhile."""
LEASE_SECONDS = 60.0
"""Many times what a piece takes."""
OTHERS_SECONDS = 60.0
"""After so long it is looked whether another process still works."""
_PAGE = 100

_log = logging.getLogger(__name__)


class Recompute(Protocol):
    """Computes a page of one kind again, as ``ScheduleLists.recompute_page`` does."""

    def __call__(self, namespace: Namespace, work: PageOfWork, /) -> ChangedPage: ...


Kinds: TypeAlias = tuple[Recompute, Recompute]
"""Schedules, and timers at a local time."""


class Progress(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """Where the work for ``release`` stands.

    ``passes`` are done; the next one begins at ``begins_at_ms``. It goes on with the kind of this number of the
    namespace that follows the cursor ``namespaces``, after ``cursor``, and has ``moved`` so many.
    """

    release: str = ""
    passes: int = 0
    begins_at_ms: int = 0
    namespaces: str | None = None
    kind: Annotated[int, msgspec.Meta(ge=0, le=1)] = 0
    cursor: str | None = None
    moved: int = 0


class TzdataRelease:
    """One process's part of the work. For one thread."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        *,
        owner_id: str,
        has_died: HasDied = nobody_has,
        kinds: Callable[[], Kinds],
        release: str = zones.VERSION,
    ) -> None:
        """``kinds``: what is computed again; called when there is work. ``has_died`` as in ``LeaseStore.claim``."""
        self._store = store
        self._clock = clock
        self._owner_id = owner_id
        self._has_died = has_died
        self._kinds = kinds
        self._release = release
        self._is_done = False

    def run(self, stop: threading.Event, *, may_wait: bool = True) -> None:
        """Work until all is done or ``stop`` is set; without ``may_wait`` until nothing can be done for now.

        What the store refuses is tried again later.
        """
        while not (self._is_done or stop.is_set()):
            try:
                wait_seconds = self.step(stop)
            except DuetimeError as error:
                _log.warning(
                    "what is pending could not be computed again; it is tried again: %s",
                    error,
                    extra={"action": "tzdata.retried", "error": error.code},
                )
                wait_seconds = OTHERS_SECONDS
            if wait_seconds is not None and (wait_seconds == 0 or may_wait):
                stop.wait(wait_seconds)
            else:
                return

    def step(self, stop: threading.Event) -> float | None:
        """Do a piece of the work; return after how many seconds to call again, None when all is done.

        A piece ends early when ``stop`` is set. Raises ``StoreError``.
        """
        now = self._clock.now()
        (status,) = self._store.leases.statuses([TZDATA_SHARD], now=now)
        progress = _read(status.metadata)
        if progress.release < self._release:
            progress = Progress(self._release)
        if progress.release > self._release or progress.passes == PASSES:
            self._is_done = True
            return None
        if (wait_ms := progress.begins_at_ms - to_milliseconds(now)) > 0:
            return wait_ms / 1000
        kinds = self._kinds()
        return 0.0 if self._store_it(progress, lambda: self._piece(progress, kinds, stop)) else OTHERS_SECONDS

    def _store_it(self, progress: Progress, then: Callable[[], Progress | None]) -> bool:
        """Store where the work stands, and where it stands after ``then``; return whether nobody else works."""
        (lease,) = self._store.leases.claim(
            [TZDATA_SHARD],
            self._owner_id,
            lease_seconds=LEASE_SECONDS,
            metadata=msgspec.json.encode(progress).decode(),
            has_died=self._has_died,
            now=self._clock.now(),
        )
        if lease is None:
            return False
        try:
            following = then()
        finally:
            self._store.leases.release([lease], now=self._clock.now())
        return following is None or self._store_it(following, lambda: None)

    def _piece(self, progress: Progress, kinds: Kinds, stop: threading.Event) -> Progress:
        """Compute pages for ``PIECE_SECONDS`` or to the end of the pass; return where the work stands then."""
        if progress == Progress(self._release):
            _log.info(
                "tzdata %s is new here", self._release, extra={"action": "tzdata.began", "release": self._release}
            )
        passes, monotonic = progress.passes, self._clock.monotonic
        until, rest_seconds = monotonic() + PIECE_SECONDS, 0.0
        while progress.passes == passes and monotonic() < until and not stop.wait(rest_seconds):
            page_began = monotonic()
            progress = self._page(progress, kinds)
            rest_seconds = REST_SECONDS * (monotonic() - page_began)
        return progress

    def _page(self, progress: Progress, kinds: Kinds) -> Progress:
        now = self._clock.now()
        namespaces = self._store.catalogue.list_namespaces(cursor=progress.namespaces, limit=1)
        for namespace in namespaces.items:
            page = self._recomputed(kinds[progress.kind], namespace, PageOfWork(progress.cursor, _PAGE, now))
            progress = replace(progress, cursor=page.next_cursor, moved=progress.moved + page.affected)
            if page.next_cursor is not None:
                return progress
            if progress.kind + 1 < len(kinds):
                return replace(progress, kind=progress.kind + 1)
        if namespaces.next_cursor is not None:
            return replace(progress, namespaces=namespaces.next_cursor, kind=0)
        return self._end_of_pass(progress)

    def _recomputed(self, recompute: Recompute, namespace: Namespace, work: PageOfWork) -> ChangedPage:
        try:
            if namespace.num_shards:
                return recompute(namespace, work)
        except (StoreUnavailable, StoreNotReady):
            raise
        except DuetimeError as error:
            _log.error(
                "what is pending in a namespace could not be computed again: %s",
                error,
                extra={"action": "tzdata.namespace_failed", "namespace": namespace.name, "error": error.code},
            )
        return ChangedPage(0, 0, None)

    def _end_of_pass(self, progress: Progress) -> Progress:
        _log.info(
            "what is pending is by tzdata %s",
            self._release,
            extra={
                "action": "tzdata.applied",
                "release": self._release,
                "pass_number": progress.passes + 1,
                "moved": progress.moved,
            },
        )
        return Progress(
            self._release, progress.passes + 1, to_milliseconds(self._clock.now()) + SETTLE_SECONDS * 1000
        )


def _read(metadata: str | None) -> Progress:
    """Return what was stored. Nothing was done where there is none, or it cannot be read."""
    try:
        return Progress() if metadata is None else _DECODER.decode(metadata)
    except msgspec.DecodeError:
        return Progress()


_DECODER = msgspec.json.Decoder(Progress)
