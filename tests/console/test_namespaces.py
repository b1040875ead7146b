"""Namespaces: paused, resumed, resharded and deleted, the latter in two steps where there are timers."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from tests.console.conftest import Console, wait_for
from tests.support.receiver import Receiver

if TYPE_CHECKING:
    from playwright.sync_api import Locator


def row(console: Console) -> Locator:
    return console.page.locator("tbody tr", has=console.page.get_by_role("link", name=console.namespace, exact=True))


def press(console: Console, label: str) -> Locator:
    """Press a button of the namespace; the dialog that it opens."""
    row(console).get_by_role("button", name=f"{label} {console.namespace}", exact=True).click()
    return console.page.get_by_role("dialog")


def expect_state(console: Console, state: str) -> None:
    row(console).locator(".badge", has_text=re.compile(f"^{state}$")).wait_for()


def stored(console: Console) -> Any:
    return console.api("GET", f"/v1/namespaces/{console.namespace}")


def is_gone(console: Console) -> bool:
    return console.client.get(f"/v1/namespaces/{console.namespace}").status_code == 404


def test_a_namespace_is_paused_with_a_reason_and_resumed(console: Console) -> None:
    console.make_namespace()
    console.open()
    expect_state(console, "Active")

    dialog = press(console, "Pause")
    dialog.get_by_label("Reason").fill("the shop moves")
    dialog.get_by_role("button", name="Pause").click()

    expect_state(console, "Paused")
    assert (stored(console)["state"], stored(console)["pauseReason"]) == ("Paused", "the shop moves")
    row(console).get_by_title(re.compile("the shop moves$")).wait_for()

    dialog = press(console, "Resume")
    dialog.get_by_text("are fired now").wait_for()
    dialog.get_by_role("button", name="Resume").click()

    expect_state(console, "Active")
    assert stored(console)["state"] == "Active"


def test_what_was_changed_meanwhile_is_told_and_nothing_is_done(console: Console) -> None:
    console.make_namespace()
    console.open()
    expect_state(console, "Active")
    dialog = press(console, "Pause")
    console.api("PUT", f"/v1/namespaces/{console.namespace}", json={"numShards": 1, "maxInFlight": 3})

    dialog.get_by_role("button", name="Pause").click()

    dialog.get_by_text(re.compile("^412 ")).wait_for()
    assert stored(console)["state"] == "Active"
    dialog.get_by_role("button", name="Back").click()
    assert console.page.get_by_role("dialog").count() == 0


def test_a_namespace_gets_other_shards_and_shows_those_that_it_had(console: Console) -> None:
    console.make_namespace()
    console.open()
    dialog = press(console, "Reshard")
    assert dialog.get_by_label("Shards").input_value() == "1"
    dialog.get_by_label("Shards").fill("5000")
    dialog.get_by_role("button", name="Reshard").click()
    dialog.get_by_text(re.compile("4096")).nth(1).wait_for()
    assert stored(console)["earlierShards"] == []

    dialog.get_by_label("Shards").fill("4")
    dialog.get_by_role("button", name="Reshard").click()

    row(console).get_by_text(re.compile("^1, switches in ")).wait_for()
    row(console).get_by_title(re.compile("^shards 0 to 3; 0 to 0 until ")).wait_for()
    assert (stored(console)["numShards"], stored(console)["earlierShards"][0]["numShards"]) == (4, 1)
    dialog = press(console, "Reshard")
    dialog.get_by_label("Shards").fill("8")
    dialog.get_by_role("button", name="Reshard").click()
    dialog.get_by_text(re.compile("^409 ")).wait_for()
    assert stored(console)["numShards"] == 4


def test_a_namespace_with_timers_is_kept_until_its_name_is_typed(console: Console, receiver: Receiver) -> None:
    console.make_namespace()
    console.create("t", receiver.url("/never"), delay="1h")
    console.open()
    dialog = press(console, "Delete")
    assert not is_gone(console)  # nothing is done before it is confirmed

    dialog.get_by_role("button", name="Delete").click()

    dialog.get_by_role("heading", name=f"Delete {console.namespace} with all its timers?").wait_for()
    assert stored(console)["state"] == "Active"
    dialog.get_by_label("Name of the namespace").fill("another")
    dialog.get_by_role("button", name="Delete everything").click()
    dialog.get_by_text(f"is not {console.namespace}").wait_for()
    assert stored(console)["state"] == "Active"
    dialog.get_by_label("Name of the namespace").fill(console.namespace)
    dialog.get_by_role("button", name="Delete everything").click()
    dialog.get_by_text(re.compile("^1 timer removed")).wait_for()

    # Left alone it stays as it is, and somebody can go on.
    dialog.get_by_role("button", name="Back").click()
    expect_state(console, "Deleting")
    dialog = press(console, "Continue deleting")
    dialog.get_by_label("Name of the namespace").fill(console.namespace)
    dialog.get_by_role("button", name="Delete everything").click()
    wait_for(lambda: is_gone(console))
    row(console).wait_for(state="detached")
    assert console.page.get_by_role("dialog").count() == 0
