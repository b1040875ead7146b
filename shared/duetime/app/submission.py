"""Submitting a service call: its shard, its id, and what a repeated submission comes to."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime

from duetime.domain.call_steps import Submission, submitted
from duetime.domain.errors import CallConflict, NamespaceConflict, StoreUnavailable
from duetime.domain.ids import UUID7_RANDOM_BITS, uuid7_at
from duetime.domain.namespaces import Namespace
from duetime.domain.service_calls import ServiceCall, calls_namespace, timer_of
from duetime.domain.timers import Timer
from duetime.stores.port.calls import ApplyStatus, CallStore
from duetime.stores.port.catalogue import Catalogue

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
        """The stored call; of several at once with one idempotency key, all get the same one.

        Raises ``CallConflict`` when the key was used to submit something else, and ``StoreUnavailable``.
        """
        key = submission.idempotency_key
        for _ in range(_TRIES):
            if key is not None:
                known = self._calls.find_by_idempotency_key(tenant_id, key, now=now)
                if known is not None:
                    return Submitted(_agreed(known, submission), is_new=False)
            transition = submitted(
                tenant_id,
                uuid7_at(now, self._random_bits(UUID7_RANDOM_BITS)),
                submission,
                namespace=self._namespaces.ensure(tenant_id, now=now),
                new_id=self._new_id,
                now=now,
            )
            (status,) = self._calls.apply([transition], now=now)
            if status is ApplyStatus.APPLIED:
                self._on_stored([timer_of(transition.after)])
                return Submitted(transition.after, is_new=True)
            # EXISTS: another submission with this key was faster. It is found next, unless it was removed meanwhile.
        raise StoreUnavailable("the idempotency key is being used and removed all the time")


def _agreed(known: ServiceCall, submission: Submission) -> ServiceCall:
    if known.digest != submission.digest:
        raise CallConflict("the idempotency key was used before, to submit something else")
    return known
