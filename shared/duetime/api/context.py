"""What the API needs of the world, and what it keeps for the life of the process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from duetime.api.cursors import CursorCodec
from duetime.api.http import Request
from duetime.api.namespace_changes import readable, stored_namespace, visible
from duetime.delivery.egress import PUBLIC_ONLY, EgressPolicy
from duetime.delivery.sealing import SecretBox
from duetime.domain.clock import Clock
from duetime.domain.errors import StoreError
from duetime.domain.namespaces import DEFAULT_NUM_SHARDS, Namespace
from duetime.domain.principals import Principal
from duetime.domain.redaction import DEFAULT_RULES, RedactionRules
from duetime.domain.retry import DEFAULT_RETRY_POLICY, RetryPolicy
from duetime.domain.timers import Timer
from duetime.stores.port import Store

if TYPE_CHECKING:
    from duetime.api.call_services import CallServices

_MAX_CACHED_NAMESPACES = 10_000
_POLICY_SECONDS = 10.0
"""As ``engine.directory`` has it for pollers."""


@dataclass(frozen=True, slots=True)
class ServedRequest:
    """``route`` is the rule that matched; None when none did."""

    method: str
    route: str | None
    status: int
    duration_seconds: float


def _ignore(timers: Sequence[Timer]) -> None: ...


def _unmeasured() -> float | None:
    return None


def _keep_nothing() -> None: ...


def _count_nothing(served: ServedRequest) -> None: ...


def _no_context(request_id: str) -> AbstractContextManager[None]:  # noqa: ARG001 (the signature is the port)
    return nullcontext()


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiContext:
    """``on_stored`` is told of timers that were just stored or changed: a hint for a poller in this process.
    ``on_served`` is told of every request, after it: for metrics.

    ``clock`` is the store's time. ``keep_time``, called before each request, sees to it that it stays so;
    ``clock_offset_seconds`` tells how far this machine's clock is ahead of it (None: not known).

    ``log_context`` makes every event that is logged inside carry the request id. All of them are called from
    several threads at once. ``default_num_shards`` is for namespaces that are created without a number.
    ``egress`` says which callback URLs are accepted. ``secret_box`` seals the signing secrets that are created;
    without one none can be. ``authenticate`` says who makes a request to a route that is not public, or raises
    ``Unauthenticated``; None: open mode, nobody is asked. ``calls`` is there where service calls are served.
    ``redaction`` says what readers are not shown.
    """

    store: Store
    clock: Clock
    new_id: Callable[[], str]
    keep_time: Callable[[], None] = _keep_nothing
    clock_offset_seconds: Callable[[], float | None] = _unmeasured
    on_stored: Callable[[Sequence[Timer]], None] = _ignore
    on_served: Callable[[ServedRequest], None] = _count_nothing
    log_context: Callable[[str], AbstractContextManager[None]] = _no_context
    default_num_shards: int = DEFAULT_NUM_SHARDS
    egress: EgressPolicy = PUBLIC_ONLY
    secret_box: SecretBox | None = None
    authenticate: Callable[[Request], Principal] | None = None
    calls: CallServices | None = None
    redaction: RedactionRules = DEFAULT_RULES


class NamespaceCache:
    """What never changes of namespaces, by name, and their retry policies as they were a moment ago.

    What was found is kept; absence is asked for every time.
    """

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._found: dict[str, Namespace] = {}
        self._policies: dict[str, tuple[RetryPolicy, float]] = {}
        """With the monotonic time up to which they are taken for current."""

    def get(self, name: str, principal: Principal | None) -> Namespace:
        """The namespace as it was created. Raises ``NamespaceNotFound``, also when it is another tenant's.

        Timers need its shards alone. ``NamespaceUnreadable`` is raised where those cannot be read.
        """
        namespace = self._found.get(name)
        if namespace is None:
            stored = stored_namespace(self._store, name, principal=principal)
            namespace = (stored if stored.num_shards else readable(stored)).as_created()
            if len(self._found) >= _MAX_CACHED_NAMESPACES:
                self._found.clear()
                self._policies.clear()
            self._found[name] = namespace
            self.note_settings(stored)
        return visible(namespace, principal)

    def note_settings(self, namespace: Namespace) -> None:
        """``namespace`` is as it was just read or stored."""
        self._policies[namespace.name] = namespace.settings.retry_policy, self._clock.monotonic() + _POLICY_SECONDS

    def retry_policy(self, space: Namespace) -> RetryPolicy:
        """The policy of its timers that have none of their own, not older than pollers know it.

        While the store does not answer, what was known stays.
        """
        policy, stale_at = self._policies.get(space.name, (DEFAULT_RETRY_POLICY, float("-inf")))
        now = self._clock.monotonic()
        if now >= stale_at:
            with suppress(StoreError):
                stored = self._store.get_namespace(space.name)
                policy = policy if stored is None else stored.settings.retry_policy
            self._policies[space.name] = policy, now + _POLICY_SECONDS
        return policy


@dataclass(frozen=True, slots=True)
class Services:
    """The context and the caches that one handler shares over its requests."""

    context: ApiContext
    namespaces: NamespaceCache
    cursors: CursorCodec

    @classmethod
    def of(cls, context: ApiContext) -> Services:
        return cls(context, NamespaceCache(context.store, context.clock), CursorCodec(context.store))
