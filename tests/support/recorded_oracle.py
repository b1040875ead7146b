"""``recorded_driver`` with what python-oracledb has beyond the DB-API: variables and the errors of a batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import oracledb
from oracledb.errors import _Error

from tests.support.clock import NOW
from tests.support.recorded_driver import RecordedConnection, RecordedCursor

NOW_MS = int(NOW.timestamp() * 1000)
CHARACTERS = {"language": "AMERICAN_AMERICA.AL32UTF8"}


@dataclass(frozen=True)
class Detail:
    """What the driver's exceptions and ``getbatcherrors`` tell."""

    code: int = 0
    full_code: str = ""
    offset: int = 0


class Variable:
    """A value that a block of PL/SQL gives."""

    value: str | None = None

    def getvalue(self) -> str | None:
        return self.value


class OracleConnection(RecordedConnection):
    call_timeout = 0
    outputtypehandler: Any = None
    refused_with = 1
    """The number of the error of a row that a batch inserts nothing for."""
    outs: Mapping[str, str] = CHARACTERS | {"seeded": str(NOW_MS)}

    @property
    def transaction_in_progress(self) -> bool:
        """Whether something has been changed or locked since the last end of a transaction."""
        for text in reversed(self.driver.texts()):
            if text in ("<commit>", "<rollback>"):
                return False
            if text.startswith(("INSERT", "UPDATE", "DELETE", "LOCK")) or " FOR UPDATE" in text:
                return True
        return False

    def cursor(self, *_: object, **__: object) -> OracleCursor:
        return OracleCursor(self)


class OracleCursor(RecordedCursor):
    def __init__(self, connection: OracleConnection) -> None:
        super().__init__(connection.driver)
        self._connection = connection
        self._refused: list[Detail] = []

    def var(self, *_: object, **__: object) -> Variable:
        return Variable()

    def execute(self, sql: str, parameters: Any = None) -> None:
        super().execute(sql, parameters)
        for name, value in (parameters or {}).items():
            if isinstance(value, Variable):
                value.value = self._connection.outs[name]

    def executemany(self, sql: str, parameters: Sequence[Any], *, batcherrors: bool = False) -> None:
        answer = self._driver.answer_to(" ".join(sql.split()), is_asked_only=True)
        super().executemany(sql, parameters)
        self._refused = []
        if batcherrors and answer is not None and not isinstance(answer.rowcount, int):
            code = self._connection.refused_with
            refused = [offset for offset, count in enumerate(answer.rowcount) if count == 0]
            self._refused = [Detail(code, f"ORA-{code:05}", offset) for offset in refused]

    def setinputsizes(self, **_: object) -> None:
        """Of the one statement that is not prepared."""

    def getbatcherrors(self) -> list[Detail]:
        return self._refused

    def close(self) -> None:
        self.rowcount = -1


def error_of(number: int) -> oracledb.DatabaseError:
    """As the driver makes it of the server's."""
    detail = _Error(f"ORA-{number:05}: text", code=number)
    made: oracledb.DatabaseError = detail.exc_type(detail)
    return made
