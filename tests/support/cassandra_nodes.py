"""Nodes of Cassandra that a test may kill and freeze: its own, beside the server of the environment."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.support.ports import reserved_port
from tests.support.processes import ROOT

PROGRAMS = ROOT / "scripts" / "servers" / "cassandra"
TOKENS = (-9223372036854775808, -3074457345618258603, 3074457345618258602)
READY_SECONDS = 600.0
"""For a start on a machine that is busy."""


@dataclass
class Node:
    folder: Path
    address: str
    port: int
    storage_port: int
    token: int
    storage_compatibility_mode: str = "CASSANDRA_4"
    process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self.process is not None and self.process.poll() is None:
            self.thaw()
            self.kill()

    def start(self) -> None:
        """With the data that it had. Returns when it answers."""
        self.folder.mkdir(exist_ok=True)
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [
                    str(PROGRAMS / "node.sh"),
                    *map(str, (self.folder, self.port, self.storage_port, self.address, self.token)),
                ],
                env={**os.environ, "STORAGE_COMPATIBILITY_MODE": self.storage_compatibility_mode},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        give_up = time.monotonic() + READY_SECONDS
        while not self.answers():
            assert self.process.poll() is None, (self.folder / "log").read_text()
            assert time.monotonic() < give_up, (self.folder / "log").read_text()
            time.sleep(0.2)

    def answers(self) -> bool:
        command = [sys.executable, str(PROGRAMS / "answers.py"), self.address, str(self.port)]
        return subprocess.run(command, check=False).returncode == 0

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def freeze(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        assert self.process is not None
        with suppress(ProcessLookupError):
            self.process.send_signal(signal.SIGCONT)


@contextmanager
def nodes(number: int, *, storage_compatibility_mode: str = "CASSANDRA_4") -> Iterator[list[Node]]:
    """A cluster of up to three nodes, on 127.0.0.1 to 127.0.0.3. It needs half a gigabyte and a core for each."""
    with (
        tempfile.TemporaryDirectory(prefix="cassandra-", ignore_cleanup_errors=True) as folder,
        reserved_port() as port,
        reserved_port() as storage_port,
    ):
        made = [
            Node(
                Path(folder, str(at)), f"127.0.0.{at}", port, storage_port, TOKENS[at - 1], storage_compatibility_mode
            )
            for at in range(1, number + 1)
        ]
        started: list[Node] = []
        try:
            for node in made:
                started.append(node)
                node.start()
            yield made
        finally:
            for node in started:
                node.__exit__(None, None, None)


def url_of(cluster: list[Node], keyspace: str = "duetime") -> str:
    hosts = ",".join(f"{node.address}:{node.port}" for node in cluster)
    return f"cassandra://{hosts}/{keyspace}?replication={len(cluster)}"
