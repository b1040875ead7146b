"""What is sent and how its answer is read: the same for the client that blocks and the one that does not.

Every request is sent again after an answer was lost. What is neither a read nor a removal has an idempotency key, by
which the server carries it out once.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Any, Final, Generic, TypeVar
from urllib.parse import quote, urlencode

from duetime_client.decoding import decode
from duetime_client.errors import ApiError, InvalidArgument, UnexpectedAnswer, error_from
from duetime_client.models import AnswerArguments, Answered, Health, Principal
from duetime_client.values import (
    UNSET,
    RawJson,
    duration,
    instant,
    json_bytes,
    members,
    plain,
    query_pairs,
    read_json,
    without_nulls,
)

T = TypeVar("T")

JSON: Final = "application/json"
MERGE_PATCH: Final = "application/merge-patch+json"
TENANT: Final = "{tenant}"
"""In a path: the tenant, which the transport knows or asks for. What is encoded has no braces."""

_SAFE_PREFIX = "base64url:"
_SAFE_ID = re.compile(r"[A-Za-z0-9_~-][A-Za-z0-9._~-]*")


@dataclass(frozen=True, slots=True)
class Answer:
    """A whole answer. ``may_be_second``: an earlier try of its request may have been carried out."""

    status: int
    headers: Mapping[str, str]
    content: bytes = field(repr=False)
    may_be_second: bool = False

    def json(self) -> Any:
        """Read the body as JSON. Raises ``UnexpectedAnswer``."""
        try:
            return read_json(self.content)
        except ValueError as error:
            raise UnexpectedAnswer(f"an answer that is not JSON: {error}", status=self.status) from None

    def as_a(self, kind: type[T]) -> T:
        """Read the body as a ``kind``. Raises ``UnexpectedAnswer``."""
        return read_as(kind, self.json(), status=self.status)

    def error(self) -> ApiError | UnexpectedAnswer | None:
        """Return what the answer says if it is not good."""
        if 200 <= self.status < 300:
            return None
        if self.status < 400:
            return UnexpectedAnswer(f"HTTP {self.status}: the URL leads to something else", status=self.status)
        try:
            problem = read_json(self.content)
        except ValueError:
            problem = None
        return error_from(problem, status=self.status, retry_after=_retry_after(self.headers.get("retry-after")))


@dataclass(frozen=True, slots=True, kw_only=True)
class Request(Generic[T]):
    """``operation`` is the operationId of the OpenAPI document. ``path`` begins with ``/`` and is encoded.

    ``has_own_key``: its body has the idempotency key. ``gone``: what it came to when a repetition finds nothing,
    since it was carried out before. ``is_good``: whether what is an error as an answer to other requests is none
    here.
    """

    operation: str
    method: str
    path: str
    read: Callable[[Answer], T]
    query: Sequence[tuple[str, str]] = ()
    content: bytes | None = field(default=None, repr=False)
    headers: Mapping[str, str] = field(default_factory=dict)
    has_own_key: bool = False
    gone: Callable[[], T] | None = None
    is_good: Callable[[Answer], bool] = lambda _: False

    def target(self) -> str:
        return f"{self.path}?{urlencode(self.query)}" if self.query else self.path


def read_as(kind: type[T], value: Any, *, status: int) -> T:
    """Read ``value`` as a ``kind``. Raises ``UnexpectedAnswer``."""
    try:
        return decode(kind, value)
    except (ValueError, TypeError) as error:
        raise UnexpectedAnswer(f"an answer that is not understood: {kind.__name__}: {error}", status=status) from None


def reading(
    operation: str,
    path: str,
    kind: type[T],
    *,
    query: Sequence[tuple[str, str]] = (),
) -> Request[T]:
    """Return a GET of one object."""
    return Request(
        operation=operation,
        method="GET",
        path=path,
        query=query,
        read=lambda answer: answer.as_a(kind),
    )


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    items: tuple[T, ...]
    next_cursor: str | None


def listing(
    operation: str, path: str, kind: type[T], query: Sequence[tuple[str, str]], cursor: str | None
) -> Request[Page[T]]:
    """Return a GET of one page of a list."""

    def read(answer: Answer) -> Page[T]:
        page = answer.json()
        if not isinstance(page, dict) or not isinstance(page.get("items"), list):
            raise UnexpectedAnswer("no list", status=answer.status)
        items = tuple(read_as(kind, item, status=answer.status) for item in page["items"])
        return Page(items, page.get("nextCursor"))

    return Request(
        operation=operation,
        method="GET",
        path=path,
        query=[*query, *([] if cursor is None else [("cursor", cursor)])],
        read=read,
    )


def changing(
    operation: str,
    method: str,
    path: str,
    kind: type[T],
    body: Mapping[str, Any] | None = None,
    *,
    query: Sequence[tuple[str, str]] = (),
    if_revision: int | None = None,
    headers: Mapping[str, str] | None = None,
    content_type: str = JSON,
    has_own_key: bool = False,
) -> Request[T]:
    """Return a change that is answered with what it led to."""
    sent = dict(headers or {}) | revision_header(if_revision)
    if body is not None:
        sent["content-type"] = content_type
    return Request(
        operation=operation,
        method=method,
        path=path,
        query=query,
        content=None if body is None else json_bytes(dict(body)),
        headers=sent,
        read=lambda answer: answer.as_a(kind),
        has_own_key=has_own_key,
    )


_ANSWER: Final = {
    "attempt": ("attempt", plain),
    "within": ("within", duration),
    "message": ("message", plain),
    "retry": ("retry", plain),
}


def answering(
    operation: str,
    path: str,
    firing_id: str,
    answer: str,
    given: AnswerArguments,
    *,
    scheduled_at: datetime | None = None,
) -> Request[Answered]:
    """Return an answer to a firing that waits of the timer or schedule at ``path``."""
    body = members(_ANSWER, given)
    at = None if scheduled_at is None else instant("scheduled_at", scheduled_at)
    query = {"attempt": body.pop("attempt", None), "scheduledAt": at}
    return changing(
        operation,
        "POST",
        f"{path}/firings/{segment('firing_id', firing_id)}/{segment('answer', answer)}",
        Answered,
        without_nulls(body),
        query=query_pairs(without_nulls(query)),
    )


def removing(operation: str, path: str, *, if_revision: int | None = None) -> Request[None]:
    """Return a DELETE that says nothing more. It can be repeated: what is gone by then is gone."""
    return Request(
        operation=operation,
        method="DELETE",
        path=path,
        headers=revision_header(if_revision),
        read=lambda _: None,
        gone=lambda: None,
    )


def health_request() -> Request[Health]:
    """Ask for the health. A 503 with it is an answer too."""
    return Request(
        operation="getHealth",
        method="GET",
        path="/health",
        read=lambda answer: answer.as_a(Health),
        is_good=lambda answer: answer.status == 503 and b'"store"' in answer.content,
    )


def principal_request() -> Request[Principal]:
    return Request(
        operation="getPrincipal",
        method="GET",
        path="/v1/principal",
        read=lambda answer: answer.as_a(Principal),
    )


def openapi_request() -> Request[dict[str, Any]]:
    def read(answer: Answer) -> dict[str, Any]:
        document = answer.json()
        if not isinstance(document, dict):
            raise UnexpectedAnswer("no document", status=answer.status)
        return document

    return Request(operation="getOpenApi", method="GET", path="/v1/openapi.json", read=read)


def any_request(
    method: str, path: str, *, query: Sequence[tuple[str, str]], body: Any, headers: Mapping[str, str] | None
) -> Request[Answer]:
    """Return a request whose answer is left as it came."""
    content = None if body is UNSET else json_bytes(body)
    members = json.loads(body.text, parse_int=str) if isinstance(body, RawJson) else body
    return Request(
        operation=f"{method} {path}",
        method=method,
        path=path,
        query=query,
        content=content,
        has_own_key=isinstance(members, Mapping) and members.get("idempotencyKey") is not None,
        headers=({} if content is None else {"content-type": JSON}) | dict(headers or {}),
        read=lambda answer: answer,
        gone=(lambda: Answer(204, {}, b"")) if method == "DELETE" else None,
    )


def revision_header(revision: int | None) -> dict[str, str]:
    return {} if revision is None else {"if-match": f'"{revision}"'}


def segment(name: str, value: str) -> str:
    """Return a segment of a path. ``name`` is that of the argument."""
    if not isinstance(value, str) or value in ("", ".", ".."):
        raise InvalidArgument(f'{name}: must be a text, and neither empty nor "." or ".."')
    return quote(value, safe="", errors="replace")


def id_segment(name: str, value: str) -> str:
    """Return the id of a timer or a schedule, in the spelling that arrives through every gateway unless it does as it
    is."""
    if not isinstance(value, str) or not value:
        raise InvalidArgument(f"{name}: must be a text, and not empty")
    if _SAFE_ID.fullmatch(value):
        return value
    encoded = value.encode(errors="surrogatepass")
    return _SAFE_PREFIX + base64.urlsafe_b64encode(encoded).rstrip(b"=").decode()


def split(items: Sequence[bytes], *, max_items: int, max_bytes: int) -> Iterator[tuple[int, int]]:
    """Return where to cut a batch: (from, to) of each request. An item that is larger goes alone, to be refused."""
    start = size = 0
    for at, item in enumerate(items):
        if at > start and (at - start == max_items or size + len(item) > max_bytes):
            yield start, at
            start, size = at, 0
        size += len(item)
    if items:
        yield start, len(items)


def _retry_after(text: str | None) -> timedelta | None:
    """Read seconds, or a date of HTTP."""
    if not text:
        return None
    try:
        if text.isascii() and text.isdigit():
            return timedelta(seconds=int(text))
        return max(timedelta(), parsedate_to_datetime(text).astimezone(UTC) - datetime.now(UTC))
    except (ValueError, OverflowError):
        return None
