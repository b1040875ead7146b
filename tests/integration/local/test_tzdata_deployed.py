"""``duetime serve`` with a newer release of tzdata than the one before it had."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from duetime.app.tzdata_release import TZDATA_SHARD
from duetime.domain.timers import TimerChange
from duetime.recurrence import zones
from duetime.runtime.wiring import opened_store
from tests.support.processes import DuetimeServer

LOCAL: dict[str, Any] = {
    "localTime": "2037-03-28T09:00",
    "timeZone": "Europe/Berlin",
    "callbackUrl": "http://127.0.0.1/",
}
DUE, OTHER = "2037-03-28T08:00:00.000Z", datetime(2037, 3, 28, 6, tzinfo=UTC)


def test_what_an_older_release_has_computed_is_moved_once(tmp_path: Path) -> None:
    with DuetimeServer("--workers", "2", cwd=tmp_path) as server:
        server.create("t", **LOCAL)
        server.wait_for("tzdata.applied")
        server.terminate()
    now = datetime.now(UTC)
    with opened_store(f"sqlite:///{tmp_path}/data/duetime.db") as store:
        namespace = store.catalogue.get_namespace("default")
        assert namespace is not None
        store.timers.update(namespace, "t", TimerChange(execute_at=OTHER), firing_id="f", now=now, if_revision=None)
        older = '{"release":"2020a","passes":2}'
        store.leases.claim([TZDATA_SHARD], "older", lease_seconds=0.001, metadata=older, now=now)

    with DuetimeServer("--workers", "2", cwd=tmp_path) as server:
        applied = server.wait_for("tzdata.applied")
        assert (applied["release"], applied["pass_number"], applied["moved"]) == (zones.VERSION, 1, 1)
        assert server.ok("GET", "/timers/t")["executeAt"] == DUE
        server.terminate()
    with DuetimeServer("--workers", "2", cwd=tmp_path) as server:
        server.wait_for_shards(1)
        assert server.of("tzdata.began") == []
