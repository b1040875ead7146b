"""What reading a stored row may raise, when the row is damaged or another version has written it."""

from __future__ import annotations

DECODING_ERRORS = (KeyError, ValueError, TypeError, AttributeError, OverflowError, RecursionError)


def what_is_wrong(error: Exception) -> str:
    """One of ``DECODING_ERRORS`` in words. Any but a missing field may quote what was read, which may be a secret."""
    return f"{type(error).__name__}: {error}" if isinstance(error, KeyError) else type(error).__name__
