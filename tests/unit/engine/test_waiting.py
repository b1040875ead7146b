"""Waits of the event loop."""

from __future__ import annotations

import pytest

from duetime.engine.waiting import whole_milliseconds


@pytest.mark.parametrize(
    ("seconds", "waited"),
    [(0.0014, 0.002), (0.0016, 0.002), (0.3 - 0.1, 0.2), (0.8, 0.8), (0.0002, 0.001), (-1, 0.001)],
)
def test_a_wait_does_not_end_before_it_is_time(seconds: float, waited: float) -> None:
    assert whole_milliseconds(seconds) == waited
