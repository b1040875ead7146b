"""What clients do to single timers: put, get, update, rearm, delete."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from duetime.domain.errors import StoreError
from duetime.domain.namespaces import Namespace
from duetime.domain.timers import Rearm, Timer, TimerChange
from duetime.stores.client_results import created, delete_result, put_result, rearm_result, update_result
from duetime.stores.core.timer_codec import UnreadableError
from duetime.stores.port.timers import ChangeResult, ChangeStatus, PutMode, PutResult, PutStatus, TimerRef
from duetime.stores.sql.database import Database, Mutation
from duetime.stores.sql.rows import Row, decode, encode_key
from duetime.stores.sql.timer_rows import TimerRows, present

_MAX_TRIES = 10
"""How often a batch begins anew because somebody else has just created one of its timers."""


class Clients:
    """Batches lock their rows in the order of their keys, so that two that overlap never wait for each other."""

    def __init__(self, database: Database, rows: TimerRows) -> None:
        self._database = database
        self._rows = rows

    def put_timers(
        self,
        timers: Sequence[Timer],
        *,
        mode: PutMode,
        now: datetime,
        if_revision: int | None = None,
    ) -> list[PutResult]:
        if not timers:
            return []
        if if_revision is None:
            results = self._create_all(timers, now)
            if results is not None:
                return results
        for _ in range(_MAX_TRIES):
            with self._database.write(now) as mutation:
                results = self._put_each(mutation, timers, mode=mode, now=now, if_revision=if_revision)
                if results is not None:
                    return results
                mutation.connection.rollback()
        # Nobody loses so many races in a row: MySQL, say, passes over a row that breaks a rule of the table.
        raise StoreError("the database takes a timer neither as a new one nor as a known one")

    def _create_all(self, timers: Sequence[Timer], now: datetime) -> list[PutResult] | None:
        """The fast path of both modes: no id is taken. None, and nothing written, when one is."""
        with self._database.write(now) as mutation:
            if self._rows.insert(mutation, sorted(timers, key=encode_key)) != len(timers):
                mutation.connection.rollback()
                return None
            return [PutResult(PutStatus.CREATED, created(timer, mutation.now)) for timer in timers]

    def _put_each(
        self, mutation: Mutation, timers: Sequence[Timer], *, mode: PutMode, now: datetime, if_revision: int | None
    ) -> list[PutResult] | None:
        """None when somebody else has just created one of them: there was no row to lock yet. Then do it again."""
        keys = [encode_key(timer) for timer in timers]
        stored = self._rows.lock(mutation, keys, now=now)
        results: list[PutResult] = []
        created: list[Timer] = []
        overwritten: list[Timer] = []
        for key, timer in zip(keys, timers, strict=True):
            result = put_result(stored[key], timer, mode=mode, if_revision=if_revision, now=mutation.now)
            results.append(result)
            if result.status is PutStatus.CREATED:
                created.append(timer)
            elif result.status is PutStatus.REPLACED and result.timer is not None:
                overwritten.append(result.timer)
        # An expired timer reads as absent, but its row may still be there.
        self._rows.delete(mutation, [encode_key(timer) for timer in created])
        if self._rows.insert(mutation, sorted(created, key=encode_key)) != len(created):
            return None
        self._rows.update(mutation, overwritten)
        return results

    def get_timer(self, namespace: Namespace, timer_id: str, *, now: datetime) -> Timer | None:
        with self._database.read() as connection:
            return self._rows.find(connection, namespace.shard_of(timer_id), namespace.name, timer_id, now=now)

    def update_timer(
        self,
        namespace: Namespace,
        timer_id: str,
        change: TimerChange,
        *,
        firing_id: str,
        now: datetime,
        if_revision: int | None = None,
    ) -> ChangeResult:
        key = (namespace.shard_of(timer_id), namespace.name, timer_id)
        with self._database.write(now) as mutation:
            stored = self._rows.lock(mutation, [key], now=now)[key]
            result = update_result(stored, change, if_revision=if_revision, firing_id=firing_id, now=mutation.now)
            if result.status is ChangeStatus.APPLIED and result.timer is not None:
                self._rows.update(mutation, [result.timer])
            return result

    def rearm_timers(
        self,
        namespace: Namespace,
        refs: Sequence[TimerRef],
        *,
        rearm: Rearm,
        now: datetime,
        expires_at: datetime | None = None,
    ) -> list[ChangeResult]:
        if not refs:
            return []
        results: list[ChangeResult] = []
        changes: list[Timer] = []
        keys = [(namespace.shard_of(ref.timer_id), namespace.name, ref.timer_id) for ref in refs]
        with self._database.write(now) as mutation:
            rows = self._rows.lock_rows(mutation, keys)
            for key, ref in zip(keys, refs, strict=True):
                result, is_change = rearm_result(
                    present(rows[key], now), _readable(rows[key]), ref, rearm, now=now, expires_at=expires_at
                )
                if is_change and result.timer is not None:
                    changes.append(replace(result.timer, updated_at=mutation.now))
                    result = replace(result, timer=changes[-1])
                results.append(result)
            (self._rows.end if rearm is Rearm.CANCEL else self._rows.update)(mutation, changes)
        return results

    def delete_timers(self, namespace: Namespace, refs: Sequence[TimerRef], *, now: datetime) -> list[ChangeResult]:
        if not refs:
            return []
        results: list[ChangeResult] = []
        doomed: list[tuple[int, str, str]] = []
        keys = [(namespace.shard_of(ref.timer_id), namespace.name, ref.timer_id) for ref in refs]
        with self._database.write(now) as mutation:
            found = self._rows.lock(mutation, keys, now=now)
            for key, ref in zip(keys, refs, strict=True):
                result = delete_result(found[key], ref)
                results.append(result)
                if result.status is ChangeStatus.APPLIED:
                    doomed.append(key)
            self._rows.delete(mutation, doomed)
        return results


def _readable(row: Row | None) -> Timer | None:
    try:
        return None if row is None else decode(row)
    except UnreadableError:
        return None
