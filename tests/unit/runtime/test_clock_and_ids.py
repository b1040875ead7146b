from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from uuid import UUID

from duetime.runtime.clock import SystemClock
from duetime.runtime.ids import new_id, new_worker_id


def test_now_is_utc_in_whole_milliseconds_and_never_ahead() -> None:
    now = SystemClock().now()
    after = datetime.now(UTC)
    assert now.tzinfo is UTC
    assert now.microsecond % 1000 == 0
    assert timedelta(0) <= after - now < timedelta(seconds=5)


def test_ids_are_uuids_of_version_7_sorted_by_time() -> None:
    ids = [new_id() for _ in range(100)]
    assert ids == sorted(set(ids))
    assert {UUID(text).version for text in ids} == {7}


def test_worker_ids_tell_the_process_and_never_repeat() -> None:
    first, second = new_worker_id(), new_worker_id()
    assert first != second
    assert first.split(":")[1] == str(os.getpid())
