"""A receiver of callbacks in the test process: what arrived, when, and waiting for it."""

from __future__ import annotations

import json
import subprocess
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self


@dataclass(frozen=True)
class Arrival:
    body: dict[str, Any]
    headers: dict[str, str]
    at: datetime
    raw: bytes = b""
    """The body as it arrived, which is what a signature is about."""

    @property
    def timer_id(self) -> str:
        return str(self.body["timerId"])

    @property
    def lateness_seconds(self) -> float:
        return (self.at - datetime.fromisoformat(self.body["executeAt"])).total_seconds()


Answer = Callable[[Arrival], tuple[int, bytes]]


def _ok(arrival: Arrival) -> tuple[int, bytes]:
    return 200, b""


class CallbackReceiver:
    """``answer`` runs in a thread of its own for each callback and may block to keep the callback in flight."""

    def __init__(self, answer: Answer = _ok) -> None:
        self.answer = answer
        self.arrivals: list[Arrival] = []
        self._changed = threading.Condition()
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def do_POST(self) -> None:
                at = datetime.now(UTC)
                raw = self.rfile.read(int(self.headers["content-length"]))
                arrival = Arrival(
                    json.loads(raw), {name.lower(): value for name, value in self.headers.items()}, at, raw
                )
                receiver._note(arrival)
                status, answer_body = receiver.answer(arrival)
                self.send_response(status)
                self.send_header("content-length", str(len(answer_body)))
                self.end_headers()
                self.wfile.write(answer_body)

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 (inherited name)
                pass

        class Server(ThreadingHTTPServer):
            request_queue_size = 512
            daemon_threads = True

            def handle_error(self, request: Any, client_address: Any) -> None:
                """A sender that was killed leaves half a request behind."""

        self._server = Server(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05})

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}/callback"

    def _note(self, arrival: Arrival) -> None:
        with self._changed:
            self.arrivals.append(arrival)
            self._changed.notify_all()

    def counts(self) -> Counter[str]:
        """How often each timer arrived."""
        with self._changed:
            return Counter(arrival.timer_id for arrival in self.arrivals)

    def wait_for(self, reached: Callable[[Counter[str]], bool], *, timeout_seconds: float = 120) -> None:
        """Until ``reached`` holds for the counts; ``AssertionError`` when it does not in time."""
        self.wait_until(lambda: reached(self.counts()), timeout_seconds=timeout_seconds)

    def wait_until(self, holds: Callable[[], bool], *, timeout_seconds: float = 120) -> None:
        """Until ``holds``, which is asked at each arrival; ``AssertionError`` when it does not in time."""
        with self._changed:
            is_reached = self._changed.wait_for(holds, timeout_seconds)
            assert is_reached, f"only {len(self.arrivals)} callbacks in {timeout_seconds} s"

    def kill_after(self, number: int, process: subprocess.Popen[str]) -> None:
        """Kill ``process`` once ``number`` more callbacks have arrived: at a moment that no clock decides."""
        reached = len(self.arrivals) + number
        self.wait_until(lambda: len(self.arrivals) >= reached)
        process.kill()

    def wait_for_timers(self, number: int, *, timeout_seconds: float = 120) -> None:
        """Until ``number`` different timers have arrived."""
        self.wait_for(lambda counts: len(counts) >= number, timeout_seconds=timeout_seconds)

    def wait_for_timer(self, timer_id: str, *, timeout_seconds: float = 30) -> Arrival:
        """The first arrival of a timer."""
        self.wait_for(lambda counts: timer_id in counts, timeout_seconds=timeout_seconds)
        return next(arrival for arrival in self.arrivals if arrival.timer_id == timer_id)
