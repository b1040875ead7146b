"""Parts of the client for themselves: texts and values, streams, waits, names."""

from __future__ import annotations

import pickle
import re
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import duetime
import duetime_client as names
from duetime.api.http.problems import _STATUSES
from duetime.domain.times import format_duration, parse_duration
from duetime_client.errors import ApiError, Conflict, NotFound, Throttled, Unavailable, Unreachable, error_from
from duetime_client.requests import Answer, split
from duetime_client.retrying import Retries, Tries, backoff_seconds
from duetime_client.sse import MAX_MESSAGE_BYTES, Decoder, Message
from duetime_client.values import duration, read_duration

PACKAGE = Path(names.__file__).parent


def test_the_blocking_client_waits_for_nobody() -> None:
    made = {path.name: path.read_text(encoding="utf-8") for path in (PACKAGE / "blocking").glob("*.py")}
    assert made.keys() == {path.name for path in (PACKAGE / "asynchronous").glob("*.py")}
    assert not [
        name for name, text in made.items() if re.search(r"\b(async (def|for|with)|await|anyio|Async\w+)\b", text)
    ]


def test_client_and_server_are_one_version() -> None:
    assert names.__version__ == duetime.__version__


def test_all_names_are_there_and_no_other() -> None:
    assert {getattr(names, name).__name__ for name in names.__all__ if name[0].isupper() and not name.isupper()}
    assert set(names.__all__) <= set(dir(names))
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        names.Nothing  # noqa: B018


def test_webhooks_come_without_the_client() -> None:
    program = """
import sys
sys.modules["httpx"] = sys.modules["anyio"] = None
import duetime_client.webhooks
from duetime_client import webhooks, NotFound
assert webhooks.verify
assert not [name for name in sys.modules if name.startswith(("duetime_client.blocking", "pydantic"))]
"""
    subprocess.run([sys.executable, "-c", program], check=True, cwd=PACKAGE.parent, timeout=60)


# -- values --------------------------------------------------------------------------------------------------------


@given(st.timedeltas(min_value=timedelta(), max_value=timedelta(days=36_000)))
def test_a_duration_is_written_as_the_api_reads_it(value: timedelta) -> None:
    text = duration("x", value)
    assert abs(parse_duration(text) - value.total_seconds()) < 1e-6
    assert read_duration(text) == value


@given(st.integers(min_value=0, max_value=10**13))
def test_a_duration_is_read_as_the_api_writes_it(milliseconds: int) -> None:
    assert read_duration(format_duration(milliseconds)) == timedelta(milliseconds=milliseconds)


@pytest.mark.parametrize(
    "given", ["PT5M", "P1DT2H", "P2W", "PT1.5S", "PT0.25H", "1h30m", "250ms", "1.5s", "90", "0.5", 90, 1.5, "0s"]
)
def test_a_duration_of_a_policy_is_read_in_any_form(given: Any) -> None:
    assert read_duration(given).total_seconds() == pytest.approx(parse_duration(given))


@pytest.mark.parametrize("text", ["", "P", "PT", "1x", "h", "1h 30m", "PT1S5"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="must be a duration"):
        parse_duration(text)
    with pytest.raises(ValueError, match="could not convert"):
        read_duration(text)


# -- errors --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("error_class", "status"), _STATUSES.items())
def test_every_problem_has_a_class(error_class: type[Any], status: int) -> None:
    error = error_from({"code": error_class.code, "detail": "d", "requestId": "r"}, status=status)
    # 405 is for those alone who make their own requests.
    assert (type(error) is ApiError) == (status == 405)
    assert str(error) == f"d (HTTP {status}, {error_class.code}, request r)"


@pytest.mark.parametrize("error", [NotFound("m", status=404, code="c"), Unreachable("m", may_have_been_done=False)])
def test_an_error_goes_to_another_process(error: Exception) -> None:
    copy = pickle.loads(pickle.dumps(error))
    assert (type(copy), str(copy), vars(copy)) == (type(error), str(error), vars(error))


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("7", 7), ("Thu, 01 Jan 1970 00:00:00 GMT", 0), ("soon", None), ("9" * 40, None), ("", None)],
)
def test_retry_after_is_seconds_or_a_date(text: str, seconds: int | None) -> None:
    error = Answer(503, {"retry-after": text}, b"").error()
    assert isinstance(error, Unavailable)
    assert error.retry_after == (None if seconds is None else timedelta(seconds=seconds))


# -- waits ---------------------------------------------------------------------------------------------------------


def tries(**options: Any) -> Tries:
    return Tries(Retries(**options), lambda: 0.0)


def test_waits_double_up_to_the_most_and_are_shortened_by_chance() -> None:
    retries = Retries(first_wait=timedelta(seconds=1), max_wait=timedelta(seconds=5))
    assert [backoff_seconds(retries, failures, 0.0) for failures in (1, 2, 3, 4, 10_000)] == [1, 2, 4, 5, 5]
    assert backoff_seconds(retries, 2, 0.5) == 1.5


def test_the_server_says_how_long_to_wait_at_least() -> None:
    ours = tries(first_wait=timedelta(seconds=1), max_wait=timedelta(seconds=20))
    assert ours.wait_seconds(Unavailable("", retry_after=timedelta(seconds=20))) == 20
    assert ours.wait_seconds(Unavailable("", retry_after=timedelta())) == 2
    with pytest.raises(Unavailable):
        ours.wait_seconds(Unavailable("", retry_after=timedelta(seconds=21)))


def test_what_was_not_sent_is_no_first_time() -> None:
    ours = tries()
    ours.wait_seconds(Unreachable("", may_have_been_done=False))
    assert not ours.may_be_second
    others = tries()
    others.wait_seconds(Unreachable(""))
    others.wait_seconds(Unreachable("", may_have_been_done=False))
    assert others.may_be_second


@pytest.mark.parametrize(("code", "may_have_been_done"), [("", False), ("store_throttled", True)])
def test_a_gateway_that_throttles_has_done_nothing_and_a_store_may_have(code: str, may_have_been_done: bool) -> None:
    ours = tries()
    ours.wait_seconds(Throttled("", status=429, code=code))
    assert ours.may_be_second is may_have_been_done


def test_an_earlier_try_that_is_still_carried_out_is_waited_for() -> None:
    in_use = Conflict("", status=409, code="idempotency_key_in_use", retry_after=timedelta(seconds=2))
    assert tries().wait_seconds(in_use) == 2
    with pytest.raises(Conflict):
        tries().wait_seconds(Conflict("", status=409, code="timer_conflict"))


# -- streams and batches -------------------------------------------------------------------------------------------

STREAM = (
    b"retry: 1500\n\n: comment\n\nid: 1\ndata: a\xc3\xbc\xe2\x80\xa8b\n\n"
    b"event: end\r\ndata: x\r\ndata:y\r\n\r\nevent: nothing\n\ndata: z\r\rdata: never ended\n"
)
MESSAGES = [Message("message", "aü\u2028b"), Message("end", "x\ny"), Message("message", "z")]


@given(st.lists(st.integers(min_value=1, max_value=20), max_size=80))
def test_a_stream_is_read_however_it_is_cut(sizes: list[int]) -> None:
    decoder, rest = Decoder(), STREAM
    found: list[Message] = []
    for size in [*sizes, len(STREAM)]:
        found += decoder.feed(rest[:size])
        rest = rest[size:]
    assert found == MESSAGES
    assert decoder.retry_seconds == 1.5


@pytest.mark.parametrize("line", [b"x" * 1000, b"data: " + b"x" * 1000 + b"\n"])
def test_a_message_without_an_end_is_given_up(line: bytes) -> None:
    decoder = Decoder()
    fed = (message for _ in range(MAX_MESSAGE_BYTES // 1000 + 2) for message in decoder.feed(line))
    with pytest.raises(ValueError, match="a message of more than"):
        list(fed)


@given(st.lists(st.integers(min_value=0, max_value=12)), st.integers(min_value=1, max_value=5))
def test_a_batch_is_cut_by_number_and_size(sizes: list[int], max_items: int) -> None:
    items = [b"x" * size for size in sizes]
    parts = [items[start:end] for start, end in split(items, max_items=max_items, max_bytes=10)]
    assert [item for part in parts for item in part] == items
    assert all(1 <= len(part) <= max_items for part in parts)
    assert all(len(part) == 1 or sum(map(len, part)) <= 10 for part in parts)
