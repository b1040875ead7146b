"""Read, decide, write if nothing has changed meanwhile, and decide again where it has: how core changes rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Generic, NamedTuple, TypeVar

from duetime.domain.errors import StoreError, StoreUnavailable
from duetime.stores.backend import Backend, Write, WriteStatus, rounds
from duetime.stores.entity import Entity, Key, Row

R = TypeVar("R")


class Decision(NamedTuple, Generic[R]):
    """``result`` holds once ``write`` is made; None: at once."""

    result: R
    write: Write | None = None


def find(backend: Backend, entity: Entity, places: Sequence[Sequence[Key]]) -> list[Row | None]:
    """Return the row of each, which stands under one of its keys. The first is asked alone: it is the usual one."""
    rows = backend.read(entity, [keys[0] for keys in places])
    more = [(at, key) for at, keys in enumerate(places) if rows[at] is None for key in keys[1:]]
    if more:
        for (at, _), row in zip(more, backend.read(entity, [key for _, key in more]), strict=True):
            rows[at] = rows[at] or row
    return rows


def decide(
    backend: Backend,
    entity: Entity,
    keys: Sequence[Key],
    judge: Callable[[int, Row | None], Decision[R]],
    *,
    now: datetime,
    others: Mapping[int, Sequence[Key]] | None = None,
    finish: Callable[[R, int], R] | None = None,
    refused: Callable[[StoreError], R] | None = None,
) -> list[R]:
    """Return the result of each key: what ``judge`` makes of its place in ``keys`` and the row that is stored.

    ``others``: by place, the keys under which the row may stand instead, and where none is ever made.
    Whoever is overtaken by another writer judges again what that one left. ``finish`` is given the time at which the
    result was written. ``refused`` makes the result of a write that the database refuses; None: that is raised.
    """
    results: dict[int, R] = {}
    waiting = list(range(len(keys)))
    if not waiting:
        return []
    for _ in rounds():
        rows = find(backend, entity, [(keys[place], *(others or {}).get(place, ())) for place in waiting])
        attempted: list[tuple[int, R]] = []
        chosen: list[Write] = []
        for place, row in zip(waiting, rows, strict=True):
            result, write = judge(place, row)
            if write is None:
                results[place] = result
            else:
                attempted.append((place, result))
                chosen.append(write)
        if not chosen:
            break
        batch = backend.write(chosen, now=now)
        waiting = []
        for (place, result), written in zip(attempted, batch.results, strict=True):
            if written.is_written:
                results[place] = result if batch.at_ms is None or finish is None else finish(result, batch.at_ms)
            elif written.status is WriteStatus.NOT_WRITTEN:
                waiting.append(place)
            elif written.status is WriteStatus.REFUSED and refused is not None and written.error is not None:
                results[place] = refused(written.error)
            else:
                raise written.error or StoreUnavailable("the database is busy there")
        if not waiting:
            break
    else:
        raise StoreUnavailable("other writers changed the rows again and again")
    return [results[place] for place in range(len(keys))]
