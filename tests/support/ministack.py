"""The AWS emulator ministack: one process, on a free port, from an environment of its own.

It pins botocore, so it cannot live in ours: ``.venv-ministack`` is made from requirements/ministack.txt.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from tests.support.ports import reserved_port
from tests.support.tools import tool_program

_READY_SECONDS = 120.0
_LOG = "log"


@contextmanager
def running_ministack(*, checks_permissions: bool = False) -> Iterator[str]:
    """Start the emulator, wait until it answers, and stop it at the end. Yields its endpoint URL.

    ``checks_permissions``: signatures and IAM policies count; the key ``test`` with the secret ``test`` is root.
    """
    directory = Path(tempfile.mkdtemp(prefix="ministack-"))
    with ExitStack() as cleanup:
        cleanup.callback(shutil.rmtree, directory, ignore_errors=True)
        with reserved_port() as port:
            process = _start(port, directory, checks_permissions=checks_permissions)
            cleanup.callback(_stop, process)
            endpoint_url = f"http://127.0.0.1:{port}"
            _wait_until_ready(endpoint_url, process, directory / _LOG)
        yield endpoint_url


def _start(port: int, directory: Path, *, checks_permissions: bool) -> subprocess.Popen[bytes]:
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
    with (directory / _LOG).open("wb") as output:
        return subprocess.Popen(
            [tool_program("ministack", "ministack")],
            env=environment,
            stdout=output,
            stderr=output,
            start_new_session=True,  # a process group of its own, with the functions that it runs
        )


def _stop(process: subprocess.Popen[bytes]) -> None:
    """End the emulator, and the functions in the middle of an invocation, which it leaves behind."""
    process.terminate()
    with suppress(subprocess.TimeoutExpired):
        process.wait(timeout=10)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


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
