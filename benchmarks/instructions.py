"""Machine instructions of the work that matters, counted by Valgrind: a limit for CI that a busy machine cannot move.

    make test-instructions
    python -m benchmarks.instructions [--record] [--json]

- created: a timer through the API's handler, in batches of 250.
- drained: a timer of many that are due at one instant; lone: one that is due alone. The engine runs in virtual time,
  on SQLite in memory, without a network. Both without creating it.
- occurrence: of a schedule, of many that are due at one instant, as of timers.
- import of timers_api, of poller: until the function is ready for its first event.

Each is the difference between two numbers of timers, so that what comes before cancels out. The counts are compared
with those of benchmarks/instructions.json, which were recorded by the same build of Python. Exit status 1: one is
larger by more than the tolerance. Without Valgrind, or with another Python, nothing is compared, and it says so.
``--record`` writes the counts of this Python into the file.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.figures import note, parser, show
from benchmarks.service import ROOT

_FILE = Path(__file__).with_suffix(".json")
_BUILD = f"Python {platform.python_version()}, {platform.python_compiler()}, {platform.machine()}"
_NUMBERS = (250, 750)
_BATCH = 250
_APART_MS = 5
_START = datetime(2026, 1, 1, tzinfo=UTC)
_AWS = {
    "AWS_DEFAULT_REGION": "eu-central-1",
    "AWS_ACCESS_KEY_ID": "x",
    "AWS_SECRET_ACCESS_KEY": "x",
    "AWS_LAMBDA_FUNCTION_NAME": "x",
    "DUETIME_STORE": "dynamodb://timers",
    "POWERTOOLS_SERVICE_NAME": "x",
}


# -- what is counted, each in a process of its own ----------------------------------------------------------------


def items(number: int, *, apart_ms: int = 0, is_fired: bool, are_schedules: bool = False) -> None:
    """Create that many timers, due ``apart_ms`` one after the other, or as many schedules of one instant, and fire
    them all if ``is_fired``."""
    from duetime.delivery.port import Callback, CallbackResult
    from duetime.runtime.settings import LocalSettings, load_settings
    from duetime.testing.receiver import VirtualSender
    from duetime.testing.service import virtual_service
    from duetime.testing.virtual_time import VirtualClock

    class AnswersAtOnce(VirtualSender):
        def result_of(self, callback: Callback) -> CallbackResult:
            return CallbackResult(callback.key, 200, b"", None, None, "", duration_seconds=0.001)

    settings = load_settings(LocalSettings, {"store": "sqlite://", "event_publishers": "webhook"}, environ={})
    clock = VirtualClock(_START)
    with virtual_service(settings, clock, AnswersAtOnce(), is_sending=False) as service:
        for first in range(0, number, _BATCH):
            batch = range(first, min(first + _BATCH, number))
            if are_schedules:
                for index in batch:
                    _ask(service.handler, "PUT", f"schedules/schedule-{index:06}", _schedule(index))
            else:
                given = {"timers": [_timer(index, apart_ms) for index in batch]}
                answer = _ask(service.handler, "POST", "timers/batch", given)
                assert all(item["status"] == 201 for item in answer["items"]), answer
        # Only now: an engine that ran already would look at what is being stored, more or less often by chance.
        thread = threading.Thread(target=service.run, daemon=True)
        thread.start()
        service.wait_until_started()
        service.settle()
        if is_fired:
            advanced = service.advance(_START + timedelta(hours=2), timeout_seconds=600)
            assert advanced.attempts == number, advanced
        service.stop()
        thread.join()


def _ask(handler: Callable[[Any, Any], Any], method: str, path: str, body: object) -> Any:
    request = {
        "rawPath": f"/v1/namespaces/default/{path}",
        "rawQueryString": "",
        "headers": {"content-type": "application/json"},
        "requestContext": {"http": {"method": method}, "stage": "$default", "requestId": "r"},
        "body": json.dumps(body),
        "isBase64Encoded": False,
    }
    answer = handler(request, None)
    assert answer["statusCode"] in (200, 201), answer
    return json.loads(answer["body"])


def _timer(index: int, apart_ms: int) -> dict[str, object]:
    due_at = _START + timedelta(hours=1, milliseconds=index * apart_ms)
    return {"id": f"timer-{index:06}", "executeAt": due_at.isoformat(), **_sent(index)}


def _schedule(index: int) -> dict[str, object]:
    return {"cron": "0 1 * * *", "timeZone": "Europe/London", **_sent(index)}


def _sent(index: int) -> dict[str, object]:
    return {
        "callbackUrl": "https://receiver.example/callbacks/orders",
        "payload": {"orderId": index, "kind": "reminder"},
    }


def import_function(name: str) -> None:
    os.environ.update(_AWS)
    spec = importlib.util.spec_from_file_location("handler", ROOT / "functions" / name / "handler.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    if name == "poller":
        module._function()


def in_child(action: Callable[[], None]) -> int:
    """Run it in a process that shares this one's start; its id."""
    process_id = os.fork()
    if process_id == 0:
        action()
        os._exit(0)
    return process_id


def work() -> None:
    """Do all of it, side by side, and print which process did what.

    Valgrind tells how many instructions each has run, those of this process before the fork among them.
    """
    importlib.import_module("duetime.runtime.wiring")  # which both functions need, and testing, too
    ids = {f"import of {name}": in_child(partial(import_function, name)) for name in ("timers_api", "poller")}
    items(_BATCH, is_fired=True)  # what Valgrind has translated and Python has cached serves all
    for number in _NUMBERS:
        for name, is_fired in (("created", False), ("drained", True)):
            ids[f"{name} {number}"] = in_child(partial(items, number, is_fired=is_fired))
            ids[f"{name} schedules {number}"] = in_child(
                partial(items, number, is_fired=is_fired, are_schedules=True)
            )
        ids[f"lone {number}"] = in_child(partial(items, number, apart_ms=_APART_MS, is_fired=True))
    failed = [name for name, process_id in ids.items() if os.waitpid(process_id, 0)[1] != 0]
    if failed:
        raise SystemExit(f"failed: {', '.join(failed)}")
    print(json.dumps(ids))


# -- counting and comparing ---------------------------------------------------------------------------------------


def count() -> dict[str, int]:
    """Instructions of each thing, of a timer where timers are counted."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environment |= {"PYTHONHASHSEED": "0", "PYTHONPATH": f"{ROOT}:{ROOT / 'shared'}:{ROOT / 'clients' / 'python'}"}
    command = [sys.executable, "-m", "benchmarks.instructions", "--work"]
    subprocess.run(command, env=environment, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)  # compiles
    valgrind = ["valgrind", "--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null"]
    done = subprocess.run(
        [*valgrind, *command], env=environment, cwd=ROOT, check=True, capture_output=True, text=True
    )
    ids: dict[str, int] = json.loads(done.stdout)
    counted = {
        int(process_id): int(number.replace(",", ""))
        for process_id, number in re.findall(r"==(\d+)== I +refs: +([\d,]+)", done.stderr)
    }
    whole = {name: counted[process_id] for name, process_id in ids.items()}
    few, many = _NUMBERS
    each = {
        what: (whole[f"{what} {many}"] - whole[f"{what} {few}"]) // (many - few)
        for what in ("created", "drained", "lone", "created schedules", "drained schedules")
    }
    return {
        "created": each["created"],
        "drained": each["drained"] - each["created"],
        "lone": each["lone"] - each["created"],
        "occurrence": each["drained schedules"] - each["created schedules"],
        **{name: number for name, number in whole.items() if name.startswith("import")},
    }


def compare(counts: Mapping[str, int], recorded: Mapping[str, int], tolerance_percent: float) -> list[str]:
    """Show the counts; those that are too large."""
    for name, number in counts.items():
        limit = recorded[name]
        show(name, instructions=number, recorded=limit, change_percent=(number / limit - 1) * 100)
    return [name for name, number in counts.items() if number > recorded[name] * (1 + tolerance_percent / 100)]


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--record", action="store_true", help="write the counts of this Python into the file")
    options.add_argument("--work", action="store_true", help=argparse.SUPPRESS)
    given = options.parse_args()
    if given.work:
        work()
        return
    stored = json.loads(_FILE.read_text())
    recorded = stored["counts"].get(_BUILD)
    if shutil.which("valgrind") is None:
        note("skipped: there is no valgrind here, so nothing was counted")
    elif given.record:
        stored["counts"][_BUILD] = count()
        _FILE.write_text(json.dumps(stored, indent=2, sort_keys=True) + "\n")
    elif recorded is None:
        note(f"skipped: {_FILE.name} has no counts of {_BUILD}, so nothing was compared; --record adds them")
    elif too_large := compare(count(), recorded, stored["tolerance_percent"]):
        raise SystemExit(
            f"more than {stored['tolerance_percent']} % over what was recorded: {', '.join(too_large)}."
            " If it is worth that, record anew: python -m benchmarks.instructions --record"
        )


if __name__ == "__main__":
    main()
