"""Submitting a service call: its shard, its id, and what a repeated submission comes to."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime

from duetime.domain.call_steps import Transition, submitted
from duetime.domain.errors import (
    CallConflict,
    CallUnreadable,
    DuetimeError,
    NamespaceConflict,
    StoreRefused,
    StoreUnavailable,
    or_raise,
)
from duetime.domain.ids import UUID7_RANDOM_BITS, uuid7_at
from duetime.domain.namespaces import Namespace
from duetime.domain.service_calls import ServiceCall, Submission, calls_namespace, timer_of
from duetime.domain.timers import Timer
from duetime.stores.core.calls import CallStore
from duetime.stores.core.catalogue import Catalogue
from duetime.stores.port.calls import ApplyStatus, CallRef
from duetime.stores.refusals import apart

_TRIES = 5
_MAX_CACHED_NAMESPACES = 10_000


@dataclass(frozen=True, slots=True)
class Submitted:
    """``is_new`` is false when the call was there already, under the same idempotency key with the same content."""

    call: ServiceCall
    is_new: bool


class CallNamespaces:
    """The internal namespaces of the timers of service calls, each made when its tenant submits the first call."""

    def __init__(self, catalogue: Catalogue, *, num_shards: int) -> None:
        """``num_shards`` is for those that are made; one that exists keeps its own."""
        self._catalogue = catalogue
        self._num_shards = num_shards
        self._known: dict[str, Namespace] = {}

    def ensure(self, tenant_id: str, *, now: datetime) -> Namespace:
        namespace = self._known.get(tenant_id)
        if namespace is None:
            namespace = self._found_or_made(tenant_id, now).as_created()
            if len(self._known) >= _MAX_CACHED_NAMESPACES:
                self._known.clear()
            self._known[tenant_id] = namespace
        return namespace

    def _found_or_made(self, tenant_id: str, now: datetime) -> Namespace:
        name = calls_namespace(tenant_id)
        found = self._catalogue.get_namespace(name)
        if found is not None:
            return found
        try:
            made, _ = self._catalogue.create_namespace(
                name, num_shards=self._num_shards, dedicated=False, now=now, tenant_id=tenant_id
            )
        except NamespaceConflict:  # a process with another setting came first: what it made counts
            found = self._catalogue.get_namespace(name)
            if found is None:
                raise
            return found
        return made


class Submitter:
    """Stores new service calls. Safe to use from many threads.

    ``on_stored`` is told of the timer of each new call: a hint for a poller in this process.
    """

    def __init__(
        self,
        calls: CallStore,
        namespaces: CallNamespaces,
        *,
        new_id: Callable[[], str],
        on_stored: Callable[[Sequence[Timer]], None],
        random_bits: Callable[[int], int] = secrets.randbits,
    ) -> None:
        self._calls = calls
        self._namespaces = namespaces
        self._new_id = new_id
        self._on_stored = on_stored
        self._random_bits = random_bits

    def submit(self, tenant_id: str, submission: Submission, *, now: datetime) -> Submitted:
        """Store a call and return it; of several at once with one idempotency key, all get the same one.

        Raises ``CallConflict`` when the key was used to submit something else, and ``StoreUnavailable``.
        """
        return or_raise(self.submit_many(tenant_id, [submission], now=now)[0])

    def submit_many(
        self, tenant_id: str, submissions: Sequence[Submission], *, now: datetime
    ) -> list[Submitted | DuetimeError]:
        """Submit each alone; no two have the same idempotency key."""
        done: dict[int, Submitted | DuetimeError] = {}
        namespace = self._namespaces.ensure(tenant_id, now=now)
        for _ in range(_TRIES):
            waiting = [at for at in range(len(submissions)) if at not in done]
            if not waiting:
                break
            new = [
                submitted(
                    tenant_id,
                    uuid7_at(now, self._random_bits(UUID7_RANDOM_BITS)),
                    submissions[at],
                    namespace=namespace,
                    new_id=self._new_id,
                    now=now,
                )
                for at in waiting
            ]
            statuses = apply_each(self._calls, new, now=now)
            for at, transition, status in zip(waiting, new, statuses, strict=True):
                if status is ApplyStatus.APPLIED:
                    done[at] = Submitted(transition.after, is_new=True)
                    continue
                # EXISTS, or refused: it may have been submitted before. None: that was removed meanwhile.
                found = self._found(transition.after, now) or (status if isinstance(status, StoreRefused) else None)
                if found is not None:
                    done[at] = found
        timers = [timer_of(each.call) for each in done.values() if isinstance(each, Submitted) and each.is_new]
        if timers:
            self._on_stored(timers)
        unavailable = StoreUnavailable("the idempotency key is being used and removed all the time")
        return [done.get(at, unavailable) for at in range(len(submissions))]

    def _found(self, new: ServiceCall, now: datetime) -> Submitted | DuetimeError | None:
        """Return what is stored where ``new`` was to be: itself, or the call that was submitted before with its
        key."""
        tenant_id, key = new.tenant_id, new.idempotency_key
        try:
            if key is None:
                (known,) = self._calls.get([CallRef(tenant_id, new.call_id)], now=now)
            else:
                known = self._calls.find_by_idempotency_key(tenant_id, key, now=now)
        except CallUnreadable as error:
            return error
        if known == new:  # of a batch of which something else was refused
            return Submitted(new, is_new=True)
        if known is None or key is None:  # without a key only the id is taken
            return None
        if known.digest != new.digest:
            return CallConflict("the idempotency key was used before, to submit something else")
        return Submitted(known, is_new=False)


def apply_each(
    calls: CallStore, transitions: Sequence[Transition], *, now: datetime
) -> list[ApplyStatus | StoreRefused]:
    """Apply each transition; return what became of it, also when the database refuses it for good."""

    def apply(some: Sequence[Transition]) -> list[ApplyStatus | StoreRefused]:
        return [*calls.apply(some, now=now)]

    return apart(apply, transitions, lambda error: StoreRefused(error.message))
