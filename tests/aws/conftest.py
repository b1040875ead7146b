"""The application as `sam build` makes it, for this machine's Python."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from duetime.runtime.clock import SystemClock
from duetime.stores.core.store import Store
from scripts.aws_local import ROOT, build
from tests.aws.application import KEY, PATIENCE_SECONDS, Account, Event, Template, read_event
from tests.support.dynamodb import dynamodb_store
from tests.support.dynamodb_proxy import running_proxy
from tests.support.tools import tool_program


@pytest.fixture(scope="session")
def template() -> Template:
    from cfnlint.decode import decode  # it takes a second to import, and each worker imports this file

    source, errors = decode(str(ROOT / "template.yaml"))
    assert not errors
    command = [tool_program("sam", "python"), "scripts/translate_template.py"]
    translated = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=PATIENCE_SECONDS)
    return Template(source, json.loads(translated.stdout))


@pytest.fixture(scope="session")
def built() -> Path:
    """What `sam build` made: a directory for each function and for the layer."""
    return build()


@pytest.fixture(scope="session")
def load_event() -> Callable[[str], Event]:
    return read_event


@pytest.fixture
def account(
    template: Template, built: Path, ministack_url: str, ministack_client: Any, timers_table: str
) -> Iterator[Account]:
    assert dynamodb_store(ministack_client, timers_table).catalogue.create_api_key(KEY)
    with running_proxy(ministack_url) as proxy:
        yield Account(template, built, timers_table, proxy)


@pytest.fixture
def calls_store(ministack_client: Any, timers_table: str) -> Store:
    """The tables that the functions work on, and a tenant that has submitted a service call before."""
    store = dynamodb_store(ministack_client, timers_table)
    store.catalogue.create_namespace(
        "calls@acme", num_shards=4, dedicated=False, now=SystemClock().now(), tenant_id="acme"
    )
    return store
