"""``duetime serve --clock virtual`` as a process, with a receiver on the network."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

from tests.support.callbacks import Arrival, CallbackReceiver
from tests.support.processes import DuetimeServer


def virtual(tmp_path: Path, *options: str) -> DuetimeServer:
    return DuetimeServer("--clock", "virtual", "--start", "2026-01-01T00:00:00Z", *options, cwd=tmp_path)


def advance(server: DuetimeServer, **how: str) -> Any:
    answer = server.client.post("/v1/clock/advance", json=how)
    assert answer.status_code == 200, answer.text
    return answer.json()


def fired(receiver: CallbackReceiver) -> list[tuple[str, str, int]]:
    return [(arrival.timer_id, arrival.body["firedAt"], arrival.body["attempt"]) for arrival in receiver.arrivals]


def test_a_week_is_rehearsed_in_order_with_its_retries_and_reschedules(tmp_path: Path) -> None:
    def answer(arrival: Arrival) -> tuple[int, bytes]:
        if arrival.timer_id == "flaky" and arrival.body["attempt"] == 1:
            return 503, b""
        if arrival.timer_id == "again" and arrival.body["executeAt"] < "2026-01-03":
            return 200, b'{"nextExecuteAt": "2026-01-06T12:00:00Z"}'
        return 200, b""

    with CallbackReceiver(answer) as receiver, virtual(tmp_path) as server:
        assert server.client.get("/v1/clock").json() == {"now": "2026-01-01T00:00:00.000Z"}
        server.create("now", delay="0s", callbackUrl=receiver.url)  # needs no advance
        assert receiver.wait_for_timer("now").body["firedAt"] == "2026-01-01T00:00:00.000Z"
        retry = {"initialInterval": "30s"}
        server.create("week", delay="P7D", callbackUrl=receiver.url)
        server.create("flaky", delay="P3D", callbackUrl=receiver.url, retryPolicy=retry)
        server.create("again", delay="P1D", callbackUrl=receiver.url)
        server.create("later", delay="P8D", callbackUrl=receiver.url)

        assert advance(server, by="P7D") == {"now": "2026-01-08T00:00:00.000Z", "attempts": 5}

        assert fired(receiver)[1:] == [
            ("again", "2026-01-02T00:00:00.000Z", 1),
            ("flaky", "2026-01-04T00:00:00.000Z", 1),
            ("flaky", "2026-01-04T00:00:30.000Z", 2),
            ("again", "2026-01-06T12:00:00.000Z", 1),
            ("week", "2026-01-08T00:00:00.000Z", 1),
        ]
        assert server.ok("GET", "/timers/flaky")["attempts"] == 2
        assert server.wait_for("server.virtual_clock")["now"] == "2026-01-01T00:00:00.000Z"
        assert advance(server, to="2026-01-09T00:00:00Z") == {"now": "2026-01-09T00:00:00.000Z", "attempts": 1}
        assert server.terminate() == 0
    assert not list(tmp_path.iterdir())


def test_a_receiver_pauses_its_schedule_and_ends_another_one(tmp_path: Path) -> None:
    def answer(arrival: Arrival) -> tuple[int, bytes]:
        if arrival.body["occurrence"] < 2:
            return 200, b""
        return 200, b'{"pause": "full"}' if arrival.body["scheduleId"] == "a" else b'{"end": true}'

    with CallbackReceiver(answer) as receiver, virtual(tmp_path) as server:
        for name in ("a", "b"):
            body = {"id": name, "every": "1h", "callbackUrl": receiver.url, "pauseAfter": 3}
            assert server.client.post("/v1/namespaces/default/schedules", json=body).status_code == 201

        assert advance(server, by="PT5H")["attempts"] == 4

        paused, ended = server.ok("GET", "/schedules/a"), server.ok("GET", "/schedules/b")
        assert (paused["state"], paused["pauseReason"]) == ("Paused", "the receiver paused the schedule: full")
        assert paused["pauseAfter"] == 3
        assert (ended["state"], ended["endReason"], ended["nextDueAt"]) == ("Ended", "receiver", None)
        lines = server.ok("GET", "/schedules/b/occurrences")["past"]
        assert [line["message"] for line in lines] == ["the receiver ended the schedule", None]
        response = server.client.patch("/v1/namespaces/default/schedules/b", json={"every": "2h"})
        assert (response.status_code, response.json()["code"]) == (409, "schedule_ended")


def test_time_stands_still_while_a_receiver_takes_its_time(tmp_path: Path) -> None:
    go_on = threading.Event()

    def answer(arrival: Arrival) -> tuple[int, bytes]:
        go_on.wait(30)
        return 200, b""

    with CallbackReceiver(answer) as receiver, virtual(tmp_path) as server:
        server.create("slow", delay="PT1H", callbackUrl=receiver.url)
        server.create("next", delay="PT1H1S", callbackUrl=receiver.url)
        done: list[Any] = []
        thread = threading.Thread(target=lambda: done.append(advance(server, by="PT2H")))
        thread.start()
        receiver.wait_for_timer("slow")
        assert server.client.get("/v1/clock").json() == {"now": "2026-01-01T01:00:00.000Z"}
        assert not done
        go_on.set()
        thread.join(60)
        assert done == [{"now": "2026-01-01T02:00:00.000Z", "attempts": 2}]
