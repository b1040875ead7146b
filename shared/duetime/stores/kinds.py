"""The kinds of stores, and how far each has been proved: the one table that `--help`, the documents, the warning at
a start and CI go by.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class SupportLevel(StrEnum):
    SUPPORTED = "supported"
    """The contract, crash and multi-worker suites pass on the real server in CI."""
    EXPERIMENTAL = "experimental"
    """They pass on something that stands in for the server, or parts have never met it."""
    UNTESTED = "untested"
    """No server has run it: its statements compile, and a grammar of the database reads them."""

    @property
    def label(self) -> str:
        """As it is told to people."""
        return "untested on a server" if self is SupportLevel.UNTESTED else self.value


@dataclass(frozen=True, slots=True)
class StoreKind:
    name: str
    level: SupportLevel
    ran_on: str
    """Of a supported one the server's version, as far as it counts; of others what the suites ran on instead."""
    schemes: tuple[str, ...]
    """Of its URLs. The first one, in capitals, is its name in ``DUETIME_TEST_<STORE>_URL``."""
    extra: str
    """The extra of the package that brings the driver."""
    page: str
    """Of ``docs/stores``."""

    def __str__(self) -> str:
        return f"{self.name} {self.ran_on}" if self.level is SupportLevel.SUPPORTED else self.name


_SUPPORTED, _EXPERIMENTAL, _UNTESTED = SupportLevel

KINDS = (  # the best proved first
    StoreKind("SQLite", _SUPPORTED, "3", ("sqlite",), "sql", "sqlite"),
    StoreKind("PostgreSQL", _SUPPORTED, "18", ("postgresql",), "postgresql", "postgresql"),
    StoreKind("MariaDB", _SUPPORTED, "10.11", ("mariadb",), "mysql", "mysql"),
    StoreKind("MySQL", _SUPPORTED, "8.0", ("mysql",), "mysql", "mysql"),
    StoreKind("Cassandra", _SUPPORTED, "5.0", ("cassandra",), "cassandra", "cassandra"),
    StoreKind("DynamoDB", _EXPERIMENTAL, "two emulators, never the service", ("dynamodb",), "dynamodb", "dynamodb"),
    StoreKind("MongoDB", _EXPERIMENTAL, "SecantusDB, a stand-in", ("mongodb", "mongodb+srv"), "mongodb", "mongodb"),
    StoreKind("TiDB", _EXPERIMENTAL, "MySQL 8.0, which leaves out what is TiDB's", ("tidb",), "mysql", "mysql"),
    StoreKind("Oracle", _UNTESTED, "no server", ("oracle",), "oracle", "oracle"),
    StoreKind("SQL Server", _UNTESTED, "no server", ("sqlserver", "mssql"), "sqlserver", "sqlserver"),
)

BY_SCHEME = {scheme: kind for kind in KINDS for scheme in kind.schemes}


def levels_in_words() -> str:
    """Return the kinds by level, a sentence for each level."""
    return " ".join(
        f"{level.label.capitalize()}: {', '.join(str(kind) for kind in KINDS if kind.level is level)}."
        for level in SupportLevel
    )
