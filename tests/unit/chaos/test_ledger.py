"""The ledger of ``make chaos`` finds what it looks for."""

from __future__ import annotations

from datetime import timedelta

from tests.chaos.ledger import Allowed, Expected, judge
from tests.support.callbacks import Arrival
from tests.support.clock import NOW


def arrival(timer_id: str, *, webhook_id: str = "w1", late_seconds: float = 0.01) -> Arrival:
    body = {"timerId": timer_id, "executeAt": NOW.isoformat()}
    return Arrival(body, {"webhook-id": webhook_id}, NOW + timedelta(seconds=late_seconds))


def breaches(expected: Expected, *arrivals: Arrival, allowed: Allowed = Allowed.NOTHING) -> list[str]:
    return judge({"a": expected}, arrivals).breaches(allowed)


def test_one_callback_in_time_keeps_every_promise() -> None:
    verdict = judge({"a": Expected(NOW)}, [arrival("a")])
    assert verdict.breaches(Allowed.NOTHING) == []
    assert (verdict.accepted, verdict.late, verdict.lag_p50, verdict.lag_max) == (1, 0, 0.01, 0.01)


def test_a_timer_without_a_callback_is_lost() -> None:
    assert breaches(Expected(NOW)) == ["lost"]
    assert breaches(Expected(NOW, at_least=0)) == []


def test_a_second_callback_of_a_firing_needs_a_fault() -> None:
    assert breaches(Expected(NOW), arrival("a"), arrival("a")) == ["repeated"]
    assert breaches(Expected(NOW), arrival("a"), arrival("a"), allowed=Allowed.REPEATS) == []


def test_a_second_firing_must_have_been_asked_for() -> None:
    twice = (arrival("a"), arrival("a", webhook_id="w2"))
    assert breaches(Expected(NOW), *twice, allowed=Allowed.REPEATS) == ["doubled"]
    assert breaches(Expected(NOW, at_most=2), *twice) == []


def test_a_deleted_timer_must_not_arrive() -> None:
    assert breaches(Expected(NOW, at_least=0, at_most=0), arrival("a")) == ["doubled"]


def test_before_its_time_only_by_hand() -> None:
    assert breaches(Expected(NOW), arrival("a", late_seconds=-0.2)) == ["early"]
    assert breaches(Expected(NOW, is_by_hand=True), arrival("a", late_seconds=-0.2)) == []


def test_late_callbacks_are_counted_and_break_nothing() -> None:
    verdict = judge({"a": Expected(NOW)}, [arrival("a", late_seconds=1.5)])
    assert (verdict.late, verdict.breaches(Allowed.NOTHING)) == (1, [])


def test_what_nobody_was_promised_does_not_count() -> None:
    verdict = judge({}, [arrival("unknown")])
    assert verdict.breaches(Allowed.NOTHING) == ["nothing was accepted"]
