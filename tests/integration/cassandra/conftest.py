"""All of this runs on a real server, and is skipped without one."""

from __future__ import annotations

import pytest

from tests.support.cassandra import URL_VARIABLE, server_url


@pytest.fixture(autouse=True)
def _needs_a_server() -> None:
    if server_url() is None:
        pytest.skip(f"no Cassandra: {URL_VARIABLE} is not set (scripts/server.sh start cassandra)")
