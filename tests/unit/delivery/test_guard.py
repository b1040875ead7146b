from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from ipaddress import ip_address, ip_network

import pytest

from duetime.delivery import guard as module
from duetime.delivery.dns import LookupThreads
from duetime.delivery.egress import PUBLIC_ONLY, EgressPolicy, RefusedUrl
from duetime.delivery.guard import FAILED_SECONDS, MAX_PINNED_ADDRESSES, Guard, Lookup, Target
from duetime.delivery.pending_dns import PendingLookups, Waiting
from duetime.delivery.port import Callback, TransportError
from tests.support.resolver import Resolver

WAIT_SECONDS = 15


class Guarded:
    """A guard, and the look-ups that ended."""

    def __init__(
        self, resolver: Resolver, policy: EgressPolicy = PUBLIC_ONLY, *, fresh_seconds: float = 60.0
    ) -> None:
        self._ended: list[Lookup] = []
        self._changed = threading.Condition()
        self.guard = Guard(policy, resolver, self._report, fresh_seconds=fresh_seconds)

    def _report(self, lookup: Lookup) -> None:
        with self._changed:
            self._ended.append(lookup)
            self._changed.notify_all()

    def settle(self, now: float) -> Target:
        with self._changed:
            assert self._changed.wait_for(lambda: self._ended, WAIT_SECONDS)
            return self.guard.settle(self._ended.pop(), now)

    def known(self, url: str, now: float = 0.0) -> Target:
        target = self.guard.target(url, now)
        assert self.settle(now) is target
        return target


def test_what_is_pinned_is_all_that_was_found() -> None:
    guarded = Guarded(Resolver(a=["8.8.8.8", "2606:4700::1", "8.8.8.8", "1.1.1.1"]))
    target = guarded.known("https://A.test:8443/x")
    assert target.pins == ("+a.test:8443:8.8.8.8,[2606:4700::1],1.1.1.1",)
    assert target.approved == {ip_address("8.8.8.8"), ip_address("1.1.1.1"), ip_address("2606:4700::1")}
    assert target.refusal is None
    guarded.guard.close()


def test_the_number_of_pinned_addresses_is_bounded_but_all_are_judged() -> None:
    many = [f"8.8.{number}.1" for number in range(100)]
    guarded = Guarded(Resolver(a=many, b=[*many, "10.0.0.1"]))
    assert guarded.known("http://a.test").pins[0].count(",") == MAX_PINNED_ADDRESSES - 1
    refusal = guarded.known("http://b.test").refusal
    assert refusal is not None
    assert refusal.error is TransportError.REFUSED_ADDRESS
    guarded.guard.close()


def test_a_target_is_fresh_then_usable_while_it_is_looked_up_then_neither() -> None:
    resolver = Resolver(a=["8.8.8.8"])
    guarded = Guarded(resolver, fresh_seconds=10)
    target = guarded.known("http://a.test/1", now=100.0)
    assert (target.fresh_until, target.usable_until) == (110.0, 120.0)
    for path, now, is_looked_up in [("2", 109.9, False), ("3", 110.0, True)]:
        assert guarded.guard.target(f"http://a.test/{path}", now) is target
        assert target.is_looked_up is is_looked_up
    guarded.guard.target("http://a.test/4", 111.0)
    guarded.settle(112.0)
    assert (target.fresh_until, target.usable_until, resolver.calls) == (122.0, 132.0, ["a.test"] * 2)
    guarded.guard.close()


def test_a_transfer_that_waited_may_still_use_the_addresses_of_before() -> None:
    resolver = Resolver(a=["8.8.8.8"])
    guarded = Guarded(resolver, fresh_seconds=0)
    may = guarded.guard.may_connect
    target = guarded.known("http://a.test", now=1.0)
    for address, expected in [("8.8.4.4", {"8.8.8.8", "8.8.4.4"}), ("1.1.1.1", {"8.8.4.4", "1.1.1.1"})]:
        resolver.set("a.test", address)
        guarded.known("http://a.test", now=2.0)
        assert {text for text in ("8.8.8.8", "8.8.4.4", "1.1.1.1") if may(target, socket.AF_INET, text)} == expected
        assert target.pins == (f"+a.test:80:{address}",)
    resolver.set("a.test", "10.0.0.1")
    guarded.known("http://a.test", now=3.0)
    assert not any(may(target, socket.AF_INET, text) for text in ("8.8.4.4", "1.1.1.1", "10.0.0.1"))
    guarded.guard.close()


@pytest.mark.parametrize("addresses", [[], ["10.0.0.1"]])
def test_a_refusal_is_remembered_for_a_moment(addresses: list[str]) -> None:
    resolver = Resolver(a=addresses)
    guarded = Guarded(resolver)
    target = guarded.known("http://a.test", now=5.0)
    assert target.refusal is not None
    guarded.guard.target("http://a.test", 5.0 + FAILED_SECONDS - 0.1)
    assert not target.is_looked_up
    resolver.set("a.test", "8.8.8.8")
    assert guarded.known("http://a.test", now=5.0 + FAILED_SECONDS).refusal is None
    guarded.guard.close()


def test_when_too_many_names_are_looked_up_the_answer_is_no_but_for_those_that_are_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    resolver = Resolver(a=["8.8.8.8"], b=["8.8.4.4"])
    guarded = Guarded(resolver, fresh_seconds=10)
    known = guarded.known("http://a.test", now=0.0)
    with monkeypatch.context() as patch:
        patch.setattr(LookupThreads, "run", lambda self, job: False)
        assert guarded.guard.target("http://a.test", 15.0).refusal is None
        refused = guarded.guard.target("http://b.test", 15.0)
        assert refused.refusal is not None
        assert refused.refusal.error is TransportError.RESOLVE
        assert refused.usable_until > 15.0
        assert guarded.guard.target("http://a.test", 20.0).refusal is not None
    assert guarded.known("http://b.test", now=30.0).refusal is None
    assert guarded.known("http://a.test", now=30.0) is known
    assert known.refusal is None
    guarded.guard.close()


def test_a_look_up_that_cannot_be_started_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    guarded = Guarded(Resolver(a=["8.8.8.8"]))

    def run(self: LookupThreads, job: object) -> bool:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(LookupThreads, "run", run)
        with pytest.raises(RuntimeError):
            guarded.guard.target("http://a.test", 0.0)
    assert guarded.known("http://a.test").refusal is None
    guarded.guard.close()


def test_urls_of_one_host_and_port_share_what_is_known() -> None:
    guarded = Guarded(Resolver(a=["8.8.8.8"]))
    first = guarded.guard.target("http://a.test/x", 0.0)
    assert guarded.guard.target("HTTP://A.TEST:80/y", 0.0) is first
    assert guarded.guard.target("http://a.test:81/", 0.0) is not first
    guarded.guard.close()


def test_the_number_of_targets_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_TARGETS", 3)
    guarded = Guarded(Resolver())
    first = guarded.guard.target("http://8.8.8.8/", 0.0)
    for number in range(1, 50):
        guarded.guard.target(f"http://8.8.8.{number}/", 0.0)
        assert len(guarded.guard._by_origin) <= 3
        assert len(guarded.guard._targets) <= 3
    assert guarded.guard.target("http://8.8.8.8/", 0.0) is not first
    guarded.guard.close()


def test_a_literal_address_is_ready_without_a_look_up() -> None:
    resolver = Resolver()
    guarded = Guarded(resolver, EgressPolicy(allow_cidrs=(ip_network("fd00::/8"),)))
    for url in ("http://8.8.8.8/", "http://[FD00::1]:80/"):
        target = guarded.guard.target(url, 1e9)
        assert (target.pins, target.is_looked_up, target.refusal) == ((), False, None)
        assert target.usable_until == float("inf")
    assert guarded.guard.may_connect(target, socket.AF_INET6, "fd00::1")
    assert not guarded.guard.may_connect(target, socket.AF_INET6, "fd00::2")
    with pytest.raises(RefusedUrl):
        guarded.guard.target("http://10.0.0.1/", 0.0)
    assert resolver.calls == []
    guarded.guard.close()


def test_only_ip_sockets_to_approved_addresses_are_opened() -> None:
    guarded = Guarded(Resolver(a=["8.8.8.8"]))
    may = guarded.guard.may_connect
    target = guarded.known("http://a.test")
    assert may(target, socket.AF_INET, "8.8.8.8")
    assert not may(target, socket.AF_UNIX, "8.8.8.8")
    for text in ("8.8.4.4", "::ffff:8.8.8.8", "/run/docker.sock", "", "127.0.0.1"):
        assert not may(target, socket.AF_INET, text)
    # Even if it got among the approved ones.
    target.approved |= {ip_address("127.0.0.1")}
    assert not may(target, socket.AF_INET, "127.0.0.1")
    guarded.guard.close()


class TestLookupThreads:
    def test_are_as_few_as_needed_and_never_more_than_allowed(self) -> None:
        threads = LookupThreads(max_threads=3)
        gate, done = threading.Event(), threading.Semaphore(0)
        names: set[str] = set()

        def job() -> None:
            names.add(threading.current_thread().name + str(threading.get_ident()))
            gate.wait(WAIT_SECONDS)
            done.release()

        threads.run(done.release)
        assert done.acquire(timeout=WAIT_SECONDS)
        for _ in range(10):
            threads.run(job)
        gate.set()
        assert all(done.acquire(timeout=WAIT_SECONDS) for _ in range(10))
        assert 1 <= len(names) <= 3
        threads.close()

    def test_take_no_more_than_they_may_have(self) -> None:
        threads = LookupThreads(max_threads=2, max_unfinished=3)
        gate, ended = threading.Event(), threading.Semaphore(0)

        def job() -> None:
            gate.wait(WAIT_SECONDS)
            ended.release()

        assert [threads.run(job) for _ in range(5)] == [True, True, True, False, False]
        gate.set()
        assert all(ended.acquire(timeout=WAIT_SECONDS) for _ in range(3))
        threads.close()

    def test_do_with_those_that_there_are(self, monkeypatch: pytest.MonkeyPatch) -> None:
        threads = LookupThreads(max_threads=2)
        gate, ended = threading.Event(), threading.Semaphore(0)

        def job() -> None:
            gate.wait(WAIT_SECONDS)
            ended.release()

        def start(self: threading.Thread) -> None:
            raise RuntimeError("can't start new thread")

        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", start)
            with pytest.raises(RuntimeError):
                threads.run(job)
        assert threads.run(job)
        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", start)
            assert threads.run(job)
        gate.set()
        assert all(ended.acquire(timeout=WAIT_SECONDS) for _ in range(2))
        threads.close()

    def test_end_when_they_are_closed(self) -> None:
        threads = LookupThreads()
        found: list[threading.Thread] = []
        ran = threading.Event()

        def job() -> None:
            found.append(threading.current_thread())
            ran.set()

        threads.run(job)
        assert ran.wait(WAIT_SECONDS)
        threads.close()
        found[0].join(WAIT_SECONDS)
        assert not found[0].is_alive()
        assert found[0].daemon


class TestWaitingRoom:
    @pytest.fixture
    def wait(self) -> Callable[[int, float], Waiting]:
        return lambda key, until: Waiting(Callback(key, "http://a.test", (), b"", 1.0), 0.0, until)

    @pytest.fixture
    def targets(self) -> tuple[Target, Target]:
        guard = Guard(PUBLIC_ONLY, Resolver(), lambda lookup: None, fresh_seconds=1)
        return guard.target("http://8.8.8.8", 0.0), guard.target("http://1.1.1.1", 0.0)

    def test_those_who_are_late_leave_when_they_are(
        self, wait: Callable[[int, float], Waiting], targets: tuple[Target, Target]
    ) -> None:
        room = PendingLookups()
        assert room.seconds_left(0.0) is None
        for key, (target, until) in enumerate([(targets[0], 5.0), (targets[1], 3.0), (targets[0], 3.0)]):
            room.add(target, wait(key, until))
        assert room.seconds_left(1.0) == 2.0
        assert room.leave_late(2.9) == []
        assert sorted(waiting.callback.key for waiting in room.leave_late(3.0)) == [1, 2]
        assert room.seconds_left(3.0) == 2.0
        assert [waiting.callback.key for waiting in room.leave_late(99.0)] == [0]
        assert room.seconds_left(99.0) is None
