"""Timers that come from another store."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from duetime.domain.timers import Timer
from duetime.stores.mongodb.batches import Batches
from duetime.stores.mongodb.database import Database
from duetime.stores.mongodb.errors import translated
from duetime.stores.mongodb.timer_documents import UnreadableError, decode, decode_or_salvage, encode
from duetime.stores.mongodb.timers import Decision, Timers, insertion, replacement
from duetime.stores.mongodb.url import Document
from duetime.stores.port.transfer import LoadStatus


class TimerLoading:
    def __init__(self, database: Database) -> None:
        self._batches = Batches(database)
        self._timers = Timers(database)

    @translated
    def load_timers(self, timers: Sequence[Timer], *, now: datetime) -> list[LoadStatus]:
        is_new = self._batches.run([insertion(encode(timer)) for timer in timers])
        known = [timer for timer, new in zip(timers, is_new, strict=True) if not new]

        def judge(place: int, document: Document | None) -> Decision[LoadStatus]:
            return _decision(document, known[place], now)

        keys = [(timer.shard_id, timer.namespace, timer.timer_id) for timer in known]
        statuses = iter(self._timers.decide(keys, judge))
        return [LoadStatus.LOADED if new else next(statuses) for new in is_new]


def _decision(document: Document | None, timer: Timer, now: datetime) -> Decision[LoadStatus]:
    if document is None:
        return Decision(LoadStatus.LOADED, insertion(encode(timer)))
    if decode_or_salvage(document).is_expired(now):
        return Decision(LoadStatus.LOADED, replacement(document, encode(timer)))
    try:
        is_same = decode(document) == timer
    except UnreadableError:
        is_same = False
    return Decision(LoadStatus.PRESENT if is_same else LoadStatus.CONFLICT)
