"""From a store URL to a store. A store's driver is imported only when a URL asks for it."""

from __future__ import annotations

from collections.abc import Callable

from duetime.domain.errors import InvalidSettings
from duetime.stores.core.store import Store
from duetime.stores.kinds import BY_SCHEME
from duetime.stores.time_source import TimeSource

_Opener = Callable[[str, TimeSource], Store]


def _open_sql(url: str, time_source: TimeSource) -> Store:
    from duetime.stores.backends.sql.backend import open_sql
    from duetime.stores.core.store import Store

    return Store(open_sql(url, time_source=time_source))


def _open_dynamodb(url: str, time_source: TimeSource) -> Store:
    from duetime.stores.backends.dynamodb.backend import open_dynamodb
    from duetime.stores.core.store import Store

    return Store(open_dynamodb(url, time_source=time_source))


def _open_mongodb(url: str, time_source: TimeSource) -> Store:
    from duetime.stores.backends.mongodb.backend import open_mongodb
    from duetime.stores.core.store import Store

    return Store(open_mongodb(url, time_source=time_source))


def _open_cassandra(url: str, time_source: TimeSource) -> Store:
    from duetime.stores.backends.cassandra.backend import open_cassandra
    from duetime.stores.core.store import Store

    return Store(open_cassandra(url, time_source=time_source))


_OPENERS: dict[str, _Opener] = {
    "cassandra": _open_cassandra,
    "dynamodb": _open_dynamodb,
    "mongodb": _open_mongodb,
}
"""By the extra that brings the driver, of the stores that are not SQL."""


def open_store(url: str, *, time_source: TimeSource = TimeSource.DATABASE) -> Store:
    """Open the store at ``url``: ``sqlite:///path.db``, ``sqlite://`` (memory), ``dynamodb://<table>?region=...``,
    ``mongodb://host/database``, ``cassandra://host/keyspace``.

    Nothing is created or contacted yet; ``initialise`` and ``check`` do. Raises ``InvalidSettings`` with one clear
    line for an unknown scheme, a URL that cannot be understood, and a driver that is not installed.
    """
    scheme, separator, _ = url.partition("://")
    if not separator:
        raise InvalidSettings(f"a store URL begins with a scheme ({_known()}), like sqlite:///data/duetime.db")
    kind = BY_SCHEME.get(scheme)
    if kind is None:
        raise InvalidSettings(f"unknown store scheme {scheme!r}; known are {_known()}")
    try:
        return _OPENERS.get(kind.extra, _open_sql)(url, time_source)
    except ModuleNotFoundError as error:
        # A missing module of our own is a defect, not a setting.
        if (error.name or "").partition(".")[0] == "duetime":
            raise
        raise InvalidSettings(
            f"the store {scheme}:// needs {error.name!r}, which is not installed: pip install 'duetime[{kind.extra}]'"
        ) from error


def _known() -> str:
    return ", ".join(f"{scheme}://" for scheme in sorted(BY_SCHEME))
