"""The chart of ``benchmarks.growth`` as SVG: a panel for each figure, over the number of pending timers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

_PANELS = {
    "created in batches, timers/s": ["created_per_s"],
    "drained, timers/s": ["drained_per_s"],
    "CPU of creating a timer, us": ["create_cpu_us"],
    "CPU of draining a timer, us": ["drain_cpu_us"],
    "lag at 200 timers/s, ms: p50, p99": ["lag_p50_ms", "lag_p99_ms"],
    "CPU when nothing is due, % of a core": ["idle_percent_of_core"],
    "memory of the server, MiB": ["memory_mib"],
    "bytes on disk for each more timer": ["bytes_per_timer"],
}
_COLUMNS, _WIDTH, _HEIGHT = 2, 360, 190
_LEFT, _TOP, _PLOT_WIDTH, _PLOT_HEIGHT = 56, 34, 280, 110
_COLOURS = ["#1f5fa8", "#c2571a"]


def draw(lines: Sequence[Mapping[str, Any]]) -> str:
    """``lines`` in the order of their sizes, as ``--json`` prints them. Logarithmic across, from 0 upwards."""
    panels = {
        title: [[line[figure] for line in lines] for figure in figures]
        for title, figures in _PANELS.items()
        if figures[0] in lines[0]
    }
    sizes = [line["pending"] for line in lines]
    rows = math.ceil(len(panels) / _COLUMNS)
    width, height = _COLUMNS * _WIDTH, rows * _HEIGHT
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif"',
        f'width="{width}" height="{height}" font-size="11" fill="#333">',
        f'<rect width="{width}" height="{height}" fill="#fff"/>',
    ]
    for place, (title, series) in enumerate(panels.items()):
        x, y = place % _COLUMNS * _WIDTH, place // _COLUMNS * _HEIGHT
        parts += [f'<g transform="translate({x},{y})">', *_panel(title, sizes, series), "</g>"]
    return "\n".join([*parts, "</svg>"])


def _panel(title: str, sizes: Sequence[int], series: Sequence[Sequence[float]]) -> list[str]:
    top = _round_up(max(map(max, series)))
    low, high = math.log10(sizes[0]), math.log10(sizes[-1])
    bottom = _TOP + _PLOT_HEIGHT

    def across(size: int) -> float:
        return _LEFT + _PLOT_WIDTH * (math.log10(size) - low) / ((high - low) or 1)

    parts = [f'<text x="{_LEFT}" y="20" font-size="12" font-weight="bold">{title}</text>']
    for part in (0, 0.5, 1):
        y = bottom - part * _PLOT_HEIGHT
        parts.append(f'<path d="M{_LEFT} {y:g}h{_PLOT_WIDTH}" stroke="#ddd"/>')
        parts.append(f'<text x="{_LEFT - 6}" y="{y + 4:g}" text-anchor="end">{top * part:,g}</text>')
    for size in sizes:
        parts.append(f'<text x="{across(size):.1f}" y="{bottom + 16}" text-anchor="middle">{_short(size)}</text>')
    for colour, values in zip(_COLOURS, series, strict=False):
        points = [
            (across(size), bottom - value / top * _PLOT_HEIGHT) for size, value in zip(sizes, values, strict=True)
        ]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in points]
    return parts


def _round_up(value: float) -> float:
    """To 1, 2, 4, 6 or 10 times a power of ten."""
    power = 10.0 ** math.floor(math.log10(value))
    return next(step * power for step in (1, 2, 4, 6, 10) if value <= step * power)


def _short(number: int) -> str:
    return f"{number // 10**6}M" if number >= 10**6 else f"{number // 1000}k"
