"""The use cases of service calls: submit, get, update, fire, cancel, delete, rerun.

``wanted`` is a condition on the revision, None when there is none. Each reads the call, decides by ``call_steps`` and
writes onto the revision that was read. When somebody else changed it meanwhile, it is done to what that left.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, NamedTuple

from duetime.app.in_parts import in_parts
from duetime.app.revisions import Revisions
from duetime.calls.submission import CallNamespaces, Submitted, Submitter, apply_each
from duetime.delivery.egress import EgressPolicy, RefusedUrl
from duetime.domain.call_steps import (
    CallRules,
    DeletionReason,
    Transition,
    amended,
    cancelled,
    deleted,
)
from duetime.domain.clock import Clock
from duetime.domain.errors import (
    CallNotFinished,
    CallNotFound,
    CallUnreadable,
    DuetimeError,
    InvalidInput,
    RevisionMismatch,
    StoreNotReady,
    StoreUnavailable,
    or_raise,
)
from duetime.domain.ids import is_uuid
from duetime.domain.service_calls import CallChange, CallStatus, ServiceCall, Submission, check_waits, timer_of
from duetime.domain.targets import is_arn
from duetime.domain.timers import Timer
from duetime.domain.times import round_up
from duetime.stores.core.calls import CallStore
from duetime.stores.core.store import Store
from duetime.stores.port.calls import ApplyStatus, CallRef, DeleteStatus

NewId = Callable[[], str]
StepOf = Callable[[ServiceCall], Transition | None]
_TRIES: Final = 10


class AskedCall(NamedTuple):
    """One of many calls, and the revisions that it may have."""

    ref: CallRef
    wanted: Revisions | None


@dataclass(frozen=True, slots=True)
class CallServices:
    """``rules`` must be those of whoever executes the calls: a change of stars decides when a call expires.
    ``on_stored`` is told of the timers of calls that were just stored or changed.
    """

    store: CallStore
    submitter: Submitter
    rules: CallRules
    on_stored: Callable[[Sequence[Timer]], None]
    clock: Clock

    @classmethod
    def of(
        cls,
        store: Store,
        *,
        rules: CallRules,
        num_shards: int,
        new_id: NewId,
        on_stored: Callable[[Sequence[Timer]], None],
        clock: Clock,
    ) -> CallServices:
        """Make the services of a store. ``num_shards``: of the timers of a tenant's calls, when its first one is
        submitted."""
        namespaces = CallNamespaces(store.catalogue, num_shards=num_shards)
        submitter = Submitter(store.calls, namespaces, new_id=new_id, on_stored=on_stored)
        return cls(store.calls, submitter, rules, on_stored, clock)

    def submit(self, tenant_id: str, submission: Submission, *, now: datetime) -> Submitted:
        """Submit a call: see ``Submitter.submit``."""
        return self.submitter.submit(tenant_id, submission, now=now)

    def get(self, ref: CallRef, *, now: datetime) -> ServiceCall:
        """Return a call. Raises ``CallNotFound``, also for what cannot be the id of a call."""
        return or_raise(self._get_each([ref], now)[0])

    def update(
        self,
        ref: CallRef,
        change_of: Callable[[ServiceCall], CallChange],
        *,
        new_id: NewId,
        now: datetime,
        wanted: Revisions | None,
    ) -> ServiceCall:
        """Change a call by a function of what is stored. A change that changes nothing is not made."""

        def step_of(call: ServiceCall) -> Transition | None:
            change = change_of(call)
            return amended(call, change, new_id=new_id, now=now, rules=self.rules) if change.given() else None

        return self._stepped(ref, step_of, now, wanted)

    def fire(self, ref: CallRef, *, new_id: NewId, now: datetime, wanted: Revisions | None) -> ServiceCall:
        """Make a call that waits, for its due time or its next attempt, due now. One that is due already is
        left as it is."""

        def change_of(call: ServiceCall) -> CallChange:
            check_waits(call, "it cannot be fired")
            assert call.wake_at is not None
            return CallChange(due_at=round_up(now)) if call.wake_at > now else CallChange()

        return self.update(ref, change_of, new_id=new_id, now=now, wanted=wanted)

    def cancel(self, ref: CallRef, *, new_id: NewId, now: datetime, wanted: Revisions | None) -> ServiceCall:
        """End a call that waits as Cancelled, and keep it. One that is Cancelled already is left as it is."""

        return self._stepped(ref, self._cancellation(new_id, now), now, wanted)

    def delete(self, ref: CallRef, *, new_id: NewId, now: datetime, wanted: Revisions | None) -> None:
        """Remove a finished call with all that it has. Raises ``CallNotFinished`` and ``CallNotFound``."""
        for _ in range(_TRIES):
            revision = event = None
            try:
                call = self.get(ref, now=now)
            except CallUnreadable:  # it can only be removed
                if wanted is not None:
                    raise
            else:
                _check_revision(call, wanted)
                _check_finished(call, "cancel it first to remove it")
                revision = call.revision
                event = deleted(call, DeletionReason.REQUEST, new_id=new_id, now=now)
            status = self.store.delete(ref.tenant_id, ref.call_id, now=now, if_revision=revision, event=event)
            if status is DeleteStatus.DELETED:
                return
            if status is DeleteStatus.NOT_FOUND:
                raise CallNotFound(ref.tenant_id, ref.call_id)
        raise StoreUnavailable("the service call is being changed all the time")

    def rerun(
        self,
        ref: CallRef,
        submission_of: Callable[[ServiceCall], Submission],
        *,
        egress: EgressPolicy,
        now: datetime,
        wanted: Revisions | None,
    ) -> Submitted:
        """Submit a new call that asks for the same as a finished one."""
        call = self.get(ref, now=now)
        _check_revision(call, wanted)
        _check_finished(call, "it can be rerun when it has finished")
        url = call.request.url
        try:
            egress.check(url)
        except RefusedUrl as error:  # the rules may have changed since it was submitted
            raise InvalidInput("", f"the {'target' if is_arn(url) else 'URL'} of the request {error}") from None
        return self.submit(ref.tenant_id, submission_of(call), now=now)

    def submit_many(
        self, tenant_id: str, submissions: Sequence[Submission], *, now: datetime
    ) -> list[Submitted | DuetimeError]:
        """Submit each alone; no two have the same idempotency key."""

        def submit(some: Sequence[Submission]) -> list[Submitted | DuetimeError]:
            return self.submitter.submit_many(tenant_id, some, now=now)

        return in_parts(submissions, submit, clock=self.clock)

    def cancel_many(
        self, asked: Sequence[AskedCall], *, new_id: NewId, now: datetime
    ) -> list[ServiceCall | DuetimeError]:
        """Cancel each alone; no two are the same call."""
        step_of = self._cancellation(new_id, now)
        return in_parts(asked, lambda some: self._step_each(some, step_of, now), clock=self.clock)

    def delete_many(self, asked: Sequence[AskedCall], *, new_id: NewId, now: datetime) -> list[DuetimeError | None]:
        """Remove each alone; no two are the same call."""

        def delete(some: Sequence[AskedCall]) -> list[DuetimeError | None]:
            (one,) = some
            try:
                self.delete(one.ref, new_id=new_id, now=now, wanted=one.wanted)
            except (StoreUnavailable, StoreNotReady):
                raise
            except DuetimeError as error:
                return [error]
            return [None]

        return in_parts(asked, delete, clock=self.clock, at_once=1)

    def _cancellation(self, new_id: NewId, now: datetime) -> StepOf:
        def step_of(call: ServiceCall) -> Transition | None:
            if call.status is CallStatus.CANCELLED:
                return None
            check_waits(call, "it cannot be cancelled")
            return cancelled(call, new_id=new_id, now=now, rules=self.rules)

        return step_of

    def _stepped(self, ref: CallRef, step_of: StepOf, now: datetime, wanted: Revisions | None) -> ServiceCall:
        """Take a step of a call and return the call after it; as it is when there is none to take."""
        return or_raise(self._step_each([AskedCall(ref, wanted)], step_of, now)[0])

    def _step_each(
        self, asked: Sequence[AskedCall], step_of: StepOf, now: datetime
    ) -> list[ServiceCall | DuetimeError]:
        """Take a step of each; return each call, or what keeps the step from being taken."""
        done: dict[int, ServiceCall | DuetimeError] = {}
        for _ in range(_TRIES):
            waiting = [at for at in range(len(asked)) if at not in done]
            if not waiting:
                break
            steps: dict[int, Transition] = {}
            for at, found in zip(waiting, self._get_each([asked[at].ref for at in waiting], now), strict=True):
                step = _step(found, asked[at].wanted, step_of)
                if isinstance(step, Transition):
                    steps[at] = step
                else:
                    done[at] = step
            done |= self._apply_each(steps, now)
        unavailable = StoreUnavailable("the service call is being changed all the time")
        return [done.get(at, unavailable) for at in range(len(asked))]

    def _get_each(self, refs: Sequence[CallRef], now: datetime) -> list[ServiceCall | DuetimeError]:
        """Return each call, or why it cannot be read."""
        known = [ref for ref in refs if is_uuid(ref.call_id)]
        try:
            found = dict(zip(known, self.store.get(known, now=now) if known else [], strict=True))
        except CallUnreadable as error:
            return [error] if len(refs) == 1 else [self._get_each([ref], now)[0] for ref in refs]
        return [found.get(ref) or CallNotFound(ref.tenant_id, ref.call_id) for ref in refs]

    def _apply_each(self, steps: dict[int, Transition], now: datetime) -> dict[int, ServiceCall | DuetimeError]:
        """Store steps; return what became of those that were taken or refused. Those that others were faster than
        are left out."""
        statuses = apply_each(self.store, list(steps.values()), now=now)
        done: dict[int, ServiceCall | DuetimeError] = {}
        for (at, step), status in zip(steps.items(), statuses, strict=True):
            if isinstance(status, DuetimeError):
                done[at] = status
            elif status is ApplyStatus.APPLIED:
                done[at] = step.after
        waiting = [call for call in done.values() if isinstance(call, ServiceCall) and not call.status.is_finished]
        if waiting:
            self.on_stored([timer_of(call) for call in waiting])
        return done


def _step(
    found: ServiceCall | DuetimeError, wanted: Revisions | None, step_of: StepOf
) -> Transition | ServiceCall | DuetimeError:
    """Return the step to take; the call when there is none, or what keeps it from being taken."""
    try:
        call = or_raise(found)
        _check_revision(call, wanted)
        return step_of(call) or call
    except DuetimeError as error:
        return error


def _check_revision(call: ServiceCall, wanted: Revisions | None) -> None:
    if wanted is not None and not wanted.match_strongly(call.revision):
        raise RevisionMismatch("the service call has another revision than If-Match names")


def _check_finished(call: ServiceCall, otherwise: str) -> None:
    if not call.status.is_finished:
        raise CallNotFinished(f"service call {call.call_id!r} is {call.status}: {otherwise}")
