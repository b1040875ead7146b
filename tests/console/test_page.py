"""The page as such: keys and roles, keyboard, widths, refreshing, what it does with JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from tests.console.conftest import Console, GuardedServer
from tests.support.processes import DuetimeServer
from tests.support.receiver import Receiver, reply

if TYPE_CHECKING:
    from playwright.sync_api import Page

NewConsole = Callable[..., Console]


def sign_in(page: Page, key: str) -> None:
    page.get_by_label("API key").fill(key)
    page.get_by_role("button", name="Sign in").click()


def test_the_overview_says_that_all_is_well(console: Console) -> None:
    page = console.page
    page.goto(f"{console.url}/")
    page.wait_for_url(f"{console.url}/console")
    page.get_by_text("Healthy").wait_for()
    page.locator("tr", has_text="Polled").first.wait_for()
    page.get_by_role("link", name="default", exact=True).wait_for()
    assert page.get_by_role("button", name="Sign out").count() == 0
    assert all(path.startswith(("/", console.url)) for path in console.requests)


def test_a_key_is_asked_for_and_goes_nowhere_else(guarded: GuardedServer, new_console: NewConsole) -> None:
    console = new_console(guarded.server)
    page, key = console.page, guarded.make_key("admin")
    console.open("calls", "acme")
    page.get_by_role("heading", name="API key").wait_for()
    sign_in(page, "dtk_nonsense")
    page.locator(".field-error", has_text="not valid").wait_for()
    sign_in(page, key)
    page.get_by_text("No service calls yet.").wait_for()
    assert page.locator(".who").inner_text() == "acme · admin"
    page.get_by_role("link", name="Overview", exact=True).click()
    page.locator("tr", has_text="Polled").first.wait_for()
    assert page.evaluate("localStorage.length") == 0
    assert page.evaluate("document.cookie") == ""
    assert not [path for path in console.requests if "dtk_" in path]
    page.reload()
    page.locator(".who").wait_for()

    page.get_by_role("button", name="Sign out").click()
    page.get_by_role("heading", name="API key").wait_for()
    assert key not in page.evaluate("JSON.stringify(sessionStorage)")


def test_a_reader_is_offered_nothing_that_a_reader_may_not(guarded: GuardedServer, new_console: NewConsole) -> None:
    console = new_console(guarded.server)
    page = console.page
    writer = {"authorization": f"Bearer {guarded.make_key('writer', tenant='readers')}"}
    admin = {"authorization": f"Bearer {guarded.make_key('admin', tenant='readers')}"}
    console.api("PUT", "/v1/namespaces/readers-space", json={"numShards": 1}, headers=admin)
    request = {"method": "GET", "url": "http://127.0.0.1:1/"}
    body = {"name": "seen", "request": request, "delay": "1h"}
    call = console.api("POST", "/v1/tenants/readers/service-calls", json=body, headers=writer)
    console.open()
    sign_in(page, guarded.make_key("reader", tenant="readers"))
    page.get_by_text("Shards are shown to admins.").wait_for()
    assert page.locator(".who").inner_text() == "readers · reader"
    page.locator("tbody tr", has_text="readers-space").wait_for()  # and no button to pause or delete it
    buttons = page.locator("main button:not(:disabled)")
    assert buttons.count() == 0
    page.get_by_role("link", name="Service calls", exact=True).click()
    page.get_by_role("link", name="seen").click()
    page.locator(".lead").wait_for()
    assert page.locator("main .head button:not(:disabled)").count() == 0
    console.open("calls", "acme")
    page.get_by_text("404 Tenant not found").wait_for()
    for path, role in (
        (("calls", "readers", "new"), "writer"),
        (("timers", "readers-space", "new"), "writer"),
        (("schedules", "readers-space", "new"), "writer"),
        (("schedules", "readers-space", "schedule", "s", "change"), "writer"),
        (("calendars", "new"), "admin"),
        (("calendars", "calendar", "c", "change"), "admin"),
    ):
        console.open(*path)
        page.get_by_text(f"This page needs an API key with the role {role}.").wait_for()
    assert console.api("GET", f"/v1/tenants/readers/service-calls/{call['id']}", headers=writer)["revision"] == 1


def test_a_key_that_ends_is_asked_for_again(guarded: GuardedServer, new_console: NewConsole) -> None:
    console = new_console(guarded.server)
    page, key = console.page, guarded.make_key("writer", tenant="ending")
    console.open("calls", "ending", query="?status=Failed")
    sign_in(page, key)
    page.get_by_text("No service call matches these filters.").wait_for()
    assert page.locator(".who").inner_text() == "ending · writer"
    guarded.keys("delete", key.split("_")[1], "--tenant", "ending")
    # Not by its link: the page may have asked for the key already, by itself.
    console.open("calls", "ending", query="?status=Running")
    page.get_by_text("401 Unauthenticated").wait_for()
    sign_in(page, guarded.make_key("reader", tenant="ending"))
    # Where it was.
    page.get_by_role("link", name="Running", exact=True).wait_for()
    assert "status=Running" in page.url


@pytest.mark.parametrize("width", [360, 768, 1920])
def test_nothing_is_wider_than_the_screen(
    server: DuetimeServer, new_console: NewConsole, receiver: Receiver, width: int
) -> None:
    console = new_console(server, viewport={"width": width, "height": 800})
    console.make_namespace()
    page, long = console.page, "x" * 150
    url = receiver.on(f"/wide{width}?{long}", reply(500, b"{}" + b"y" * 300, [("X-Long", "z" * 400)]))
    call_id = console.submit(long, url, tags=[long[:128], "b"], correlationId=long)
    console.create(long, url, retryPolicy={"maxAttempts": 1}, tags=[long[:128]])
    schedule = {"id": long, "callbackUrl": url, "cron": ["30 9 * * MON-FRI"] * 9, "timeZone": "America/New_York"}
    console.api("POST", f"/v1/namespaces/{console.namespace}/schedules", json=schedule)
    places = [
        ("main .health", ()),
        ("tbody tr", ("calls", console.tenant)),
        (".message pre", ("calls", console.tenant, call_id)),
        ("form.card", ("calls", console.tenant, "new")),
        ("tbody tr", ("dead-letters", console.namespace)),
        ("tbody tr", ("timers", console.namespace)),
        ("details.execution pre", ("timers", console.namespace, "timer", long)),
        ("form.card", ("timers", console.namespace, "new")),
        ("tbody tr", ("schedules", console.namespace)),
        (".strip", ("schedules", console.namespace, "schedule", long)),
        (".preview tbody tr", ("schedules", console.namespace, "schedule", long, "change")),
    ]
    for selector, segments in places:
        console.open(*segments)
        page.locator(selector).first.wait_for()
        assert page.evaluate("document.scrollingElement.scrollWidth - window.innerWidth") <= 0, segments


def test_on_narrow_screens_a_cell_stands_beside_its_name(
    server: DuetimeServer, new_console: NewConsole, receiver: Receiver
) -> None:
    console = new_console(server, viewport={"width": 390, "height": 800})
    console.make_namespace()
    console.create("t", receiver.on("/narrow", reply(500)), retryPolicy={"maxAttempts": 1})
    page = console.page
    console.open("dead-letters", console.namespace)
    page.locator("td.result .sub").wait_for()
    starts = [page.locator(f"td.result {each}").bounding_box() for each in ("b", ".sub")]
    assert [box and box["x"] for box in starts] == [starts[0] and starts[0]["x"]] * 2
    box = page.locator("td.result .http").bounding_box()
    assert box is not None
    assert box["height"] < 30


def test_a_reason_beside_a_long_name_stands_on_one_line(console: Console) -> None:
    console.submit("é" * 100, "http://127.0.0.1:1/", delay="1h")
    console.submit("é" * 100, "http://127.0.0.1:1/")
    console.calls()
    reason = console.page.locator("td.result .http", has_text="Network")
    reason.wait_for()
    box = reason.bounding_box()
    assert box is not None
    assert box["height"] < 30


def test_it_can_be_used_by_keys_alone(console: Console, receiver: Receiver) -> None:
    console.submit("by keys", receiver.url("/"), delay="1h")
    page = console.page
    console.calls()
    page.locator("tbody tr").wait_for()
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.id") == "skip"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"
    for _ in range(60):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.textContent") == "by keys":
            break
    focused = page.locator(":focus")
    assert focused.evaluate("element => getComputedStyle(element).outlineStyle") == "solid"
    page.keyboard.press("Enter")
    page.get_by_role("button", name="Cancel").focus()
    page.keyboard.press("Enter")
    page.get_by_role("dialog").wait_for()
    page.keyboard.press("Escape")
    page.get_by_role("dialog").wait_for(state="detached")
    assert page.get_by_role("heading", level=1).inner_text() == "by keys"


def test_lists_refresh_by_themselves_until_that_is_paused(console: Console, receiver: Receiver) -> None:
    page = console.page
    page.clock.install()
    console.calls()
    page.get_by_text("No service calls yet.").wait_for()
    console.submit("new", receiver.url("/"), delay="1h")
    page.get_by_label("Name begins with").focus()
    page.clock.run_for(5100)
    page.get_by_role("link", name="new", exact=True).wait_for()
    assert page.locator(":focus").get_attribute("name") == "name"
    page.get_by_role("button", name="Live: pause auto-refresh").click()
    asked = len(console.requests)
    page.clock.run_for(60_000)
    assert len(console.requests) == asked
    console.submit("newer", receiver.url("/"), delay="1h")
    page.get_by_role("button", name="Paused: pause auto-refresh").click()
    page.get_by_role("link", name="newer").wait_for()


def test_a_refresh_that_fails_leaves_what_is_shown(console: Console, receiver: Receiver) -> None:
    console.submit("kept", receiver.url("/"), delay="1h")
    page = console.page
    page.clock.install()
    console.calls()
    page.get_by_role("link", name="kept").wait_for()
    page.route("**/service-calls?*", lambda route: route.abort())
    page.clock.run_for(5100)
    page.get_by_text("Not refreshed: The server does not respond.").wait_for()
    assert page.get_by_role("link", name="kept").is_visible()
    page.unroute("**/service-calls?*")
    page.clock.run_for(5100)
    page.get_by_text("Not refreshed").wait_for(state="detached")


def test_what_cannot_be_read_can_be_tried_again(console: Console) -> None:
    page = console.page
    problem = {"title": "Store unavailable", "status": 503, "detail": "the store does not answer", "code": "x"}
    page.route(
        "**/service-calls?*",
        lambda route: route.fulfill(status=503, content_type="application/problem+json", body=json.dumps(problem)),
    )
    console.calls()
    page.get_by_text("503 Store unavailable").wait_for()
    page.unroute("**/service-calls?*")
    page.get_by_role("button", name="Try again").click()
    page.get_by_text("No service calls yet.").wait_for()
    assert page.get_by_text("503 Store unavailable").count() == 0


@pytest.mark.parametrize("area", ["calls", "timers"])
def test_the_bar_leads_to_what_the_address_names(console: Console, area: str) -> None:
    bar = console.page.get_by_role("navigation", name="Main")
    label, of = ("Service calls", console.tenant) if area == "calls" else ("Timers", console.namespace)
    console.open(area, of, "new")
    bar.get_by_role("link", name=label).click()
    console.page.wait_for_url(f"{console.url}/console#/{area}/{of}")


def test_an_address_that_means_nothing(console: Console) -> None:
    page = console.page
    for path in ("nothing/at/all", "calls/%E0%A4%A"):
        console.open(path)
        page.get_by_text("This page does not exist.").wait_for()
    page.get_by_role("link", name="To the overview").click()
    page.get_by_text("Healthy").wait_for()
    assert page.get_by_text("This page does not exist.").count() == 0


JSON_TEXTS = [
    "null",
    '"a\\"b{[,:]}"',
    "[]",
    "{}",
    '{"a": {}, "b": [], "c": [[]], "c": 1.0}',
    '[1, -0, 1e400, 12345678901234567890, true, "\\ud83d\\ude00", "é"]',
    ' { "x" : [ { "y" : "z" } , 2 ] } ',
]


def test_json_is_laid_out_without_being_changed(console: Console) -> None:
    page = console.page
    console.open()
    script = """async (texts) => {
        const beside = document.querySelector('script').src;
        const { pretty, rawMember, withRaw } = await import(new URL('json.js', beside).href);
        return {
            laidOut: texts.map(pretty),
            none: [pretty('{'), pretty('nonsense'), rawMember('[1]', 'a'), rawMember('{"b": 1}', 'a')],
            members: [rawMember('{"a": {"b": 1.0, "c": [1, {"b": 2}]}}', 'a', 'c'), rawMember('{"a":1,"a":-0}', 'a')],
            joined: [withRaw({ x: 1, y: undefined }, { z: '1.0', u: undefined }), withRaw({}, {})],
        };
    }"""
    found = page.evaluate(script, JSON_TEXTS)
    tokens = r'"(?:[^"\\]|\\.)*"|[^\s]'
    for text, laid_out in zip(JSON_TEXTS, found["laidOut"], strict=True):
        assert re.findall(tokens, laid_out) == re.findall(tokens, text)
    assert found["laidOut"][4] == '{\n  "a": {},\n  "b": [],\n  "c": [\n    []\n  ],\n  "c": 1.0\n}'
    assert found["none"] == [None, None, None, None]
    assert found["members"] == ['[1, {"b": 2}]', "-0"]
    assert found["joined"] == ['{"x":1,"z":1.0}', "{}"]
