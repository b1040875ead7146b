from __future__ import annotations

import resource

import pytest

from duetime.runtime.open_files import allow_connections


class Limits:
    """Stands for the process's limits."""

    def __init__(self, soft: int, hard: int, *, is_fixed: bool = False) -> None:
        self.now = (soft, hard)
        self.is_fixed = is_fixed

    def get(self, which: int) -> tuple[int, int]:
        assert which == resource.RLIMIT_NOFILE
        return self.now

    def set(self, which: int, limits: tuple[int, int]) -> None:
        assert which == resource.RLIMIT_NOFILE
        if self.is_fixed:
            raise OSError("not allowed")
        self.now = limits


@pytest.mark.parametrize(
    ("limits", "expected", "is_warned"),
    [
        (Limits(4096, 4096), (4096, 4096), False),
        (Limits(256, 4096), (1100, 4096), False),
        (Limits(256, resource.RLIM_INFINITY), (1100, resource.RLIM_INFINITY), False),
        (Limits(resource.RLIM_INFINITY, resource.RLIM_INFINITY), (resource.RLIM_INFINITY,) * 2, False),
        (Limits(256, 1024), (1024, 1024), True),
        (Limits(256, 4096, is_fixed=True), (256, 4096), True),
    ],
)
def test_the_limit_is_raised_as_far_as_needed_and_possible(
    limits: Limits,
    expected: tuple[int, int],
    is_warned: bool,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(resource, "getrlimit", limits.get)
    monkeypatch.setattr(resource, "setrlimit", limits.set)

    allow_connections(900)

    assert limits.now == expected
    assert ("DUETIME_MAX_IN_FLIGHT" in caplog.text) is is_warned
