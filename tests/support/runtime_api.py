"""A Lambda function as Lambda runs it: the runtime's own client (awslambdaric) against a small Runtime API.

The function's process gets an environment of nothing but what Lambda's Python runtime brings and the layer, so what
is missing from the layer is missing here too, and a handler that cannot be found fails as it would on Lambda.
"""

from __future__ import annotations

import json
import os
import queue
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.support.tools import tool_program

FUNCTION_ARN = "arn:aws:lambda:us-east-1:000000000000:function:tested"
DEADLINE_SECONDS = 120.0
"""Of functions that answer when they are done: none waits that long, and a machine may be busy."""
_EVENT_SECONDS_BEYOND_DEADLINE = 120.0
"""The cold start is within it. A process that ends is told of at once."""


class FunctionError(Exception):
    """The function failed: ``stage`` is "init" or "invoke", ``details`` what the runtime reported of the error."""

    def __init__(self, stage: str, details: Any) -> None:
        super().__init__(f"{stage}: {details}")
        self.stage = stage
        self.details = details


@dataclass(frozen=True, slots=True)
class _Report:
    kind: str
    body: Any
    at: float
    """``time.perf_counter`` seconds."""


class _RuntimeApi:
    """https://docs.aws.amazon.com/lambda/latest/dg/runtimes-api.html, for one execution environment."""

    def __init__(self) -> None:
        self.events: queue.Queue[tuple[Any, float] | None] = queue.Queue()
        self.reports: queue.Queue[_Report] = queue.Queue()
        api = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True  # else every answer waits 40 ms for an acknowledgement
            wbufsize = -1

            def do_GET(self) -> None:
                """``/2018-06-01/runtime/invocation/next``: blocks until there is an event."""
                given = api.events.get()
                if given is None:
                    self.close_connection = True
                    return
                event, deadline_seconds = given
                self._answer(
                    200,
                    json.dumps(event).encode(),
                    **{
                        "Lambda-Runtime-Aws-Request-Id": "8476a536-e9f4-11e8-9739-2dfe598c3fcd",
                        "Lambda-Runtime-Deadline-Ms": str(int((time.time() + deadline_seconds) * 1000)),
                        "Lambda-Runtime-Invoked-Function-Arn": FUNCTION_ARN,
                    },
                )

            def do_POST(self) -> None:
                """``.../{id}/response``, ``.../{id}/error`` or ``.../init/error``."""
                at = time.perf_counter()
                body = self.rfile.read(int(self.headers["Content-Length"]))
                kind = "init" if self.path.endswith("/init/error") else self.path.rpartition("/")[2]
                api.reports.put(_Report(kind, json.loads(body), at))
                self._answer(202)

            def _answer(self, status: int, body: bytes = b"", **headers: str) -> None:
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *args: object) -> None:
                pass

        class Server(ThreadingHTTPServer):
            def handle_error(self, request: Any, client_address: Any) -> None:
                """A function that is stopped leaves its question for the next event behind."""

        self._server = Server(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        self._thread.start()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._server.server_port}"

    def close(self) -> None:
        self.events.put(None)  # frees the thread that waits with the function for an event
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class LambdaFunction:
    """One execution environment of a function, from its cold start to the end of the ``with`` block."""

    def __init__(
        self,
        code: Path,
        *,
        layers: Sequence[Path],
        environment: Mapping[str, str],
        handler: str = "handler.lambda_handler",
    ) -> None:
        """``code`` and ``layers``: directories as `sam build` makes them. ``environment`` comes over Lambda's own."""
        self._code = code
        self._layers = layers
        self._environment = environment
        self._handler = handler

    def __enter__(self) -> Self:
        self._api = _RuntimeApi()
        variables = {
            "PATH": os.environ["PATH"],
            "AWS_LAMBDA_RUNTIME_API": self._api.address,
            "AWS_LAMBDA_FUNCTION_NAME": "tested",
            "AWS_LAMBDA_FUNCTION_MEMORY_SIZE": "512",
            "AWS_REGION": "us-east-1",
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
            "LAMBDA_TASK_ROOT": str(self._code),
            "PYTHONDONTWRITEBYTECODE": "1",  # Lambda mounts code read-only
            **self._environment,
        }
        if self._layers:
            variables["PYTHONPATH"] = os.pathsep.join(str(layer / "python") for layer in self._layers)
        self.started_at = time.perf_counter()
        self._process = subprocess.Popen(
            [tool_program("lambda-runtime", "python"), "-m", "awslambdaric", self._handler],
            cwd=self._code,
            env=variables,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.log: list[str] = []
        self._reader = threading.Thread(target=self._read_output)
        self._reader.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.wait()
        self._reader.join()
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._api.close()

    def _read_output(self) -> None:
        assert self._process.stdout is not None
        self.log.extend(line.rstrip("\n") for line in self._process.stdout)
        code = self._process.wait()
        self._api.reports.put(_Report("exit", f"exit code {code}; output: {self.log[-20:]}", time.perf_counter()))

    def invoke(self, event: Any, *, deadline_seconds: float = DEADLINE_SECONDS) -> Any:
        """The function's answer. Raises ``FunctionError``, and ``TimeoutError`` well after the deadline."""
        return self.timed_invoke(event, deadline_seconds=deadline_seconds)[0]

    def timed_invoke(self, event: Any, *, deadline_seconds: float = DEADLINE_SECONDS) -> tuple[Any, float]:
        """The answer, and when it came (``time.perf_counter`` seconds, as is ``started_at``)."""
        self._api.events.put((event, deadline_seconds))
        try:
            report = self._api.reports.get(timeout=deadline_seconds + _EVENT_SECONDS_BEYOND_DEADLINE)
        except queue.Empty:
            raise TimeoutError(f"no answer {_EVENT_SECONDS_BEYOND_DEADLINE} s after the deadline") from None
        if report.kind == "response":
            return report.body, report.at
        raise FunctionError("invoke" if report.kind == "error" else "init", report.body)
