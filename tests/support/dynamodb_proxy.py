"""A stand between a DynamoDB client and an emulator: tests change answers, withhold them, or give their own."""

from __future__ import annotations

import json
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.error import HTTPError

Body = dict[str, Any]
Forward = Callable[[Body], Body]
"""Sends a request body to the emulator; its answer."""
Intercept = Callable[[str, Body, Forward], "Body | Fault | None"]
"""Given the operation (``PutItem``), the request and the way on: the answer, a fault, or None to hang up."""


class Fault(Exception):
    """An error answer, as DynamoDB's JSON protocol has it; ``more`` are further fields of it."""

    def __init__(self, status: int, code: str, **more: Any) -> None:
        super().__init__(code)
        self.status = status
        self.code = code
        self.more = more


def lose_first_answer(operation: str) -> Intercept:
    """Every request is carried out, but the first ``operation`` gets no answer."""
    pending = [operation]

    def intercept(name: str, body: Body, forward: Forward) -> Body | None:
        answer = forward(body)
        if name in pending:
            pending.remove(name)
            return None
        return answer

    return intercept


def always(fault: Fault) -> Intercept:
    """Nothing is carried out."""

    def intercept(name: str, body: Body, forward: Forward) -> Body:
        raise fault

    return intercept


class DynamoDbProxy:
    """``intercept`` sees every request; ``operations`` lists them in order of arrival."""

    def __init__(self, upstream_url: str) -> None:
        self.intercept: Intercept = lambda name, body, forward: forward(body)
        self.operations: list[str] = []
        self.clock_offset_seconds = 0.0
        """By how much the ``Date`` of its answers differs from this machine's time."""
        self.upstream_url = upstream_url
        self.url = ""

    def answer(self, target: str, raw: bytes, headers: dict[str, str]) -> tuple[int, bytes] | None:
        operation = target.rpartition(".")[2]
        self.operations.append(operation)

        def forward(body: Body) -> Body:
            request = urllib.request.Request(self.upstream_url, json.dumps(body).encode(), headers, method="POST")
            try:
                with urllib.request.urlopen(request, timeout=60) as response:
                    answer: Body = json.loads(response.read())
                    return answer
            except HTTPError as error:
                with error:
                    raise _Upstream(error.code, error.read()) from None

        try:
            answer = self.intercept(operation, json.loads(raw), forward)
        except _Upstream as error:
            return error.status, error.body
        except Fault as fault:
            answer = {"__type": f"com.amazonaws#{fault.code}", "message": "x", **fault.more}
            return fault.status, json.dumps(answer).encode()
        return None if answer is None else (200, json.dumps(answer).encode())


class _Upstream(Exception):
    def __init__(self, status: int, body: bytes) -> None:
        super().__init__(status)
        self.status = status
        self.body = body


@contextmanager
def running_proxy(upstream_url: str) -> Iterator[DynamoDbProxy]:
    proxy = DynamoDbProxy(upstream_url)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def do_POST(self) -> None:
            raw = self.rfile.read(int(self.headers["Content-Length"]))
            kept = {
                name: value
                for name, value in self.headers.items()
                if name.lower() in ("x-amz-target", "content-type", "authorization", "x-amz-date")
            }
            answer = proxy.answer(self.headers["X-Amz-Target"], raw, kept)
            if answer is None:
                self.close_connection = True
                return
            status, body = answer
            self.send_response(status)
            self.send_header("Content-Type", "application/x-amz-json-1.0")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def date_time_string(self, timestamp: float | None = None) -> str:
            return super().date_time_string((timestamp or time.time()) + proxy.clock_offset_seconds)

        def log_message(self, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    proxy.url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield proxy
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
