"""``duetime export`` and ``duetime import``, from one SQLite file to another."""

from __future__ import annotations

import fcntl
import io
import os
import re
import shutil
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from duetime.cli.main import run
from duetime.runtime.clock import SystemClock
from duetime.stores.core.store import Store
from duetime.stores.open import open_store
from duetime.testing.contract.builders import make_timers
from duetime.testing.contract.steps import claim, create
from duetime.transfer.scan import StoreScan
from tests.support.processes import command_environment


class Cli:
    def __init__(self, directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.directory = directory
        self._capsys = capsys
        self.source, self.target = (f"sqlite:///{directory}/{name}/duetime.db" for name in ("old", "new"))
        self.file = directory / "duetime.jsonl"
        self.partial = directory / "duetime.jsonl.partial"

    def __call__(self, *words: str, code: int = 0) -> str:
        """Standard error of a command that ends with ``code``."""
        self._capsys.readouterr()
        assert run(words) == code
        return self._capsys.readouterr().err

    def export(self, *words: str, code: int = 0) -> str:
        return self("export", "--store", self.source, "--output", str(self.file), *words, code=code)

    def import_(self, *words: str, code: int = 0) -> str:
        return self("import", "--store", self.target, "--input", str(self.file), *words, code=code)


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with an old store that has 700 timers, and a new one that is empty."""
    directory = tmp_path_factory.mktemp("house")
    for name in ("old", "new"):
        store = open_store(f"sqlite:///{directory}/{name}/duetime.db")
        store.initialise()
        store.close()
    fill(f"sqlite:///{directory}/old/duetime.db")
    return directory


@pytest.fixture
def cli(house: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Cli:
    # However long it takes here, nothing is said of the progress but where a test asks for it.
    monkeypatch.setattr("duetime.cli.transfer._PROGRESS_SECONDS", 1e9)
    shutil.copytree(house, tmp_path, dirs_exist_ok=True)
    return Cli(tmp_path, capsys)


def fill(url: str) -> None:
    store = open_store(url)
    now = SystemClock().now()
    orders, _ = store.catalogue.create_namespace("orders", num_shards=4, dedicated=False, now=now)
    create(store, *make_timers(orders, 350, payload_json='"A"'), now=now)
    create(store, *make_timers(orders, 350, prefix="u"), now=now)
    store.close()


@contextmanager
def opened(url: str) -> Iterator[Store]:
    store = open_store(url)
    yield store
    store.close()


def test_a_store_is_exported_imported_and_compared(cli: Cli) -> None:
    assert cli.export() == "exported 1 namespace, 700 timers\n"
    assert stat.S_IMODE(cli.file.stat().st_mode) == 0o600
    assert not cli.partial.exists()

    assert cli.import_("--dry-run") == "the file is valid and the store can take it: 1 namespace, 700 timers\n"
    assert cli.import_() == (
        "imported 1 namespace, 700 timers: 701 loaded, 0 already there\n"
        "verified: the store holds the same as the file, 1 namespace, 700 timers\n"
    )
    assert "0 loaded, 701 already there" in cli.import_("--no-verify")
    assert cli.import_("--verify-only").startswith("verified: ")


def test_an_empty_store_moves_too(cli: Cli) -> None:
    cli.source = cli.target

    assert cli.export() == "exported nothing\n"
    assert cli.import_() == (
        "imported nothing: 0 loaded, 0 already there\nverified: the store holds the same as the file, nothing\n"
    )


def test_an_export_writes_over_nothing(cli: Cli) -> None:
    cli.file.write_text("mine")
    assert cli.export(code=1) == f"duetime: error: {cli.file} exists; an export does not write over it\n"
    cli.file.rename(cli.partial)
    assert cli.export(code=1) == f"duetime: error: {cli.partial} exists: continue it with --resume, or remove it\n"
    assert cli.export("--resume", code=1) == (
        f"duetime: error: {cli.partial}: this is not an export of Duetime: the first line is not its header\n"
    )
    assert cli.partial.read_text() == "mine"


def test_an_export_that_was_cut_short_is_gone_on_with(cli: Cli) -> None:
    cli.export()
    whole = cli.file.read_bytes()
    cli.file.rename(cli.partial)
    cli.partial.write_bytes(whole[: len(whole) // 5 * 4])

    assert cli.import_(code=1).startswith(f"duetime: error: {cli.file}: the export is not complete: continue ")
    assert cli.export("--resume") == ("resuming after 1 namespace, 500 timers\nexported 1 namespace, 700 timers\n")
    assert cli.file.read_bytes() == whole


def test_an_export_that_was_whole_but_for_its_name_is_gone_on_with(cli: Cli) -> None:
    cli.export()
    whole = cli.file.read_bytes()
    cli.file.rename(cli.partial)

    assert cli.export("--resume").endswith("exported 1 namespace, 700 timers\n")
    assert cli.file.read_bytes() == whole
    assert not cli.partial.exists()


def test_an_export_of_a_store_that_was_served_meanwhile_is_not_whole(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    def serve() -> None:
        with opened(cli.source) as store:
            now = SystemClock().now()
            store.leases.release([claim(store, 0, "worker-7", now=now)], now=now)

    monkeypatch.setattr("duetime.transfer.exporting.StoreScan.pages", served(StoreScan.pages, serve))

    assert "the store was served during the export" in cli.export(code=1)
    assert not cli.file.exists()
    monkeypatch.undo()
    refusal = cli.export("--resume", code=1)
    assert refusal.startswith(f"duetime: error: {cli.partial}: the store was served since the export began")
    assert "exported" in cli.export("--resume", "--allow-running")


def served(pages: Callable[..., Iterator[Any]], serve: Callable[[], None]) -> Callable[..., Iterator[Any]]:
    """``serve`` is called before the last page."""

    def scan(*arguments: Any) -> Iterator[Any]:
        first, *rest = pages(*arguments)
        yield first
        serve()
        yield from rest

    return scan


def test_a_file_that_came_to_be_meanwhile_is_not_written_over(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    def write() -> None:
        cli.file.write_text("mine")

    monkeypatch.setattr("duetime.transfer.exporting.StoreScan.pages", served(StoreScan.pages, write))

    assert cli.export(code=1) == (
        f"duetime: error: {cli.file} was made meanwhile; the export is complete, in {cli.partial}\n"
    )
    assert cli.file.read_text() == "mine"


@pytest.mark.parametrize(("words", "told"), [((), "duetime export --resume resumes it"), (("-",), "interrupted")])
def test_an_interrupted_export_says_how_to_go_on(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], told: str
) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("duetime.transfer.exporting.StoreScan.pages", served(StoreScan.pages, interrupt))

    err = cli("export", "--store", cli.source, "--output", *(words or (str(cli.file),)), code=130)
    assert err.strip().endswith(told)


def test_a_reader_that_goes_away_is_one_line(cli: Cli) -> None:
    command = [sys.executable, "-m", "duetime.cli", "export", "--store", cli.source, "--output", "-", "--quiet"]
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        command, env=command_environment(), stdout=writing, stderr=subprocess.PIPE, check=False, timeout=60
    )
    os.close(writing)

    assert done.stderr.decode() == "duetime: error: standard output cannot be written: Broken pipe\n"
    assert done.returncode == 1


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("", "exists"),
        (".", "exists"),
        ("/", "exists"),
        ("x" * 300, "File name too long"),
        ("no/where", "No such file"),
    ],
)
def test_a_name_that_cannot_be_written_to_is_one_line(cli: Cli, name: str, reason: str) -> None:
    err = cli("export", "--store", cli.source, "--output", name, code=1)

    assert reason in err
    assert err.count("\n") == 1


def test_progress_tells_the_share_of_all_where_it_is_known(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("duetime.cli.transfer._PROGRESS_SECONDS", 1e-9)
    exported, imported = cli.export(), cli.import_()

    assert re.search(r"^exported 1 namespace, 500 timers \([1-9]\d*/s\)$", exported, re.MULTILINE)
    assert re.search(r"^imported 1 namespace, 500 timers \(7\d%, [1-9]\d*/s\)$", imported, re.MULTILINE)
    assert re.search(r"^imported 1 namespace, 700 timers \(100%, [1-9]\d*/s\)$", imported, re.MULTILINE)
    assert re.search(r"^verified 1 namespace, 500 timers \(71%, [1-9]\d*/s\)$", imported, re.MULTILINE)


def test_standard_streams_that_are_closed_are_one_line(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    cli.export()
    monkeypatch.setattr(sys, "stdin", None)
    assert cli("import", "--store", cli.target, "--input", "-", code=1) == (
        "duetime: error: standard input: it is closed\n"
    )
    monkeypatch.setattr(sys, "stdout", None)
    assert cli("export", "--store", cli.source, "--output", "-", code=1) == (
        "duetime: error: standard output is closed\n"
    )


def test_two_exports_do_not_write_one_file(cli: Cli) -> None:
    with cli.partial.open("wb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)

        assert cli.export("--resume", code=1) == (
            f"duetime: error: {cli.partial} is being written by another export\n"
        )

    cli.partial.chmod(0o644)
    cli.export("--resume")
    assert stat.S_IMODE(cli.file.stat().st_mode) == 0o600


def test_an_export_is_not_gone_on_with_from_another_store(cli: Cli) -> None:
    cli.export()
    cli.partial.write_bytes(cli.file.read_bytes()[:-9])
    cli.file.unlink()
    cli.source = cli.target

    assert "the file is an export of another store" in cli.export("--resume", code=1)


def test_a_file_that_was_edited_is_refused_by_the_line(cli: Cli) -> None:
    cli.export()
    cli.file.write_bytes(cli.file.read_bytes().replace(b'\\"A\\"', b'\\"B\\"', 1))

    assert cli.import_(code=1) == (
        f"duetime: error: {cli.file}: line 503: the checksum does not match what comes before it: "
        "the file was changed or damaged at line 2 or later\n"
    )


def test_what_cannot_be_read_makes_an_exit_code_of_its_own(cli: Cli) -> None:
    with closing(sqlite3.connect(cli.source.removeprefix("sqlite:///"))) as connection:
        broken = connection.execute("UPDATE timers SET timer_tags = '{broken' WHERE timer_id = 't0000'")
        connection.commit()
    assert broken.rowcount == 1

    assert cli.export(code=3) == "exported 1 namespace, 699 timers, 1 unreadable record\n"
    assert cli.import_().startswith("1 unreadable record in the source, not in the file\nimported ")


@pytest.mark.parametrize("words", [("export", "--output", "x"), ("import", "--input", "duetime.jsonl")])
def test_a_store_that_is_served_is_refused_unless_that_is_allowed(cli: Cli, words: tuple[str, ...]) -> None:
    cli.export()
    with opened(cli.source) as store:
        claim(store, 1, "worker-7", now=SystemClock().now())
    command, option, name = words
    words = (command, option, str(cli.directory / name), "--store", cli.source)

    assert "the store is being served: 1 of its shards are held by worker-7" in cli(*words, code=1)
    cli(*words, "--allow-running")


def test_a_store_that_is_not_ready_is_one_line(cli: Cli) -> None:
    cli.source = f"sqlite:///{cli.directory}/nothing.db"

    assert "does not exist or cannot be opened; `duetime init` makes it" in cli.export(code=1)
    assert "unknown store scheme" in cli("export", "--store", "nope://x", "--output", str(cli.file), code=2)
    assert "cannot be combined with" in cli.import_("--verify-only", "--dry-run", code=2)
    assert "No such file or directory" in cli.import_(code=1)


def test_signing_secrets_need_the_key_that_encrypted_them(cli: Cli) -> None:
    cli("secrets", "create", "orders", "--store", cli.source)
    cli.export()

    refusal = cli.import_(code=1)
    assert (
        "the signing secrets of namespace 'orders' cannot be decrypted for the target: there is no key file"
        in refusal
    )
    with opened(cli.target) as store:
        assert store.catalogue.get_namespace("orders") is None

    key = str(cli.directory / "old" / "duetime.key")
    assert "verified" in cli.import_("--key-file", key)
    assert "0 loaded, 701 already there" in cli.import_("--no-key-check")


def test_standard_output_and_input_will_do(
    cli: Cli, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run(["export", "--store", cli.source, "--output", "-", "--quiet"]) == 0
    data = capsys.readouterr().out
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data.encode())))
    assert data.startswith('{"kind":"header",')
    assert "verified" in cli("import", "--store", cli.target, "--input", "-")

    refusal = cli("export", "--store", cli.source, "--output", "-", "--resume", code=1)
    assert "an export to standard output cannot be resumed" in refusal
