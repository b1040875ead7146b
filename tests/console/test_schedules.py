"""Schedules: created with a preview, found, changed, paused, triggered, removed, and what happened to occurrences."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from tests.console.conftest import Console, GuardedServer, wait_for
from tests.console.test_page import NewConsole, sign_in
from tests.console.test_timers import expect_state
from tests.support.receiver import Receiver, reply

if TYPE_CHECKING:
    from playwright.sync_api import Page

PREVIEW = "v1/schedules/preview"


def path(console: Console, *more: str) -> str:
    return "/".join([f"/v1/namespaces/{console.namespace}/schedules", *more])


def make(console: Console, schedule_id: str, url: str, **more: Any) -> Any:
    return console.api("POST", path(console), json={"id": schedule_id, "callbackUrl": url, **more})


def stored(console: Console, schedule_id: str) -> Any:
    return console.api("GET", path(console, schedule_id))


def open_form(console: Console) -> Page:
    console.make_namespace()
    console.open("schedules", console.namespace, "new")
    console.page.get_by_label("Time zone").fill("Europe/Berlin")
    return console.page


def warnings(page: Page) -> list[str]:
    return list(page.locator(".preview .notice").all_inner_texts())


def test_a_schedule_is_created_with_a_preview(console: Console) -> None:
    console.make_namespace()
    page = console.page
    console.open("schedules", console.namespace)
    page.get_by_text("No schedules yet.").wait_for()
    page.get_by_role("link", name="Create a schedule").click()
    assert page.get_by_label("Time zone").input_value() in ("Asia/Kolkata", "Asia/Calcutta")
    page.get_by_text("Write a cron expression, an interval or a rule").wait_for()

    page.get_by_label("Cron").fill("30 9 * * MON-FRI\n0 12 * * SAT")
    page.get_by_label("Time zone").fill("Europe/Berlin")
    page.get_by_text("At 09:30, Monday to Friday; At 12:00, only on Saturday, Europe/Berlin").wait_for()
    rows = page.locator(".preview tbody tr")
    assert rows.count() == 10
    assert re.match(
        r"(Mon|Tue|Wed|Thu|Fri) 20\d\d-\d\d-\d\d 09:30:00 \+0[12]:00|Sat .* 12:00:00", rows.first.inner_text()
    )

    page.get_by_label("Callback URL").fill("http://127.0.0.1:1/hook")
    page.get_by_label("Id", exact=True).fill("daily report#1")
    page.get_by_text("Missed, overlapping, ending").click()
    page.get_by_label("When missed").select_option("latest")
    page.get_by_label("Pause after").fill("5")
    page.get_by_text("What is sent").click()
    page.get_by_label("Payload").fill('{"n": 1.10}')
    page.get_by_label("Tags").fill("reports\nfinance")
    page.get_by_role("button", name="Create").click()

    expect_state(page, "Active")
    assert "At 09:30, Monday to Friday" in page.locator(".lead").inner_text()
    page.locator(".strip li.busy").first.wait_for()
    page.get_by_text("No occurrence yet.").wait_for()
    made = stored(console, "daily report%231")
    assert (made["cron"], made["timeZone"]) == (["30 9 * * MON-FRI", "0 12 * * SAT"], "Europe/Berlin")
    assert (made["misfire"], made["tags"], made["payload"]) == ("latest", ["reports", "finance"], {"n": 1.1})
    assert (made["pauseAfter"], made["maxFirings"], made["rrule"], made["dst"]) == (5, None, [], "once")
    page.get_by_role("link", name=f"Schedules of {console.namespace}").click()
    row = page.locator("tbody tr", has_text="daily report#1")
    assert "At 09:30, Monday to Friday" in row.inner_text()


def test_schedules_are_filtered(console: Console) -> None:
    console.make_namespace()
    for name, tags, paused in (("a", ["x"], False), ("b", ["x"], True), ("c", [], False)):
        make(console, name, "http://127.0.0.1:1/", cron="0 9 1 1 *", tags=tags, paused=paused)
    page = console.page
    console.open("schedules", console.namespace)
    page.locator("tbody tr").nth(2).wait_for()
    page.get_by_label("Tag").fill("x")
    page.keyboard.press("Enter")
    page.locator("tbody a", has_text=re.compile("^c$")).wait_for(state="detached")
    page.get_by_role("link", name="Paused", exact=True).click()
    page.locator("tbody a", has_text=re.compile("^a$")).wait_for(state="detached")
    assert page.locator("tbody .main-cell > a").all_inner_texts() == ["b"]
    page.get_by_role("link", name="Ended", exact=True).click()
    page.get_by_text("No schedule matches these filters.").wait_for()


def test_changes_of_clocks_that_affect_it_are_told(console: Console) -> None:
    page = open_form(console)
    page.get_by_label("Cron").fill("30 9 * * *")
    page.get_by_text("At 09:30, every day").wait_for()
    assert warnings(page) == []
    page.get_by_label("Cron").fill("30 2 * * *")
    page.locator(".preview .notice").wait_for()
    (told,) = warnings(page)
    assert re.fullmatch(r"On Sun 20\d\d-03-\d\d clocks are set from 02:00 to 03:00\. .* fires at 03:00\.", told)
    page.get_by_text("More about its times").click()
    page.get_by_label("Clock changes").select_option("skip")
    page.get_by_text("An occurrence in between does not fire.").wait_for()
    page.get_by_label("Clock changes").select_option("both")
    page.get_by_text("An occurrence in between fires twice.").wait_for()
    assert len(warnings(page)) == 2


def test_a_preview_waits_for_a_rest_and_says_what_is_wrong(console: Console) -> None:
    page = open_form(console)
    for _ in range(3):
        page.get_by_label("Cron").press_sequentially("0 0 31 2 *", delay=10)
        page.get_by_label("Cron").fill("")
    page.get_by_label("Cron").press_sequentially("0 0 31 2 *", delay=10)
    page.locator(".preview", has_text="cron: day-of-month: no month of the expression has such a day").wait_for()
    assert len([each for each in console.requests if each.endswith(PREVIEW)]) <= 2
    page.get_by_label("Callback URL").fill("http://127.0.0.1:1/")
    page.get_by_role("button", name="Create").click()
    page.locator(".field", has=page.get_by_label("Cron")).locator(".field-error:not(:empty)").wait_for()
    page.get_by_label("Cron").fill("")
    page.get_by_label("Every").fill("90m")
    page.get_by_text("Every 90 minutes").wait_for()
    assert page.locator(".preview-error").count() == 0


def test_only_what_was_changed_is_sent(console: Console) -> None:
    console.make_namespace()
    url = "http://127.0.0.1:1/hook"
    policy = {"maxAttempts": 3, "initialInterval": "5s"}
    given = {
        "headers": {"X-Of": "me"},
        "payload": {"n": 1},
        "retryPolicy": policy,
        "startAt": "2030-01-01T00:00:00.123Z",
    }
    make(console, "s", url, every="1h", maxFirings=7, exclude=["2030-12-25"], correlationId="c", **given)
    page = console.page
    console.open("schedules", console.namespace, "schedule", "s")
    page.get_by_role("link", name="Change").click()
    page.locator(".preview", has_text="Every hour").wait_for()
    assert page.get_by_label("Every").input_value() == "1h"
    page.get_by_text("What is sent").click()
    # Somebody else changes something else meanwhile.
    console.api("PATCH", path(console, "s"), json={"tags": ["theirs"]})
    page.get_by_label("Every").fill("2h")
    page.get_by_text("Missed, overlapping, ending").click()
    page.get_by_label("Firings at most").fill("")
    page.get_by_label("Payload").fill("")
    with page.expect_request(lambda request: request.method == "PATCH") as sent:
        page.get_by_role("button", name="Change").click()
    expect_state(page, "Active")
    assert sent.value.post_data_json == {"every": "2h", "maxFirings": None, "payload": None}
    found = stored(console, "s")
    assert (found["every"], found["maxFirings"], found["tags"], found["payload"]) == ("2h", None, ["theirs"], None)
    assert (found["startAt"], found["headers"]) == ("2030-01-01T00:00:00.123Z", {"X-Of": "me"})


def test_one_is_paused_with_a_reason_resumed_triggered_and_removed(console: Console, receiver: Receiver) -> None:
    console.make_namespace()
    make(console, "s", receiver.on("/triggered", reply(200)), cron="0 9 * * *", misfire="latest")
    page = console.page
    console.open("schedules", console.namespace, "schedule", "s")
    expect_state(page, "Active")
    page.get_by_role("button", name="Pause", exact=True).click()
    page.get_by_role("dialog").get_by_label("Reason").fill("the shop moves")
    page.get_by_role("dialog").get_by_role("button", name="Pause").click()
    expect_state(page, "Paused")
    assert ": the shop moves." in page.locator(".lead").inner_text()
    assert stored(console, "s")["pauseReason"] == "the shop moves"

    page.get_by_role("button", name="Trigger now").click()
    receiver.wait_for(1, path="/triggered")
    page.get_by_role("button", name="Resume").click()
    page.get_by_role("dialog").get_by_text("the last one fires now").wait_for()
    page.get_by_role("dialog").get_by_role("button", name="Resume").click()
    expect_state(page, "Active")
    page.get_by_role("button", name="Remove").click()
    page.get_by_role("button", name="Remove the schedule").click()
    page.get_by_text("No schedules yet.").wait_for()


def test_the_history_says_what_happened(console: Console, receiver: Receiver) -> None:
    console.make_namespace()
    url = receiver.on("/history", reply(200), reply(500, b"down"))
    make(console, "s", url, every="1s", maxFirings=2, retryPolicy={"maxAttempts": 1})
    wait_for(lambda: stored(console, "s")["state"] == "Ended")
    page = console.page
    console.open("schedules", console.namespace, "schedule", "s")
    expect_state(page, "Ended")
    assert "Ended after 2 firings." in page.locator(".lead").inner_text()
    lines = page.get_by_role("table", name="Past occurrences").locator("tbody tr")
    lines.nth(1).wait_for()
    assert re.search(r"2\s+Failed\s.*500\s+HttpStatus", lines.nth(0).inner_text(), re.DOTALL)
    assert re.search(r"1\s+Fired\s.* after its time", lines.nth(1).inner_text(), re.DOTALL)
    assert page.get_by_role("button", name="Pause", exact=True).count() == 0
    page.get_by_role("link", name=f"Schedules of {console.namespace}").click()
    page.locator("tbody tr", has_text="500 HttpStatus").locator(".badge", has_text="Ended").wait_for()


def test_what_the_receiver_asked_for_is_told(console: Console, receiver: Receiver) -> None:
    console.make_namespace()
    make(console, "p", receiver.on("/pauses", reply(200, b'{"pause": "stocktaking"}')), every="1s", pauseAfter=3)
    make(console, "e", receiver.on("/ends", reply(200, b'{"end": true}')), every="1s")
    page = console.page
    console.open("schedules", console.namespace, "schedule", "p")
    expect_state(page, "Paused")
    page.locator("tr", has_text="the receiver paused the schedule: stocktaking").wait_for()
    page.locator(".facts", has_text="3 failures in a row").wait_for()
    console.open("schedules", console.namespace, "schedule", "e")
    expect_state(page, "Ended")
    assert "Ended: its receiver asked for it." in page.locator(".lead").inner_text()
    assert page.get_by_role("link", name="Change").count() == 0


def test_a_span_of_missed_occurrences_is_one_line(console: Console) -> None:
    console.make_namespace()
    make(console, "s", "http://127.0.0.1:1/", cron="0 9 * * *")
    page = console.page
    span = {
        "number": 4,
        "state": "Missed",
        "scheduledAt": "2026-01-01T00:00:00.000Z",
        "attempts": 0,
        "failure": None,
        "message": None,
    }
    times = {
        "lastScheduledAt": "2026-01-02T00:00:00.000Z",
        "recordedAt": "2026-01-02T00:02:00.000Z",
        "startedAt": None,
    }
    past = [{**span, **times, "count": 100}, *[{**span, **times, "count": 7}] * 10, {**span, **times, "count": 8}]
    page.route("**/occurrences?*", lambda route: route.fulfill(json={"past": past, "coming": []}))
    console.open("schedules", console.namespace, "schedule", "s")
    page.get_by_text("100 or more occurrences, too late").wait_for()
    page.get_by_text("7 occurrences, too late", exact=True).first.wait_for()
    assert not page.get_by_text("8 occurrences, too late").is_visible()
    page.get_by_text("2 before").click()
    page.get_by_text("8 occurrences, too late").wait_for()
    assert "to 2026-01-02 05:30:00" in page.locator("tr", has_text="Missed").first.inner_text()


def test_the_page_follows_the_occurrences(console: Console, receiver: Receiver) -> None:
    console.make_namespace()
    make(console, "s", receiver.on("/follows", reply(200)), every="1s")
    page = console.page
    console.open("schedules", console.namespace, "schedule", "s")
    page.locator("tr", has_text="Fired").nth(2).wait_for()


def test_a_reader_sees_schedules_and_no_button(guarded: GuardedServer, new_console: NewConsole) -> None:
    console = new_console(guarded.server)
    page, tenant = console.page, "schedule-readers"
    admin = {"authorization": f"Bearer {guarded.make_key('admin', tenant=tenant)}"}
    console.api("PUT", f"/v1/namespaces/{console.namespace}", json={"numShards": 1}, headers=admin)
    body = {"id": "seen", "callbackUrl": "http://127.0.0.1:1/", "cron": "0 9 * * *"}
    console.api("POST", path(console), json=body, headers=admin)
    console.open("schedules", console.namespace)
    sign_in(page, guarded.make_key("reader", tenant=tenant))
    page.get_by_role("link", name="seen").wait_for()
    assert page.get_by_role("link", name="Create a schedule").count() == 0
    page.get_by_role("link", name="seen").click()
    expect_state(page, "Active")
    assert page.locator("main .head button, main .head .button").count() == 0


DAYS = [f"2026-03-{day:02}T02:30:00.000+01:00" for day in range(27, 29)] + ["2026-03-29T03:00:00.000+02:00"]


def test_days_with_occurrences_are_those_of_the_schedules_zone(console: Console) -> None:
    page = console.page
    console.open()
    script = """async ([coming, at]) => {
        const beside = document.querySelector('script').src;
        const { calendarDays } = await import(new URL('schedule-calendar.js', beside).href);
        const { clockWords } = await import(new URL('schedule-preview.js', beside).href);
        const items = coming.map((localTime) => ({ localTime }));
        const change = { setFrom: '2026-03-29T02:00:00.000+01:00', setTo: '2026-03-29T03:00:00.000+02:00' };
        return {
            all: calendarDays(items, 10, Date.parse(at)),
            cut: calendarDays(items, 3, Date.parse(at)),
            few: calendarDays(items, 2, Date.parse(at)),
            behind: calendarDays([{ localTime: '2026-01-01T00:00:00.000-03:30' }], 10, Date.UTC(2026, 0, 1, 3, 29)),
            none: calendarDays([], 10, 0),
            unknown: clockWords({ ...change, effect: 'new' }),
        };
    }"""
    found = page.evaluate(script, [DAYS, "2026-03-26T23:30:00Z"])
    assert len(found["all"]) == 28
    assert found["all"][:4] == [
        {"date": "2026-03-27", "times": ["02:30"]},
        {"date": "2026-03-28", "times": ["02:30"]},
        {"date": "2026-03-29", "times": ["03:00"]},
        {"date": "2026-03-30", "times": []},
    ]
    # The last day that is known may have more; nothing is drawn where it is known of few days.
    assert found["cut"] == found["few"] == found["none"] == []
    assert [day["date"] for day in found["behind"][:2]] == ["2025-12-31", "2026-01-01"]
    assert found["unknown"].endswith("An occurrence is affected.")
