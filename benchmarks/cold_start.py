"""Cold starts: from starting a function's process to its first answer, against a bare function.

    python -m benchmarks.cold_start [--rounds N]

Every round starts each of them once, under Lambda's runtime client, with a DynamoDB emulator to answer. The bare
function makes a boto3 DynamoDB client and returns. The layer is the deployed one, with its bytecode compiled, and for
comparison one without. Compare the ratios of one run: the milliseconds are this machine's.
"""

from __future__ import annotations

import shutil
import statistics
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.figures import parser, show
from duetime.stores.backends.dynamodb.client import make_client
from scripts.aws_local import build
from tests.aws.application import KEY, read_event
from tests.support.dynamodb import dynamodb_store
from tests.support.ministack import running_ministack
from tests.support.runtime_api import LambdaFunction
from tests.support.tools import tool_program

TARGET_RATIO = 2.0
TABLE = "timers"

BARE = """
import boto3

client = boto3.client("dynamodb")


def lambda_handler(event, context):
    return {"statusCode": 200}
"""


@dataclass(frozen=True)
class Subject:
    """A function, and the event that starts it. A poller that has no time left answers at once."""

    code: Path
    layers: Sequence[Path]
    event: dict[str, Any]
    deadline_seconds: float = 30.0

    def start_seconds(self, environment: Mapping[str, str]) -> float:
        with LambdaFunction(self.code, layers=self.layers, environment=environment) as function:
            _, answered_at = function.timed_invoke(self.event, deadline_seconds=self.deadline_seconds)
            return answered_at - function.started_at


def subjects(scratch: Path) -> dict[str, Subject]:
    built = build()
    layer = built / "SharedLayer"
    bare, sources = scratch / "bare", scratch / "sources"
    bare.mkdir()
    shutil.copytree(layer, sources, ignore=shutil.ignore_patterns("__pycache__"))
    names = ("timers_api", "service_calls_api", "poller_fanout", "outbox_schedule")
    request, calls, shards, schedule = map(read_event, names)
    (bare / "handler.py").write_text(BARE)
    return {
        "bare": Subject(bare, [], request),
        "timers_api": Subject(built / "TimersApi", [layer], request),
        "timers_api, no bytecode": Subject(built / "TimersApi", [sources], request),
        "service_calls_api": Subject(built / "ServiceCallsApi", [layer], calls),
        "poller": Subject(built / "Poller", [layer, built / "SenderLayer"], shards, deadline_seconds=0.0),
        "outbox": Subject(built / "Outbox", [layer], schedule),
    }


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--rounds", type=int, default=15)
    rounds = options.parse_args().rounds
    # On Lambda the runtime's own packages are compiled, too.
    runtime = Path(tool_program("lambda-runtime", "python"))
    subprocess.run([runtime, "-m", "compileall", "-q", runtime.parents[1] / "lib"], check=True)
    with tempfile.TemporaryDirectory() as scratch, running_ministack() as endpoint_url:
        store = dynamodb_store(make_client(endpoint_url=endpoint_url), TABLE)
        store.initialise()
        store.catalogue.create_api_key(KEY)
        environment = {"AWS_ENDPOINT_URL": endpoint_url, "DUETIME_STORE": f"dynamodb://{TABLE}"}
        functions = subjects(Path(scratch))
        measured: dict[str, list[float]] = {name: [] for name in functions}
        for _ in range(rounds):
            for name, subject in functions.items():
                measured[name].append(subject.start_seconds(environment))
    medians = {name: statistics.median(seconds) for name, seconds in measured.items()}
    for name, median in medians.items():
        ratio = median / medians["bare"]
        show(name, median_ms=median * 1000, least_ms=min(measured[name]) * 1000, ratio=ratio, target=TARGET_RATIO)


if __name__ == "__main__":
    main()
