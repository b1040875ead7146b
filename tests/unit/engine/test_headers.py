from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from duetime.engine.response.attempt_log import MAX_NAMING_BYTES, kept_headers, naming_headers

STATUS = b"HTTP/1.1 200 OK\r\n"


def kept(*headers: str, max_bytes: int = 512) -> dict[str, str]:
    lines = [STATUS, *(f"{header}\r\n".encode("latin-1") for header in headers), b"\r\n"]
    return kept_headers(lines, max_bytes=max_bytes)


def test_names_are_lower_case_and_the_most_telling_come_first() -> None:
    headers = kept("X-Own: 1", "Date: now", "Retry-After:  30 ", "Content-Type: text/plain", "Connection: close")
    assert list(headers.items()) == [
        ("retry-after", "30"),
        ("content-type", "text/plain"),
        ("date", "now"),
        ("x-own", "1"),
    ]


def test_secrets_are_not_kept() -> None:
    headers = kept(
        "Set-Cookie: hunter2",
        "Set-Cookie: hunter3",
        "X-Own-Key: hunter2",
        "Idempotency-Key: k",
        "Location: https://bob:pw@a.example/x?code=1&token=x#frag",
    )
    assert headers == {
        "location": "https://a.example/x?code=[redacted]&token=[redacted]",
        "set-cookie": "[redacted], [redacted]",
        "x-own-key": "[redacted]",
        "idempotency-key": "k",
    }


def test_what_names_an_answer() -> None:
    lines = [STATUS, b"Date: now\r\n", b"traceparent: 00-1\r\n", b"Content-Type: a/b\r\n", b"X-Own: 1\r\n", b"\r\n"]
    assert naming_headers(tuple(lines)) == {"content-type": "a/b", "traceparent": "00-1"}
    assert naming_headers((b"Content-Type: %s\r\n" % (b"x" * 500), b"X-Request-Id: %s\r\n" % (b"y" * 100))) == {
        "content-type": "x" * 128 + "..."
    }


def test_repeated_headers_are_joined() -> None:
    assert kept("Via: a", "Vary: x", "Via: b") == {"via": "a, b", "vary": "x"}


def test_less_telling_headers_are_left_out_first() -> None:
    filler = [f"X-Filler-{number}: {'x' * 60}" for number in range(20)]
    headers = kept(*filler, "Content-Type: text/plain", "X-Request-Id: r-1", "X-Small: 1")
    assert list(headers)[:2] == ["content-type", "x-request-id"]
    assert "x-filler-0" in headers
    assert "x-filler-19" not in headers


def test_a_long_value_is_cut() -> None:
    assert kept(f"X-Long: {'x' * 5000}") == {"x-long": "x" * 128 + "..."}


def test_what_cannot_be_shown_becomes_a_question_mark() -> None:
    assert kept("X-Own: a\x1b[31mb\x9bc\td") == {"x-own": "a?[31mb?c?d"}


def test_nonsense_is_left_out() -> None:
    assert kept("no colon", ": no name", f"{'n' * 5000}: 1", " folded: 1") == {"folded": "1"}


@given(st.lists(st.binary(max_size=300)), st.integers(0, 600))
def test_any_bytes_stay_within_the_bound(lines: list[bytes], max_bytes: int) -> None:
    headers = kept_headers(lines, max_bytes=max_bytes)
    assert len(json.dumps(headers, ensure_ascii=False, separators=(",", ":")).encode()) <= max_bytes + 2
    naming = naming_headers(tuple(lines))
    assert len(json.dumps(naming, ensure_ascii=False, separators=(",", ":")).encode()) <= MAX_NAMING_BYTES + 2
    assert all(text.isprintable() for item in headers.items() for text in item)
