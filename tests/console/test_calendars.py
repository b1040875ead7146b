"""Calendars: created, changed, removed, with the schedules that use them."""

from __future__ import annotations

import re

from tests.console.conftest import Console
from tests.console.test_schedules import make, stored


def test_a_calendar_is_created_used_changed_and_removed(console: Console) -> None:
    console.make_namespace()
    name = f"of-{console.namespace}"
    page = console.page
    console.open("schedules", console.namespace)
    page.get_by_role("link", name="Calendars").click()
    page.get_by_role("link", name=re.compile("^Create (a calendar|the first one)")).first.click()
    page.get_by_label("Name").fill(name)
    page.get_by_label("Days off").fill("2039-12-26\n2039-02-30")
    page.get_by_role("button", name="Create").click()
    page.locator(".field-error", has_text="must have days that exist").wait_for()
    page.get_by_label("Days off").fill("2039-12-26")
    page.get_by_label("Friday").uncheck()
    page.get_by_role("button", name="Create").click()
    page.get_by_text("Monday, Tuesday, Wednesday, Thursday", exact=True).wait_for()
    page.get_by_text("2039-12-26").wait_for()

    make(console, "s", "http://127.0.0.1:1/", cron="0 9 26 12 * ", calendar=name)
    page.get_by_role("link", name="s", exact=True).wait_for()
    page.get_by_role("button", name="Compute occurrences again").click()
    page.get_by_text("0 moved.").wait_for()
    page.get_by_role("link", name="Change").click()
    page.get_by_label("Friday").check()
    page.get_by_role("button", name="Change").click()
    page.get_by_text("Monday, Tuesday, Wednesday, Thursday, Friday", exact=True).wait_for()
    calendar = console.api("GET", f"/v1/calendars/{name}")
    assert (calendar["weekdays"][-1], calendar["daysOff"], calendar["revision"]) == ("FRI", ["2039-12-26"], 2)

    page.get_by_role("link", name="s", exact=True).click()
    page.get_by_role("link", name=name, exact=True).click()
    page.get_by_role("button", name="Remove").click()
    page.get_by_role("dialog").get_by_text("A schedule names it").wait_for()
    page.get_by_role("dialog").get_by_role("button", name="Remove the calendar").click()
    page.get_by_text("The calendar is removed.").wait_for()
    assert name not in {each["name"] for each in console.api("GET", "/v1/calendars")["items"]}
    assert stored(console, "s")["calendar"] == name


def test_a_name_that_is_taken_is_not_overwritten(console: Console) -> None:
    name = f"taken-{console.namespace}"
    console.api("PUT", f"/v1/calendars/{name}", json={"daysOff": ["2039-12-26"]})
    page = console.page
    console.open("calendars", "new")
    page.get_by_label("Name").fill(name)
    page.get_by_role("button", name="Create").click()
    page.locator(".field-error", has_text="there is one of this name").wait_for()
    assert console.api("GET", f"/v1/calendars/{name}")["revision"] == 1


def test_an_ics_file_becomes_days_off(console: Console) -> None:
    name = f"ics-{console.namespace}"
    page = console.page
    console.open("calendars", "new")
    page.get_by_label("Name").fill(name)
    file = {"name": "holidays.ics", "mimeType": "text/calendar"}
    page.get_by_label("An .ics file").set_input_files([{**file, "buffer": b"name,day"}])
    page.get_by_role("button", name="Create").click()
    page.locator(".field-error", has_text="no iCalendar file").wait_for()
    text = b"BEGIN:VCALENDAR\r\nBEGIN:VEVENT\r\nDTSTART;VALUE=DATE:20391226\r\nEND:VEVENT\r\nEND:VCALENDAR\r\n"
    page.get_by_label("Days off").fill("2039-12-25")
    page.get_by_label("An .ics file").set_input_files([{**file, "buffer": text}])
    page.get_by_role("button", name="Create").click()
    page.get_by_text("2039-12-26").wait_for()
    assert console.api("GET", f"/v1/calendars/{name}")["daysOff"] == ["2039-12-25", "2039-12-26"]
