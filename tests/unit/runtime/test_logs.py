from __future__ import annotations

import io
import json
import logging
import time
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from duetime.domain.executions import REDACTED
from duetime.domain.redaction import redact_field, redact_text
from duetime.runtime.logs import LogContext, LogFormat, LogLevel, configure_logging

logger = logging.getLogger("duetime.test")


@pytest.fixture
def stream() -> Iterator[io.StringIO]:
    """A place to log to; the root logger is put back as it was."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield io.StringIO()
    root.handlers[:] = handlers
    root.setLevel(level)


def events(stream: io.StringIO) -> list[dict[str, object]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_json_has_time_action_message_and_every_extra(stream: io.StringIO) -> None:
    configure_logging(LogFormat.JSON, LogLevel.INFO, stream)
    logger.info("claimed %d", 3, extra={"action": "shard.claimed", "shard_id": 3, "owner": "a b"})
    (event,) = events(stream)
    assert list(event)[:5] == ["time", "level", "action", "message", "logger"]
    assert event | {"time": ""} == {
        "time": "",
        "level": "info",
        "action": "shard.claimed",
        "message": "claimed 3",
        "logger": "duetime.test",
        "shard_id": 3,
        "owner": "a b",
    }
    assert abs((datetime.fromisoformat(str(event["time"])) - datetime.now(UTC)).total_seconds()) < 60


@pytest.mark.parametrize("log_format", LogFormat)
def test_each_makes_a_line_of_each_of_its_facts(stream: io.StringIO, log_format: LogFormat) -> None:
    configure_logging(log_format, LogLevel.INFO, stream, worker="w")
    each = [{"number": 1, "token": "s3cret"}, {"number": 2}]
    logger.info("said once", extra={"action": "a.b", "shared": "s", "each": each})
    first, second = stream.getvalue().splitlines()
    assert "s3cret" not in first
    for line in (first, second):
        assert all(text in line for text in ("a.b", "said once", "worker", "shared", "number"))


def test_an_extra_cannot_take_the_place_of_a_fixed_field(stream: io.StringIO) -> None:
    configure_logging(LogFormat.JSON, LogLevel.INFO, stream)
    logger.info("real", extra={"action": "a.b", "time": "never", "level": "fake"})
    (event,) = events(stream)
    assert event["level"] == "info"
    assert event["time"] != "never"


def test_context_is_on_every_event_inside_and_on_none_outside(stream: io.StringIO) -> None:
    configure_logging(LogFormat.JSON, LogLevel.INFO, stream)
    with LogContext(request_id="r1", correlation_id=None):
        logger.info("one", extra={"action": "x.one"})
        with LogContext(correlation_id="c1"):
            logger.info("two", extra={"action": "x.two"})
    logger.info("three", extra={"action": "x.three"})
    one, two, three = events(stream)
    assert (one["request_id"], "correlation_id" in one) == ("r1", False)
    assert (two["request_id"], two["correlation_id"]) == ("r1", "c1")
    assert "request_id" not in three


def test_fields_of_the_process_are_on_every_event(stream: io.StringIO) -> None:
    configure_logging(LogFormat.JSON, LogLevel.INFO, stream, pid=7)
    logger.info("one", extra={"action": "x.one"})
    configure_logging(LogFormat.TEXT, LogLevel.INFO, stream, pid=8)
    logger.info("two", extra={"action": "x.two"})
    one, two = stream.getvalue().splitlines()
    assert json.loads(one)["pid"] == 7
    assert two.endswith("pid=8")


def test_exceptions_stay_on_one_line_in_json(stream: io.StringIO) -> None:
    configure_logging(LogFormat.JSON, LogLevel.INFO, stream)
    try:
        raise ValueError("cannot reach postgresql://user:hunter2@db/x?password=hunter2")
    except ValueError:
        logger.exception("failed", extra={"action": "x.failed"})
    (event,) = events(stream)
    assert "postgresql://db/x" in str(event["exception"])
    assert "hunter2" not in stream.getvalue()


def test_text_is_readable_and_cannot_be_forged(stream: io.StringIO) -> None:
    configure_logging(LogFormat.TEXT, LogLevel.INFO, stream)
    logger.info(
        "hello\n2026-01-01 ERROR forged \x1b[2J",
        extra={
            "action": "x.y",
            "ratio": 0.123456789,
            "name_of": "a b",
            "plain": "ok",
            "esc": "\x1b[2J",
            "none": None,
        },
    )
    line = stream.getvalue()
    assert line.count("\n") == 1
    assert "\x1b" not in line
    assert "INFO    x.y  hello\\n2026-01-01 ERROR forged" in line
    assert 'ratio=0.123457  name_of="a b"  plain=ok  esc="\\u001b[2J"  none=null' in line


def test_level_and_quiet_libraries(stream: io.StringIO) -> None:
    configure_logging(LogFormat.JSON, LogLevel.INFO, stream)
    logger.debug("not shown")
    logging.getLogger("uvicorn.error").info("not shown")
    logging.getLogger("uvicorn.error").warning("shown")
    assert [event["message"] for event in events(stream)] == ["shown"]


def test_configuring_again_replaces_the_handler(stream: io.StringIO) -> None:
    configure_logging(LogFormat.JSON, LogLevel.INFO, io.StringIO())
    configure_logging(LogFormat.JSON, LogLevel.INFO, stream)
    logger.info("once")
    assert len(events(stream)) == 1


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("https://user:pw@host:8443/path?token=1#frag", "https://host:8443/path"),
        ("see http://a/b?c and https://d@e/f.", "see http://a/b and https://e/f."),
        ("sqlite:///data/duetime.db", "sqlite:///data/duetime.db"),
        ("https://user:p@ss@host/x", "https://host/x"),
        ("https://host?key=1", "https://host"),
        ("no url: a@b?c", "no url: a@b?c"),
        ('{"url": "http://u:p@h/?q=1"}', '{"url": "http://h/"}'),
        (f"{'a' * 99}://u:p@h/?q=1", f"{'a' * 99}://h/"),
        ("http://host/@user and a@b", "http://host/@user and a@b"),
        # Drivers read passwords with characters that end the user information of a URL.
        ("postgresql://u:p/w@host:5432/db", "postgresql://host:5432/db"),
        ("postgresql://u:p?w#x@host/db?sslmode=require", "postgresql://host/db"),
        ("mongodb+srv://u:p\"'<>@w@host/db, mysql://a:/@b/c", "mongodb+srv://host/db, mysql://b/c"),
        ("sqlite:////srv/@data/duetime.db", "sqlite:////srv/@data/duetime.db"),
    ],
)
def test_urls_lose_user_information_query_and_fragment(text: str, shown: str) -> None:
    assert redact_text(text) == shown


def test_a_long_word_costs_little() -> None:
    began = time.process_time()
    redact_text("a" * 200_000 + " https://u:p@h")
    assert (
        time.process_time() - began < 5
    )  # some hundredths; were the whole word looked through from each letter, minutes


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("dtk_0190-a_Secret", REDACTED),
        ('Bearer dtk_0190-a_Secret, "x"', f'Bearer {REDACTED}, "x"'),
        ("https://h/dtk_0190-a_Secret/x?y", f"https://h/{REDACTED}/x"),
        ("a dtk and dtk-_", "a dtk and dtk-_"),
    ],
)
def test_what_looks_like_an_api_key_is_replaced_wherever_it_is(text: str, shown: str) -> None:
    assert redact_text(text) == shown
    assert redact_field("request_id", text) == shown


@pytest.mark.parametrize(
    "name", ["Authorization", "webhook_secret", "headers", "payload", "apiKey", "cookie", "password"]
)
def test_fields_named_for_secrets_are_replaced(name: str) -> None:
    assert redact_field(name, "value") == REDACTED
    assert redact_field("outer", {name: ["value"]}) == {name: REDACTED}


def test_numbers_and_harmless_fields_are_kept() -> None:
    assert redact_field("payload_bytes", 12) == 12
    assert redact_field("shard_ids", (1, 2)) == [1, 2]
    assert redact_field("url", "http://h/p?q=1") == "http://h/p"
