"""Schedules: many at once, backfills, and those that submit service calls."""

from __future__ import annotations

import re

from tests.console.conftest import Console, wait_for
from tests.console.test_schedules import make, path, stored
from tests.console.test_timers import expect_state
from tests.support.receiver import Receiver, reply


def states(console: Console) -> dict[str, str]:
    items = console.api("GET", path(console))["items"]
    return {each["id"]: each["state"] for each in items}


def test_all_that_match_are_counted_paused_and_resumed(console: Console) -> None:
    console.make_namespace()
    for name, tags in {"a": ["x"], "b": ["x"], "c": []}.items():
        make(console, name, "http://127.0.0.1:1/", cron="0 9 1 1 *", tags=tags)
    page = console.page
    console.open("schedules", console.namespace, query="?tag=x")
    page.get_by_role("button", name="Pause all that match").click()
    page.get_by_role("dialog").get_by_text("2 of them.").wait_for()
    assert "All active schedules with tag x are paused." in page.get_by_role("dialog").inner_text()
    page.get_by_role("dialog").get_by_label("Reason").fill("stocktaking")
    page.get_by_role("dialog").get_by_role("button", name="Pause").click()
    page.get_by_text("2 paused.").wait_for()
    page.locator("tbody .badge", has_text="Paused").nth(1).wait_for()
    assert states(console) == {"a": "Paused", "b": "Paused", "c": "Active"}
    assert stored(console, "a")["pauseReason"] == "stocktaking"

    console.open("schedules", console.namespace)
    page.get_by_role("button", name="Resume all").click()
    page.get_by_role("dialog").get_by_text("2 of them.").wait_for()
    page.get_by_role("dialog").get_by_role("button", name="Resume").click()
    page.get_by_text("2 resumed.").wait_for()
    assert set(states(console).values()) == {"Active"}


def test_a_backfill_is_counted_sent_and_cancelled(console: Console, receiver: Receiver) -> None:
    console.make_namespace()
    make(console, "s", receiver.on("/backfilled", reply(200)), cron="0 9 * * *")
    page = console.page
    console.open("schedules", console.namespace, "schedule", "s")
    expect_state(page, "Active")
    page.get_by_role("button", name="Backfill", exact=True).click()
    page.get_by_role("button", name="Count").click()
    page.get_by_text("is missing").wait_for()
    page.get_by_label("From").fill("2026-01-01T00:00:00")
    page.get_by_label("Before").fill("2026-01-04T00:00:00")
    page.get_by_label("Per second").fill("0.02")
    page.get_by_role("button", name="Count").click()
    page.get_by_role("dialog").get_by_text(re.compile(r"^3 occurrences, the last one at \d")).wait_for()
    assert "/backfilled" not in {each.path for each in receiver.requests}
    page.get_by_role("dialog").get_by_role("button", name="Send").click()
    page.get_by_text("3 occurrences will be sent.").wait_for()
    receiver.wait_for(1, path="/backfilled")

    page.get_by_role("button", name="Cancel backfill").click()
    page.get_by_role("dialog").get_by_text("2 occurrences still to send.").wait_for()
    page.get_by_role("dialog").get_by_role("button", name="Cancel backfills").click()
    page.get_by_text("2 occurrences cancelled.").wait_for()


def test_a_schedule_of_service_calls_is_created_changed_and_followed(console: Console, receiver: Receiver) -> None:
    console.make_namespace()
    page = console.page
    console.open("schedules", console.namespace, "new")
    page.get_by_label("At each occurrence").select_option("call")
    assert page.get_by_label("Callback URL").count() == 0
    page.get_by_role("button", name="Create").click()
    page.get_by_label("Name").and_(page.locator("[aria-invalid=true]")).wait_for()
    page.get_by_label("Name").fill("close")
    page.get_by_label("URL", exact=True).fill(receiver.on("/closed", reply(200)))
    page.get_by_label("Content").fill('{"n": 1.10}')
    page.get_by_label("Tags of its calls").fill("nightly")
    page.get_by_label("Id", exact=True).fill("s")
    page.get_by_label("Every").fill("1s")
    page.get_by_role("button", name="Create").click()

    expect_state(page, "Active")
    received = receiver.wait_for(1, path="/closed")
    assert received[0].body == b'{"n": 1.10}'
    call = stored(console, "s")["serviceCall"]
    assert (call["name"], call["tags"], call["request"]["method"]) == ("close", ["nightly"], "POST")
    page.get_by_role("link", name="its service call").first.wait_for()
    page.get_by_role("link", name="Change").click()
    assert page.get_by_label("Content").input_value() == '{"n": 1.10}'
    page.get_by_label("Name").fill("closed")
    with page.expect_request(lambda request: request.method == "PATCH") as sent:
        page.get_by_role("button", name="Change").click()
    expect_state(page, "Active")
    assert list(sent.value.post_data_json) == ["serviceCall"]
    wait_for(lambda: stored(console, "s")["serviceCall"]["name"] == "closed")
    console.open("schedules", console.namespace)
    page.locator("tbody tr", has_text='submits "closed": POST').wait_for()
    page.get_by_role("link", name="s", exact=True).click()
    page.get_by_role("link", name="of this schedule").click()
    page.locator("tbody tr", has_text="close").first.wait_for()


def test_what_is_not_there_has_a_heading(console: Console) -> None:
    console.open("nowhere")
    console.page.get_by_role("heading", level=1, name="Not found").wait_for()
