"""The AWS emulator ministack: one process, on a free port, from an environment of its own.

It pins botocore, so it cannot live in ours: ``.venv-ministack`` is made from requirements/ministack.txt.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.support.tools import tool_program

_READY_SECONDS = 30.0


@contextmanager
def running_ministack(*, checks_permissions: bool = False) -> Iterator[str]:
    """Start the emulator, wait until it answers, and stop it at the end. Yields its endpoint URL.

    ``checks_permissions``: signatures and IAM policies count; the key ``test`` with the secret ``test`` is root.
    """
    directory = Path(tempfile.mkdtemp(prefix="ministack-"))
    port = _free_port()
    environment = {
        "PATH": os.environ["PATH"],
        "GATEWAY_PORT": str(port),
        "BIND_HOST": "127.0.0.1",
        "MINISTACK_HOST": "localhost",
        "LAMBDA_EXECUTOR": "local",
        "AUTH": "true" if checks_permissions else "false",
        "IOT_MTLS_ENABLED": "0",  # else it takes a fixed port
        "PERSIST_STATE": "0",
        "STATE_DIR": str(directory / "state"),
        "S3_DATA_DIR": str(directory / "s3"),
        "TMPDIR": str(directory),
        "LOG_LEVEL": "WARNING",
    }
    log = directory / "log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [tool_program("ministack", "ministack")],
            env=environment,
            stdout=output,
            stderr=output,
            start_new_session=True,  # a process group of its own, with the functions that it runs
        )
    try:
        endpoint_url = f"http://127.0.0.1:{port}"
        _wait_until_ready(endpoint_url, process, log)
        yield endpoint_url
    finally:
        _stop(process)
        shutil.rmtree(directory, ignore_errors=True)


def _stop(process: subprocess.Popen[bytes]) -> None:
    """End the emulator, and the functions in the middle of an invocation, which it leaves behind."""
    process.terminate()
    with suppress(subprocess.TimeoutExpired):
        process.wait(timeout=10)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _wait_until_ready(endpoint_url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + _READY_SECONDS
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise RuntimeError(f"ministack ended with {process.returncode}:\n{log.read_text()[-2000:]}")
        try:
            with urllib.request.urlopen(f"{endpoint_url}/_ministack/health", timeout=1):
                return
        except OSError:
            time.sleep(0.05)
    raise RuntimeError(f"ministack was not ready in {_READY_SECONDS} s:\n{log.read_text()[-2000:]}")
