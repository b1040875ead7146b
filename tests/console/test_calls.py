"""Service calls: submitted, followed, found, changed, repeated and removed by hand."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING

from tests.console.conftest import WAIT_MS, Console
from tests.support.receiver import Gate, Receiver, held, reply

if TYPE_CHECKING:
    from playwright.sync_api import Page

HOSTILE = b"<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script>"


def expect_status(page: Page, status: str) -> None:
    page.locator(".lead .badge", has_text=re.compile(f"^{status}$")).wait_for()


def names(page: Page) -> list[str]:
    page.locator(".region[aria-busy=false]").wait_for()
    return list(page.locator("tbody .main-cell > a").all_inner_texts())


def see_names(page: Page, wanted: list[str]) -> None:
    """Wait for the list to show these: just after a filter has changed it may still show what was there before."""
    deadline = time.monotonic() + WAIT_MS / 1000
    while names(page) != wanted and time.monotonic() < deadline:
        page.wait_for_timeout(50)
    assert names(page) == wanted


def events(page: Page) -> list[str]:
    """Types of those that are shown, when they are complete."""
    page.get_by_text("complete", exact=True).wait_for()
    return list(page.locator(".events b").all_inner_texts())


def test_a_call_is_submitted_and_followed_to_its_end(console: Console, receiver: Receiver) -> None:
    gate = Gate()
    body = b'{"invoice": 12345678901234567890, "paid": 1.10}'
    url = receiver.on("/invoice", held(gate, reply(201, body, [("X-Trace", "abc"), ("Set-Cookie", "a=b")])))
    page = console.page
    console.calls()
    page.get_by_role("link", name="Submit a call").click()
    page.get_by_label("Name", exact=True).fill("invoice November")
    page.get_by_label("URL").fill(url)
    page.get_by_label("Headers").fill("Authorization: Bearer secret\nX-Of: me")
    page.get_by_label("Content").fill('{"customer": 98765432109876543210, "amount": 1.10}')
    page.get_by_label("Tags").fill("invoices\ncustomer 4711")
    page.get_by_role("button", name="Submit").click()

    expect_status(page, "Running")
    (arrived,) = receiver.wait_for(1, path="/invoice")
    assert arrived.body == b'{"customer": 98765432109876543210, "amount": 1.10}'
    assert (arrived.header("authorization"), arrived.header("x-of")) == ("Bearer secret", "me")
    gate.open()

    # Nothing was clicked since: the page has followed the events.
    expect_status(page, "Succeeded")
    assert "the receiver responded 201" in page.locator(".lead").inner_text()
    assert events(page)[::6] == ["ServiceCallSubmitted", "ServiceCallSucceeded"]
    response = page.locator(".message", has=page.get_by_role("heading", name="Response"))
    assert response.locator("pre").inner_text() == '{\n  "invoice": 12345678901234567890,\n  "paid": 1.10\n}'
    response.get_by_role("button", name="Raw").click()
    assert response.locator("pre").inner_text() == body.decode()
    response.locator(".headers div", has_text=re.compile("^x-trace", re.IGNORECASE)).get_by_text(
        "abc", exact=True
    ).wait_for()
    shown = page.locator("article").inner_text()
    assert '"customer": 98765432109876543210' in shown
    assert "secret" not in shown
    assert "[redacted]" in shown


def test_what_a_receiver_says_is_text_and_nothing_else(console: Console, receiver: Receiver) -> None:
    url = receiver.on("/hostile", reply(503, HOSTILE, [("X-Note", "<b>bold</b>")]))
    call_id = console.submit(
        "<img src=x onerror=alert(1)>", url, tags=["<b>tag</b>"], request={"body": HOSTILE.decode()}
    )
    page = console.page
    console.calls(call_id)
    expect_status(page, "Failed")
    assert "the receiver responded 503" in page.locator(".lead").inner_text()
    page.locator(".message pre").first.wait_for()
    assert page.locator(".message pre").all_inner_texts() == [HOSTILE.decode()] * 2
    assert page.get_by_role("heading", level=1).inner_text() == "<img src=x onerror=alert(1)>"
    assert page.locator("main img, main script, main b:text-is('bold'), main b:text-is('tag')").count() == 0
    assert page.title() == "<img src=x onerror=alert(1)> · Duetime"


def test_lists_are_filtered_by_the_address_and_paged(console: Console, receiver: Receiver) -> None:
    for number in range(55):
        console.submit(f"report {number:02}", receiver.url("/"), delay="1h", tags=["odd" if number % 2 else "even"])
    console.submit("other", receiver.url("/"), delay="2h", starred=True, tags=["odd", "special"], correlationId="c-1")
    page = console.page
    console.calls()
    assert names(page)[:2] == ["other", "report 54"]
    assert len(names(page)) == 50
    page.get_by_role("link", name="Next page").click()
    page.get_by_role("link", name="First page").wait_for()
    see_names(page, [f"report {number:02}" for number in range(5, -1, -1)])
    page.go_back()
    page.get_by_role("link", name="Next page").wait_for()
    assert len(names(page)) == 50

    page.get_by_label("Name begins with").fill("report 1")
    page.get_by_label("Tags, all of").fill("odd")
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile(r"name=report\+1&tag=odd"))
    see_names(page, [f"report {number}" for number in range(11, 20, 2)])
    page.get_by_role("link", name="Clear").click()
    page.get_by_label("Star", exact=True).select_option("true")
    page.wait_for_url(re.compile("starred=true"))
    see_names(page, ["other"])
    console.calls(query="?tag=odd&tag=special&correlationId=c-1&status=Scheduled&order=dueAt")
    see_names(page, ["other"])
    assert page.get_by_label("Tags, all of").input_value() == "odd special"
    page.get_by_role("link", name="Failed", exact=True).click()
    page.get_by_text("No service call matches these filters.").wait_for()
    # What is given in local time, here five and a half hours before UTC, is UTC in the address.
    page.get_by_label("Created before").fill("2026-01-01T05:30")
    page.get_by_role("button", name="Apply").click()
    page.wait_for_url(re.compile("createdTo=2026-01-01T00%3A00%3A00.000Z"))
    assert page.get_by_label("Created before").input_value() == "2026-01-01T05:30"


def test_a_waiting_call_is_changed_starred_and_cancelled(console: Console, receiver: Receiver) -> None:
    call_id = console.submit("waiting", receiver.url("/"), delay="1h", tags=["one"])
    path = f"/v1/tenants/{console.tenant}/service-calls/{call_id}"
    page = console.page
    console.calls(call_id)
    expect_status(page, "Scheduled")
    page.get_by_text("Nothing was sent.").wait_for()

    page.get_by_role("button", name="Edit name and tags").click()
    page.get_by_role("dialog").get_by_label("Name", exact=True).fill("renamed")
    page.get_by_role("dialog").get_by_label("Tags").fill("one\ntwo, with a comma")
    page.get_by_role("button", name="Save").click()
    page.get_by_role("heading", name="renamed").wait_for()
    page.get_by_role("button", name="Star renamed").click()
    page.get_by_role("button", name="Star renamed", pressed=True).wait_for()
    page.get_by_role("button", name="Change due time").click()
    page.get_by_role("dialog").get_by_label("Due", exact=True).select_option("in")
    page.get_by_label("Delay").fill("never")
    page.get_by_role("button", name="Change", exact=True).click()
    page.locator(".field-error", has_text="duration").wait_for()
    assert page.get_by_label("Delay").get_attribute("aria-invalid") == "true"
    page.get_by_label("Delay").fill("3d")
    page.get_by_role("button", name="Change", exact=True).click()
    page.locator(".lead", has_text="in 2 d 23 h").wait_for()
    stored = console.api("GET", path)
    assert (stored["name"], stored["tags"], stored["starred"]) == ("renamed", ["one", "two, with a comma"], True)

    page.get_by_role("button", name="Cancel").click()
    page.get_by_role("dialog").get_by_role("button", name="Back").click()
    page.get_by_role("button", name="Cancel").click()
    page.get_by_role("button", name="Cancel the call").click()
    expect_status(page, "Cancelled")
    page.get_by_text("Cancelled before it was sent.").wait_for()
    assert console.api("GET", path)["status"] == "Cancelled"
    scheduled = ["ServiceCallUpdated", "ServiceCallScheduled"]
    assert events(page)[-5:] == ["ServiceCallUpdated", "ServiceCallUpdated", *scheduled, "ServiceCallCancelled"]
    page.get_by_role("button", name="Remove").click()
    page.get_by_role("button", name="Remove the call").click()
    page.get_by_text("No service calls yet.").wait_for()
    assert console.client.get(path).status_code == 404


def test_a_waiting_call_is_fired(console: Console, receiver: Receiver) -> None:
    url = receiver.on("/fired", reply(200))
    page = console.page
    console.calls(console.submit("early", url, delay="1h"))
    page.get_by_role("button", name="Fire now").click()
    expect_status(page, "Succeeded")
    receiver.wait_for(1, path="/fired")
    assert events(page)[:5] == [
        "ServiceCallSubmitted",
        "ServiceCallScheduled",
        "ServiceCallUpdated",
        "ServiceCallScheduled",
        "DueTimeReached",
    ]
    for action in ("Fire now", "Change due time", "Cancel"):
        assert page.get_by_role("button", name=action).count() == 0


def test_a_call_is_cancelled_between_two_attempts(console: Console, receiver: Receiver) -> None:
    url = receiver.on("/unwell", reply(503, b"not now"))
    policy = {"maxAttempts": 3, "initialInterval": "1h"}
    page = console.page
    console.calls(console.submit("given up", url, retryPolicy=policy))
    page.locator(".lead", has_text="Attempt 1 failed").wait_for()
    page.get_by_role("button", name="Cancel").click()
    page.get_by_role("dialog").get_by_text("There will be no further attempt.").wait_for()
    page.get_by_role("button", name="Cancel the call").click()
    expect_status(page, "Cancelled")
    assert "Cancelled after one attempt" in page.locator(".lead").inner_text()
    assert "the receiver responded 503" in page.locator(".lead").inner_text()
    assert events(page)[-2:] == ["ExecutionFailed", "ServiceCallCancelled"]
    page.get_by_role("navigation", name="Main").get_by_role("link", name="Service calls").click()
    page.get_by_role("link", name="Cancelled", exact=True).click()
    page.wait_for_url(re.compile("status=Cancelled"))
    page.locator("tbody .badge", has_text="Cancelled").wait_for()
    see_names(page, ["given up"])


def test_what_becomes_of_a_finished_call_is_shown(console: Console, receiver: Receiver) -> None:
    call_id = console.submit("kept", receiver.on("/kept", reply(200)))
    path = f"/v1/tenants/{console.tenant}/service-calls/{call_id}"
    page = console.page
    page.clock.install()
    console.calls(call_id)
    expect_status(page, "Succeeded")
    assert len(events(page)) == 7
    page.get_by_role("button", name="Star kept").click()
    page.locator(".events li", has_text="ServiceCallUpdated").get_by_text("starred=true").wait_for()
    assert len(events(page)) == 8
    console.api("PATCH", path, json={"tags": ["by another"]})
    page.clock.run_for(10_100)
    page.locator(".events li").nth(8).get_by_text('tags=["by another"]').wait_for()
    console.api("DELETE", path)
    page.clock.run_for(10_100)
    page.get_by_text("404 Service call not found").wait_for()
    assert page.locator(".events").is_hidden()


def test_a_change_of_what_has_changed_meanwhile_is_refused_and_said(console: Console, receiver: Receiver) -> None:
    call_id = console.submit("contended", receiver.url("/"), delay="1h")
    page = console.page
    console.calls(call_id)
    page.get_by_role("button", name="Cancel").click()
    console.api("PATCH", f"/v1/tenants/{console.tenant}/service-calls/{call_id}", json={"name": "changed"})
    page.get_by_role("button", name="Cancel the call").click()
    page.get_by_role("dialog").get_by_text("412 Revision mismatch").wait_for()
    kept = console.api("GET", f"/v1/tenants/{console.tenant}/service-calls/{call_id}")
    assert (kept["status"], kept["name"]) == ("Scheduled", "changed")


def test_a_failed_call_is_rerun_and_removed(console: Console, receiver: Receiver) -> None:
    url = receiver.on("/flaky", reply(500, b"not yet"), reply(200, b"now"))
    call_id = console.submit("flaky", url)
    page = console.page
    console.calls(call_id)
    expect_status(page, "Failed")
    page.locator(".message pre", has_text="not yet").wait_for()
    page.get_by_role("button", name="Rerun").click()
    page.get_by_role("dialog").get_by_role("button", name="Rerun").click()
    expect_status(page, "Succeeded")
    page.get_by_role("link", name=call_id).click()
    expect_status(page, "Failed")
    page.get_by_role("button", name="Remove").click()
    page.get_by_role("button", name="Remove the call").click()
    page.locator("tbody tr").wait_for()
    see_names(page, ["flaky"])
    page.go_back()
    expect_status(page, "Succeeded")


def test_every_attempt_is_an_execution_of_its_own(console: Console, receiver: Receiver) -> None:
    url = receiver.on("/retried", reply(500, b"first answer"), reply(200, b"second answer"))
    policy = {"maxAttempts": 3, "initialInterval": "0.1s"}
    call_id = console.submit("retried", url, retryPolicy=policy)
    page = console.page
    console.calls(call_id)
    expect_status(page, "Succeeded")
    folds = page.locator("details.execution")
    folds.nth(1).wait_for()
    assert [text.split()[0] for text in folds.locator("summary").all_inner_texts()] == ["#2", "#1"]
    page.locator("pre", has_text="second answer").wait_for()
    folds.nth(1).locator("summary").click()
    page.locator("pre", has_text="first answer").wait_for()
    folds.nth(1).get_by_role("link").click()
    page.wait_for_url(re.compile(rf"{call_id}/executions/[0-9a-f-]+$"))
    page.locator("pre", has_text="first answer").wait_for()
    assert page.locator("pre", has_text="second answer").count() == 0


def test_faults_are_shown_at_their_fields(console: Console) -> None:
    page = console.page
    console.calls("new")
    page.get_by_role("button", name="Submit").click()
    name = page.get_by_label("Name", exact=True)
    page.locator("[aria-invalid=true]").first.wait_for()
    assert name.get_attribute("aria-invalid") == "true"
    assert name.evaluate("element => element === document.activeElement")

    name.fill("call")
    page.get_by_label("URL").fill("ftp://example.com/")
    page.get_by_label("Headers").fill("Host: example.com")
    page.get_by_role("button", name="Submit").click()
    page.locator(".field", has=page.get_by_label("URL")).locator(".field-error:not(:empty)").wait_for()
    assert "request.headers.Host" in page.locator(".field", has=page.get_by_label("Headers")).inner_text()
    assert name.get_attribute("aria-invalid") is None

    page.get_by_label("URL").fill("https://example.com/")
    page.get_by_label("Headers").fill("no colon")
    page.get_by_role("button", name="Submit").click()
    page.get_by_text('"no colon" is not of the form').wait_for()
    page.get_by_label("Headers").fill("")
    page.get_by_label("Content").fill("{broken")
    page.get_by_role("button", name="Submit").click()
    page.get_by_text("is not JSON; choose Text").wait_for()
    page.get_by_label("Content").fill("")
    page.get_by_text("Retries").click()
    page.get_by_label("Attempts at most").fill("0")
    page.get_by_role("button", name="Submit").click()
    page.locator(".field", has=page.get_by_label("Attempts at most")).locator(".field-error:not(:empty)").wait_for()
    assert console.api("GET", f"/v1/tenants/{console.tenant}/service-calls")["items"] == []


def test_a_submission_whose_answer_is_lost_can_be_sent_again(console: Console, receiver: Receiver) -> None:
    page = console.page
    console.calls("new")
    page.get_by_label("Name", exact=True).fill("once")
    page.get_by_label("URL").fill(receiver.url("/once"))
    path = f"/v1/tenants/{console.tenant}/service-calls"

    def lose(route) -> None:  # type: ignore[no-untyped-def]
        route.fetch()
        route.abort()

    page.route(f"**{path}", lose, times=1)
    page.get_by_role("button", name="Submit").click()
    page.get_by_text("The server does not respond.").wait_for()
    page.get_by_role("button", name="Submit").click()
    page.get_by_text("This call was already submitted.").wait_for()
    expect_status(page, "Succeeded")
    assert len(console.api("GET", path)["items"]) == 1


def test_without_a_stream_the_events_are_asked_for(console: Console, receiver: Receiver) -> None:
    gate = Gate()
    url = receiver.on("/polled", held(gate))
    call_id = console.submit("polled", url)
    receiver.wait_for(1, path="/polled")
    page = console.page

    def as_json(route) -> None:  # type: ignore[no-untyped-def]
        route.continue_(headers={**route.request.headers, "accept": "application/json"})

    page.route("**/events*", as_json)
    console.calls(call_id)
    page.get_by_text("updated every 2 s").wait_for()
    expect_status(page, "Running")
    gate.open()
    expect_status(page, "Succeeded")
    page.get_by_text("complete", exact=True).wait_for()
    assert page.locator(".events li").count() == 7


def test_a_call_that_is_not_there(console: Console) -> None:
    page = console.page
    console.calls("01900000-0000-7000-8000-000000000000")
    page.get_by_text("404 Service call not found").wait_for()
    for action in ("Cancel", "Rerun", "Remove", "Edit name and tags"):
        assert page.get_by_role("button", name=action).count() == 0
    page.get_by_role("link", name="Service calls").first.click()
    page.get_by_text("No service calls yet.").wait_for()
