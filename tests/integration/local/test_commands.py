"""The commands as processes: what they say and with which code they end."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from subprocess import CompletedProcess

import httpx

from tests.support.no_tls import NO_TLS
from tests.support.processes import DuetimeServer, command_environment


def duetime(*arguments: str, cwd: Path, **variables: str) -> CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "duetime.cli", *arguments],
        cwd=cwd,
        env=command_environment(**variables),
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )


def test_init_can_be_repeated_and_is_all_that_a_worker_needs(tmp_path: Path) -> None:
    for _ in range(2):
        result = duetime("init", cwd=tmp_path)
        assert (result.returncode, result.stdout) == (0, "sqlite:///data/duetime.db is ready\n")
    with subprocess.Popen(
        [sys.executable, "-m", "duetime.cli", "worker", "--stop-on-eof"],
        cwd=tmp_path,
        env=command_environment(),
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as worker:
        assert worker.stdin is not None
        assert worker.stderr is not None
        assert "polls sqlite:///data/duetime.db" in worker.stderr.readline()
        worker.stdin.close()
        log = worker.stderr.read()
    assert worker.returncode == 0
    assert "egress.loopback_allowed" in log
    assert "worker.stopped" in log


def test_listen_shows_what_serve_sends(server: DuetimeServer, tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "duetime.cli", "listen", "--port", "0", "--status", "202"],
        cwd=tmp_path,
        env=command_environment(PYTHONUNBUFFERED="1"),
        stdout=subprocess.PIPE,
        text=True,
    ) as listener:
        assert listener.stdout is not None
        try:
            url = listener.stdout.readline().split()[2]
            assert listener.stdout.readline() == "\n"
            server.create("order-42", delay="100ms", callbackUrl=f"{url}/hook", payload={"hello": "world"})
            block = [listener.stdout.readline().strip() for _ in range(5)]
            assert block[0].startswith("#1 ")
            assert block[0].endswith("POST /hook")
            assert block[1] == "timer    default/order-42"
            assert block[4] == 'payload  {"hello": "world"}'
            assert httpx.get(url, verify=NO_TLS).status_code == 202
        finally:
            listener.terminate()
        assert listener.wait(20) == 0
