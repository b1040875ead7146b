"""Under Lambda's limits, 1,024 open files and threads, a poller with Lambda's defaults has room to spare.

At full load: a real process, real connections, and a receiver that keeps all of them.
"""

from __future__ import annotations

import asyncio
import json
import resource
import sys
from pathlib import Path

CHILD = """
import asyncio, json, logging, os, resource, sys, threading
from datetime import timedelta

resource.setrlimit(resource.RLIMIT_NOFILE, (1024, 1024))
resource.setrlimit(resource.RLIMIT_NPROC, (1024, 1024))  # does not bind root, so threads are counted too

from duetime.domain.timers import TimerContent, content_digest, new_timer
from duetime.runtime.clock import SystemClock
from duetime.runtime.settings import PollerSettings
from duetime.runtime.wiring import make_poller, store_clock
from duetime.stores.open import open_store
from duetime.stores.port.timers import PutMode

warnings = []
class Collect(logging.Handler):
    def emit(self, record):
        warnings.append(getattr(record, "action", record.getMessage()))
logging.getLogger().addHandler(Collect(logging.WARNING))

port, path = int(sys.argv[1]), sys.argv[2]
store = open_store(f"sqlite:///{path}")
store.initialise()
clock = SystemClock()
now = clock.now()
for name in range(6):
    namespace, _ = store.catalogue.create_namespace(f"n{name}", num_shards=4, dedicated=False, now=now)
    timers = []
    for number in range(200):
        url = f"http://127.0.0.{number % 8 + 1}:{port}/callback"
        content = TimerContent(execute_at=now, callback_url=url)
        timers.append(new_timer(namespace, f"t{number}", content, digest=content_digest(content),
                                firing_id=f"{name}-{number}", now=now))
    store.timers.put(timers, mode=PutMode.CREATE, now=now)
settings = PollerSettings(store=f"sqlite:///{path}", egress_allow_loopback=True, initial_window=200)
poller = make_poller(store, settings, store_clock(store), events=None, secret_box=None)
peak = {"files": 0, "threads": 0, "in_flight": 0}

async def main():
    stop = asyncio.Event()
    task = asyncio.create_task(poller.run(stop))
    while poller.stats()["fired"] < 1200 and clock.monotonic() < begun + 120:
        await asyncio.sleep(0.02)
        peak["files"] = max(peak["files"], len(os.listdir("/proc/self/fd")))
        peak["threads"] = max(peak["threads"], len(os.listdir("/proc/self/task")))
        peak["in_flight"] = max(peak["in_flight"], poller.stats()["in_flight"])
    stop.set()
    await task

begun = clock.monotonic()
asyncio.run(main())
counted = {name: poller.stats()[name] for name in ("fired", "retried", "poll_errors", "record_errors", "leases_lost")}
print(json.dumps({**peak, **counted, "warnings": warnings}), flush=True)
os._exit(0)
"""
HOLD_SECONDS = 3.0


async def answer_late(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            length = next(
                int(line.split(b":")[1]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length")
            )
            await reader.readexactly(length)
            await asyncio.sleep(HOLD_SECONDS)
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
            await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionError):
        writer.close()


def test_full_load_fits_into_1024_open_files_and_threads(tmp_path: Path) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(4096, hard) if hard != resource.RLIM_INFINITY else 4096, hard))

    async def main() -> dict[str, object]:
        server = await asyncio.start_server(answer_late, "0.0.0.0", 0, backlog=2048)
        port = server.sockets[0].getsockname()[1]
        child = await asyncio.create_subprocess_exec(
            sys.executable, "-c", CHILD, str(port), str(tmp_path / "d.db"), stdout=asyncio.subprocess.PIPE
        )
        async with asyncio.timeout(240):
            output, _ = await child.communicate()
        server.close()
        result: dict[str, object] = json.loads(output)
        return result

    result = asyncio.run(main())
    assert result.pop("warnings") == []
    files, threads, in_flight = (result.pop(name) for name in ("files", "threads", "in_flight"))
    assert result == {"fired": 1200, "retried": 0, "poll_errors": 0, "record_errors": 0, "leases_lost": 0}
    assert in_flight == 720, "all that may be in flight was"
    assert isinstance(files, int)
    assert isinstance(threads, int)
    assert 720 < files < 1024 - 100
    assert threads < 100
