"""The pages for operators say what there is: metrics, log actions, alerts."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path

from duetime.domain.events import TIMER_FAILED
from duetime.engine.stats import LAG_BOUNDS
from duetime.runtime.metrics import COUNTERS, DISTRIBUTIONS, GAUGES, OUTBOX_COUNTERS, OUTBOX_GAUGES
from tests.support.metrics import make_snapshot

ROOT = Path(__file__).parents[3]
METRICS = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")
_ROW = re.compile(r"^\| `([a-z_]+)(?:\{([^}]*)\})?`(?: \((\w+)\))? \| (`\w+`|-) \|", re.MULTILINE)


def documented() -> dict[str, str | None]:
    """The rows of the poller's table: the name as it is counted, and CloudWatch's name."""
    rows = {}
    for name, labels, kind, cloudwatch in _ROW.findall(METRICS):
        key = name.removesuffix("_total") if not kind else name
        outcome = re.fullmatch(r'outcome="(\w+)"', labels)
        rows[f"{key}:{outcome[1]}" if outcome else key] = None if cloudwatch == "-" else cloudwatch.strip("`")
    return rows


def counted() -> dict[str, str | None]:
    snapshot = make_snapshot()
    rows: dict[str, str | None] = {metric.name: metric.cloudwatch for metric in DISTRIBUTIONS}
    for number in (*COUNTERS, *OUTBOX_COUNTERS, *GAUGES, *OUTBOX_GAUGES):
        if number.name == "outcomes":
            assert number.cloudwatch is not None
            rows |= {f"outcomes:{outcome}": number.cloudwatch(outcome) for outcome in number.read(snapshot)}
        else:
            rows[number.name] = number.cloudwatch and number.cloudwatch("")
    return rows


def test_every_metric_is_documented_with_its_names_and_no_other() -> None:
    assert documented() == counted()


def test_the_buckets_of_the_lag_are_documented() -> None:
    assert ", ".join(f"{bound:g}" for bound in LAG_BOUNDS) in " ".join(METRICS.split())


def test_alerts_use_metrics_that_exist() -> None:
    (rules,) = re.findall(r"```yaml\n(.*?)```", METRICS, re.DOTALL)
    used = set(re.findall(r"duetime_([a-z_]+)", rules))
    known = {f"{number.name}_total" for number in (*COUNTERS, *OUTBOX_COUNTERS)}
    known |= {number.name for number in (*GAUGES, *OUTBOX_GAUGES)}
    known |= {f"{distribution.name}_bucket" for distribution in DISTRIBUTIONS} | {"worker_snapshot_age_seconds"}
    assert rules.count("expr: ") >= 5
    assert used <= known


def test_every_log_action_is_documented_and_no_other() -> None:
    page = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
    table = page.partition("## Log actions")[2]
    rows = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `")]
    listed = [action for row in rows for action in re.findall(r"`([a-z_.]+)`", row)]
    assert sorted(listed) == sorted(set(listed))
    assert set(listed) == actions_in_the_code()


def actions_in_the_code() -> set[str]:
    """Every constant that stands beside the key ``action`` in a dictionary, or is the argument ``action``."""
    found: set[str] = set()
    for path in (ROOT / "shared" / "duetime").rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(text if "action" in text else "")):
            if isinstance(node, ast.Dict):
                for key, value in zip(node.keys, node.values, strict=True):
                    if isinstance(key, ast.Constant) and key.value == "action":
                        values = [value.body, value.orelse] if isinstance(value, ast.IfExp) else [value]
                        constants = [item.value for item in values if isinstance(item, ast.Constant)]
                        # All but the formatter, which writes any action, and batches, whose owners name theirs.
                        is_told = path.name in ("logs.py", "batching.py")
                        assert len(constants) == len(values) or is_told, f"{path}:{node.lineno}"
                        found.update(map(str, constants))
            elif isinstance(node, ast.keyword) and node.arg == "action" and isinstance(node.value, ast.Constant):
                found.add(str(node.value.value))
    return found


def test_the_event_on_the_page_is_the_sample() -> None:
    page = (ROOT / "docs" / "events.md").read_text(encoding="utf-8")
    shown = json.loads(re.findall(r"```json\n(.*?)```", page, re.DOTALL)[0])
    sample = json.loads((ROOT / "events" / "timer_failed.json").read_text(encoding="utf-8"))
    assert shown == sample["detail"]
    assert shown["type"] == TIMER_FAILED
