"""Many items in one request: a result per item, in order, whatever happens to the others."""

from __future__ import annotations

from collections.abc import Callable, Container
from typing import Annotated, Any, Final, TypeVar

from msgspec import UNSET, Meta, UnsetType

from duetime.api.http.errors import DuplicateId
from duetime.api.http.problems import Problem, problem
from duetime.api.http.raw_json import RawObject
from duetime.api.http.responses import ResponseModel
from duetime.domain.errors import DuetimeError

MAX_BATCH_ITEMS: Final = 500

WantedT = TypeVar("WantedT")
ResultT = TypeVar("ResultT")
ItemT = TypeVar("ItemT")


class ItemResult(ResponseModel):
    id: Annotated[str | None, Meta(description="null when there is none")]
    status: Annotated[int, Meta(description="as of a request for this item alone; of a failure as in problem")]
    problem: Problem | UnsetType = UNSET


class BatchResponse(ResponseModel):
    """A result per item, in the order of the request."""

    items: list[ItemResult]


def each_item(
    found: list[Any],
    read: Callable[[RawObject], tuple[str | None, WantedT]],
    act: Callable[[list[WantedT]], list[ResultT | DuetimeError]],
    respond: Callable[[str | None, ResultT | DuetimeError], ItemT],
) -> list[ItemT]:
    """Return a response per item: of what ``act`` came to for those that can be read, and of the fault of each other.

    ``read`` gives the id of an item too, or another word that no two may share; None: there is none.
    """
    wanted: list[tuple[str | None, WantedT]] = []
    known: set[str] = set()
    faults: dict[int, DuetimeError] = {}
    for at, raw in enumerate(found):
        try:
            name, one = read(raw if isinstance(raw, RawObject) else RawObject({}, [("", "must be an object")]))
            if name is not None:
                refuse_duplicate(name, known)
                known.add(name)
            wanted.append((name, one))
        except DuetimeError as error:
            faults[at] = error
    names = [name for name, _ in wanted]
    done = iter(zip(names, act([one for _, one in wanted]), strict=True))
    return [
        respond(_given_id(raw), faults[at]) if at in faults else respond(*next(done)) for at, raw in enumerate(found)
    ]


def item_result(id: str | None, result: object, *, status: int = 200) -> ItemResult:  # noqa: A002
    """Make the result of an item. ``status`` is that of a success."""
    return ItemResult(id, *failed(result)) if isinstance(result, DuetimeError) else ItemResult(id, status)


def failed(error: DuetimeError) -> tuple[int, Problem]:
    described = problem(error)
    return described.status, described


def refuse_duplicate(name: str, known: Container[str]) -> None:
    if name in known:
        raise DuplicateId(f"{name!r} is in this batch already; the first one counts")


def _given_id(raw: object) -> str | None:
    given = raw.members.get("id") if isinstance(raw, RawObject) else None
    return given if isinstance(given, str) else None
