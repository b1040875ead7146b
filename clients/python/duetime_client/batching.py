"""Many items in a request: what is sent, and a result for each of them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, TypeAlias, TypeVar

from duetime_client.bodies import call_body, new_id, timer_body
from duetime_client.call_models import NewServiceCall
from duetime_client.errors import (
    DuetimeError,
    InvalidArgument,
    Throttled,
    Unavailable,
    UnexpectedAnswer,
    Unreachable,
    error_from,
)
from duetime_client.models import ItemResult, NewTimer
from duetime_client.requests import JSON, Answer, Request
from duetime_client.retrying import is_gone
from duetime_client.values import RawJson, json_bytes, texts, without_nulls

MAX_BATCH_ITEMS: Final = 500
MAX_BATCH_BYTES: Final = 2_500_000
"""Less than half of what the API takes: a gateway in between writes it down as a JSON text once more."""

Encoded: TypeAlias = tuple[str | None, bytes]
"""An item as it is sent, with its id, when the client knows it."""
ItemT = TypeVar("ItemT")

_NOT_REACHED = 503
"""The status of an item that a request had no time for."""


def encoded_timers(timers: Iterable[NewTimer | RawJson]) -> list[Encoded]:
    """Return ids and JSON; what has no id is given one. Raises ``InvalidArgument`` that names the item."""

    def encode(timer: NewTimer | RawJson) -> Encoded:
        if isinstance(timer, RawJson):
            return _raw(timer, "id")
        timer = timer if timer.id is not None else replace(timer, id=new_id())
        return timer.id, json_bytes(timer_body(timer))

    return _encoded("timers", timers, NewTimer, encode)


def encoded_calls(calls: Iterable[NewServiceCall | RawJson]) -> list[Encoded]:
    """Return the same of service calls: the API makes their ids, and those without an idempotency key get one."""

    def encode(call: NewServiceCall | RawJson) -> Encoded:
        if isinstance(call, RawJson):
            return None, _raw(call, "idempotencyKey")[1]
        return None, json_bytes(call_body(call))

    return _encoded("calls", calls, NewServiceCall, encode)


def _encoded(name: str, items: Iterable[ItemT], kind: type, encode: Callable[[ItemT], Encoded]) -> list[Encoded]:
    encoded = []
    for at, item in enumerate(items):
        if not isinstance(item, kind | RawJson):
            raise InvalidArgument(f"{name}[{at}]: must be a {kind.__name__} or a RawJson")
        try:
            encoded.append(encode(item))
        except InvalidArgument as error:
            raise InvalidArgument(f"{name}[{at}]: {error}") from None
    return encoded


def _raw(item: RawJson, member: str) -> tuple[str, bytes]:
    """Return what the API takes, digit for digit, and the value of ``member``, which is made when it is not there."""
    given = json.loads(item.text, parse_int=str, parse_float=str)
    if not isinstance(given, dict):
        raise InvalidArgument("must be an object")
    if member in given:
        return str(given[member]), item.text.encode()
    made = new_id()
    inner = item.text.strip()[1:].lstrip()
    return made, f'{{"{member}":"{made}"{"" if inner == "}" else ","}{inner}'.encode()


def encoded_refs(name: str, ids: Iterable[str], revisions: Mapping[str, int]) -> list[Encoded]:
    """Encode refs. ``name``: of the argument ``ids``."""
    return [
        (each, json_bytes(without_nulls({"id": each, "revision": revisions.get(each)}))) for each in texts(name, ids)
    ]


def item_results(answer: Answer, ids: Sequence[str | None], *, is_removal: bool = False) -> tuple[ItemResult, ...]:
    """Return one for each of ``ids``, in order."""
    document = answer.json()
    items = document.get("items") if isinstance(document, dict) else None
    if not isinstance(items, list) or len(items) != len(ids):
        raise UnexpectedAnswer("a batch with other results than were asked for", status=answer.status)
    try:
        return tuple(
            _item_result(given or item["id"], item, answer, is_removal=is_removal)
            for given, item in zip(ids, items, strict=True)
        )
    except (TypeError, KeyError, AttributeError):
        raise UnexpectedAnswer("a batch with results that are not understood", status=answer.status) from None


def _item_result(item_id: str | None, item: Mapping[str, Any], answer: Answer, *, is_removal: bool) -> ItemResult:
    status = int(item["status"])
    if 200 <= status < 300:
        return ItemResult(id=item_id, status=status, attempt_in_flight=item.get("attemptInFlight"))
    error = error_from(item.get("problem"), status=status)
    if is_removal and is_gone(error, may_be_second=answer.may_be_second):
        return ItemResult(id=item_id, status=200)
    return ItemResult(id=item_id, status=status, error=error)


def failed_items(ids: Sequence[str | None], error: DuetimeError) -> tuple[ItemResult, ...]:
    """Return what is known of items whose request has failed as a whole."""
    status = getattr(error, "status", None)
    return tuple(ItemResult(id=each, status=status, error=error) for each in ids)


def may_have_done_something(error: DuetimeError) -> bool:
    """Tell whether a request that failed as a whole may have done something: others were refused as a whole."""
    return isinstance(error, Unreachable | Unavailable | Throttled)


def batch_request(
    operation: str,
    path: str,
    member: str,
    items: Sequence[Encoded],
    *,
    beside: Mapping[str, Any],
    is_removal: bool,
) -> Request[tuple[ItemResult, ...]]:
    return Request(
        operation=operation,
        method="POST",
        path=path,
        content=b'{%b"%b":[%b]}'
        % (
            b"".join(b"%b:%b," % (json_bytes(name), json_bytes(value)) for name, value in beside.items()),
            member.encode(),
            b",".join(content for _, content in items),
        ),
        headers={"content-type": JSON},
        read=lambda answer: item_results(answer, [each for each, _ in items], is_removal=is_removal),
    )


class RedriveByIds:
    """Which ids are still to be sent, and what is known of the others.

    A request has no time for all when payloads are large: what it did not reach is sent again while others get on.
    """

    def __init__(self, operation: str, path: str, ids: Iterable[str]) -> None:
        self._operation = operation
        self._path = path
        self._ids = texts("ids", ids)
        self._results: dict[int, ItemResult] = {}
        self._waiting = list(range(len(self._ids)))
        self._asked: list[int] = []

    def request(self) -> Request[tuple[ItemResult, ...]] | None:
        """Return the next one; None when there is nothing left to ask for."""
        self._asked, self._waiting = self._waiting[:MAX_BATCH_ITEMS], self._waiting[MAX_BATCH_ITEMS:]
        if not self._asked:
            return None
        named = [self._ids[at] for at in self._asked]
        return Request(
            operation=self._operation,
            method="POST",
            path=self._path,
            content=json_bytes({"ids": named}),
            headers={"content-type": JSON},
            read=lambda answer: item_results(answer, named),
        )

    def answered(self, found: Sequence[ItemResult]) -> None:
        self._results |= dict(zip(self._asked, found, strict=True))
        unreached = [at for at in self._asked if self._results[at].status == _NOT_REACHED]
        if len(unreached) < len(self._asked):
            self._waiting = unreached + self._waiting

    def failed(self, error: DuetimeError) -> None:
        """Raise ``error`` when it kept the first request from doing anything."""
        if not self._results and not may_have_done_something(error):
            raise error
        left = [*self._asked, *self._waiting]
        self._results |= dict(zip(left, failed_items([self._ids[at] for at in left], error), strict=True))
        self._waiting = []

    def results(self) -> tuple[ItemResult, ...]:
        return tuple(self._results[at] for at in range(len(self._ids)))
