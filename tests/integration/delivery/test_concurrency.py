"""Many callbacks at a time: connections, deadlines, batches, and how a sender ends."""

from __future__ import annotations

import asyncio
import gc
import logging
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import uvloop

from duetime.delivery import multi, transfer
from duetime.delivery.curl import CurlSender
from duetime.delivery.guard import Target
from duetime.delivery.port import Callback, CallbackResult, TransportError
from duetime.delivery.sender_thread import SenderThread
from tests.integration.delivery.conftest import LOOPBACK_ALLOWED, Sending
from tests.support.receiver import WAIT_SECONDS, Gate, Receiver, drip, held

Start = Callable[..., Sending]


@pytest.fixture(params=["asyncio", "uvloop", "without epoll"], autouse=True)
def loops(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """All of this holds in each event loop, and on machines that have kqueue."""
    if request.param == "uvloop":
        monkeypatch.setattr(asyncio, "new_event_loop", uvloop.new_event_loop)
    elif request.param == "without epoll":
        monkeypatch.setattr(multi, "_open_poller", multi.SelectorPoller)


@pytest.fixture
def old_objects_are_not_collected() -> Iterator[None]:
    """A full collection looks through all that the test runner has loaded, which takes longer than any turn."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


def test_five_hundred_are_in_flight_at_once(start: Start, receiver: Receiver) -> None:
    sending = start(max_connections=600, max_connections_per_host=600)
    gate = Gate()
    url = receiver.on("/", held(gate))
    callbacks = [sending.callback(url, body=b"%d" % n) for n in range(500)]
    sending.sender.submit(callbacks)
    assert {request.body for request in receiver.wait_for(500)} == {callback.body for callback in callbacks}
    assert sending.results == []
    assert receiver.connections == 500
    gate.open()
    results = sending.wait_for(500)
    assert sorted(result.key for result in results) == [callback.key for callback in callbacks]
    assert {result.status for result in results} == {200}
    assert len(sending.batches) < 250
    assert sending.threads == {"duetime-sender"}


def test_connections_are_kept_alive_and_reused(sending: Sending, receiver: Receiver) -> None:
    for _ in range(20):
        assert sending.post(receiver.url()).status == 200
    assert {request.connection for request in receiver.requests} == {1}


@pytest.mark.parametrize(
    "limits", [{"max_connections": 2}, {"max_connections_per_host": 2}], ids=["overall", "per host"]
)
def test_connections_are_bounded_and_the_rest_waits_its_turn(
    start: Start, receiver: Receiver, limits: dict[str, int]
) -> None:
    sending = start(**limits)
    gate = Gate()
    url = receiver.on("/", held(gate))
    sending.sender.submit([sending.callback(url) for _ in range(10)])
    receiver.wait_for(2)
    gate.open()
    assert [result.status for result in sending.wait_for(10)] == [200] * 10
    assert receiver.connections == 2


def test_the_deadline_covers_waiting_for_a_connection(start: Start, receiver: Receiver) -> None:
    sending = start(max_connections_per_host=1)
    gate = Gate()
    first = sending.callback(receiver.on("/held", held(gate)))
    sending.sender.submit([first])
    receiver.wait_for(1)
    second = sending.callback(receiver.url("/second"), timeout_seconds=0.1)
    sending.sender.submit([second])
    (result,) = sending.wait_for(1)
    assert (result.key, result.error) == (second.key, TransportError.TIMEOUT)
    gate.open()
    assert sending.wait_for(2)[1].key == first.key
    assert [request.path for request in receiver.requests] == ["/held"]


def test_one_that_hangs_holds_up_no_other(sending: Sending, receiver: Receiver) -> None:
    gate = Gate()
    hanging = sending.callback(receiver.on("/hanging", held(gate)))
    dripping = sending.callback(receiver.on("/dripping", drip(b"HTTP/1.1 200 OK\r\n", b"X: y\r\n")))
    sending.sender.submit([hanging, dripping, *(sending.callback(receiver.url()) for _ in range(50))])
    assert {result.key for result in sending.wait_for(50)}.isdisjoint({hanging.key, dripping.key})
    gate.open()
    assert sending.wait_for(51)[50].key == hanging.key


def test_many_threads_may_submit(sending: Sending, receiver: Receiver) -> None:
    callbacks = [[sending.callback(receiver.url()) for _ in range(25)] for _ in range(8)]
    threads = [threading.Thread(target=sending.sender.submit, args=(batch,)) for batch in callbacks]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    results = sending.wait_for(200)
    assert {result.key for result in results} == {callback.key for batch in callbacks for callback in batch}


def test_results_may_submit_more(receiver: Receiver) -> None:
    done = threading.Event()
    statuses: list[int | None] = []
    sender = CurlSender(LOOPBACK_ALLOWED)
    make = Sending()
    make.sender.close()

    def take(results: list[CallbackResult]) -> None:
        statuses.extend(result.status for result in results)
        if len(statuses) < 30:
            sender.submit([make.callback(receiver.url())])
        else:
            done.set()

    thread = SenderThread(sender)
    thread.start(take)
    thread.submit([make.callback(receiver.url())])
    assert done.wait(WAIT_SECONDS)
    thread.close()
    assert statuses == [200] * 30


def test_no_result_comes_before_submit_returns() -> None:
    """What is refused at once included: whoever submits notes afterwards what is in flight."""

    async def main() -> None:
        results: list[CallbackResult] = []
        sender = CurlSender(LOOPBACK_ALLOWED)
        sender.start(results.extend)
        sender.submit([Callback(1, "http://10.0.0.1/", (), b"", 1.0)])
        assert results == []
        await asyncio.sleep(0)
        assert [result.error for result in results] == [TransportError.REFUSED_URL]
        sender.close()

    asyncio.run(main())


@pytest.mark.usefixtures("old_objects_are_not_collected")
@pytest.mark.parametrize(("hosts", "connections"), [(1, 50), (1, 1000), (2000, 300)])
def test_the_loop_is_not_kept_from_other_work(receiver: Receiver, hosts: int, connections: int) -> None:
    """However much there is to look up, to send and to read, something else has its turn every few milliseconds."""
    urls = [f"http://host{number}.test:{receiver.port}/" for number in range(hosts)]

    async def main() -> float:
        left, longest = 2000, 0.0
        settings = replace(LOOPBACK_ALLOWED, max_connections=connections, max_connections_per_host=connections)
        sender = CurlSender(settings, resolve=lambda _host, _port: ["127.0.0.1"])
        done = asyncio.Event()

        def take(results: list[CallbackResult]) -> None:
            nonlocal left
            left -= len(results)
            if left == 0:
                done.set()

        sender.start(take)
        callbacks = [Callback(number, urls[number % hosts], (), b"", WAIT_SECONDS) for number in range(left)]
        for first in range(0, left, 100):
            sender.submit(callbacks[first : first + 100])
        at = time.thread_time()
        while not done.is_set():
            await asyncio.sleep(0)
            at, before = time.thread_time(), at
            longest = max(longest, at - before)
        sender.close()
        return longest

    assert asyncio.run(main()) < 0.1


# -- the end -------------------------------------------------------------------------------------------------------


def test_close_aborts_what_is_in_flight(sending: Sending, receiver: Receiver) -> None:
    hanging = [sending.callback(receiver.on("/hanging", held(Gate()))) for _ in range(3)]
    sending.sender.submit(hanging)
    receiver.wait_for(3)
    sending.sender.close()
    assert sending.results == []
    assert "duetime-sender" not in {thread.name for thread in threading.enumerate()}


def test_close_leaves_nothing_to_begin(receiver: Receiver, caplog: pytest.LogCaptureFixture) -> None:
    """Neither of what waits for its turn nor of what waits for its host's addresses."""
    looks_up, found = threading.Event(), threading.Event()

    def resolve(_host: str, _port: int) -> list[str]:
        looks_up.set()
        assert found.wait(WAIT_SECONDS)
        return ["127.0.0.1"]

    async def main() -> None:
        results: list[CallbackResult] = []
        sender = CurlSender(LOOPBACK_ALLOWED, resolve=resolve)
        sender.start(results.extend)
        sender.submit([Callback(1, f"http://host.test:{receiver.port}/", (), b"", WAIT_SECONDS)])
        sender.submit([Callback(key, receiver.url(), (), b"", WAIT_SECONDS) for key in range(2, 500)])
        assert looks_up.wait(WAIT_SECONDS)
        sender.close()
        found.set()
        while any(thread.name == "duetime-lookup" for thread in threading.enumerate()):
            await asyncio.sleep(0.001)
        for _ in range(10):
            await asyncio.sleep(0)
        assert results == []

    with caplog.at_level(logging.ERROR):
        asyncio.run(main())
    assert len(receiver.requests) < 400
    assert caplog.records == []


def test_close_may_come_again_and_submit_may_not_come_after(sending: Sending, receiver: Receiver) -> None:
    sending.sender.close()
    sending.sender.close()
    with pytest.raises(RuntimeError, match="closed"):
        sending.sender.submit([sending.callback(receiver.url())])
    with pytest.raises(RuntimeError, match="once"):
        sending.sender.start(sending.take)


def test_a_thread_that_never_started_can_be_closed() -> None:
    thread = SenderThread(CurlSender(LOOPBACK_ALLOWED))
    thread.close()
    thread.close()


def test_a_sender_starts_again_after_it_was_closed_in_another_loop_too(receiver: Receiver) -> None:
    sender = CurlSender(LOOPBACK_ALLOWED)

    async def post() -> None:
        arrived: asyncio.Future[list[CallbackResult]] = asyncio.get_running_loop().create_future()
        sender.start(arrived.set_result)
        with pytest.raises(RuntimeError, match="started"):
            sender.start(arrived.set_result)
        sender.submit([Callback(1, receiver.url(), (), b"", WAIT_SECONDS)])
        assert [result.status for result in await arrived] == [200]
        sender.close()
        sender.close()
        with pytest.raises(RuntimeError, match="closed"):
            sender.submit([])

    for _ in range(2):
        asyncio.run(post())
    assert receiver.connections == 2


def test_close_leaves_no_descriptor_open(receiver: Receiver) -> None:
    def post() -> None:
        sending = Sending()
        assert sending.post(receiver.url()).status == 200
        sending.sender.submit([sending.callback(receiver.on("/hanging", held(Gate())))])
        sending.sender.close()

    def ours() -> int:
        return len(list(Path("/proc/self/fd").iterdir())) - receiver.connections

    post()
    before = ours()
    for _ in range(3):
        post()
    assert ours() <= before


def test_close_does_not_wait_for_what_libcurl_cannot_cancel(
    sending: Sending, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A name look-up that hangs keeps libcurl from closing; here anything does."""
    look_up, whole = threading.Event(), multi.Multi.close

    def close(self: multi.Multi) -> None:
        look_up.wait(WAIT_SECONDS)
        whole(self)

    monkeypatch.setattr(multi.Multi, "close", close)
    assert sending.post(receiver.url()).status == 200
    sending.sender.close()
    assert not look_up.is_set()
    (closer,) = [thread for thread in threading.enumerate() if thread.name == "duetime-sender-closer"]
    look_up.set()
    closer.join(WAIT_SECONDS)
    assert not closer.is_alive()


# -- faults --------------------------------------------------------------------------------------------------------


def test_an_error_in_the_taker_is_logged_and_survived(receiver: Receiver, caplog: pytest.LogCaptureFixture) -> None:
    sending = Sending()
    sender = SenderThread(CurlSender(LOOPBACK_ALLOWED))
    calls = 0

    def take(results: list[CallbackResult]) -> None:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise ValueError("taker")
        sending.take(results)

    sender.start(take)
    with caplog.at_level(logging.ERROR):
        sender.submit([sending.callback(receiver.url())])
        receiver.wait_for(1)
        while calls == 0:
            threading.Event().wait(0.001)
        sender.submit([sending.callback(receiver.url())])
        assert [result.status for result in sending.wait_for(1)] == [200]
    sender.close()
    sending.sender.close()
    assert [record.__dict__["action"] for record in caplog.records] == ["sender.results_lost"]


def test_when_libcurl_breaks_what_is_in_flight_is_aborted_and_the_rest_goes_on(
    sending: Sending, receiver: Receiver, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    whole = multi.Multi.act
    breaks = [True]

    def act(self: multi.Multi) -> None:
        if breaks:
            breaks.clear()
            raise RuntimeError("libcurl")
        whole(self)

    monkeypatch.setattr(multi.Multi, "act", act)
    with caplog.at_level(logging.ERROR):
        assert sending.post(receiver.url()).error is TransportError.ABORTED
    assert sending.post(receiver.url()).status == 200
    assert [record.__dict__["action"] for record in caplog.records] == ["sender.broken"]


def test_one_that_cannot_be_started_takes_no_other_with_it(
    sending: Sending, receiver: Receiver, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    whole = transfer.Transfer.prepare

    def prepare(self: transfer.Transfer, callback: Callback, target: Target, waited_seconds: float) -> None:
        if callback.body == b"no":
            raise MemoryError
        whole(self, callback, target, waited_seconds)

    monkeypatch.setattr(transfer.Transfer, "prepare", prepare)
    callbacks = [sending.callback(receiver.url(), body=body) for body in (b"a", b"no", b"b")]
    sending.sender.submit(callbacks)
    results = {result.key: result for result in sending.wait_for(3)}
    assert [results[callback.key].error for callback in callbacks] == [None, TransportError.ABORTED, None]
    assert [record.__dict__["action"] for record in caplog.records] == ["sender.start_failed"]


def test_messages_are_printable_and_short() -> None:
    """libcurl's may quote what a receiver sent, and end up in a store."""
    result = transfer.error_result(1, TransportError.TLS, "name \udcff\x00\n żółw " + "x" * 500)
    assert result.message.startswith("name ??? żółw xxx")
    assert len(result.message) == 200
