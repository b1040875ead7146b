"""The connection, and the units of work that every part of the store runs."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from functools import cached_property
from typing import Any, Final, TypeVar

import pymongo
from bson.binary import UuidRepresentation
from bson.codec_options import CodecOptions, DatetimeConversion
from pymongo import MongoClient
from pymongo.client_session import ClientSession
from pymongo.collection import Collection
from pymongo.errors import OperationFailure
from pymongo.read_concern import ReadConcern
from pymongo.read_preferences import ReadPreference
from pymongo.write_concern import WriteConcern

from duetime.stores.backends.mongodb.errors import is_unknown_command, not_a_replica_set
from duetime.stores.backends.mongodb.url import DEFAULT_TIMEOUT_MS, Document
from duetime.stores.time_source import TimeSource

R = TypeVar("R")

Session = ClientSession
_BULK_WRITE_WIRE_VERSION = 25
"""MongoDB 8.0, the first whose ``bulkWrite`` tells of each write whether it matched."""

READ_AS: Final[CodecOptions[Document]] = CodecOptions(
    tz_aware=True,
    tzinfo=UTC,
    uuid_representation=UuidRepresentation.STANDARD,
    # One instant out of range must not spoil a whole page.
    datetime_conversion=DatetimeConversion.DATETIME_AUTO,
    # Nor must one text that is no UTF-8 (``stores.decoding``): servers store what they are given.
    unicode_decode_error_handler="surrogateescape",
)
"""Instants are read as UTC, UUIDs as ``UUID``."""


class Database:
    def __init__(
        self, client: MongoClient[Document], name: str, *, time_source: TimeSource = TimeSource.DATABASE
    ) -> None:
        self.client = client
        self.name = name
        self.uses_caller_time = time_source is TimeSource.CALLER
        self._database = client.get_database(name, codec_options=READ_AS)
        timeout = client.options.timeout
        self._has_bulk_write = True
        self._timeout_seconds = DEFAULT_TIMEOUT_MS / 1000 if timeout is None else timeout

    def __getitem__(self, collection: str) -> Collection[Document]:
        return self._database[collection]

    def collection_names(self) -> list[str]:
        return self._database.list_collection_names()

    def command(self, *arguments: Any, **named: Any) -> Document:
        answer: Document = self._database.command(*arguments, **named)
        return answer

    @cached_property
    def _server(self) -> Document:
        """What the server says of itself. Asked once: raises ``StoreNotReady`` for one without transactions.

        The router of a sharded cluster has them: not run against one.
        """
        hello: Document = self.client.admin.command("hello")
        if "setName" not in hello and hello.get("msg") != "isdbgrid":
            raise not_a_replica_set()
        return hello

    def require_transactions(self) -> None:
        _ = self._server

    @property
    def tells_each_write(self) -> bool:
        return self._has_bulk_write and int(self._server["maxWireVersion"]) >= _BULK_WRITE_WIRE_VERSION

    def is_without_bulk_write(self, error: OperationFailure) -> bool:
        """Tell whether ``error`` says so; from then on ``tells_each_write`` does too.

        MongoDB 8.0 refuses ``bulkWrite`` while its feature compatibility version is 7.0.
        """
        if not is_unknown_command(error):
            return False
        self._has_bulk_write = False
        return True

    def now_expression(self, now: datetime) -> Any:
        """Return the instant of an update, as an expression of its pipeline: the server's, or a test's ``now``."""
        return {"$literal": now} if self.uses_caller_time else "$$NOW"

    def clock(self, now: datetime) -> datetime:
        """Return what the server's clock reads, or a test's ``now``."""
        if self.uses_caller_time:
            return now
        at: datetime = self._database.command("hello", codec_options=READ_AS)["localTime"]
        return at

    def transact(self, work: Callable[[Session], R]) -> R:
        """Run ``work`` in a transaction on one snapshot, again if it meets another writer; all of it in time.

        An exception from ``work`` ends the transaction with nothing written. The snapshot is the primary's latest:
        the commit, which a majority has to acknowledge, is behind all that was read.
        """
        self.require_transactions()
        with (
            pymongo.timeout(self._timeout_seconds),
            self.client.start_session(causal_consistency=False) as session,
        ):
            return session.with_transaction(
                work,
                read_concern=ReadConcern(),
                write_concern=WriteConcern("majority"),
                read_preference=ReadPreference.PRIMARY,
            )

    def close(self) -> None:
        self.client.close()
