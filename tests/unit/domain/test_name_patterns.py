from __future__ import annotations

import pytest

from duetime.domain.name_patterns import MAX_PATTERNS, NamePatterns, parse_name_patterns


@pytest.mark.parametrize(
    ("patterns", "name", "fits"),
    [
        ("authorization", "Authorization", True),
        ("authorization", "X-Authorization", False),
        ("*authorization", "X-Authorization", True),
        ("api-key", "apiKey", True),
        ("api-key", "API_KEY", True),
        ("api-key", "apikeys", False),
        ("*token*", "x-csrf-token-2", True),
        ("x-*-token", "X-Auth-Token", True),
        ("x-*-token", "X-Auth-Tokens", False),
        ("a.b", "axb", False),
        ("a, b ,c", "B", True),
        ("*", "anything", True),
        ("none", "none", False),
        ("None", "", False),
        ("*key*,!idempotency-key", "X-Own-Key", True),
        ("*key*,!idempotency-key", "Idempotency-Key", False),
        ("!idempotency-key,*key*", "IdempotencyKey", False),
        ("*key*,!idempotency-key", "X-Idempotency-Key", True),
        ("*,!a,!b*", "bc", False),
        ("*,!a", "", True),
        ("!a", "b", False),
    ],
)
def test_what_fits(patterns: str, name: str, fits: bool) -> None:
    assert parse_name_patterns(patterns).fits(name) is fits


@pytest.mark.parametrize(
    "text", ["", ",", "a,,b", "a b", "a\nb", "(", "!", "x" * 129, ",".join(["a"] * (MAX_PATTERNS + 1))]
)
def test_what_is_no_list(text: str) -> None:
    with pytest.raises(ValueError, match="must be at most 200 names") as caught:
        parse_name_patterns(text)
    assert "(" not in str(caught.value)


def test_a_name_of_any_length_costs_little() -> None:
    patterns = NamePatterns(["*a*b*c*d*", "*secret*"])
    assert not patterns.fits("ab" * 100_000)
    assert patterns.fits("secret" + "x" * 100_000)


def test_equal_patterns_are_equal() -> None:
    assert parse_name_patterns("a,b") == NamePatterns(["a", "b"])
    assert hash(parse_name_patterns("a,b")) == hash(NamePatterns(["a", "b"]))
    assert parse_name_patterns("a") != parse_name_patterns("b")
