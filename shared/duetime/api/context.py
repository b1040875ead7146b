"""What the API needs of the world, and what it keeps for the life of the process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import lru_cache
from typing import TYPE_CHECKING

from duetime.api.http.cursors import Cursors, ListCursors
from duetime.api.http.request import Request
from duetime.api.http.request_models import PagedBody
from duetime.app.backfill import Backfills
from duetime.app.local_timers import LocalTimers
from duetime.app.namespaces import NamespaceAccess, kept, readable, visible
from duetime.app.pages import PageOfWork
from duetime.app.schedule_lists import ScheduleLists
from duetime.app.schedules import Schedules
from duetime.app.timers import Timers
from duetime.delivery.egress import PUBLIC_ONLY, EgressPolicy
from duetime.delivery.encryption import SecretBox
from duetime.delivery.firing_urls import FIRING_KEY
from duetime.domain.clock import Clock
from duetime.domain.errors import NamespaceNotFound, StoreError
from duetime.domain.events import Event
from duetime.domain.namespaces import DEFAULT_NUM_SHARDS, NAMESPACE_KEPT, NAMESPACE_SECONDS, Namespace, NamespaceState
from duetime.domain.principals import Principal
from duetime.domain.redaction import DEFAULT_RULES, RedactionRules
from duetime.domain.timers import MAX_CALLBACK_TIMEOUT_SECONDS, Timer
from duetime.domain.times import MIN_INSTANT
from duetime.stores.core.store import Store
from duetime.stores.shared_keys import shared_key

if TYPE_CHECKING:
    from duetime.app.service_calls import CallServices

_MAX_CACHED_NAMESPACES = 10_000


@dataclass(frozen=True, slots=True)
class ServedRequest:
    """``route`` is the rule that matched; None when none did."""

    method: str
    route: str | None
    status: int
    duration_seconds: float


def _ignore(timers: Sequence[Timer]) -> None: ...


def _publish_nothing(events: Sequence[Event]) -> None: ...


def _unmeasured() -> float | None:
    return None


def _keep_nothing() -> None: ...


def _count_nothing(served: ServedRequest) -> None: ...


def _no_context(request_id: str) -> AbstractContextManager[None]:  # noqa: ARG001 (the signature is the port)
    return nullcontext()


def _none() -> int:
    return 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiContext:
    """``on_stored`` is told of timers that were just stored or changed: a hint for a poller in this process.
    ``on_served`` is told of every request, after it: for metrics. ``publish`` is given events of changes that the API
    makes by itself (``engine.response.failure_events.FailureEvents``).

    ``clock`` is the store's time. ``keep_time``, called before each request, sees to it that it stays so;
    ``clock_offset_seconds`` tells how far this machine's clock is ahead of it (None: not known).
    ``shards_given_back``: how many the poller of this process has given back since it cannot read them.

    ``log_context`` makes every event that is logged inside carry the request id. All of them are called from
    several threads at once. ``default_num_shards`` is for namespaces that are created without a number.
    ``egress`` says which callback URLs are accepted, ``max_timeout_seconds`` for how long a callback may take.
    ``secret_box`` encrypts the signing secrets that are created; without one none can be. ``authenticate`` says who
    makes a request to a route that is not public, or raises ``Unauthenticated``; None: open mode, nobody is asked.
    ``calls`` is there where service calls are served. ``redaction`` says what readers are not shown. A cancelled
    timer stays readable for ``cancelled_retention``.
    """

    store: Store
    clock: Clock
    new_id: Callable[[], str]
    keep_time: Callable[[], None] = _keep_nothing
    clock_offset_seconds: Callable[[], float | None] = _unmeasured
    shards_given_back: Callable[[], int] = _none
    on_stored: Callable[[Sequence[Timer]], None] = _ignore
    on_served: Callable[[ServedRequest], None] = _count_nothing
    publish: Callable[[Sequence[Event]], None] = _publish_nothing
    log_context: Callable[[str], AbstractContextManager[None]] = _no_context
    default_num_shards: int = DEFAULT_NUM_SHARDS
    egress: EgressPolicy = PUBLIC_ONLY
    max_timeout_seconds: int = MAX_CALLBACK_TIMEOUT_SECONDS
    secret_box: SecretBox | None = None
    authenticate: Callable[[Request], Principal] | None = None
    calls: CallServices | None = None
    redaction: RedactionRules = DEFAULT_RULES
    cancelled_retention: timedelta = timedelta(days=7)


class NamespaceCache:
    """Namespaces by name, as they were ``NAMESPACE_SECONDS`` ago at most, or ``NAMESPACE_KEPT`` while the store does
    not answer. What is absent or being deleted is asked for every time: the name may soon be another tenant's."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._found: dict[str, tuple[Namespace, float, datetime]] = {}
        """With the monotonic time up to which they are taken for current, and when they were read."""

    def get(self, name: str, principal: Principal | None) -> Namespace:
        """Return a namespace. Raises ``NamespaceNotFound``, also when it is another tenant's, and
        ``NamespaceUnreadable`` where not even its shards can be read.
        """
        known, stale_at, read_at = self._found.get(name, (None, float("-inf"), MIN_INSTANT))
        now = self._clock.now()
        is_old = now - read_at > NAMESPACE_KEPT  # by the time that goes on while a process is frozen, too
        if known is None or is_old or self._clock.monotonic() >= stale_at:
            try:
                known = NamespaceAccess(self._store, None, now).stored(name)
            except NamespaceNotFound:
                self._found.pop(name, None)
                raise
            except StoreError:
                if known is None or is_old:
                    raise
                self._keep(known, read_at)
            else:
                self._keep(known, now)
        return visible(known if known.num_shards else readable(known), principal)

    def open(self, name: str, principal: Principal | None) -> Namespace:
        """Return the same, for new timers. Raises ``NamespaceDeleting`` too."""
        return kept(self.get(name, principal))

    def forget(self, name: str) -> None:
        """Forget what is known of a namespace: it is no longer true."""
        self._found.pop(name, None)

    def note(self, namespace: Namespace) -> None:
        """Keep ``namespace``, which was just read or stored."""
        self._keep(namespace, self._clock.now())

    def _keep(self, namespace: Namespace, read_at: datetime) -> None:
        if namespace.state is NamespaceState.DELETING:
            self.forget(namespace.name)
            return
        if len(self._found) >= _MAX_CACHED_NAMESPACES:
            self._found.clear()
        self._found[namespace.name] = namespace, self._clock.monotonic() + NAMESPACE_SECONDS, read_at


@dataclass(frozen=True, slots=True)
class Services:
    """The context and the caches that one handler shares over its requests."""

    context: ApiContext
    namespaces: NamespaceCache
    cursors: Cursors
    timers: Timers
    schedules: Schedules
    firing_key: Callable[[], bytes]
    """Makes the signatures in URLs by which receivers answer."""
    first_at: datetime | None = None
    """When the request was first made, if it can be repeated by its idempotency key."""

    @property
    def local_timers(self) -> LocalTimers:
        return LocalTimers(self.context.store, self.context.on_stored, self.context.publish)

    @property
    def schedule_lists(self) -> ScheduleLists:
        return ScheduleLists(self.schedules)

    @property
    def backfills(self) -> Backfills:
        return Backfills(self.schedules)

    @classmethod
    def of(cls, context: ApiContext) -> Services:
        store, clock = context.store, context.clock
        timers = Timers(store, clock, context.on_stored, context.cancelled_retention)
        schedules = Schedules(store, context.on_stored, context.publish)
        firing_key = lru_cache(maxsize=1)(lambda: shared_key(store.catalogue, FIRING_KEY))
        cursors = Cursors(store.catalogue)
        return cls(context, NamespaceCache(store, clock), cursors, timers, schedules, firing_key)

    def access(self, request: Request, *, is_internal: bool = False) -> NamespaceAccess:
        return NamespaceAccess(self.context.store, request.principal, self.context.clock.now(), is_internal)

    def work(self, body: PagedBody, cursors: ListCursors) -> PageOfWork:
        """Return which page ``body`` asks for. Raises ``InvalidCursor``."""
        return PageOfWork(
            cursors.decode(body.cursor), body.limit, self.context.clock.now(), dry_run=body.dry_run or False
        )

    def repeatable(self, new_id: Callable[[], str], first_at: datetime) -> Services:
        """Return the same for one request, whose ids ``new_id`` makes, and which was first made at ``first_at``."""
        return replace(self, context=replace(self.context, new_id=new_id), first_at=first_at)

    @property
    def calls(self) -> CallServices:
        """Return the use cases of service calls, where they are served."""
        if self.context.calls is None:
            raise RuntimeError("this handler was built without service calls")
        return self.context.calls
