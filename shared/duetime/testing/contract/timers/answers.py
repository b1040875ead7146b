"""answer: what a receiver says later of work that it took is stored, once, with the attempt that it is about."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from duetime.domain.answers import LONGEST_WAIT, Answer, AnswerKind, Refusal
from duetime.domain.attempts import AttemptOutcome, AttemptRecord, append_attempt, read_attempts
from duetime.domain.namespaces import Namespace
from duetime.domain.outcomes import RecordStatus
from duetime.domain.timers import FailureReason, Timer, TimerChange, TimerState
from duetime.stores.core.store import Store
from duetime.stores.port.timers import AnswerResult
from duetime.testing.contract.builders import NOW, fired, make_timer, parked, retried, seconds, waiting
from duetime.testing.contract.fixtures import AtOnce
from duetime.testing.contract.steps import claim, create, due, record, stored
from duetime.testing.contract.subject import Subject

UNTIL = NOW + seconds(600)
LATER = NOW + seconds(60)


def make_waiting(store: Store, namespace: Namespace) -> Timer:
    """Return a timer whose first attempt, at NOW, was answered with a 202, and which waits until UNTIL."""
    (timer,) = create(store, make_timer(namespace, payload_json='{"n": 1.0}'))
    attempt = AttemptRecord(
        number=1,
        firing_id=timer.firing_id,
        started_at=NOW,
        duration_ms=5,
        outcome=AttemptOutcome.WAITING,
        status=202,
        headers={},
    )
    outcome = waiting(timer, until=UNTIL, attempt_log=append_attempt(None, attempt))
    assert record(store, [outcome], claim(store)) == [RecordStatus.APPLIED]
    return stored(store, namespace)


def answer(
    store: Store, namespace: Namespace, timer: Timer, kind: AnswerKind = AnswerKind.ACK, **more: object
) -> AnswerResult:
    given = Answer(kind=kind, firing_id=timer.firing_id, **({"attempt": 1} | more))  # type: ignore[arg-type]
    return store.timers.answer(namespace, timer.timer_id, given, now=LATER)


@pytest.mark.parametrize(
    ("kind", "is_final", "outcome", "reason"),
    [
        (AnswerKind.ACK, False, AttemptOutcome.FIRED, None),
        (AnswerKind.NACK, False, AttemptOutcome.RETRY, FailureReason.NACK),
        (AnswerKind.NACK, True, AttemptOutcome.FAILED, FailureReason.NACK),
    ],
    ids=["ack", "nack", "final nack"],
)
def test_an_answer_makes_the_timer_due_with_what_came_of_the_attempt(
    store: Store,
    single: Namespace,
    kind: AnswerKind,
    is_final: bool,
    outcome: AttemptOutcome,
    reason: FailureReason | None,
) -> None:
    timer = make_waiting(store, single)
    assert due(store, single, until=UNTIL - seconds(0.001)) == []

    result = answer(store, single, timer, kind, is_final=is_final)

    assert isinstance(result, Timer)
    assert due(store, single, until=LATER) == [result] == [stored(store, single)]
    assert replace(timer, revision=timer.revision + 1, next_attempt_at=LATER, updated_at=LATER) == replace(
        result, attempt_log=timer.attempt_log
    )
    (attempt,) = read_attempts(result.attempt_log)
    assert (attempt.outcome, attempt.reason, attempt.duration_ms, attempt.status) == (outcome, reason, 60_000, 202)


def test_the_first_answer_counts_and_its_repetition_changes_nothing(store: Store, single: Namespace) -> None:
    timer = make_waiting(store, single)
    first = answer(store, single, timer)

    assert answer(store, single, timer) == first == stored(store, single)
    assert answer(store, single, timer, attempt=None) == first
    assert answer(store, single, timer, AnswerKind.NACK) is Refusal.OVER
    assert answer(store, single, timer, AnswerKind.HEARTBEAT, within_seconds=5.0) is Refusal.OVER
    assert stored(store, single) == first


def test_a_heartbeat_moves_the_deadline_up_to_a_day_from_the_start(store: Store, single: Namespace) -> None:
    timer = make_waiting(store, single)

    longer = answer(store, single, timer, AnswerKind.HEARTBEAT, within_seconds=3600.0)
    assert isinstance(longer, Timer)
    assert (longer.next_attempt_at, longer.attempt_log) == (LATER + seconds(3600), timer.attempt_log)
    longest = answer(store, single, timer, AnswerKind.HEARTBEAT, within_seconds=LONGEST_WAIT.total_seconds())
    assert isinstance(longest, Timer)
    assert longest.next_attempt_at == NOW + timedelta(days=1)
    sooner = answer(store, single, timer, AnswerKind.HEARTBEAT, within_seconds=1.0)
    assert isinstance(sooner, Timer)
    assert due(store, single, until=LATER + seconds(1)) == [sooner] == [stored(store, single)]


def test_nothing_is_answered_that_does_not_wait(store: Store, single: Namespace) -> None:
    (timer,) = create(store, make_timer(single))

    assert answer(store, single, timer) is Refusal.EARLY
    assert answer(store, single, replace(timer, firing_id="another")) is Refusal.OVER
    assert answer(store, single, replace(timer, timer_id="none")) is None
    lease = claim(store)
    record(store, [replace(parked(timer, until=LATER), attempts=0)], lease)
    assert answer(store, single, timer) is Refusal.EARLY
    record(store, [retried(stored(store, single), next_attempt_at=LATER)], lease)
    assert answer(store, single, timer) is Refusal.OVER
    assert answer(store, single, timer, attempt=2) is Refusal.EARLY
    record(store, [replace(fired(stored(store, single)), attempts=2)], lease)
    assert answer(store, single, timer, attempt=2) is Refusal.OVER


def test_what_a_poller_decided_before_an_answer_does_not_undo_it(store: Store, single: Namespace) -> None:
    """It found the timer due, silent, as the answer came at that very millisecond."""
    timer = make_waiting(store, single)
    silent = answer(store, single, timer, AnswerKind.HEARTBEAT, within_seconds=0.001)
    assert isinstance(silent, Timer)
    decided = retried(silent, next_attempt_at=UNTIL)
    given = Answer(kind=AnswerKind.ACK, firing_id=timer.firing_id, attempt=1)
    acked = store.timers.answer(single, timer.timer_id, given, now=LATER)

    assert record(store, [decided], claim(store, now=LATER + seconds(60))) == [RecordStatus.SUPERSEDED]

    assert stored(store, single) == acked


def test_labels_may_change_while_it_waits(store: Store, single: Namespace) -> None:
    timer = make_waiting(store, single)

    changed = store.timers.update(single, "t1", TimerChange(tags=("x",)), firing_id="new", now=LATER).timer
    assert changed is not None
    assert changed.state is TimerState.WAITING
    result = answer(store, single, timer)

    assert isinstance(result, Timer)
    assert (result.content.tags, result.revision) == (("x",), timer.revision + 2)


def test_of_many_answers_at_once_one_counts(subject: Subject, single: Namespace, at_once: AtOnce) -> None:
    store = subject.store
    timer = make_waiting(store, single)
    kinds = [AnswerKind.ACK, AnswerKind.NACK] * 3

    results = at_once(lambda index: answer(store, single, timer, kinds[index]), threads=len(kinds))

    final = stored(store, single)
    assert final.revision == timer.revision + 1
    is_acked = read_attempts(final.attempt_log)[0].outcome is AttemptOutcome.FIRED
    for kind, result in zip(kinds, results, strict=True):
        assert result == (final if (kind is AnswerKind.ACK) == is_acked else Refusal.OVER)
