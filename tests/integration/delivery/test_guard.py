"""Where callbacks get to. With a resolver of our own; 127.0.0.1 plays the public address, 127.0.0.2 a private one."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import pycurl
import pytest

from duetime.delivery.curl import CurlSender
from duetime.delivery.egress import PUBLIC_ONLY, EgressPolicy
from duetime.delivery.guard import Target
from duetime.delivery.port import CallbackResult, TransportError
from duetime.delivery.sender_thread import SenderThread
from tests.integration.delivery.conftest import Sending
from tests.support.receiver import WAIT_SECONDS, Receiver, raw, reply
from tests.support.resolver import Resolver

PUBLIC, PRIVATE = "127.0.0.1", "127.0.0.2"
ONE_IS_PUBLIC = EgressPolicy(allow_cidrs=(ip_network(f"{PUBLIC}/32"),))

Start = Callable[..., Sending]


class Inner:
    """Something on the private address that must never be connected to, at the receiver's own port."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_server((PRIVATE, port))
        self.socket.setblocking(False)

    def was_reached(self) -> bool:
        try:
            self.socket.accept()[0].close()
        except BlockingIOError:
            return False
        return True


@pytest.fixture
def inner(receiver: Receiver) -> Iterator[Inner]:
    inner = Inner(receiver.port)
    yield inner
    inner.socket.close()


def url_of(receiver: Receiver, host: str, path: str = "/") -> str:
    return f"http://{host}:{receiver.port}{path}"


def test_the_helper_would_notice(start: Start, receiver: Receiver, inner: Inner) -> None:
    everything = EgressPolicy(allow_cidrs=(ip_network("127.0.0.0/8"),))
    sending = start(egress=everything, resolve=Resolver(a=[PRIVATE]))
    assert sending.post(url_of(receiver, "a.test"), timeout_seconds=0.2).error is TransportError.TIMEOUT
    assert inner.was_reached()


class TestAName:
    def test_that_leads_to_public_addresses_is_called(self, start: Start, receiver: Receiver, inner: Inner) -> None:
        """The machine's own resolver does not know it: libcurl has nothing but the addresses that were checked."""
        sending = start(egress=ONE_IS_PUBLIC, resolve=Resolver(a=[PUBLIC]))
        assert sending.post(url_of(receiver, "A.test")).status == 200
        assert receiver.requests[0].header("host") == f"A.test:{receiver.port}"
        assert not inner.was_reached()

    @pytest.mark.parametrize("addresses", [[PUBLIC, PRIVATE], [PRIVATE, PUBLIC], [PRIVATE], [PUBLIC, "::1"]])
    def test_with_one_private_address_is_refused_as_a_whole(
        self, start: Start, receiver: Receiver, inner: Inner, addresses: Sequence[str]
    ) -> None:
        sending = start(egress=ONE_IS_PUBLIC, resolve=Resolver(a=addresses))
        result = sending.post(url_of(receiver, "a.test", "/?token=secret"))
        assert (result.error, result.status) == (TransportError.REFUSED_ADDRESS, None)
        assert result.message == "the host's name leads to an address that may not be called (loopback)"
        assert receiver.connections == 0
        assert not inner.was_reached()

    @pytest.mark.parametrize(
        "address",
        [
            *("127.0.0.1", "10.0.0.1", "169.254.169.254", "100.64.0.1", "0.0.0.0", "255.255.255.255", "224.0.0.1"),
            *("::1", "::", "::ffff:127.0.0.1", "::127.0.0.1", "64:ff9b::7f00:1", "2002:7f00:1::", "fd00:ec2::254"),
            *("fe80::1", "fe80::1%lo", "ff02::1", "2001:0:4136:e378:8000:63bf:3fff:fdd2"),
        ],
    )
    def test_is_refused_by_default_wherever_else_it_leads(
        self, start: Start, receiver: Receiver, address: str
    ) -> None:
        sending = start(egress=PUBLIC_ONLY, resolve=Resolver(a=["8.8.8.8", address]))
        assert sending.post(url_of(receiver, "a.test")).error is TransportError.REFUSED_ADDRESS
        assert receiver.connections == 0

    def test_that_is_allowed_may_lead_anywhere(self, start: Start, receiver: Receiver) -> None:
        sending = start(
            egress=EgressPolicy(allow_hosts=("*.inner.test",)),
            resolve=Resolver(**{"a.inner": [PUBLIC], "b": [PUBLIC]}),
        )
        assert sending.post(url_of(receiver, "a.inner.test")).status == 200
        assert sending.post(url_of(receiver, "b.test")).error is TransportError.REFUSED_ADDRESS

    def test_of_this_machine_is_refused_by_default(self, receiver: Receiver, start: Start) -> None:
        """With the real resolver, and with what libcurl itself knows of the name."""
        sending = start(egress=PUBLIC_ONLY)
        assert sending.post(url_of(receiver, "localhost")).error is TransportError.REFUSED_ADDRESS
        assert sending.post(url_of(receiver, "a.localhost")).error in (
            TransportError.REFUSED_ADDRESS,
            TransportError.RESOLVE,
        )
        assert receiver.connections == 0

    def test_a_sender_without_settings_calls_nothing_here(self, receiver: Receiver) -> None:
        results: list[CallbackResult] = []
        ended = threading.Event()
        sender = SenderThread(CurlSender())

        def take(batch: list[CallbackResult]) -> None:
            results.extend(batch)
            ended.set()

        sender.start(take)
        make = Sending()
        sender.submit([make.callback(receiver.url())])
        assert ended.wait(WAIT_SECONDS)
        sender.close()
        make.sender.close()
        assert results[0].error is TransportError.REFUSED_ADDRESS
        assert receiver.connections == 0


class TestANameThatChanges:
    def test_is_judged_anew_even_when_a_connection_to_it_is_open(
        self, start: Start, receiver: Receiver, inner: Inner
    ) -> None:
        resolver = Resolver(a=[PUBLIC])
        sending = start(egress=ONE_IS_PUBLIC, resolve=resolver, dns_cache_seconds=0)
        url = url_of(receiver, "a.test")
        assert sending.post(url).status == 200
        resolver.set("a.test", PRIVATE)
        assert sending.post(url).error is TransportError.REFUSED_ADDRESS
        assert not inner.was_reached()
        assert len(receiver.requests) == 1

    def test_between_check_and_connect_is_refused_by_the_last_check(
        self, start: Start, receiver: Receiver, inner: Inner, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """libcurl wants to connect to something else than what was approved, however it came by it."""
        whole = Target.approve

        def approve(self: Target, *args: Any, **more: Any) -> None:
            whole(self, *args, **more)
            self.pins = (f"+a.test:{receiver.port}:{PRIVATE}",)

        monkeypatch.setattr(Target, "approve", approve)
        sending = start(egress=ONE_IS_PUBLIC, resolve=Resolver(a=[PUBLIC]))
        result = sending.post(url_of(receiver, "a.test"))
        assert result.error is TransportError.REFUSED_ADDRESS
        assert result.message == "the connection would have led to an address that may not be called"
        assert not inner.was_reached()

    def test_to_another_public_address_is_followed(self, start: Start, receiver: Receiver) -> None:
        """Also by handles and a cache that have the old address."""
        everything = EgressPolicy(allow_cidrs=(ip_network("127.0.0.0/8"),))
        resolver = Resolver(a=["127.0.0.3"])
        sending = start(egress=everything, resolve=resolver, dns_cache_seconds=0)
        url = url_of(receiver, "a.test")
        assert sending.post(url).error is TransportError.CONNECT
        resolver.set("a.test", PUBLIC)
        assert sending.post(url).status == 200
        resolver.set("a.test", "127.0.0.3")
        sending.post(receiver.on("/close", raw(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", close=True)))
        assert sending.post(url).status == 200  # over the connection that is open

    def test_is_used_as_it_was_while_it_is_looked_up_again(
        self, start: Start, receiver: Receiver, inner: Inner
    ) -> None:
        resolver = Resolver(a=[PUBLIC])
        # As long again it stays usable: a busy machine must not pause for longer between two requests.
        sending = start(egress=ONE_IS_PUBLIC, resolve=resolver, dns_cache_seconds=2.0)
        url = url_of(receiver, "a.test")
        assert sending.post(url).status == 200
        resolver.set("a.test", PRIVATE)
        resolver.hold("a.test")
        posted = 0
        while len(resolver.calls) < 2:
            assert sending.post(url).status == 200
            posted += 1
        resolver.release("a.test")
        while (result := sending.post(url)).status == 200:
            posted += 1
        assert result.error is TransportError.REFUSED_ADDRESS
        assert len(receiver.requests) == 1 + posted
        assert not inner.was_reached()


class TestResolving:
    @pytest.mark.parametrize("found", [[], ["garbage"], [PUBLIC, "garbage"], ["127.1"]])
    def test_fails_closed(self, start: Start, receiver: Receiver, found: Sequence[str]) -> None:
        sending = start(egress=ONE_IS_PUBLIC, resolve=lambda host, port: found)
        result = sending.post(url_of(receiver, "localhost"))
        assert (result.error, result.message) == (TransportError.RESOLVE, "the host's name could not be resolved")
        assert receiver.connections == 0

    @pytest.mark.parametrize("error", [OSError("no"), UnicodeError("odd"), RuntimeError("bug"), MemoryError()])
    def test_survives_whatever_the_resolver_raises(self, start: Start, receiver: Receiver, error: Exception) -> None:
        def resolve(host: str, port: int) -> Sequence[str]:
            if host == "a.test":
                raise error
            return [PUBLIC]

        sending = start(egress=ONE_IS_PUBLIC, resolve=resolve)
        assert sending.post(url_of(receiver, "a.test")).error is TransportError.RESOLVE
        assert sending.post(url_of(receiver, "b.test")).status == 200

    def test_happens_once_for_all_that_wait_and_all_that_follow(self, start: Start, receiver: Receiver) -> None:
        resolver = Resolver(a=[PUBLIC])
        resolver.hold("a.test")
        sending = start(egress=ONE_IS_PUBLIC, resolve=resolver)
        sending.sender.submit([sending.callback(url_of(receiver, "a.test", f"/{n}")) for n in range(50)])
        sending.sender.submit([sending.callback(url_of(receiver, "A.TEST", f"/{n}?x")) for n in range(50)])
        resolver.wait_for_calls(1)
        resolver.release("a.test")
        assert {result.status for result in sending.wait_for(100)} == {200}
        assert sending.post(url_of(receiver, "a.test")).status == 200
        assert resolver.calls == ["a.test"]

    def test_that_failed_is_not_repeated_at_once(self, start: Start, receiver: Receiver) -> None:
        resolver = Resolver()
        sending = start(egress=ONE_IS_PUBLIC, resolve=resolver)
        for _ in range(10):
            assert sending.post(url_of(receiver, "a.test")).error is TransportError.RESOLVE
        assert len(resolver.calls) == 1

    def test_that_hangs_ends_at_the_deadline_and_holds_up_nobody_else(self, start: Start, receiver: Receiver) -> None:
        resolver = Resolver(a=[PUBLIC], b=[PUBLIC])
        resolver.hold("a.test")
        sending = start(egress=ONE_IS_PUBLIC, resolve=resolver)
        late = sending.callback(url_of(receiver, "a.test"), timeout_seconds=0.2)
        patient = sending.callback(url_of(receiver, "a.test"))
        other = sending.callback(url_of(receiver, "b.test"))
        sending.sender.submit([late, patient, other])
        results = {result.key: result for result in sending.wait_for(2)}
        assert results.keys() == {late.key, other.key}
        assert results[other.key].status == 200
        assert results[late.key].error is TransportError.TIMEOUT
        assert 0.2 <= results[late.key].duration_seconds < WAIT_SECONDS
        resolver.release("a.test")
        result = sending.wait_for(3)[-1]
        assert (result.key, result.status) == (patient.key, 200)
        assert result.duration_seconds >= 0.2

    def test_takes_no_longer_than_connecting_may(self, start: Start, receiver: Receiver) -> None:
        resolver = Resolver(a=[PUBLIC])
        resolver.hold("a.test")
        sending = start(egress=ONE_IS_PUBLIC, resolve=resolver, connect_timeout_seconds=0.1)
        result = sending.post(url_of(receiver, "a.test"))
        assert (result.error, result.message) == (
            TransportError.TIMEOUT,
            "timed out while the host's name was looked up",
        )
        resolver.release("a.test")

    def test_is_part_of_the_deadline(self, start: Start, receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
        """libcurl is given what the look-up has left of the callback's time."""
        given_ms: list[int] = []

        class Noting(pycurl.Curl):  # type: ignore[misc]  # it has no type stubs
            def setopt(self, option: int, value: Any) -> None:
                if option == pycurl.TIMEOUT_MS:
                    given_ms.append(value)
                super().setopt(option, value)

        def resolve(host: str, port: int) -> Sequence[str]:
            threading.Event().wait(0.1)
            return [PUBLIC]

        monkeypatch.setattr(pycurl, "Curl", Noting)
        sending = start(egress=ONE_IS_PUBLIC, resolve=resolve)
        assert sending.post(url_of(receiver, "a.test"), timeout_seconds=10).status == 200
        assert 0 < given_ms[0] <= 9_900

    def test_is_given_up_when_the_sender_closes(self, start: Start, receiver: Receiver) -> None:
        resolver = Resolver(a=[PUBLIC])
        resolver.hold("a.test")
        sending = start(egress=ONE_IS_PUBLIC, resolve=resolver)
        sending.sender.submit([sending.callback(url_of(receiver, "a.test"))])
        resolver.wait_for_calls(1)
        sending.sender.close()
        assert sending.results == []
        assert "duetime-sender" not in {thread.name for thread in threading.enumerate()}
        resolver.release("a.test")


class TestAUrl:
    @pytest.mark.parametrize(
        "host",
        [
            *("127.0.0.1", "169.254.169.254", "[::1]", "[::ffff:127.0.0.1]", "2130706433", "127.1", "[::1%25lo]"),
            *("%6cocalhost", "１２７.0.0.1", "127。0。0。1", "ⓛocalhost", "user@localhost", "user:secret@localhost"),
        ],
    )
    def test_that_may_never_be_called_fails_at_once(self, start: Start, receiver: Receiver, host: str) -> None:
        resolver = Resolver()
        sending = start(egress=PUBLIC_ONLY, resolve=resolver)
        result = sending.post(url_of(receiver, host))
        assert (result.error, result.status) == (TransportError.REFUSED_URL, None)
        assert "secret" not in result.message
        assert (resolver.calls, receiver.connections) == ([], 0)

    def test_that_is_not_https_can_be_refused(self, start: Start, receiver: Receiver) -> None:
        sending = start(egress=EgressPolicy(allow_hosts=("a.test",), https_only=True), resolve=Resolver(a=[PUBLIC]))
        assert sending.post(url_of(receiver, "a.test")).error is TransportError.REFUSED_URL
        assert receiver.connections == 0


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_leads_nowhere(start: Start, receiver: Receiver, inner: Inner, status: int) -> None:
    sending = start(egress=ONE_IS_PUBLIC, resolve=Resolver(a=[PUBLIC]))
    receiver.on("/", reply(status, b"", [("Location", f"http://{PRIVATE}:{receiver.port}/latest/meta-data/")]))
    assert sending.post(url_of(receiver, "a.test")).status == status
    assert not inner.was_reached()
    assert len(receiver.requests) == 1


def test_no_child_process_inherits_a_connection(sending: Sending, receiver: Receiver) -> None:
    assert sending.post(receiver.url()).status == 200
    ours = []
    for entry in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError), socket.socket(fileno=os.dup(int(entry.name))) as same:
            if same.family == socket.AF_INET and same.getpeername()[1] == receiver.port:
                ours.append(int(entry.name))
    assert [os.get_inheritable(descriptor) for descriptor in ours] == [False]
