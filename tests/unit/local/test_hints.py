"""Hints between processes: their lines, who is told of what, and what a worker writes."""

from __future__ import annotations

import os
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from duetime.calls.relay import OUTBOX_SHARD
from duetime.local.hints import connect, hearing, read_hint, write_hint
from duetime.local.workers import hints_read, reports_written
from duetime.runtime.metrics import read_snapshot
from tests.support.clock import NOW, FakeClock
from tests.support.metrics import make_snapshot

LATER = NOW + timedelta(milliseconds=1)


def test_a_hint_is_one_line_that_can_be_read() -> None:
    due = {3: NOW, 1_000_000: LATER, OUTBOX_SHARD: NOW}
    line = write_hint(due)
    assert line.index(b"\n") == len(line) - 1
    assert read_hint(line) == due


@pytest.mark.parametrize("line", [b"", b"hello\n", b'{"due": 1}\n', b"due 3\n", b"due x:1\n", b"due 1:x\n"])
def test_anything_else_is_refused_and_a_worker_drops_it(line: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011
        read_hint(line)
    heard: list[object] = []
    hints_read(heard.append)(line)
    assert heard == []


def test_what_is_heard_is_for_the_poller_and_events_are_for_the_relay() -> None:
    noted: list[object] = []
    notified: list[bool] = []
    poller: Any = SimpleNamespace(note_due=noted.append)
    relay: Any = SimpleNamespace(notify=lambda: notified.append(True))
    hear = hearing(poller, relay)
    hear({3: NOW})
    assert (noted, notified) == ([{3: NOW}], [])
    hear({OUTBOX_SHARD: NOW})
    assert notified == [True]


@pytest.mark.parametrize(
    ("relay", "told"),
    [
        (SimpleNamespace(stats=SimpleNamespace(is_active=1)), []),
        (SimpleNamespace(stats=SimpleNamespace(is_active=0)), [{OUTBOX_SHARD: NOW}]),
        (None, [{OUTBOX_SHARD: NOW}]),
    ],
)
def test_others_are_told_of_events_unless_they_are_published_here(relay: Any, told: list[object]) -> None:
    heard: list[object] = []
    calls: Any = SimpleNamespace(on_events=[])
    poller: Any = SimpleNamespace(connect=lambda tell: tell({3: NOW}))
    connect(heard.append, poller, relay, calls, FakeClock())
    assert heard == [{3: NOW}]
    (notify,) = calls.on_events
    notify()
    assert heard[1:] == told


def test_a_worker_writes_hints_at_once_and_its_snapshot_at_the_end() -> None:
    reading, writing = os.pipe()
    snapshot = make_snapshot(fired=3, lags=())
    with os.fdopen(reading, "rb") as lines:
        with reports_written(lambda: snapshot, writing) as tell:
            tell({3: LATER, 4: NOW})
            assert read_hint(lines.readline()) == {3: LATER, 4: NOW}
        os.close(writing)
        assert [read_snapshot(line) for line in lines] == [snapshot]
