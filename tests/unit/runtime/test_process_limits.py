from __future__ import annotations

import resource

import pytest

from duetime.runtime import process_limits


class Limits:
    """Stands for one of the process's limits; the others are none."""

    def __init__(self, soft: int, hard: int, *, is_fixed: bool = False, which: int = resource.RLIMIT_NOFILE) -> None:
        self.now = (soft, hard)
        self.is_fixed = is_fixed
        self.which = which

    def get(self, which: int) -> tuple[int, int]:
        return self.now if which == self.which else (resource.RLIM_INFINITY, resource.RLIM_INFINITY)

    def set(self, which: int, limits: tuple[int, int]) -> None:
        assert which == self.which
        if self.is_fixed:
            raise OSError("not allowed")
        self.now = limits


@pytest.mark.parametrize(
    ("limits", "expected", "warning"),
    [
        (Limits(4096, 4096), (4096, 4096), None),
        (Limits(256, 4096), (1100, 4096), None),
        (Limits(256, resource.RLIM_INFINITY), (1100, resource.RLIM_INFINITY), None),
        (Limits(resource.RLIM_INFINITY, resource.RLIM_INFINITY), (resource.RLIM_INFINITY,) * 2, None),
        (Limits(256, 1024), (1024, 1024), "process.few_open_files"),
        (Limits(256, 4096, is_fixed=True), (256, 4096), "process.few_open_files"),
        (Limits(1024, 1024, which=resource.RLIMIT_NPROC), (1024, 1024), None),
        (Limits(64, 1024, which=resource.RLIMIT_NPROC), (150, 1024), None),
        (Limits(64, 100, which=resource.RLIMIT_NPROC), (100, 100), "process.few_threads"),
    ],
)
def test_the_limit_is_raised_as_far_as_needed_and_possible(
    limits: Limits,
    expected: tuple[int, int],
    warning: str | None,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(resource, "getrlimit", limits.get)
    monkeypatch.setattr(resource, "setrlimit", limits.set)

    process_limits.allow(900)

    assert limits.now == expected
    assert [getattr(record, "action", None) for record in caplog.records] == ([] if warning is None else [warning])
