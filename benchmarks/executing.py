"""Service calls beside timers on `duetime serve` with SQLite, all due at one instant; one run, side by side.

    python -m benchmarks.executing [--number 3000] [--rounds 2]

For each: the rate from the due time until the last one has ended, and the server's CPU. A timer costs one record; a
service call a begin and an end, an entry of the log, five events and their publication, and a connection of its own.
"""

from __future__ import annotations

import sqlite3
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

from benchmarks.figures import parser, show
from benchmarks.receiver import Receiver
from benchmarks.service import Service, running
from duetime.domain.call_steps import submitted
from duetime.domain.service_calls import Method, Submission, call_digest, calls_namespace, request_spec
from duetime.domain.timers import TimerContent, content_digest, new_timer
from duetime.runtime.ids import new_id
from duetime.stores.open import open_store
from duetime.stores.port.timers import PutMode

TENANT = "bench"
_BATCH = 500
_GIVE_UP_SECONDS = 120


def store_timers(url: str, target: str, number: int, due: datetime) -> None:
    store = open_store(url)
    namespace = store.catalogue.get_namespace("default")
    assert namespace is not None
    content = TimerContent(execute_at=due, callback_url=target, payload_json='{"n":1}')
    digest = content_digest(content)
    for start in range(0, number, _BATCH):
        batch = [
            new_timer(namespace, new_id(), content, digest=digest, firing_id=new_id(), now=due)
            for _ in range(min(_BATCH, number - start))
        ]
        store.timers.put(batch, mode=PutMode.CREATE, now=datetime.now(UTC))
    store.close()


def store_calls(url: str, target: str, number: int, due: datetime, method: Method) -> None:
    store = open_store(url)
    now = datetime.now(UTC).replace(microsecond=0)
    name = calls_namespace(TENANT)
    namespace, _ = store.catalogue.create_namespace(name, num_shards=16, dedicated=False, now=now, tenant_id=TENANT)
    request = request_spec(method=method, url=target, headers_json=None, body_json='{"n":1}')
    submission = Submission(
        name="bench",
        request=request,
        digest=call_digest(
            name="bench",
            request=request,
            due=None,
            tags=(),
            timeout_seconds=30,
            retry_policy_json=None,
            correlation_id=None,
        ),
        due_at=due,
        timeout_seconds=30,
        retry_policy_json=None,
        correlation_id="bench",
    )
    for start in range(0, number, _BATCH):
        batch = [
            submitted(TENANT, new_id(), submission, namespace=namespace, new_id=new_id, now=now)
            for _ in range(min(_BATCH, number - start))
        ]
        store.calls.apply(batch, now=now)
    store.close()


def ended(path: Path) -> int:
    """Timers that have fired, those of calls among them."""
    with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as connection:
        (number,) = connection.execute("SELECT count(*) FROM timers WHERE timer_state = 'Fired'").fetchone()
    connection.close()
    return int(number)


def measure(what: str, service: Service, path: Path, number: int, store: Callable[[datetime], None]) -> None:
    before = ended(path)
    due = datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=4 + number // 1000)
    store(due)
    time.sleep(max(0.0, due.timestamp() - time.time()))
    cpu = service.cpu_seconds()
    while (done := ended(path) - before) < number and time.time() < due.timestamp() + _GIVE_UP_SECONDS:
        time.sleep(0.05)
    elapsed = time.time() - due.timestamp()
    time.sleep(1.0)  # what is left to be published
    each = (service.cpu_seconds() - cpu) / number * 1e6
    show(what, number=number, ended=done, seconds=elapsed, per_s=done / elapsed, cpu_us_each=each)


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--number", type=int, default=3000)
    options.add_argument("--rounds", type=int, default=2)
    given = options.parse_args()
    with tempfile.TemporaryDirectory() as folder, Receiver() as receiver:
        path = Path(folder) / "bench.db"
        url, target, number = f"sqlite:///{path}", f"{receiver.url}hook", given.number
        with running(url) as service:
            for _ in range(given.rounds):
                measure("timers", service, path, number, lambda due: store_timers(url, target, number, due))
                for method in (Method.PUT, Method.POST):
                    measure(
                        f"calls, {method}",
                        service,
                        path,
                        number,
                        lambda due, method=method: store_calls(url, target, number, due, method),  # type: ignore[misc]
                    )


if __name__ == "__main__":
    main()
