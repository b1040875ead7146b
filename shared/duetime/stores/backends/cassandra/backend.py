"""The primitives of a store on Cassandra (docs/stores/cassandra.md, decision 0020)."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from duetime.domain.times import to_milliseconds
from duetime.stores.backend import WRITTEN, Batch, Change, Query, Scan, Write, spelled_out
from duetime.stores.backends.cassandra import schema
from duetime.stores.backends.cassandra.hints import Attempts, Hints
from duetime.stores.backends.cassandra.reads import Reads
from duetime.stores.backends.cassandra.scans import Scans
from duetime.stores.backends.cassandra.session import CassandraSession
from duetime.stores.backends.cassandra.url import parse_cassandra_url
from duetime.stores.backends.cassandra.writes import Writes
from duetime.stores.entity import Entity, Key, Row, Value
from duetime.stores.time_source import StoreTime, TimeSource


def open_cassandra(url: str, *, time_source: TimeSource = TimeSource.DATABASE) -> CassandraBackend:
    """Nothing is contacted yet. Raises ``InvalidSettings`` for a URL that cannot be understood."""
    return CassandraBackend(CassandraSession(parse_cassandra_url(url)), time_source=time_source)


class CassandraBackend:
    """Cassandra has no clock that a condition could use: ``NOW`` is the caller's, who corrects it by ``time``."""

    has_clock = False

    def __init__(
        self,
        session: CassandraSession,
        *,
        time_source: TimeSource = TimeSource.DATABASE,
        attempts: Attempts | None = None,
    ) -> None:
        self.session = session
        self._time_source = time_source
        hints = Hints(session, attempts or Attempts())
        self._reads = Reads(session)
        self._scans = Scans(session, self._reads, hints)
        self._writes = Writes(session, self._reads, hints)

    def read(self, entity: Entity, keys: Sequence[Key], *, fields: tuple[str, ...] | None = None) -> list[Row | None]:
        return self._reads.rows(entity, keys, entity.names if fields is None else fields)

    def scan(self, query: Query) -> Scan:
        return self._scans.scan(query)

    def firsts(self, query: Query, values: Sequence[Value]) -> None:  # noqa: ARG002
        return None

    def write(self, writes: Sequence[Write], *, now: datetime | None = None) -> Batch:
        """Of a lease's row that has ended, the database sees to the removal."""
        writes = spelled_out(writes)
        made = [write for write in writes if not _ends_by_itself(write)]
        results = self._writes.run([[write] for write in made], _milliseconds(now))
        told = dict(zip(map(id, made), results, strict=True))
        return Batch([told.get(id(write), WRITTEN) for write in writes], _at_ms(now))

    def atomic(self, groups: Sequence[Sequence[Write]], *, now: datetime | None = None) -> Batch:
        """Write groups, each of whose rows live in one partition."""
        return Batch(self._writes.run(groups, _milliseconds(now)), _at_ms(now))

    def time(self, *, now: datetime) -> StoreTime:
        """Return what the clock of the node that answers reads."""
        at = self.session.node_time() if self._time_source is TimeSource.DATABASE else now
        return StoreTime(at, resolution_seconds=0.001)

    def initialise(self) -> None:
        schema.initialise(self.session)

    def check(self) -> None:
        schema.check(self.session)

    def close(self) -> None:
        self.session.close()


def _ends_by_itself(write: Write) -> bool:
    is_removal = write.change is Change.DELETE and bool(write.conditions)
    return is_removal and write.entity.is_lease and write.entity.expires is not None


def _at_ms(now: datetime | None) -> int | None:
    return None if now is None else to_milliseconds(now)


def _milliseconds(now: datetime | None) -> int:
    return _at_ms(now) or 0
