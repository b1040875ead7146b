"""The contract suite as authors of stores have it: complete, and it catches a store that breaks a promise."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

from duetime.testing import contract
from duetime.testing.contract.everything import MODULES

ROOT = Path(__file__).parents[3]
NO_TESTS = {"__init__", "builders", "call_builders", "call_steps", "everything", "fixtures", "steps", "subject"}

TEST_OR_FIXTURE = re.compile(r"^(?:def|class) ([tT]est\w+)|^@pytest\.fixture.*\ndef (\w+)", re.MULTILINE)

AUTHORS_MODULE = """
from dataclasses import replace

import pytest

from duetime.stores.core.store import Store
from duetime.testing.contract import Subject
from duetime.testing.contract.everything import *
from tests.support.dictionary import DictionaryBackend


class PastIsExclusive(DictionaryBackend):
    def scan(self, query):
        return super().scan(query if query.until is None else query._replace(until=query.until - 1))


class NoConditions(DictionaryBackend):
    def write(self, writes, *, now=None):
        return super().write([write._replace(conditions=()) for write in writes], now=now)


class ForgetsTheRest(DictionaryBackend):
    def scan(self, query):
        return replace(super().scan(query), end=None)


BACKENDS = [DictionaryBackend, PastIsExclusive, NoConditions, ForgetsTheRest]


@pytest.fixture(params=BACKENDS, ids=[each.__name__ for each in BACKENDS])
def subject(request):
    backend = request.param()
    yield Subject(store=Store(backend), corrupt=lambda timer: None)
"""


def test_every_module_of_the_suite_is_run() -> None:
    folder = Path(contract.__file__).parent
    found = {".".join(path.relative_to(folder).with_suffix("").parts) for path in folder.rglob("*.py")}

    assert {name for name in found if name.rpartition(".")[2] not in NO_TESTS} == set(MODULES)


def test_no_test_or_fixture_hides_one_of_the_same_name() -> None:
    folder = Path(contract.__file__).parent
    texts = [(folder / f"{name.replace('.', '/')}.py").read_text() for name in ("fixtures", *MODULES)]
    made = Counter(test or fixture for text in texts for test, fixture in TEST_OR_FIXTURE.findall(text))

    assert {name for name, number in made.items() if number > 1} == set()


def test_the_suite_catches_a_store_that_breaks_a_promise(tmp_path: Path) -> None:
    (tmp_path / "test_my_store.py").write_text(AUTHORS_MODULE)
    paths = os.pathsep.join([str(ROOT), str(ROOT / "shared"), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, "-m", "pytest", "-q", "-rf", "--tb=no", "-p", "no:cacheprovider", "-p", "no:xdist"]

    run = subprocess.run(
        [*command, "-k", "due_is_inclusive or at_one_instant or live_lease or releasing", "test_my_store.py"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": paths},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )

    failed = Counter(re.findall(r"^FAILED \S+?\[(\w+)", run.stdout, re.MULTILINE))
    assert set(failed) == {"PastIsExclusive", "NoConditions", "ForgetsTheRest"}, run.stdout + run.stderr
    assert re.search(r"\b\d{2,} passed", run.stdout), run.stdout
