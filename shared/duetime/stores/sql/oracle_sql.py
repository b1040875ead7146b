"""What SQLAlchemy's dialect for Oracle leaves open, for all statements at once. Reasons: decision 0017.

There '' is NULL, a locking read has no limit, no INSERT passes over a row whose key is taken, many plain words are
no names of parameters, and the driver waits without end for a server that takes a connection and says nothing.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from typing import Any

import oracledb
import sqlalchemy as sa
from sqlalchemy.dialects import registry
from sqlalchemy.dialects.oracle.base import OracleDDLCompiler, OracleTypeCompiler
from sqlalchemy.dialects.oracle.cx_oracle import OracleCompiler_cx_oracle
from sqlalchemy.dialects.oracle.oracledb import OracleDialect_oracledb, OracleExecutionContext_oracledb

from duetime.stores.sql.engines import CONNECT_TIMEOUT_SECONDS, LOCK_TIMEOUT_SECONDS

DRIVER_NAME = "oracle+duetime"
"""The engine's URL begins with it."""
CALL_TIMEOUT_SECONDS = 20
"""How long any statement may take; also how long a write waits for other transactions."""
MAX_SILENT_CONNECTS = 16

_EMPTY = "\x01"
"""What '' is stored as. It sorts before all that ids may hold, as '' does."""
_IF_ABSENT = "/* if absent */"
_UNIQUE_VIOLATED = 1
_CHARACTERS = "AL32UTF8"
_TEXTS = frozenset({oracledb.DB_TYPE_VARCHAR, oracledb.DB_TYPE_CHAR, oracledb.DB_TYPE_NVARCHAR})
_LONG_TEXTS = frozenset({oracledb.DB_TYPE_CLOB, oracledb.DB_TYPE_NCLOB, oracledb.DB_TYPE_LONG})
_DIGITS = 40

_SESSION = (
    # Texts are compared byte by byte, which for UTF-8 is by code point.
    "NLS_COMP = BINARY",
    "NLS_SORT = BINARY",
    "NLS_NUMERIC_CHARACTERS = ''.,''",
    "TIME_ZONE = ''+00:00''",
    "ISOLATION_LEVEL = READ COMMITTED",
    # Every statement wants some rows of an index in its order; the planner does not see how few.
    "OPTIMIZER_MODE = FIRST_ROWS_100",
    f"DDL_LOCK_TIMEOUT = {LOCK_TIMEOUT_SECONDS}",
)
PREPARE_SESSION = (
    "BEGIN "
    + " ".join(f"EXECUTE IMMEDIATE 'ALTER SESSION SET {each}';" for each in _SESSION)
    + " :language := SYS_CONTEXT('USERENV', 'LANGUAGE'); END;"
)
"""Also tells the character set of the database, behind the last dot."""


class NoAnswer(oracledb.OperationalError):
    """There is no server of that name, or it said nothing in time."""


class WrongCharacterSet(oracledb.NotSupportedError):
    """The database cannot hold every text."""


class OracleCompiler(OracleCompiler_cx_oracle):
    def bindparam_string(self, name: str, **kw: Any) -> str:  # type: ignore[override]
        """Oracle takes no reserved word (``number``, ``level``, ...) as the name of a parameter."""
        if not kw.get("post_compile", False) and not kw.get("escaped_from"):
            kw["escaped_from"] = name
            name = f"p_{name}"
        text: str = super().bindparam_string(name, **kw)  # type: ignore[no-untyped-call]
        return text

    def visit_select(self, select_stmt: sa.Select[Any], *args: Any, **kwargs: Any) -> str:
        """A locking read takes no FETCH FIRST (ORA-02014): it locks the first rows that are found."""
        limit = select_stmt._limit_clause
        if select_stmt._for_update_arg is not None and limit is not None:
            select_stmt = select_stmt.limit(None).where(sa.literal_column("ROWNUM", sa.Integer) <= limit)
        text: str = super().visit_select(select_stmt, *args, **kwargs)  # type: ignore[no-untyped-call]
        return text

    def for_update_clause(self, select: sa.Select[Any], **kw: Any) -> str:
        text: str = super().for_update_clause(select, **kw)  # type: ignore[no-untyped-call]
        return f"{text} WAIT {LOCK_TIMEOUT_SECONDS}" if text else text


class OracleTypes(OracleTypeCompiler):
    def visit_large_binary(self, type_: Any, **_: Any) -> str:
        """No BLOB: all of ours are short."""
        return f"RAW({type_.length or 1024})"


class OracleDdl(OracleDDLCompiler):
    def get_column_specification(self, column: sa.Column[Any], **kw: Any) -> str:
        """ORDER: or each instance of a cluster would number events from a stock of its own, later ones first."""
        text: str = super().get_column_specification(column, **kw)
        is_counter = column is column.table._autoincrement_column
        return text.replace(" NOT NULL", " GENERATED ALWAYS AS IDENTITY (ORDER) NOT NULL") if is_counter else text


class OracleContext(OracleExecutionContext_oracledb):
    def _generate_cursor_outputtype_handler(self) -> None:
        """Values are read alike, whether SQLAlchemy knows the statement or is given its text."""


class OracleSql(OracleDialect_oracledb):
    supports_statement_cache = True
    execution_ctx_cls = OracleContext
    statement_compiler = OracleCompiler
    type_compiler_cls = OracleTypes
    ddl_compiler = OracleDdl

    def create_connect_args(self, url: sa.URL) -> Any:  # noqa: ARG002
        """All of them are the engine's ``connect_args``."""
        return [], {}

    def connect(self, *args: Any, **kwargs: Any) -> Any:
        return connect_in_time(lambda: oracledb.connect(*args, **kwargs), seconds=2 * CONNECT_TIMEOUT_SECONDS)

    def on_connect(self) -> Callable[[Any], None]:
        return _prepare_session

    def initialize(self, connection: sa.Connection) -> None:
        """What SQLAlchemy would ask a server for takes several requests and rights that users do not have."""
        self.default_schema_name = self._get_default_schema_name(connection)  # type: ignore[no-untyped-call]

    def do_rollback(self, dbapi_connection: Any) -> None:
        """Each answer of the server says whether it left a transaction open. Reads do not, and need no request."""
        if dbapi_connection.transaction_in_progress:
            dbapi_connection.rollback()

    def do_execute(self, cursor: Any, statement: str, parameters: Any, context: Any = None) -> None:
        if is_if_absent(statement):
            self.do_executemany(cursor, statement, [parameters], context)
        else:
            cursor.execute(statement, _as_sent(parameters))

    def do_executemany(self, cursor: Any, statement: str, parameters: Any, context: Any = None) -> None:
        rows = [_as_sent(each) for each in parameters]
        if not is_if_absent(statement):
            cursor.executemany(statement, rows)
            return
        # Each row is inserted or refused by itself. One whose key is being taken waits for who takes it.
        cursor.executemany(statement, rows, batcherrors=True)
        refused = cursor.getbatcherrors()
        for error in refused:
            if error.code != _UNIQUE_VIOLATED:
                raise oracledb.DatabaseError(error)
        if context is not None:
            context._rowcount = len(rows) - len(refused)


def insert_if_absent(table: sa.Table) -> sa.Insert:
    """An insert that does nothing where a unique key is taken; the comment says so to ``OracleSql``."""
    return sa.insert(table).prefix_with(_IF_ABSENT).inline()


def is_if_absent(statement: str) -> bool:
    return statement.startswith(f"INSERT {_IF_ABSENT}")


def stored_text(text: str) -> str:
    """A text as it is stored: '' would be NULL. What looks like a stored '' is stored with a character more."""
    return text if text and (text[0] != _EMPTY or text.strip(_EMPTY)) else text + _EMPTY


def read_text(text: str) -> str:
    """The text that ``stored_text`` made ``text`` of."""
    return text if text[:1] != _EMPTY or text.strip(_EMPTY) else text[1:]


def _as_sent(parameters: Any) -> Any:
    if isinstance(parameters, Mapping):
        return {name: stored_text(each) if isinstance(each, str) else each for name, each in parameters.items()}
    return [stored_text(each) if isinstance(each, str) else each for each in parameters]


def read_exactly(cursor: Any, column: Any) -> Any:
    """The driver's output type handler: texts and long texts are str, '' included, and numbers are int."""
    kind = column.type_code
    if kind in _TEXTS:
        return cursor.var(kind, column.internal_size or 0, cursor.arraysize, outconverter=read_text)
    if kind in _LONG_TEXTS:
        # Comes with its row: a locator would take a request for each text.
        return cursor.var(oracledb.DB_TYPE_LONG, arraysize=cursor.arraysize, outconverter=read_text)
    if kind is oracledb.DB_TYPE_NUMBER and not column.precision:
        # An expression, of which the server does not say that it is whole.
        return cursor.var(oracledb.DB_TYPE_VARCHAR, _DIGITS, cursor.arraysize, outconverter=int)
    return None


def _prepare_session(connection: Any) -> None:
    connection.call_timeout = CALL_TIMEOUT_SECONDS * 1000
    connection.outputtypehandler = read_exactly
    cursor = connection.cursor()
    try:
        language = cursor.var(str)
        cursor.execute(PREPARE_SESSION, {"language": language})
        if not str(language.getvalue()).endswith(f".{_CHARACTERS}"):
            raise WrongCharacterSet(f"the database needs the character set {_CHARACTERS}")
    finally:
        cursor.close()


_silent = threading.Semaphore(MAX_SILENT_CONNECTS)


def connect_in_time(connect: Callable[[], Any], *, seconds: float) -> Any:
    """``connect()``, or ``NoAnswer`` after ``seconds``.

    The driver has a time limit for reaching a server and none for what the server then has to say. Attempts that
    were given up go on in threads of their own until the network ends them; there are never more than a few.
    """
    if not _silent.acquire(timeout=seconds):
        raise NoAnswer("too many connections are waiting for an answer")
    attempt: Future[Any] = Future()

    def run() -> None:
        try:
            connection = connect()
        except BaseException as error:
            if attempt.set_running_or_notify_cancel():
                attempt.set_exception(error)
        else:
            if attempt.set_running_or_notify_cancel():
                attempt.set_result(connection)
            else:  # nobody wants it any more
                connection.close()
        finally:
            _silent.release()

    threading.Thread(target=run, name="oracle-connect", daemon=True).start()
    try:
        return attempt.result(seconds)
    except (OSError, UnicodeError) as error:
        # Also an unknown host, or a name that is none: the driver passes them on.
        if isinstance(error, FutureTimeout) and not attempt.cancel():
            return attempt.result()
        raise NoAnswer(f"no connection: {type(error).__name__}") from None


registry.register(DRIVER_NAME.replace("+", "."), __name__, OracleSql.__name__)
