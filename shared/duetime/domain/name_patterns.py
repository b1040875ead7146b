"""Parses lists of names of headers, parameters and fields whose values are secret."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache

MAX_PATTERNS = 200
_MAX_NAME_CHARACTERS = 256
"""The rest of a longer name is ignored."""
_PATTERN = re.compile(r"!?+[*0-9A-Za-z._~!$&'+^`|%-]{1,128}")
_SEPARATORS = re.compile(r"[-_.\s]")


class NamePatterns:
    """Matches names against patterns like ``*token*`` or ``authorization``; ``*`` matches any text.

    A name that a pattern after ``!`` matches is an exception to the others, wherever it is listed.
    Case, hyphens, underscores and dots are ignored: ``api-key`` matches ``apiKey`` and ``API_KEY``.
    """

    def __init__(self, patterns: Iterable[str]) -> None:
        """Raise ``ValueError``, which shows no pattern, for a bad one."""
        texts = tuple(patterns)
        if len(texts) > MAX_PATTERNS or not all(_PATTERN.fullmatch(text) for text in texts):
            raise ValueError(
                f"must be at most {MAX_PATTERNS} names, * for any text, ! before an exception, comma separated"
            )
        self._texts = texts
        names = [_as_regex(text) for text in texts if text[0] != "!"]
        exceptions = [_as_regex(text[1:]) for text in texts if text[0] == "!"]
        but_not = rf"(?!(?:{'|'.join(exceptions)})\Z)" if exceptions else ""
        self._regex = re.compile(f"{but_not}(?:{'|'.join(names)})") if names else None
        self._fits = lru_cache(maxsize=2048)(self._search)

    def fits(self, name: str) -> bool:
        """Tell whether a pattern matches the whole of ``name``, and no exception does."""
        return self._regex is not None and self._fits(name[:_MAX_NAME_CHARACTERS])

    def _search(self, name: str) -> bool:
        assert self._regex is not None
        return self._regex.fullmatch(_plain(name)) is not None

    def __bool__(self) -> bool:
        """Tell whether there is any name to match."""
        return self._regex is not None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, NamePatterns) and self._texts == other._texts

    def __hash__(self) -> int:
        return hash(self._texts)


def parse_name_patterns(text: str) -> NamePatterns:
    """Parse a comma separated list; ``none`` alone is empty. Raises ``ValueError``, which shows no pattern."""
    return NamePatterns(() if text.strip().lower() == "none" else (item.strip() for item in text.split(",")))


def _plain(name: str) -> str:
    return _SEPARATORS.sub("", name).lower()


def _as_regex(pattern: str) -> str:
    return ".*".join(re.escape(_plain(part)) for part in re.split(r"\*+", pattern))
