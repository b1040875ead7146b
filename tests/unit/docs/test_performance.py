"""What docs/performance.md shows comes from commands: benchmarks that exist, a chart of a stored run, limits."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from benchmarks import figures
from benchmarks.growth_chart import draw
from benchmarks.instructions import compare

ROOT = Path(__file__).parents[3]
DOCS = ROOT / "docs"
GROWTH = DOCS / "performance" / "growth.jsonl"


def test_the_page_names_every_benchmark() -> None:
    (rest,) = re.findall(r"^NO_BENCHMARKS := (.*)$", (ROOT / "Makefile").read_text(), re.M)
    all_of_them = {path.stem for path in (ROOT / "benchmarks").glob("*.py")} - set(rest.split())
    named = set(re.findall(r"python -m benchmarks\.(\w+)", (DOCS / "performance.md").read_text()))
    assert all_of_them <= named


def test_the_chart_is_that_of_the_stored_run() -> None:
    lines = [json.loads(line) for line in GROWTH.read_text().splitlines()]
    assert draw(lines) + "\n" == GROWTH.with_suffix(".svg").read_text()


def test_the_chart_has_no_panel_of_what_was_not_measured() -> None:
    line = json.loads(GROWTH.read_text().splitlines()[0])
    del line["bytes_per_timer"]
    assert "bytes on disk" not in draw([line])


def test_a_benchmark_tells_text_or_json_and_text(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", ["/somewhere/firing.py"])
    figures.show("drain", timers=20_000, per_s=9071.66, ratio=0.3149, checkout=None)
    assert capsys.readouterr().out == "drain: timers 20,000, per s 9,072, ratio 0.315\n"

    monkeypatch.setattr(figures, "_as_json", True)
    figures.show("drain", timers=20_000, per_s=9071.66, ratio=0.3149, checkout=None)
    told = capsys.readouterr()
    assert json.loads(told.out) == {
        "benchmark": "firing",
        "what": "drain",
        "timers": 20_000,
        "per_s": 9071.66,
        "ratio": 0.3149,
    }
    assert told.err == "drain: timers 20,000, per s 9,072, ratio 0.315\n"


def test_a_count_over_the_tolerance_is_named() -> None:
    recorded = {"created": 1000, "drained": 1000, "lone": 1000}
    assert compare({"created": 1020, "drained": 1021, "lone": 900}, recorded, 2.0) == ["drained"]
