from __future__ import annotations

import os
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from uuid import RFC_4122, UUID

from duetime.runtime.clock import SystemClock
from duetime.runtime.ids import new_id, new_worker_id


def test_now_is_utc_in_whole_milliseconds_and_never_ahead() -> None:
    now = SystemClock().now()
    after = datetime.now(UTC)
    assert now.tzinfo is UTC
    assert now.microsecond % 1000 == 0
    assert timedelta(0) <= after - now < timedelta(seconds=5)


def test_ids_are_uuids_of_version_7_sorted_by_time() -> None:
    before_ms = time.time_ns() // 1_000_000
    ids = [new_id() for _ in range(2000)]
    after_ms = time.time_ns() // 1_000_000
    assert ids == sorted(set(ids))
    assert {(UUID(text).version, UUID(text).variant) for text in ids} == {(7, RFC_4122)}
    assert all(before_ms <= UUID(text).int >> 80 <= after_ms for text in ids)


def test_threads_never_make_the_same_id() -> None:
    with ThreadPoolExecutor(4) as threads:
        made = [*threads.map(lambda _: new_id(), range(4000))]
    assert len(set(made)) == 4000


def test_a_forked_process_makes_ids_of_its_own() -> None:
    new_id()
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writer, new_id().encode())
        os._exit(0)
    os.waitpid(child, 0)
    assert os.read(reader, 36).decode()[24:] != new_id()[24:]


def test_worker_ids_tell_the_process_and_never_repeat() -> None:
    first, second = new_worker_id(), new_worker_id()
    assert first != second
    assert first.split(":")[1] == str(os.getpid())
