"""docs/client.md: its examples run, one after the other, against `duetime serve`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.support.callbacks import CallbackReceiver
from tests.support.processes import ROOT, DuetimeServer

EXAMPLES = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "client.md").read_text(encoding="utf-8"), re.DOTALL)


def test_the_examples_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, Any] = {"__name__": "examples"}
    with CallbackReceiver() as receiver, DuetimeServer(cwd=tmp_path) as server:
        for at, example in enumerate(EXAMPLES):
            text = example.replace("http://127.0.0.1:8080", server.url)
            text = re.sub(r"http://127\.0\.0\.1:9999", receiver.url.rstrip("/"), text)
            exec(compile(text, f"docs/client.md, example {at + 1}", "exec"), names)
    shown = capsys.readouterr().out
    assert "timer_not_found" in shown
    assert "ServiceCallSucceeded" in shown
    assert "order-4711\n" in shown
    assert len(names["ids"]) == 600
    assert not names["failed"]
