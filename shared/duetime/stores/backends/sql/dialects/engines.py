"""Engines for servers: how many connections a process holds, how long anybody waits, and which are thrown away."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import sqlalchemy as sa
from sqlalchemy import event, exc

from duetime.domain.errors import InvalidSettings

MAX_CONNECTIONS = 16
CONNECT_TIMEOUT_SECONDS = 5
LOCK_TIMEOUT_SECONDS = 5
"""How long a statement waits for other transactions, and a thread for a connection."""


class ServerDialect:
    """What the dialects for servers have in common (dialects.py)."""

    streams_rows = False
    keeps_plans = False
    driver_errors: tuple[type[Exception], ...] = ()
    kept_connections = 0

    def create_database(self) -> None:
        """Make nothing: the database itself, or the user and its schema, belongs to its operator."""

    @contextmanager
    def write_turn(self) -> Iterator[None]:
        yield


def pool_options(size: int, wait_seconds: float) -> dict[str, Any]:
    """Return what the pools of all dialects have in common: a fixed size, and the connection that was used last
    first."""
    return {
        "pool_size": size,
        "max_overflow": 0,
        "pool_timeout": wait_seconds,
        "pool_use_lifo": True,
        # Values are payloads and headers; an error that is logged must not show them.
        "hide_parameters": True,
    }


def server_engine(
    url: sa.URL,
    connect_args: Mapping[str, Any],
    *,
    is_astray: Callable[[BaseException], bool],
    recycle_seconds: int = -1,
    **options: Any,
) -> sa.Engine:
    """Return an engine for the server at ``url``. Connections older than ``recycle_seconds`` are made anew (-1:
    never).

    ``is_astray``: whether an error says that connections lead to a server that no longer takes writes. After a
    failover its name leads elsewhere, so all of them are made anew, as those to a server that is gone are.
    """
    engine = sa.create_engine(
        url,
        **pool_options(MAX_CONNECTIONS, LOCK_TIMEOUT_SECONDS),
        pool_recycle=recycle_seconds,
        connect_args=dict(connect_args),
        **options,
    )

    @event.listens_for(engine, "handle_error")
    def throw_away(context: sa.engine.ExceptionContext) -> None:
        if is_astray(context.original_exception):
            context.is_disconnect = True

    return engine


def read_server_url(url: str, schemes: Collection[str], shape: str) -> tuple[sa.URL, bool]:
    """Return the URL without its options, and whether to encrypt (``?tls=on``).

    Raises ``InvalidSettings``: the ``shape`` of such a URL, in one line.
    """
    try:
        parsed = sa.make_url(url)
    except (exc.ArgumentError, ValueError):
        raise InvalidSettings(shape) from None
    options = dict(parsed.query)
    tls = options.pop("tls", "off")
    is_complete = parsed.drivername in schemes and parsed.database and is_address(parsed)
    if not is_complete or options or tls not in ("on", "off"):
        raise InvalidSettings(shape)
    return parsed.set(query={}), tls == "on"


def is_address(url: sa.URL) -> bool:
    """Tell whether host and port can be those of a server. Drivers raise errors of their own kinds for what
    cannot."""
    try:
        (url.host or "").encode("idna")
    except UnicodeError:
        return False
    return url.port is None or 0 < url.port < 2**16


def encryption_problem(error: BaseException) -> str | None:
    """Why no encrypted connection came about, for drivers whose error holds that of Python's ``ssl``; else None."""
    seen: set[int] = set()
    current: Any = error
    while current is not None and id(current) not in seen:
        if isinstance(current, ssl.SSLCertVerificationError):
            return f"the certificate is not accepted: {current.verify_message}"
        if isinstance(current, ssl.SSLError):
            return f"no encryption could be agreed on: {getattr(current, 'reason', None) or type(current).__name__}"
        seen.add(id(current))
        # PyMySQL names it by itself.
        current = getattr(current, "original_exception", None) or current.__cause__ or current.__context__
    return None
