"""From URLs to stores."""

from __future__ import annotations

import builtins
from pathlib import Path
from typing import Any

import pytest

from duetime.domain.errors import InvalidSettings
from duetime.stores.core.store import Store
from duetime.stores.open import open_store


def test_an_sqlite_url_opens_the_sql_store(tmp_path: Path) -> None:
    store = open_store(f"sqlite:///{tmp_path}/duetime.db")

    assert isinstance(store, Store)
    assert list(tmp_path.iterdir()) == []  # opening contacts nothing
    store.close()


def test_a_dynamodb_url_opens_the_dynamodb_store() -> None:
    store = open_store("dynamodb://timers?endpoint_url=http://127.0.0.1:1&region=eu-west-1")

    assert isinstance(store, Store)
    store.close()


@pytest.mark.parametrize("url", ["", "duetime.db", "/data/duetime.db", "sqlite:data.db"])
def test_a_url_needs_a_scheme(url: str) -> None:
    with pytest.raises(InvalidSettings, match="begins with a scheme"):
        open_store(url)


@pytest.mark.parametrize("url", ["oracledb://localhost/x", "SQLITE:///x.db", "sqlite+aiosqlite:///x.db", "://x"])
def test_an_unknown_scheme_names_the_known_ones(url: str) -> None:
    with pytest.raises(InvalidSettings, match=r"unknown store scheme .*dynamodb://, mariadb://, .*sqlite://"):
        open_store(url)


def test_messages_are_one_line_and_hold_no_credentials() -> None:
    with pytest.raises(InvalidSettings) as raised:
        open_store("nosuchdb://user:hunter2@host/x?password=hunter2")

    assert "hunter2" not in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("url", "module", "extra"),
    [
        ("sqlite://", "sqlalchemy", "sql"),
        ("postgresql://db/x", "psycopg", "postgresql"),
        ("mysql://db/x", "pymysql", "mysql"),
        ("sqlserver://db/x", "pymssql", "sqlserver"),
        ("oracle://u:p@db/x", "oracledb", "oracle"),
        ("dynamodb://timers?region=x", "boto3", "dynamodb"),
        ("cassandra://db/x", "cassandra", "cassandra"),
        ("mongodb://db/x", "pymongo", "mongodb"),
        ("mongodb+srv://db/x", "pymongo", "mongodb"),
    ],
)
def test_a_missing_driver_names_the_extra(monkeypatch: pytest.MonkeyPatch, url: str, module: str, extra: str) -> None:
    original = builtins.__import__

    def without_driver(name: str, *arguments: Any, **more: Any) -> Any:
        if name.startswith("duetime.stores.backends."):
            raise ModuleNotFoundError(f"No module named {module!r}", name=module)
        return original(name, *arguments, **more)

    monkeypatch.setattr(builtins, "__import__", without_driver)

    with pytest.raises(InvalidSettings, match=rf"needs '{module}', .*pip install 'duetime\[{extra}\]'"):
        open_store(url)


def test_a_missing_module_of_our_own_is_not_blamed_on_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    original = builtins.__import__

    def broken(name: str, *arguments: Any, **more: Any) -> Any:
        if name == "duetime.stores.backends.sql.backend":
            raise ModuleNotFoundError(
                "No module named 'duetime.stores.backends.sql.gone'", name="duetime.stores.backends.sql.gone"
            )
        return original(name, *arguments, **more)

    monkeypatch.setattr(builtins, "__import__", broken)

    with pytest.raises(ModuleNotFoundError):
        open_store("sqlite://")
