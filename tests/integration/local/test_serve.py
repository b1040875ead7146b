"""``duetime serve`` as its users know it: a process, HTTP, and callbacks that arrive."""

from __future__ import annotations

import json
import statistics
import threading
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest

from tests.support.callbacks import Arrival, CallbackReceiver
from tests.support.processes import DuetimeServer, in_seconds


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("served")


@pytest.fixture(scope="module")
def server(directory: Path) -> Iterator[DuetimeServer]:
    """One for all tests that do not end it. Timers of these have ids of their own."""
    with DuetimeServer(cwd=directory) as server:
        yield server


def wait_until_fired(server: DuetimeServer, *timer_ids: str) -> None:
    """Until it is recorded: after that nothing is sent any more."""
    for timer_id in timer_ids:
        while server.ok("GET", f"/timers/{quote(timer_id, safe='')}")["state"] != "Fired":
            assert server.process.poll() is None


def test_a_fresh_directory_is_enough(server: DuetimeServer, directory: Path) -> None:
    assert (directory / "data" / "duetime.db").is_file()
    assert server.client.get("/health").status_code == 200
    assert server.client.get("/docs").status_code == 200
    assert server.client.get("/", follow_redirects=True).url.path == "/console"
    assert server.client.get("/v1/namespaces/default").json()["numShards"] == 16
    (started,) = server.of("server.started")
    assert started["store"] == "sqlite:///data/duetime.db"
    assert server.of("server.exposed") == []


def test_no_page_in_a_browser_makes_timers_or_reads_them(server: DuetimeServer) -> None:
    """Without an API key a server on loopback is one that every page reaches."""
    assert server.client.put("/v1/namespaces/pages", json={}).status_code == 201
    path, timer = "/v1/namespaces/pages/timers", b'{"delay": "1h", "callbackUrl": "http://127.0.0.1:9/"}'
    page = {"origin": "https://evil.example", "sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors"}
    own = str(server.client.base_url.netloc, "ascii")
    for method, content, headers, status in (
        ("POST", timer, {"origin": "https://evil.example"}, 403),  # with no content type a browser asks nobody first
        ("POST", timer, page | {"content-type": "text/plain"}, 403),
        ("POST", b"", {"origin": "null"}, 403),
        ("GET", b"", page, 403),
        ("POST", timer, {"host": f"evil.example:{server.client.base_url.port}"}, 421),  # DNS rebinding
        ("GET", b"", {"host": "evil.example"}, 421),
    ):
        answer = server.client.request(method, path, content=content, headers=headers)
        assert answer.status_code == status, (method, headers, answer.text)
        assert not {name for name in answer.headers if name.startswith("access-control-")}
    assert server.client.get("/metrics", headers={"host": "evil.example"}).status_code == 421
    assert server.client.get(path).json()["items"] == []
    assert server.client.post(path, content=timer, headers={"origin": f"http://{own}"}).status_code == 201
    reasons = {"cross_site_request", "unknown_host"}
    server.wait_until(lambda _: {event["reason"] for event in server.of("http.refused")} == reasons, "refusals")


def test_a_timer_fires_once_with_what_it_was_given(server: DuetimeServer, receiver: CallbackReceiver) -> None:
    execute_at = in_seconds(0.7)
    payload = '{"n": 12345678901234567890, "f": 1.10, "s": "", "u": "é\\ud83d\\ude00"}'
    body = f'{{"id": "a b/#", "executeAt": "{execute_at}", "callbackUrl": "{receiver.url}", "payload": {payload}}}'
    answer = server.client.post("/v1/namespaces/default/timers", content=body.replace("a b/#", "a b#"))
    assert answer.status_code == 201, answer.text

    arrival = receiver.wait_for_timer("a b#")
    assert 0 <= arrival.lateness_seconds < 5  # on a machine that is busy
    assert arrival.body["payload"] == json.loads(payload)
    assert (arrival.body["namespace"], arrival.body["attempt"]) == ("default", 1)
    assert arrival.headers["webhook-id"]
    wait_until_fired(server, "a b#")
    assert receiver.counts() == {"a b#": 1}


def test_known_timers_fire_on_time(server: DuetimeServer, receiver: CallbackReceiver) -> None:
    """They are spread over two poll intervals (0.8 s): by polling alone half of them would be 0.4 s late or more."""
    due = [in_seconds(1.5 + number * 0.08) for number in range(20)]
    server.create_many(
        [{"id": f"known-{number}", "executeAt": at, "callbackUrl": receiver.url} for number, at in enumerate(due)]
    )
    receiver.wait_for_timers(20)
    lateness = [arrival.lateness_seconds for arrival in receiver.arrivals]
    assert min(lateness) >= 0
    assert statistics.median(lateness) < 0.2


def test_a_thousand_timers_at_one_instant_fire_once_each(server: DuetimeServer, receiver: CallbackReceiver) -> None:
    execute_at = in_seconds(1.5)
    server.client.put("/v1/namespaces/thousand", json={})
    timers = [{"id": f"t{n}", "executeAt": execute_at, "callbackUrl": receiver.url} for n in range(1000)]
    for half in (timers[:500], timers[500:]):
        assert server.client.post("/v1/namespaces/thousand/timers/batch", json={"timers": half}).is_success
    receiver.wait_for_timers(1000, timeout_seconds=30)
    while server.client.get("/v1/namespaces/thousand/timers", params={"state": "Scheduled"}).json()["items"]:
        assert server.process.poll() is None
    assert receiver.counts() == {f"t{n}": 1 for n in range(1000)}


def test_changes_before_the_due_time_are_honoured(server: DuetimeServer, receiver: CallbackReceiver) -> None:
    due = in_seconds(3.0)  # all changes below have to be made before, on a machine that is busy too
    for timer_id in ("sooner", "patched", "replaced", "deleted", "last"):
        server.create(timer_id, executeAt=due, callbackUrl=receiver.url, payload="first")
    server.ok("PATCH", "/timers/patched", json={"payload": "second"})
    later = server.ok("PATCH", "/timers/sooner", json={"executeAt": in_seconds(0.2)})
    server.ok("PUT", "/timers/replaced", json={"executeAt": due, "callbackUrl": receiver.url, "payload": "third"})
    server.ok("DELETE", "/timers/deleted")
    assert later["revision"] == 2

    receiver.wait_for_timers(4)
    wait_until_fired(server, "sooner", "patched", "replaced", "last")
    assert {arrival.timer_id: arrival.body["payload"] for arrival in receiver.arrivals} == {
        "sooner": "first",
        "patched": "second",
        "replaced": "third",
        "last": "first",
    }
    assert receiver.wait_for_timer("sooner").at < receiver.wait_for_timer("last").at
    assert set(receiver.counts().values()) == {1}


def test_a_replace_while_a_callback_is_in_flight_fires_too(server: DuetimeServer, receiver: CallbackReceiver) -> None:
    release = threading.Event()

    def answer(arrival: Arrival) -> tuple[int, bytes]:
        if arrival.body["payload"] == "old":
            assert release.wait(20)
        return 200, b""

    receiver.answer = answer
    server.create("put", delay=0, callbackUrl=receiver.url, payload="old")
    receiver.wait_for_timer("put")
    server.ok("PUT", "/timers/put", json={"delay": 0, "callbackUrl": receiver.url, "payload": "new"})
    release.set()
    receiver.wait_for(lambda counts: counts["put"] == 2)
    assert [arrival.body["payload"] for arrival in receiver.arrivals] == ["old", "new"]


def test_a_callback_in_flight_at_sigterm_finishes_and_nothing_fires_twice(
    tmp_path: Path, receiver: CallbackReceiver
) -> None:
    release = threading.Event()

    def answer(arrival: Arrival) -> tuple[int, bytes]:
        if arrival.timer_id == "slow":
            assert release.wait(20)
        return 200, b""

    receiver.answer = answer
    with DuetimeServer(cwd=tmp_path) as server:
        server.create("slow", delay=0, callbackUrl=receiver.url)
        server.create("later", executeAt=in_seconds(3600), callbackUrl=receiver.url)
        receiver.wait_for_timer("slow")
        server.process.terminate()
        server.wait_for("service.stopping")
        release.set()
        assert server.wait() == 0
        assert server.of("shard.released")
    with DuetimeServer(cwd=tmp_path) as server:
        slow, later = (server.ok("GET", f"/timers/{timer_id}") for timer_id in ("slow", "later"))
        assert (slow["state"], slow["attempts"]) == ("Fired", 1)
        assert later["state"] == "Scheduled"
        server.create("after", delay=0, callbackUrl=receiver.url)
        receiver.wait_for_timer("after")
    assert receiver.counts() == {"slow": 1, "after": 1}


def test_what_became_due_while_nobody_ran_fires_at_the_next_start(tmp_path: Path, receiver: CallbackReceiver) -> None:
    with DuetimeServer("--lease-seconds", "600", cwd=tmp_path) as server:
        server.create("t", executeAt=in_seconds(0.5), callbackUrl=receiver.url)
        server.kill()
    assert receiver.counts() == {}
    # The killed server's leases would be live for long, but it is known to be dead.
    with DuetimeServer("--lease-seconds", "600", cwd=tmp_path):
        receiver.wait_for_timer("t", timeout_seconds=15)


def test_a_body_over_the_limit_is_a_413(server: DuetimeServer) -> None:
    for bytes_sent in (6 * 1024 * 1024 + 1, 20_000_000):
        answer = server.client.post("/v1/namespaces/default/timers", content=b" " * bytes_sent)
        assert (answer.status_code, answer.json()["code"]) == (413, "payload_too_large")
        assert server.client.get("/health").status_code == 200


def test_any_id_can_be_used_in_a_path(server: DuetimeServer) -> None:
    ids = ["100%", "%41", "a?b=c", "ünïcødé", "\U0001f600", "#", "a+b", "..", "base64url:x"]
    timers = "/v1/namespaces/default/timers"
    for timer_id in ids:
        body = {"id": timer_id, "delay": "1h", "callbackUrl": "http://127.0.0.1:1/", "tags": ["path"]}
        location = server.client.post(timers, json=body).headers["location"]
        assert server.client.get(location).json()["id"] == timer_id, location
        if timer_id not in ("..", "base64url:x"):  # which clients and servers read in another way
            encoded = f"{timers}/{quote(timer_id, safe='')}"
            assert server.client.get(encoded).json()["id"] == timer_id, encoded
    assert {item["id"] for item in server.ok("GET", "/timers", params={"tag": "path"})["items"]} == set(ids)


def test_many_clients_at_once_get_their_own_answers(server: DuetimeServer) -> None:
    problems: list[str] = []

    def create_and_read(worker: int) -> None:
        for number in range(20):
            timer_id = f"w{worker}-{number}"
            server.create(timer_id, delay="1h", callbackUrl="http://127.0.0.1:1/", payload=timer_id)
            seen = server.ok("GET", f"/timers/{timer_id}")
            if (seen["id"], seen["payload"]) != (timer_id, timer_id):
                problems.append(f"{timer_id}: {seen}")

    threads = [threading.Thread(target=create_and_read, args=(worker,)) for worker in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert problems == []


# -- settings ------------------------------------------------------------------------------------------------------


def test_it_says_that_callbacks_may_go_to_this_machine(server: DuetimeServer) -> None:
    told = server.wait_for("egress.loopback_allowed")
    assert "--egress-allow-loopback false" in told["message"]
    answer = server.client.post(
        "/v1/namespaces/default/timers", json={"delay": "1h", "callbackUrl": "http://10.0.0.1/"}
    )
    assert answer.status_code == 400
    assert [error["field"] for error in answer.json()["errors"]] == ["callbackUrl"]


def test_loopback_can_be_forbidden_and_the_default_number_of_shards_is_a_setting(
    receiver: CallbackReceiver, tmp_path: Path
) -> None:
    """A literal address is a 400; a name is accepted, never connected to, and in the end a dead letter."""
    options = ("--egress-allow-loopback", "false", "--default-num-shards", "3")
    with DuetimeServer(*options, cwd=tmp_path) as server:
        assert server.client.get("/v1/namespaces/default").json()["numShards"] == 3
        assert server.client.put("/v1/namespaces/new", json={}).json()["numShards"] == 3
        assert server.client.put("/v1/namespaces/other", json={"numShards": 5}).json()["numShards"] == 5
        path = "/v1/namespaces/default/timers"
        assert server.client.post(path, json={"delay": "1s", "callbackUrl": receiver.url}).status_code == 400
        retry = {"maxAttempts": 2, "initialInterval": "100ms"}
        by_name = receiver.url.replace("127.0.0.1", "localhost")
        server.create("t1", delay="0s", callbackUrl=by_name, retryPolicy=retry)
        server.wait_for("timer.failed")
        while server.ok("GET", "/timers/t1")["state"] != "Failed":  # until it is recorded
            assert server.process.poll() is None
        attempts = server.ok("GET", "/timers/t1/attempts")["items"]
        assert server.of("egress.loopback_allowed") == []
    assert receiver.arrivals == []
    assert [attempt["errorClass"] for attempt in attempts] == ["refused_address", "refused_address"]
