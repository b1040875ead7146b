"""Timers: created, found, changed, fired, and redriven when they failed."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tests.console.conftest import Console, wait_for
from tests.support.receiver import Receiver, reply

if TYPE_CHECKING:
    from playwright.sync_api import Page

ONCE = {"maxAttempts": 1}


def expect_state(page: Page, state: str) -> None:
    page.locator(".lead .badge", has_text=re.compile(f"^{state}$")).wait_for()


def ids(page: Page) -> list[str]:
    page.locator(".region[aria-busy=false]").wait_for()
    return list(page.locator("tbody .main-cell > a").all_inner_texts())


def failed_ids(console: Console) -> set[str]:
    path = f"/v1/namespaces/{console.namespace}/timers?state=Failed"
    return {timer["id"] for timer in console.api("GET", path)["items"]}


def make_letters(console: Console, url: str, *timer_ids: str, **more: object) -> None:
    for timer_id in timer_ids:
        console.create(timer_id, url, retryPolicy=ONCE, **more)
    wait_for(lambda: set(timer_ids) <= failed_ids(console))


def test_a_due_time_by_the_clocks_of_a_zone_says_what_it_means(console: Console) -> None:
    console.make_namespace()
    page = console.page
    console.timers()
    page.get_by_role("link", name="Create a timer").click()
    page.get_by_label("Callback URL").fill("https://example.com/")
    page.get_by_label("Id", exact=True).fill("local")
    page.get_by_label("Due", exact=True).select_option("local")
    page.get_by_label("Time zone").fill("Europe/Berlin")
    for local, words in (
        ("2040-03-25T02:30", "This time does not exist: clocks are set forward."),
        ("2040-10-28T02:30", "This time happens twice: clocks are set back."),
        ("2040-06-01T09:00", "Fri 2040-06-01 09:00:00 +02:00, in"),
    ):
        page.get_by_label("Local time").fill(local)
        page.locator(".local-due .hint[role=status]", has_text=words).wait_for()
    page.get_by_role("button", name="Create").click()
    expect_state(page, "Scheduled")
    page.get_by_text("2040-06-01 09:00:00 Europe/Berlin").wait_for()

    page.get_by_role("button", name="Change due time").click()
    assert page.get_by_label("Due", exact=True).input_value() == "local"
    page.get_by_label("Local time").fill("2040-06-01T10:00")
    page.get_by_role("button", name="Change", exact=True).click()
    page.get_by_text("2040-06-01 10:00:00 Europe/Berlin").wait_for()
    timer = console.api("GET", f"/v1/namespaces/{console.namespace}/timers/local")
    assert timer["executeAt"] == "2040-06-01T08:00:00.000Z"


def test_a_timer_is_created_and_fires_with_the_very_payload(console: Console, receiver: Receiver) -> None:
    console.make_namespace()
    url = receiver.on("/fires", reply(200, b'{"ok": true}'))
    payload = '{"n": 12345678901234567890, "f": 1.10, "a": [], "s": "<b>\\u00e9</b>"}'
    page = console.page
    console.timers()
    page.get_by_text("No timers yet.").wait_for()
    page.get_by_role("link", name="Create a timer").click()
    page.get_by_label("Callback URL").fill(url)
    page.get_by_label("Id", exact=True).fill("order 1#?%")
    page.get_by_label("Due", exact=True).select_option("in")
    page.get_by_label("Delay").fill("1h")
    page.get_by_label("Payload").fill(payload)
    page.get_by_label("Tags").fill("orders")
    page.get_by_role("button", name="Create").click()
    expect_state(page, "Scheduled")
    assert "Fires in 59 min" in page.locator(".lead").inner_text() or "in 1 h" in page.locator(".lead").inner_text()

    page.get_by_role("button", name="Fire now").click()
    (arrived,) = receiver.wait_for(1, path="/fires")
    assert payload.encode() in arrived.body
    expect_state(page, "Fired")
    assert "the receiver responded 200" in page.locator(".lead").inner_text()
    box = page.get_by_label("payload", exact=True)
    assert box.inner_text() == (
        '{\n  "n": 12345678901234567890,\n  "f": 1.10,\n  "a": [],\n  "s": "<b>\\u00e9</b>"\n}'
    )
    page.locator("details.execution[open] pre", has_text='"ok": true').wait_for()


def test_timers_are_found_filtered_and_changed(console: Console, receiver: Receiver) -> None:
    console.make_namespace()
    for number in range(3):
        console.create(
            f"t{number}", receiver.url("/"), executeAt=f"2099-01-0{number + 1}T00:00:00Z", tags=[f"tag{number}"]
        )
    console.create("a?b c", receiver.url("/"), executeAt="2099-02-01T00:00:00Z", correlationId="order-7")
    page = console.page
    console.timers()
    page.locator("tbody tr").nth(3).wait_for()
    assert sorted(ids(page)) == ["a?b c", "t0", "t1", "t2"]
    console.timers(query="?correlationId=order-7")
    assert ids(page) == ["a?b c"]
    page.get_by_role("link", name="Clear").click()
    page.get_by_label("Due from").fill("2099-01-02T00:00:00")
    page.get_by_label("Due before").fill("2099-01-03T00:00:00")
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile("dueFrom=2099-01-01T18%3A30"))
    page.locator("tbody tr").first.wait_for()
    assert ids(page) == ["t1"]
    page.get_by_role("link", name="Fired", exact=True).click()
    page.get_by_text("No timer matches these filters.").wait_for()

    page.get_by_label("Timer id").fill("nothing")
    page.get_by_role("button", name="Find").click()
    page.get_by_text("There is no such timer.").wait_for()
    page.get_by_label("Timer id").fill("a?b c")
    page.get_by_role("button", name="Find").click()
    expect_state(page, "Scheduled")
    page.get_by_role("button", name="Change due time").click()
    # In the browser's time zone.
    assert page.get_by_label("Time", exact=True).input_value() == "2099-02-01T05:30"
    page.get_by_label("Time", exact=True).fill("2099-03-01T05:30")
    page.get_by_role("button", name="Change", exact=True).click()
    page.locator(".facts time[datetime='2099-03-01T00:00:00.000Z']").first.wait_for()
    assert page.locator(".facts time").first.get_attribute("title") == "2099-03-01T00:00:00.000Z (UTC)"
    page.get_by_role("button", name="Cancel").click()
    page.get_by_role("button", name="Cancel the timer").click()
    expect_state(page, "Cancelled")
    page.get_by_role("button", name="Remove").click()
    page.get_by_role("button", name="Remove the timer").click()
    page.locator("tbody tr").nth(2).wait_for()
    assert sorted(ids(page)) == ["t0", "t1", "t2"]


def test_dead_letters_are_redriven_by_selection_by_filter_and_removed(console: Console, receiver: Receiver) -> None:
    console.make_namespace()
    url = receiver.on("/dead", reply(500, b"down"))
    make_letters(console, url, "a", "b", "c", tags=["x"])
    make_letters(console, "http://127.0.0.1:1/", "d", tags=["y"])
    page = console.page
    console.open("dead-letters", console.namespace)
    page.locator("tbody tr").nth(3).wait_for()
    assert "HttpStatus 500" in page.locator("tr", has_text="/dead").first.inner_text().replace("\n", " ")
    page.get_by_label("Reason").select_option("Network")
    page.wait_for_url(re.compile("reason=Network"))
    page.locator("tbody tr", has_text="127.0.0.1:1").wait_for()
    assert ids(page) == ["d"]
    page.get_by_role("link", name="Clear").click()
    page.locator("tbody tr").nth(3).wait_for()
    assert page.get_by_role("button", name="Redrive selected").is_disabled()

    receiver.on("/dead", reply(200))
    page.get_by_label("Select a", exact=True).check()
    page.get_by_label("Select d", exact=True).check()
    page.get_by_text("2 selected").wait_for()
    page.get_by_role("button", name="Redrive selected").click()
    page.get_by_text("2 redriven.").wait_for()
    page.locator("a", has_text=re.compile("^a$")).wait_for(state="detached")

    console.open("dead-letters", console.namespace, query="?tag=x")
    page.locator("tbody tr").nth(1).wait_for()
    page.get_by_role("button", name="Redrive all that match").click()
    page.get_by_role("dialog").get_by_role("button", name="Redrive").click()
    page.get_by_text("2 redriven.").last.wait_for()
    page.get_by_text("No dead letter matches these filters.").wait_for()

    console.open("dead-letters", console.namespace)
    page.locator("tbody tr", has_text="127.0.0.1:1").wait_for()
    page.get_by_label("Select all on this page").check()
    page.get_by_role("button", name="Remove selected").click()
    page.get_by_role("dialog").get_by_role("button", name="Remove").click()
    page.get_by_text("No dead letters.").wait_for()
    timers = console.api("GET", f"/v1/namespaces/{console.namespace}/timers")["items"]
    assert sorted(timer["id"] for timer in timers) == ["a", "b", "c"]


def test_a_dead_letter_is_redriven_by_itself(console: Console, receiver: Receiver) -> None:
    console.make_namespace()
    url = receiver.on("/single", reply(404, b"who?"), reply(200, b"I see"))
    make_letters(console, url, "single")
    page = console.page
    console.timers("timer", "single")
    expect_state(page, "Failed")
    page.locator("pre", has_text="who?").wait_for()
    page.get_by_role("button", name="Redrive").click()
    expect_state(page, "Fired")
    page.locator("pre", has_text="I see").wait_for()
    assert page.locator("details.execution").count() == 2


def test_faults_are_shown_at_their_fields(console: Console) -> None:
    console.make_namespace()
    page = console.page
    console.timers("new")
    page.get_by_label("Callback URL").fill("http://user@example.com/")
    page.get_by_label("Id", exact=True).fill("a/b")
    page.get_by_label("Payload").fill("nonsense")
    page.get_by_role("button", name="Create").click()
    page.get_by_text("is not JSON").wait_for()
    page.get_by_label("Payload").fill("")
    page.get_by_role("button", name="Create").click()
    page.locator(".field", has=page.get_by_label("Callback URL")).locator(".field-error:not(:empty)").wait_for()
    page.get_by_label("Callback URL").fill("http://example.com/")
    page.get_by_role("button", name="Create").click()
    page.locator(".field", has=page.get_by_label("Id", exact=True)).locator(".field-error:not(:empty)").wait_for()
    assert console.api("GET", f"/v1/namespaces/{console.namespace}/timers")["items"] == []


def test_a_namespace_that_is_not_there_and_one_that_is_made(console: Console) -> None:
    page = console.page
    console.timers()
    page.get_by_text("404 Namespace not found").wait_for()
    page.get_by_role("link", name="Overview", exact=True).click()
    page.get_by_role("button", name="Create").click()
    page.get_by_role("dialog").get_by_label("Name").fill("Not A Name")
    page.get_by_role("dialog").get_by_role("button", name="Create").click()
    page.locator(".field-error:not(:empty)").wait_for()
    page.get_by_role("dialog").get_by_label("Name").fill(console.namespace)
    page.get_by_role("dialog").get_by_label("Shards", exact=True).fill("2")
    page.get_by_role("dialog").get_by_role("button", name="Create").click()
    page.get_by_role("link", name=console.namespace).click()
    page.get_by_text("No timers yet.").wait_for()
    assert console.api("GET", f"/v1/namespaces/{console.namespace}")["numShards"] == 2


def test_a_failure_leads_to_its_escalation(console: Console, receiver: Receiver) -> None:
    console.make_namespace()
    alerts = receiver.on("/alerts", reply(200))
    page = console.page
    console.timers("new")
    page.get_by_label("Callback URL").fill(receiver.on("/refuses", reply(404)))
    page.get_by_label("Id", exact=True).fill("escalated")
    page.get_by_text("Retries", exact=True).click()
    page.get_by_label("Escalate to").fill(alerts)
    page.get_by_role("button", name="Create").click()
    expect_state(page, "Failed")
    page.get_by_text(alerts, exact=True).wait_for()
    page.get_by_role("link", name="its escalation").click()
    expect_state(page, "Fired")
    page.get_by_role("heading", name=re.compile("^escalation:")).wait_for()
