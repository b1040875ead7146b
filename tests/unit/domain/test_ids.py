from __future__ import annotations

from datetime import UTC, datetime
from uuid import RFC_4122, UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duetime.domain import ids
from duetime.domain.ids import UUID7_RANDOM_BITS, check_namespace, check_timer_id, sort_key, timer_uuid, uuid7_at
from duetime.domain.namespaces import Namespace
from duetime.domain.shards import MAX_SHARED_SHARDS, ShardMap, shard_hash, shard_index
from duetime.domain.times import to_milliseconds
from tests.support.clock import NOW as START


@pytest.mark.parametrize("name", ["a", "0", "user-services", "a.b_c-d", "x" * 63])
def test_namespaces(name: str) -> None:
    assert check_namespace(name) == name


@pytest.mark.parametrize("name", ["", "A", "-a", ".a", "a#b", "a/b", "a b", "é", "x" * 64, "a\n", "a:b"])
def test_what_is_no_namespace_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=r"must match"):
        check_namespace(name)


@pytest.mark.parametrize(
    "timer_id",
    ["a", "#", "##", "a b", "ünïcödé", "🎉👩‍👩‍👧", "x" * 255, "\u4e2d" * 255, "TIMER#x#y", "%2F", "..", "\u00a0"],
)
def test_timer_ids(timer_id: str) -> None:
    assert check_timer_id("ns", timer_id) == timer_id


@pytest.mark.parametrize(
    "timer_id", ["", "a/b", "/", "a\x00", "a\nb", "\x7f", "\x85", "x" * 256, "\ud800", "🎉" * 255]
)
def test_what_is_no_timer_id_is_refused(timer_id: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        check_timer_id("ns", timer_id)


def test_the_key_bound_counts_bytes_of_the_whole_key() -> None:
    room = 1024 - len(sort_key("n" * 63, "").encode())
    fits = "🎉" * (room // 4)
    assert check_timer_id("n" * 63, fits) == fits
    with pytest.raises(ValueError, match="1024 bytes"):
        check_timer_id("n" * 63, fits + "🎉")


@given(st.text(min_size=1, max_size=40), st.integers(1, 4096))
def test_a_timer_is_on_a_shard_of_its_namespace(timer_id: str, num_shards: int) -> None:
    assert 0 <= shard_index(timer_id, num_shards) < num_shards
    dedicated = Namespace("n", num_shards, MAX_SHARED_SHARDS, True, START)
    assert dedicated.shard_of(timer_id) in dedicated.shard_ids()


def test_the_shard_is_the_crc32_of_the_id() -> None:
    # The check value that catalogues of CRCs give for CRC-32/ISO-HDLC, so other implementations agree.
    assert shard_index("123456789", 1 << 32) == 0xCBF43926
    assert shard_index("123456789", 16) == 6


def test_the_uuid_is_stable_and_of_namespace_and_id() -> None:
    # `printf ns:t | md5sum`
    assert timer_uuid("ns", "t") == timer_uuid("ns", "t") == UUID("9da6402244260f9fe972d8d014d7e272")
    assert timer_uuid("ns", "t") != timer_uuid("ns2", "t")


@given(st.text(min_size=1), st.integers(1, 4096))
def test_an_escalation_is_on_the_shard_of_what_has_failed(timer_id: str, num_shards: int) -> None:
    for failed in (timer_id, ids.schedule_timer_id(timer_id), ids.occurrence_timer_id(timer_id, START)):
        failed = failed.encode(errors="replace").decode()
        escalation_id = ids.escalation_timer_id(shard_hash(failed), UUID(int=len(timer_id)))
        assert ids.check_timer_id("n", escalation_id) == escalation_id
        assert shard_index(escalation_id, num_shards) == shard_index(failed, num_shards)


def test_the_shard_map_lists_shared_and_dedicated_shards() -> None:
    assert ShardMap(2, MAX_SHARED_SHARDS + 2).shard_ids() == [0, 1, MAX_SHARED_SHARDS, MAX_SHARED_SHARDS + 1]
    assert ShardMap().shard_ids() == []


@given(st.datetimes(datetime(1970, 1, 1), datetime(9999, 12, 31)), st.integers(0, 2**UUID7_RANDOM_BITS - 1))
def test_a_uuid_of_an_instant_is_one_of_version_7_at_that_millisecond(instant: datetime, random_bits: int) -> None:
    made = UUID(uuid7_at(instant.replace(tzinfo=UTC), random_bits))
    assert (made.version, made.variant) == (7, RFC_4122)
    assert made.int >> 80 == to_milliseconds(instant.replace(tzinfo=UTC))
    assert (made.int >> 64 & 0xFFF) << 62 | made.int & (2**62 - 1) == random_bits
