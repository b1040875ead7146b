"""Private parts of libraries that we use: they are there, and pyproject.toml bounds the versions."""

from __future__ import annotations

import tomllib
from importlib.metadata import version
from pathlib import Path

import pytest
import sqlalchemy as sa
from cronsim import CronSim
from packaging.requirements import Requirement
from pymysql.connections import Connection
from sqlalchemy.dialects.mssql.base import MSSQLCompiler
from sqlalchemy.dialects.oracle.oracledb import OracleExecutionContext_oracledb
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

PROJECT = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
DECLARED = {
    requirement.name: requirement
    for extra in [PROJECT["dependencies"], *PROJECT["optional-dependencies"].values()]
    for requirement in map(Requirement, extra)
}


@pytest.mark.parametrize(
    ("library", "owner", "parts"),
    [
        ("sqlalchemy", sa.Select, ("_distinct", "_for_update_arg", "_limit_clause", "_offset_clause")),
        ("sqlalchemy", MSSQLCompiler, ("_use_top",)),
        ("sqlalchemy", OracleExecutionContext_oracledb, ("_generate_cursor_outputtype_handler", "_rowcount")),
        ("pymysql", Connection, ("_create_ssl_ctx",)),
        # And attributes of its instances, which test_cron.py uses.
        ("cronsim", CronSim, ("match_dom", "match_day", "advance_hour", "reverse_hour")),
        # And attributes of its instances, which test_bounded_http.py uses.
        (
            "uvicorn",
            HttpToolsProtocol,
            (
                *("on_message_begin", "on_headers_complete", "on_body", "on_message_complete"),
                *("on_response_complete", "timeout_keep_alive_handler"),
            ),
        ),
    ],
)
def test_a_library_whose_private_parts_are_used_has_an_upper_bound(
    library: str, owner: type, parts: tuple[str, ...]
) -> None:
    versions = DECLARED[library].specifier

    assert "<" in {each.operator for each in versions}
    assert versions.contains(version(library))
    assert [part for part in parts if not hasattr(owner, part)] == []
