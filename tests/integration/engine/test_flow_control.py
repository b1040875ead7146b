"""Fairness, limits, breakers, backlogs and expiry: the poller against the real SQLite store in virtual time."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from itertools import pairwise

import pytest

from duetime.domain.namespaces import Namespace, NamespaceSettings
from duetime.domain.timers import FailureReason, TimerState
from duetime.domain.times import parse_instant
from duetime.engine import namespace_cache
from duetime.engine.poller import Poller
from duetime.engine.settings import EngineSettings
from duetime.stores.core.store import Store
from duetime.stores.port.timers import TimerRef
from duetime.testing.contract.builders import make_namespace
from duetime.testing.virtual_time import VirtualClock
from tests.support.clock import NOW as START
from tests.support.engine import at, lag_seconds, make_poller, make_timer, put, run, stored
from tests.support.scripted_sender import Script, ScriptedSender

HANG = Script(status=None)
NAMESPACES = ("noisy", "quiet", "third")


def limit(store: Store, name: str, settings: NamespaceSettings) -> None:
    namespace = store.catalogue.get_namespace(name)
    assert namespace is not None
    changed = Namespace(
        name, namespace.num_shards, namespace.first_shard, namespace.dedicated, namespace.created_at, settings
    )
    assert store.catalogue.update_namespace(changed, if_revision=namespace.revision, now=START) is not None


def polled(
    store: Store,
    sender: ScriptedSender,
    clock: VirtualClock,
    script: float | Callable[[], Awaitable[None]],
    *,
    settings: EngineSettings | None = None,
) -> Poller:
    """A poller that has run for so long, or while a script ran."""
    poller = make_poller(store, sender, clock, settings=settings)
    run(clock, poller, script)
    return poller


def hanging(body: dict[str, object]) -> Script:
    return HANG if body["namespace"] == "noisy" else Script()


# -- fairness -------------------------------------------------------------------------------------------------------


def test_an_endpoint_that_hangs_does_not_delay_another_namespace(store: Store, clock: VirtualClock) -> None:
    """The proof of issue B: 30 s of silence, 5,000 due timers, and others stay within the second."""
    sender = ScriptedSender(hanging)
    put(store, [make_timer(f"n{n}", namespace="noisy", execute_at=at(1)) for n in range(5000)], START)
    quiet = [make_timer(f"q{n}", namespace="quiet", execute_at=at(1 + n / 4)) for n in range(160)]
    put(store, quiet, START)

    polled(store, sender, clock, 45.0)

    assert len(sender.of("quiet")) == len(quiet)
    assert max(lag_seconds(body) for body in sender.of("quiet")) < 1.0


def test_many_endpoints_that_hang_do_not_either(store: Store, clock: VirtualClock) -> None:
    sender = ScriptedSender(hanging)
    noisy = [
        make_timer(f"n{n}", namespace="noisy", execute_at=at(1), callback_url=f"http://host{n % 40}.test/")
        for n in range(4000)
    ]
    put(store, noisy, START)
    quiet = [make_timer(f"q{n}", namespace="quiet", execute_at=at(1 + n / 4)) for n in range(80)]
    put(store, quiet, START)

    polled(store, sender, clock, 25.0)

    assert len(sender.of("quiet")) == len(quiet)
    assert max(lag_seconds(body) for body in sender.of("quiet")) < 1.0


def test_an_endpoint_that_begins_to_hang_when_it_is_used_to_the_full(store: Store, clock: VirtualClock) -> None:
    def script(body: dict[str, object]) -> Script:
        return HANG if body["namespace"] == "noisy" and clock.elapsed_seconds > 2 else Script(delay_seconds=0.05)

    sender = ScriptedSender(script)
    noisy = [make_timer(f"n{n}", namespace="noisy", execute_at=at(n / 1000)) for n in range(4_000)]
    put(store, noisy, START)
    quiet = [make_timer(f"q{n}", namespace="quiet", execute_at=at(1 + n / 4)) for n in range(40)]
    put(store, quiet, START)

    polled(store, sender, clock, 14.0)

    assert len(sender.of("quiet")) == len(quiet)
    assert max(lag_seconds(body) for body in sender.of("quiet")) < 1.0


def test_a_namespace_with_a_hundred_times_as_many_does_not_starve_a_small_one(
    store: Store, clock: VirtualClock
) -> None:
    """Both overdue, as after an outage: the small one is later in every shard and must not wait for the large one."""
    sender = ScriptedSender(lambda _: Script(delay_seconds=0.2))
    put(store, [make_timer(f"n{n}", namespace="noisy", execute_at=at(-60)) for n in range(6_000)], START)
    put(store, [make_timer(f"q{n}", namespace="quiet", execute_at=at(-1)) for n in range(10)], START)

    polled(store, sender, clock, 3.0)

    assert len(sender.of("quiet")) == 10
    assert len(sender.of("noisy")) < 6_000


def test_two_namespaces_with_a_backlog_are_each_fired_at_their_own_pace(store: Store, clock: VirtualClock) -> None:
    """Their timers lie mixed in the shards, and one has room for more ten times as often as the other."""
    sender = ScriptedSender(lambda body: Script(delay_seconds=0.5 if body["namespace"] == "noisy" else 0.05))
    both = [make_timer(f"n{n}", namespace=("noisy", "third")[n % 2], execute_at=at(-60)) for n in range(6000)]
    put(store, both, START)

    polled(store, sender, clock, 4.0, settings=EngineSettings(drain_seconds=0.1))

    assert len(sender.of("third")) == 3000
    # Sixteen at first and one more for each answer, every half a second, up to three quarters of the host's 250.
    assert len(sender.of("noisy")) > 16 + 32 + 64 + 128 + 2 * 187


def test_timers_that_become_due_behind_a_backlog_are_on_time(store: Store, clock: VirtualClock) -> None:
    sender = ScriptedSender(lambda _: Script(delay_seconds=0.5))
    put(store, [make_timer(f"n{n}", namespace="noisy", execute_at=at(-60)) for n in range(6_000)], START)

    async def script() -> None:
        for number in range(20):
            await asyncio.sleep(0.37)
            put(store, [make_timer(f"q{number}", namespace="quiet", execute_at=clock.now())], clock.now())
        await asyncio.sleep(2)

    polled(store, sender, clock, script)

    assert len(sender.of("quiet")) == 20
    assert max(lag_seconds(body) for body in sender.of("quiet")) < 1.0
    assert 0 < len(sender.of("noisy")) < 6_000


def test_a_backlog_is_fired_oldest_first_and_once_each(store: Store, clock: VirtualClock) -> None:
    sender = ScriptedSender(lambda _: Script(delay_seconds=0.02))
    settings = EngineSettings(max_buffered=200, page_size=50, max_in_flight=20)
    noisy = [make_timer(f"n{n}", namespace="noisy", execute_at=at(-3000 + n)) for n in range(2000)]
    put(store, noisy, START)

    poller = polled(store, sender, clock, 30.0, settings=settings)

    assert sender.counts() == Counter(timer.timer_id for timer in noisy)
    order = [int(str(body["timerId"])[1:]) for body in sender.received]
    assert max(earlier - later for earlier, later in pairwise(order)) < 2 * settings.max_buffered
    assert poller.stats()["fired"] == 2000
    # Reading over and over what cannot be started yet would read each of them many times.
    assert poller.stats()["timers_read"] < 4 * 2000


# -- limits ---------------------------------------------------------------------------------------------------------


def test_a_namespace_s_rate_limit_spreads_its_attempts(store: Store, clock: VirtualClock) -> None:
    limit(store, "noisy", NamespaceSettings(rate_limit_per_second=5.0))
    sender = ScriptedSender()
    put(store, [make_timer(f"n{n}", namespace="noisy", execute_at=at(-1)) for n in range(100)], START)
    put(store, [make_timer(f"q{n}", namespace="quiet", execute_at=at(1)) for n in range(50)], START)

    polled(store, sender, clock, 10.0)

    assert 45 <= len(sender.of("noisy")) <= 56  # a burst of 5, then 5 a second for ten seconds
    fired = sorted(parse_instant(str(body["firedAt"])) for body in sender.of("noisy"))
    assert all((fired[n + 11] - fired[n]).total_seconds() > 1.0 for n in range(len(fired) - 11))
    assert len(sender.of("quiet")) == 50
    assert max(lag_seconds(body) for body in sender.of("quiet")) < 0.1


def test_a_rate_limited_attempt_starts_when_its_token_is_there(store: Store, clock: VirtualClock) -> None:
    limit(store, "noisy", NamespaceSettings(rate_limit_per_second=10.0))
    sender = ScriptedSender(lambda _: Script(delay_seconds=10.0))  # so that no answer makes the poller look
    put(store, [make_timer(f"n{n}", namespace="noisy", execute_at=at(1)) for n in range(40)], START)

    polled(store, sender, clock, 6.0, settings=EngineSettings(initial_window=100))

    fired = [parse_instant(str(body["firedAt"])) for body in sender.received]
    gaps = [(later - earlier).total_seconds() for earlier, later in pairwise(fired[10:])]
    assert len(gaps) == 29
    assert all(0.099 <= gap <= 0.101 for gap in gaps)  # not in bursts at the pace of the polls


def test_a_rate_limited_namespace_loses_nothing(store: Store, clock: VirtualClock) -> None:
    limit(store, "noisy", NamespaceSettings(rate_limit_per_second=20.0))
    sender = ScriptedSender()
    put(store, [make_timer(f"n{n}", namespace="noisy", execute_at=at(0)) for n in range(300)], START)

    polled(store, sender, clock, 25.0)

    assert sender.counts() == Counter(f"n{n}" for n in range(300))


def test_a_namespace_s_concurrency_is_kept(store: Store, clock: VirtualClock) -> None:
    limit(store, "noisy", NamespaceSettings(max_in_flight=3))
    sender = ScriptedSender(lambda _: Script(delay_seconds=1.0))
    put(store, [make_timer(f"n{n}", namespace="noisy", execute_at=at(0)) for n in range(30)], START)

    polled(store, sender, clock, 20.0)

    assert sender.most_in_flight == 3
    assert len(sender.received) == 30


@pytest.mark.parametrize(("max_in_flight", "each_may"), [(8, 4), (7, 3), (3, 1), (1, 1)])
def test_two_pollers_share_a_namespace_s_limits(
    store: Store, clock: VirtualClock, max_in_flight: int, each_may: int
) -> None:
    limit(store, "noisy", NamespaceSettings(max_in_flight=max_in_flight))
    sender = ScriptedSender(lambda _: Script(delay_seconds=1.0))
    put(store, [make_timer(f"n{n}", namespace="noisy", execute_at=at(5)) for n in range(200)], START)
    senders = [sender, sender.for_another_poller()]
    pollers = [make_poller(store, each, clock, worker_id=f"w{n}") for n, each in enumerate(senders)]

    run(clock, pollers, 15.0)
    assert [each.most_in_flight for each in senders] == [each_may, each_may]


def test_a_slow_but_healthy_receiver_has_the_places_that_its_namespace_asks_for(
    store: Store, clock: VirtualClock
) -> None:
    """100 callbacks of 25 s and 600 quick ones to one host: none of the quick ones waits for a slow one to end."""
    limit(store, "noisy", NamespaceSettings(max_in_flight=110))

    def script(body: dict[str, object]) -> Script:
        return Script(delay_seconds=25.0 if str(body["timerId"]).startswith("slow") else 0.02)

    sender = ScriptedSender(script)
    slow = [make_timer(f"slow{n}", namespace="noisy", execute_at=at(1 + n / 20)) for n in range(100)]
    quick = [make_timer(f"quick{n}", namespace="noisy", execute_at=at(1 + n / 30)) for n in range(600)]
    put(store, slow + quick, START)

    polled(store, sender, clock, 24.0)

    assert Counter(str(body["timerId"])[:4] for body in sender.received) == {"slow": 100, "quic": 600}
    assert max(lag_seconds(body) for body in sender.received) < 0.1


def test_a_timer_that_waits_for_its_turn_can_still_be_cancelled(store: Store, clock: VirtualClock) -> None:
    limit(store, "noisy", NamespaceSettings(max_in_flight=1))
    sender = ScriptedSender(lambda _: Script(delay_seconds=4.0))
    put(store, [make_timer(f"n{n}", namespace="noisy", execute_at=at(n / 100)) for n in range(3)], START)

    async def script() -> None:
        await asyncio.sleep(1.0)
        store.timers.delete(make_namespace("noisy"), [TimerRef("n1")], now=clock.now())
        await asyncio.sleep(12.0)

    polled(store, sender, clock, script)

    assert [body["timerId"] for body in sender.received] == ["n0", "n2"]


def test_the_retry_policy_of_the_namespace_is_the_default_of_its_timers(store: Store, clock: VirtualClock) -> None:
    limit(store, "noisy", NamespaceSettings(retry_policy_json='{"maxAttempts": 2, "initialInterval": "1s"}'))
    sender = ScriptedSender(lambda _: Script(status=500))
    own = make_timer("own", namespace="noisy", execute_at=at(1), retry_policy_json='{"maxAttempts": 1}')
    put(store, [make_timer("n", namespace="noisy", execute_at=at(1)), own], START)

    polled(store, sender, clock, 10.0)

    assert sender.counts() == {"n": 2, "own": 1}
    assert stored(store, "n", clock, namespace="noisy").state is TimerState.FAILED


def test_an_attempt_ends_by_the_policy_with_which_it_began(
    store: Store, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others, of whom no more are remembered than one, are read while it is in flight."""
    monkeypatch.setattr(namespace_cache, "_MAX_VIEWS", 1)
    limit(store, "noisy", NamespaceSettings(retry_policy_json='{"maxAttempts": 1}'))
    sender = ScriptedSender(lambda body: Script(status=500 if body["namespace"] == "noisy" else 200, delay_seconds=5))
    put(store, [make_timer("n", namespace="noisy", execute_at=at(1))], START)
    put(store, [make_timer(f"q{n}", namespace="quiet", execute_at=at(2 + n)) for n in range(8)], START)

    polled(store, sender, clock, 10.0)

    assert len(sender.of("noisy")) == 1
    assert stored(store, "n", clock, namespace="noisy").state is TimerState.FAILED


# -- breakers -------------------------------------------------------------------------------------------------------


def test_a_host_that_is_down_is_left_alone_and_its_timers_keep_their_attempts(
    store: Store, clock: VirtualClock
) -> None:
    def script(body: dict[str, object]) -> Script:
        return Script(status=503) if body["namespace"] == "noisy" and clock.elapsed_seconds < 60 else Script()

    sender = ScriptedSender(script)
    policy = '{"maxAttempts": 2, "initialInterval": "1s"}'
    noisy = [
        make_timer(f"n{n}", namespace="noisy", execute_at=at(1 + n / 10), retry_policy_json=policy)
        for n in range(500)
    ]
    put(store, noisy, START)
    quiet = [make_timer(f"q{n}", namespace="quiet", execute_at=at(1 + n)) for n in range(50)]
    put(store, quiet, START)

    poller = polled(store, sender, clock, 180.0)

    while_down = [body for body in sender.of("noisy") if parse_instant(str(body["firedAt"])) < at(60)]
    assert len(while_down) < 30  # without a breaker: 500 timers, two attempts each
    states = Counter(stored(store, timer.timer_id, clock, namespace="noisy").state for timer in noisy)
    assert states[TimerState.FIRED] > 480
    assert states.total() == states[TimerState.FIRED] + states[TimerState.FAILED]
    assert poller.stats()["breakers_opened"] >= 1
    assert max(lag_seconds(body) for body in sender.of("quiet")) < 0.1


def test_an_answer_of_the_receiver_is_no_failure_of_its_host(store: Store, clock: VirtualClock) -> None:
    sender = ScriptedSender(lambda _: Script(status=500))
    policy = '{"maxAttempts": 1}'
    noisy = [make_timer(f"n{n}", namespace="noisy", execute_at=at(1), retry_policy_json=policy) for n in range(100)]
    put(store, noisy, START)

    poller = polled(store, sender, clock, 5.0)

    assert len(sender.received) == 100
    assert poller.stats()["breakers_opened"] == 0


# -- misfires -------------------------------------------------------------------------------------------------------


def test_a_timer_that_is_too_late_fails_and_is_not_fired(store: Store, clock: VirtualClock) -> None:
    sender = ScriptedSender()
    late = make_timer("late", namespace="noisy", execute_at=at(-10), expire_after_ms=9_000)
    in_time = make_timer("in-time", namespace="noisy", execute_at=at(-10), expire_after_ms=20_000)
    put(store, [late, in_time], START)

    poller = polled(store, sender, clock, 3.0)

    assert [body["timerId"] for body in sender.received] == ["in-time"]
    timer = stored(store, "late", clock, namespace="noisy")
    assert (timer.state, timer.attempts) == (TimerState.FAILED, 0)
    assert timer.failure is not None
    assert timer.failure.reason is FailureReason.EXPIRED
    assert poller.stats()["failed"] == 1


def test_no_attempt_is_begun_too_late_by_a_timer_that_waits_for_its_turn(store: Store, clock: VirtualClock) -> None:
    limit(store, "noisy", NamespaceSettings(max_in_flight=1))
    sender = ScriptedSender(lambda _: Script(delay_seconds=0.7))
    noisy = [make_timer(f"n{n}", namespace="noisy", execute_at=at(1), expire_after_ms=1000) for n in range(5)]
    put(store, noisy, START)

    poller = polled(store, sender, clock, 5.0)

    assert max(lag_seconds(body) for body in sender.received) <= 1.0
    assert (poller.stats()["fired"], poller.stats()["failed"]) == (2, 3)


def test_timers_expire_while_their_host_hangs(store: Store, clock: VirtualClock) -> None:
    sender = ScriptedSender(hanging)
    noisy = [make_timer(f"n{n}", namespace="noisy", execute_at=at(1), expire_after_ms=10_000) for n in range(300)]
    put(store, noisy, START)

    polled(store, sender, clock, 25.0)

    failures = [stored(store, timer.timer_id, clock, namespace="noisy").failure for timer in noisy]
    expired = [failure for failure in failures if failure is not None and failure.reason is FailureReason.EXPIRED]
    assert len(expired) == 300 - EngineSettings().initial_window
    assert max(failure.at for failure in expired) < at(1 + 10 + 6)


def test_more_expired_timers_than_can_be_recorded_at_once_all_end(store: Store, clock: VirtualClock) -> None:
    sender = ScriptedSender()
    settings = EngineSettings(max_buffered=100, record_batch_size=50)
    noisy = [make_timer(f"n{n}", namespace="noisy", execute_at=at(-100), expire_after_ms=1000) for n in range(1500)]
    put(store, noisy, START)

    poller = polled(store, sender, clock, 20.0, settings=settings)

    assert sender.received == []
    assert poller.stats()["failed"] == 1500
