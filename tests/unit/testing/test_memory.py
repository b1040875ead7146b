from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest

from duetime.testing import InMemoryDuetime, Received, hang, in_memory, refuse, respond, take
from duetime_client import Conflict, InvalidRequest, NewSchedule, NotFound, RetryPolicy, TimerState

URL = "https://app.example.com/hook"
START = datetime(2026, 1, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def times(duetime: InMemoryDuetime) -> list[float]:
    return [(request.at - START).total_seconds() for request in duetime.receiver.requests]


def test_a_timer_of_next_week_fires_at_its_time_and_not_before(duetime: InMemoryDuetime) -> None:
    timers = duetime.client.timers()
    timers.create(timer_id="t", callback_url=URL, delay=timedelta(days=7), payload={"order": 7})

    duetime.clock.advance(days=7, milliseconds=-1)
    assert not duetime.receiver.requests
    assert duetime.clock.advance(milliseconds=1) == START + timedelta(days=7)

    (request,) = duetime.receiver.of("t")
    assert (request.at, request.attempt, request.payload) == (START + timedelta(days=7), 1, {"order": 7})
    assert (request.method, request.url, request.headers["content-type"]) == ("POST", URL, "application/json")
    assert timers.get("t").state is TimerState.FIRED


def test_retries_come_exactly_after_their_intervals(duetime: InMemoryDuetime) -> None:
    policy = RetryPolicy(initial_interval=timedelta(seconds=10), backoff_multiplier=3)
    duetime.client.timers().create(timer_id="t", callback_url=URL, delay=HOUR, retry_policy=policy)
    duetime.receiver.answer(503, refuse(), respond(429, headers={"Retry-After": "100"}), hang(), 200)

    duetime.clock.advance(hours=2)

    # 10 s, 30 s, 100 s as the receiver asks, and after 30 s without a response 270 s.
    assert times(duetime) == [3600, 3610, 3640, 3740, 4040]
    assert [request.attempt for request in duetime.receiver.requests] == [1, 2, 3, 4, 5]
    assert duetime.client.timers().get("t").attempts == 5


def test_more_failures_in_a_row_than_open_a_circuit_breaker_hide_no_retry(duetime: InMemoryDuetime) -> None:
    policy = RetryPolicy(max_attempts=40, initial_interval=timedelta(seconds=1), backoff_multiplier=1)
    duetime.client.timers().create(timer_id="t", callback_url=URL, delay=timedelta(0), retry_policy=policy)
    duetime.receiver.answer(503)
    duetime.client.timers().create(timer_id="u", callback_url=URL, delay=timedelta(0), retry_policy=policy)

    duetime.clock.advance(minutes=2)

    assert [request.at for request in duetime.receiver.of("u")] == [at(second) for second in range(40)]
    assert duetime.client.timers().get("u").state is TimerState.FAILED


def test_all_that_is_due_in_a_span_fires_in_the_order_of_its_times(duetime: InMemoryDuetime) -> None:
    for hours in (5, 1, 4, 2, 3):
        duetime.client.timers().create(callback_url=URL, delay=hours * HOUR, payload=hours)
    duetime.client.timers().create(callback_url=URL, delay=7 * HOUR)

    duetime.clock.advance(hours=6)

    assert [request.payload for request in duetime.receiver.requests] == [1, 2, 3, 4, 5]
    assert times(duetime) == [3600 * hours for hours in (1, 2, 3, 4, 5)]


def test_thousands_at_one_instant_all_fire(duetime: InMemoryDuetime) -> None:
    from duetime_client import NewTimer

    results = duetime.client.timers().create_many(
        NewTimer(callback_url=f"https://h{number % 7}.example.com/", delay=HOUR) for number in range(3000)
    )
    assert all(result.error is None for result in results)

    duetime.clock.advance(hours=1)

    assert set(times(duetime)) == {3600}
    assert len({request.timer_id for request in duetime.receiver.requests}) == len(duetime.receiver.requests) == 3000


def test_what_is_due_at_once_has_fired_when_the_request_returns(duetime: InMemoryDuetime) -> None:
    timer = duetime.client.timers().create(callback_url=URL, execute_at=START - HOUR, payload="late")
    assert [request.payload for request in duetime.receiver.requests] == ["late"]

    duetime.client.timers().put(timer.id, callback_url=URL, execute_at=START + HOUR, payload="now")
    duetime.client.timers().fire(timer.id)
    assert [request.payload for request in duetime.receiver.requests] == ["late", "now"]


def test_a_response_may_take_its_time(duetime: InMemoryDuetime) -> None:
    duetime.client.timers().create(timer_id="t", callback_url=URL, delay=HOUR)
    duetime.receiver.answer(respond(200, delay=timedelta(seconds=20)))

    duetime.clock.advance(hours=1)
    assert len(duetime.receiver.requests) == 1
    assert duetime.client.timers().get("t").state is not TimerState.FIRED
    duetime.clock.advance(seconds=20)
    assert duetime.client.timers().get("t").state is TimerState.FIRED


def test_a_response_that_takes_longer_than_the_callback_may_is_none(duetime: InMemoryDuetime) -> None:
    duetime.client.timers().create(timer_id="t", callback_url=URL, delay=HOUR, timeout=timedelta(seconds=5))
    duetime.receiver.answer(respond(200, delay=timedelta(seconds=5)), 200)

    duetime.clock.advance(hours=2)

    assert times(duetime) == [3600, 3607]


def test_a_receiver_reschedules_a_timer_within_the_span(duetime: InMemoryDuetime) -> None:
    def tomorrow(request: Received) -> object:
        return respond(json={"nextExecuteAt": (request.at + timedelta(days=1)).isoformat()})

    duetime.client.timers().create(timer_id="t", callback_url=URL, delay=timedelta(0))
    duetime.receiver.answer(tomorrow)  # type: ignore[arg-type]
    duetime.client.timers().create(timer_id="daily", callback_url=URL, delay=HOUR)

    duetime.clock.advance(days=3, hours=1)

    assert [request.at for request in duetime.receiver.of("daily")] == [
        START + HOUR + timedelta(days=day) for day in range(4)
    ]


def test_a_receiver_creates_timers_in_a_namespace_that_is_new(duetime: InMemoryDuetime) -> None:
    client = duetime.client

    def follow_up(request: Received) -> int:
        client.namespaces.put("others", num_shards=3, dedicated=True)
        for number in range(3):
            client.timers("others").create(timer_id=f"u{number}", callback_url=f"{URL}/2", delay=HOUR)
        return 200

    duetime.receiver.answer_at(URL, follow_up)
    client.timers().create(timer_id="t", callback_url=URL, delay=HOUR)

    duetime.clock.advance(hours=2)

    assert sorted(request.timer_id for request in duetime.receiver.at(f"{URL}/2")) == ["u0", "u1", "u2"]
    assert times(duetime) == [3600, 7200, 7200, 7200]


def test_what_a_receiver_raises_is_raised_where_the_test_is(duetime: InMemoryDuetime) -> None:
    def broken(request: Received) -> int:
        raise LookupError(request.payload)

    duetime.receiver.answer(broken)
    duetime.client.timers().create(callback_url=URL, delay=HOUR, payload="seen")

    with pytest.raises(LookupError, match="seen"):
        duetime.clock.advance(hours=1)
    assert duetime.clock.advance() == START + HOUR


def test_a_paused_namespace_holds_its_timers_and_costs_no_time(duetime: InMemoryDuetime) -> None:
    timers = duetime.client.timers()
    duetime.client.namespaces.pause("default")
    timers.create(timer_id="t", callback_url=URL, delay=HOUR)

    duetime.clock.advance(days=3)
    assert not duetime.receiver.requests

    duetime.client.namespaces.resume("default")
    assert [request.at for request in duetime.receiver.requests] == [START + timedelta(days=3)]


def test_a_rate_limit_spreads_what_is_due_at_once(duetime: InMemoryDuetime) -> None:
    duetime.client.namespaces.put("slow", rate_limit=0.1)
    for number in range(30):
        duetime.client.timers("slow").create(timer_id=str(number), callback_url=URL, delay=HOUR)

    duetime.clock.advance(hours=2)

    gaps = [round(later - earlier) for earlier, later in pairwise(times(duetime))]
    assert len(gaps) == 29
    assert set(gaps[:-2]) == {10}
    assert max(gaps) <= 60


def test_a_service_call_and_the_events_of_it_are_delivered_within_the_span(duetime: InMemoryDuetime) -> None:
    hooks, target = "https://hooks.example.com/", "https://api.example.com/run"
    duetime.client.event_webhook.put(url=hooks)
    duetime.receiver.answer_at(target, respond(json={"ok": True}))
    call = duetime.client.service_calls.submit(name="n", url=target, due_at=START + timedelta(days=2))

    duetime.clock.advance(days=3)

    (request,) = duetime.receiver.at(target)
    assert request.at == START + timedelta(days=2)
    assert str(duetime.client.service_calls.get(call.id).status).lower() == "succeeded"
    delivered = duetime.receiver.at(hooks)
    assert [event.json()["sequence"] for event in delivered] == list(range(1, len(delivered) + 1))
    assert delivered[0].at == START
    assert delivered[-1].at == START + timedelta(days=2)


def test_callbacks_are_signed(duetime: InMemoryDuetime) -> None:
    from duetime_client.webhooks import verify

    secret = duetime.client.signing_secrets().create()
    duetime.client.timers().create(callback_url=URL, delay=HOUR)
    duetime.clock.advance(hours=1)
    (request,) = duetime.receiver.requests
    verify(request.body, dict(request.headers), [secret.secret], now=request.at)


def test_two_runs_are_the_same() -> None:
    def run() -> list[tuple[datetime, bytes]]:
        with in_memory() as duetime:
            duetime.receiver.answer(500, 200, 503, refuse(), 200)
            for number in range(20):
                duetime.client.timers().create(timer_id=str(number), callback_url=URL, delay=number % 5 * HOUR)
            duetime.clock.advance(days=1)
            return [(request.at, request.body) for request in duetime.receiver.requests]

    assert run() == run()


def test_a_year_is_no_work_and_a_timer_at_its_end_fires_at_once(duetime: InMemoryDuetime) -> None:
    """After half a year a float has no nanoseconds, which is what asyncio counts in."""
    year = timedelta(days=365)
    duetime.client.timers().create(callback_url=URL, delay=year)
    duetime.clock.advance(year)
    assert [request.at for request in duetime.receiver.requests] == [START + year]


def test_time_does_not_go_back(duetime: InMemoryDuetime) -> None:
    with pytest.raises(ValueError, match="time does not go back"):
        duetime.clock.advance(seconds=-1)
    with pytest.raises(ValueError, match="time zone"):
        duetime.clock.advance_to(datetime(2027, 1, 1))
    assert duetime.clock.now() == START


def test_clients_of_other_tenants_and_asynchronous_ones_see_the_same_service(duetime: InMemoryDuetime) -> None:
    async def main() -> None:
        timers = duetime.async_client().timers()
        await timers.create(timer_id="t", callback_url=URL, delay=HOUR, payload=1)
        with pytest.raises(Conflict):
            await timers.create(timer_id="t", callback_url=URL, delay=HOUR, payload=2)
        duetime.clock.advance(hours=1)

    asyncio.run(main())
    assert times(duetime) == [3600]
    other = duetime.client_for("other").service_calls.submit(name="n", url=URL, due_at=START)
    assert duetime.receiver.requests[-1].url == URL
    assert other.tenant_id == "other"


@pytest.mark.parametrize("start", [datetime(2030, 5, 1, 12, tzinfo=UTC)])
def test_time_begins_when_a_test_says(start: datetime) -> None:
    with in_memory(start, fired_retention_seconds=3600) as duetime:
        assert duetime.clock.now() == start


def test_without_retention_a_timer_is_gone_when_it_has_fired_or_is_cancelled() -> None:
    with in_memory(fired_retention_seconds=0) as duetime:
        timers = duetime.client.timers()
        for end in (lambda: duetime.clock.advance(hours=1), lambda: timers.cancel("t")):
            timers.create(timer_id="t", callback_url=URL, delay=HOUR)
            assert timers.get("t").revision == 1
            end()
            with pytest.raises(NotFound):
                timers.get("t")
            assert list(timers.list()) == []
            assert len(duetime.receiver.requests) == 1


def test_a_dead_letter_is_redriven_and_fires_as_the_same_message(duetime: InMemoryDuetime) -> None:
    timers = duetime.client.timers()
    duetime.receiver.answer(400, 200)
    timers.create(timer_id="t", callback_url=URL, delay=HOUR, payload={"n": 1.5})
    duetime.clock.advance(hours=1)
    (letter,) = timers.dead_letters(reason="HttpStatus")
    assert (letter.id, letter.attempts, letter.failure and letter.failure.status) == ("t", 1, 400)

    assert timers.redrive("t").attempts == 0

    first, second = duetime.receiver.requests
    assert second.headers["webhook-id"] == first.headers["webhook-id"]
    assert (second.payload, second.attempt) == ({"n": 1.5}, 1)
    assert timers.get("t").state is TimerState.FIRED


def test_work_that_is_taken_waits_for_its_answer(duetime: InMemoryDuetime) -> None:
    timers = duetime.client.timers()
    duetime.receiver.answer(take(timedelta(minutes=10)), 200)
    timers.create(timer_id="t", callback_url=URL, delay=HOUR)
    duetime.clock.advance(hours=1, minutes=5)
    assert (timers.get("t").state, len(duetime.receiver.requests)) == (TimerState.WAITING, 1)
    firing_id = duetime.receiver.requests[0].headers["webhook-id"]

    still = timers.answer("t", firing_id, "heartbeat", within=timedelta(minutes=20))
    duetime.clock.advance(minutes=15)
    assert still.answer_by is not None
    assert timers.get("t").state is TimerState.WAITING
    assert timers.answer("t", firing_id, "ack").outcome == "Fired"

    duetime.clock.advance(minutes=1)
    assert (timers.get("t").state, timers.get("t").attempts) == (TimerState.FIRED, 1)


def test_an_occurrence_that_is_taken_is_answered_for_by_its_time(duetime: InMemoryDuetime) -> None:
    schedules = duetime.client.schedules
    duetime.receiver.answer(take(HOUR))
    schedules.create("default", NewSchedule(every=HOUR, callback_url=URL), schedule_id="s")
    schedules.trigger("default", "s")
    (request,) = duetime.receiver.requests

    answered = schedules.answer(
        "default",
        "s",
        request.headers["webhook-id"],
        "nack",
        scheduled_at=datetime.fromisoformat(request.json()["scheduledAt"]),
        message="no paper",
        retry=False,
    )

    assert (answered.attempt, answered.outcome) == (1, "Failed")


def test_answers_are_checked(duetime: InMemoryDuetime) -> None:
    timers = duetime.client.timers()
    timers.create(timer_id="t", callback_url=URL, delay=HOUR)
    for kind, given, field in (
        ("ack", {"message": "m"}, "message"),
        ("ack", {"within": HOUR}, "within"),
        ("nack", {"within": HOUR}, "within"),
        ("heartbeat", {}, "within"),
        ("heartbeat", {"within": timedelta(days=2)}, "within"),
        ("heartbeat", {"within": timedelta()}, "within"),
        ("heartbeat", {"within": HOUR, "retry": True}, "retry"),
        ("nack", {"message": "m" * 201}, "message"),
    ):
        with pytest.raises(InvalidRequest, match=field):
            timers.answer("t", "f", kind, **given)
    with pytest.raises(NotFound, match="route_not_found"):
        timers.answer("t", "f", "maybe")
