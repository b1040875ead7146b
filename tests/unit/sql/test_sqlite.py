"""SQLite as a store: settings, waiting, errors, threads."""

from __future__ import annotations

import os
import shutil
import sqlite3
import stat
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from duetime.domain.errors import InvalidSettings, StoreError, StoreNotReady, StoreUnavailable
from duetime.domain.namespaces import Namespace
from duetime.stores.backends.sql.dialects import sqlite
from duetime.stores.backends.sql.dialects.dialect import open_dialect
from duetime.stores.port.timers import PutMode
from duetime.stores.time_source import TimeSource
from duetime.testing.contract.builders import make_timer, make_timers
from tests.support.clock import NOW
from tests.support.sql_store import SqlStore


@pytest.fixture
def store(path: Path) -> Iterator[SqlStore]:
    """In a file."""
    with closing(SqlStore(open_dialect(f"sqlite:///{path}"), time_source=TimeSource.CALLER)) as store:
        store.initialise()
        yield store


@pytest.fixture
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite, "BUSY_TIMEOUT_SECONDS", 0.05)


@contextmanager
def locked_by_another_process(path: Path) -> Iterator[None]:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        yield
        connection.execute("ROLLBACK")


@pytest.mark.parametrize(
    ("pragma", "expected"),
    [
        ("journal_mode", "wal"),
        ("foreign_keys", 1),
        ("synchronous", 1),
        ("busy_timeout", 5000),
    ],
)
def test_every_connection_is_set_up(store: SqlStore, pragma: str, expected: object) -> None:
    with store.database.read() as one, store.database.read() as two:
        for connection in (one, two):
            assert connection.exec_driver_sql(f"PRAGMA {pragma}").scalar_one() == expected


def test_reads_do_not_wait_for_a_writer(store: SqlStore, single: Namespace) -> None:
    timer = make_timer(single)
    store.timers.put([timer], mode=PutMode.CREATE, now=NOW)

    with store.database.write(NOW) as mutation:
        mutation.connection.exec_driver_sql("UPDATE timers SET timer_revision = 9")
        assert store.timers.get(single, "t1", now=NOW) == timer
        assert store.timers.due(0, until=NOW, limit=9).timers == [timer]

    assert store.timers.due(0, until=NOW, limit=9).timers[0].revision == 9


def test_an_exception_rolls_the_transaction_back(store: SqlStore, single: Namespace) -> None:
    timer = make_timer(single)
    store.timers.put([timer], mode=PutMode.CREATE, now=NOW)

    def fail_halfway() -> None:
        with store.database.write(NOW) as mutation:
            mutation.connection.exec_driver_sql("DELETE FROM timers")
            raise RuntimeError("halfway")

    with pytest.raises(RuntimeError, match="halfway"):
        fail_halfway()

    assert store.timers.get(single, "t1", now=NOW) == timer
    store.timers.put(make_timers(single, 2), mode=PutMode.CREATE, now=NOW)


@pytest.mark.usefixtures("_impatient")
def test_a_database_that_stays_locked_is_unavailable(path: Path, store: SqlStore, single: Namespace) -> None:
    store.close()  # connections made from here on are impatient
    with locked_by_another_process(path):
        with pytest.raises(StoreUnavailable, match="locked") as raised:
            store.timers.put([make_timer(single)], mode=PutMode.CREATE, now=NOW)
        assert raised.value.retry_after_seconds > 0
        assert store.timers.get(single, "t1", now=NOW) is None

    store.timers.put([make_timer(single)], mode=PutMode.CREATE, now=NOW)


@pytest.mark.usefixtures("_impatient")
def test_a_writer_that_gets_no_turn_finds_the_store_unavailable(store: SqlStore, single: Namespace) -> None:
    with store.database.write(NOW), pytest.raises(StoreUnavailable, match="busy"):
        store.timers.put([make_timer(single)], mode=PutMode.CREATE, now=NOW)


@pytest.mark.usefixtures("_impatient")
def test_running_out_of_connections_is_unavailable() -> None:
    store = SqlStore(open_dialect("sqlite://"))
    store.initialise()

    with store.database.read(), pytest.raises(StoreUnavailable, match="connection"):
        store.catalogue.shard_map()

    assert store.catalogue.shard_map().shared_shards == 0
    store.close()


def test_a_missing_file_is_not_ready_and_not_made(path: Path) -> None:
    store = SqlStore(open_dialect(f"sqlite:///{path}"))

    with pytest.raises(StoreNotReady, match="does not exist"):
        store.check()

    assert not path.exists()
    store.close()


def test_a_file_that_is_no_database_is_not_ready(path: Path) -> None:
    path.write_text("no database at all, but long enough to have a header" * 10)
    store = SqlStore(open_dialect(f"sqlite:///{path}"))

    with pytest.raises(StoreNotReady, match="not an SQLite database"):
        store.check()
    with pytest.raises(StoreError):
        store.initialise()
    store.close()


def test_initialise_makes_the_directory(tmp_path: Path) -> None:
    store = SqlStore(open_dialect(f"sqlite:///{tmp_path}/a/b/duetime.db"))

    store.initialise()

    assert (tmp_path / "a/b/duetime.db").exists()
    store.close()


def test_a_directory_that_cannot_be_made_is_a_setting_to_correct(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    store = SqlStore(open_dialect(f"sqlite:///{tmp_path}/file/duetime.db"))

    with pytest.raises(InvalidSettings, match="cannot make "):
        store.initialise()
    store.close()


@pytest.fixture
def _open_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.usefixtures("_open_umask")
def test_what_is_made_is_for_its_owner_alone(tmp_path: Path) -> None:
    """Headers with credentials are in there, and payloads: in the write-ahead log first of all."""
    tmp_path.chmod(0o755)
    store = SqlStore(open_dialect(f"sqlite:///{tmp_path}/a/b/duetime.db"))
    store.initialise()
    store.catalogue.create_namespace("n", num_shards=1, dedicated=False, now=NOW)

    made = {path.name: mode(path) for path in (tmp_path / "a/b").iterdir()}
    assert made == {"duetime.db": 0o600, "duetime.db-wal": 0o600, "duetime.db-shm": 0o600}
    assert (mode(tmp_path / "a"), mode(tmp_path / "a/b"), mode(tmp_path)) == (0o700, 0o700, 0o755)
    store.close()


@pytest.mark.usefixtures("_open_umask")
def test_what_was_there_before_is_left_alone(tmp_path: Path) -> None:
    """A group may share them: then whoever runs it has said so."""
    folder = tmp_path / "shared"
    folder.mkdir(mode=0o770)
    (folder / "duetime.db").touch(mode=0o660)
    store = SqlStore(open_dialect(f"sqlite:///{folder}/duetime.db"))
    store.initialise()
    store.initialise()

    assert (mode(folder), mode(folder / "duetime.db"), mode(folder / "duetime.db-wal")) == (0o770, 0o660, 0o660)
    store.close()


def read_pragma(store: SqlStore, name: str) -> int:
    with store.database.read() as connection:
        value: int = connection.exec_driver_sql(f"PRAGMA {name}").scalar_one()
        return value


@pytest.mark.parametrize(("option", "level"), [("", 1), ("?synchronous=normal", 1), ("?synchronous=full", 2)])
def test_what_a_power_loss_may_take_is_chosen_in_the_url(path: Path, option: str, level: int) -> None:
    store = SqlStore(open_dialect(f"sqlite:///{path}{option}"))
    store.initialise()
    assert read_pragma(store, "synchronous") == level
    with store.database.write(NOW) as mutation:
        assert mutation.connection.exec_driver_sql("PRAGMA synchronous").scalar_one() == level
    assert path.exists()
    store.close()


@pytest.mark.parametrize(
    "option", ["synchronous=off", "synchronous=2", "mode=ro", "synchronous=full&synchronous=normal"]
)
def test_an_unknown_option_is_refused_and_nothing_is_made(path: Path, option: str) -> None:
    with pytest.raises(InvalidSettings, match="synchronous"):
        open_dialect(f"sqlite:///{path}?{option}")
    assert not path.exists()


@pytest.mark.parametrize("name", ["with space.db", "per%20cent.db", "quest?ion#.db", "ü😀.db"])
def test_any_file_name_will_do(tmp_path: Path, name: str) -> None:
    dialect = sqlite.SqliteDialect(tmp_path / name)
    store = SqlStore(dialect)

    store.initialise()

    assert (tmp_path / name).exists()
    store.check()
    store.close()


def test_a_relative_path_is_relative(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    store = SqlStore(open_dialect("sqlite:///data/duetime.db"))

    store.initialise()

    assert (tmp_path / "data/duetime.db").exists()
    store.close()


@pytest.mark.parametrize("url", ["sqlite://", "sqlite:///:memory:"])
def test_a_database_in_memory_is_one_for_all_threads(url: str) -> None:
    store = SqlStore(open_dialect(url))
    store.initialise()
    namespace, _ = store.catalogue.create_namespace("n", num_shards=1, dedicated=False, now=NOW)
    barrier = threading.Barrier(4, timeout=30)

    def create(index: int) -> None:
        barrier.wait()
        for turn in range(10):
            store.timers.put([make_timer(namespace, f"{index}-{turn}")], mode=PutMode.CREATE, now=NOW)
            assert store.timers.get(namespace, f"{index}-{turn}", now=NOW) is not None

    with ThreadPoolExecutor(4) as executor:
        list(executor.map(create, range(4)))

    assert len(store.timers.due(0, until=NOW, limit=100).timers) == 40
    store.close()


@pytest.mark.parametrize(
    "url",
    ["sqlite://host/path.db", "sqlite://user@/x.db", "sqlite://data/duetime.db"],
)
def test_a_url_has_a_path_alone(url: str) -> None:
    with pytest.raises(InvalidSettings, match="three slashes"):
        open_dialect(url)


def test_an_unexpected_driver_error_is_a_store_error_without_values(store: SqlStore) -> None:
    with pytest.raises(StoreError) as raised, store.database.write(NOW) as mutation:
        mutation.connection.exec_driver_sql(
            "INSERT INTO namespaces VALUES ('secret', NULL, 0, 0, 0)",
        )

    assert type(raised.value) is StoreError
    assert "secret" not in raised.value.message


def test_no_value_shows_in_the_error_behind_an_error(store: SqlStore, single: Namespace) -> None:
    timer = make_timer(single, headers_json='{"Authorization": "hunter2"}')

    with store.database.write() as mutation:
        mutation.connection.exec_driver_sql("DROP TABLE timers")
    with pytest.raises(StoreNotReady) as raised:
        store.timers.put([timer], mode=PutMode.CREATE, now=NOW)

    assert raised.value.__cause__ is not None
    assert "hunter2" not in str(raised.value.__cause__)


def test_a_file_that_cannot_be_written_is_one_clear_line(store: SqlStore, single: Namespace) -> None:
    with store.database.read() as connection:
        connection.exec_driver_sql("PRAGMA query_only = ON")

    with pytest.raises(StoreUnavailable, match="read-only"):
        store.timers.put([make_timer(single)], mode=PutMode.CREATE, now=NOW)
    assert store.timers.get(single, "t1", now=NOW) is None


@pytest.mark.parametrize("is_replaced", [False, True])
def test_a_file_that_is_removed_or_replaced_in_use_takes_no_more(
    store: SqlStore, path: Path, *, is_replaced: bool
) -> None:
    """SQLite would go on with the old file, and all that it takes would be gone with the process."""
    store.check()
    if is_replaced:
        shutil.copy(path, another := path.with_name("another"))
        another.replace(path)
    else:
        path.unlink()

    with pytest.raises(StoreUnavailable, match="removed or replaced"):
        store.catalogue.create_namespace("n", num_shards=1, dedicated=False, now=NOW)
    with pytest.raises(StoreUnavailable, match="removed or replaced"):
        store.check()
