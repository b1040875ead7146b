"""Database servers of a test's own, by scripts/server.sh: those that it kills or starts in another way."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

_SCRIPT = Path(__file__).parents[2] / "scripts" / "server.sh"


@dataclass(frozen=True, slots=True)
class OwnServer:
    """A server that runs, and the environment in which the script finds it."""

    name: str
    url: str
    environment: dict[str, str]

    def restart(self) -> None:
        """Kill it (-9) in the middle of whatever it does, and start it again with its data."""
        assert _run("restart", self.name, self.environment) == self.url


@contextmanager
def own_server(name: str, **variables: str) -> Iterator[OwnServer]:
    """A server that nobody else uses; gone at the end. Skips the test where it cannot be had."""
    with tempfile.TemporaryDirectory(prefix="server-") as directory:
        Path(directory).chmod(0o1777)  # the server's user need not be ours
        environment = {**os.environ, "TMPDIR": directory, **variables}
        try:
            try:
                url = _run("start", name, environment)
            except subprocess.CalledProcessError as error:
                pytest.skip(f"no {name} for this machine: {error.stderr[-500:]}")
            yield OwnServer(name, url, environment)
        finally:
            _run("stop", name, environment)


def _run(verb: str, name: str, environment: dict[str, str]) -> str:
    """The last line that the script prints."""
    # A server that is started has our pipes too: they are not read to their end.
    with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as errors:
        code = subprocess.run([_SCRIPT, verb, name], env=environment, stdout=output, stderr=errors).returncode
        output.seek(0)
        errors.seek(0)
        printed = output.read()
        if code != 0:
            raise subprocess.CalledProcessError(code, [verb, name], printed, errors.read())
    return printed.splitlines()[-1] if printed else ""
