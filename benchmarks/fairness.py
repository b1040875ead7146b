"""How late one namespace's timers are while another's endpoint hangs, and while another has a backlog; one run.

    python -m benchmarks.fairness [--hanging 5000] [--backlog 100000] [--seconds 12]

- alone: timers of the quiet namespace, spread evenly, nothing else due.
- hanging: the same while ``--hanging`` timers of the noisy namespace are due, whose endpoint is silent for 30 s.
- backlog: the same while ``--backlog`` timers of the noisy namespace are overdue, whose endpoint takes 0.2 s each.

Both endpoints are other hosts to Duetime, since their ports differ.
"""

from __future__ import annotations

import tempfile
import time
from typing import Any

from benchmarks.figures import parser, show
from benchmarks.receiver import Receiver
from benchmarks.service import Client, rfc3339, running

QUIET_PER_SECOND = 20
_CREATED_PER_SECOND = 5000
"""At least: measuring begins when all are stored."""


def measure(hanging: int, backlog: int, seconds: float) -> None:
    with tempfile.TemporaryDirectory() as folder:
        for name, noisy, delay_ms, due_in in (
            ("alone", 0, 0, 1.0),
            ("hanging", hanging, 30_000, 1.0),
            ("backlog", backlog, 200, -60.0),
        ):
            with (
                Receiver() as quiet,
                Receiver("--delay-ms", str(delay_ms)) as other,
                running(f"sqlite:///{folder}/{name}.db", "--drain-seconds", "1") as service,
            ):
                client = service.client()
                late, arrived = _run(client, quiet, other, noisy=noisy, due_in=due_in, seconds=seconds)
                show(
                    f"quiet namespace, {name}",
                    timers=int(QUIET_PER_SECOND * seconds),
                    arrived=arrived,
                    **{f"lag_{part}_ms": late[part] for part in ("p50", "p99", "max")},
                )


def _run(
    client: Client, quiet: Receiver, other: Receiver, *, noisy: int, due_in: float, seconds: float
) -> tuple[dict[str, float], int]:
    for namespace in ("noisy", "quiet"):
        client.request("PUT", f"/v1/namespaces/{namespace}")
    begin = time.time() + 2.0 + noisy / _CREATED_PER_SECOND
    number = int(QUIET_PER_SECOND * seconds)
    client.create(
        [_timer(f"q{n}", quiet.url, begin + 1.0 + n / QUIET_PER_SECOND) for n in range(number)], namespace="quiet"
    )
    client.create([_timer(f"n{n}", other.url, begin + due_in) for n in range(noisy)], namespace="noisy")
    end = begin + seconds + 10.0
    while time.time() < end and quiet.stats()["unique"] < number:
        time.sleep(0.2)
    stats = quiet.stats()
    return stats["latenessMs"], stats["unique"]


def _timer(timer_id: str, url: str, at: float) -> dict[str, Any]:
    return {"id": timer_id, "executeAt": rfc3339(at), "callbackUrl": url}


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--hanging", type=int, default=5000)
    options.add_argument("--backlog", type=int, default=100_000)
    options.add_argument("--seconds", type=float, default=12.0)
    given = options.parse_args()
    measure(given.hanging, given.backlog, given.seconds)


if __name__ == "__main__":
    main()
