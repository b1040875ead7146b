"""Reads body and query string into request models, and names every fault."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime, timedelta
from typing import Any, Final, TypeVar
from urllib.parse import parse_qsl

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from duetime.api.http.batches import MAX_BATCH_ITEMS
from duetime.api.http.errors import FieldError, InvalidFields
from duetime.api.http.raw_json import RawObject, Shape, read_object
from duetime.api.http.request import Request
from duetime.api.http.request_models import PLAIN_SHAPE, NothingBody, RequestModel, TargetBody
from duetime.api.http.validation_messages import message_of
from duetime.delivery.egress import EgressPolicy, RefusedUrl
from duetime.domain.errors import InvalidInput
from duetime.domain.targets import is_arn
from duetime.domain.times import check_range, round_up

MAX_BODY_BYTES: Final = 1024 * 1024
"""Of every body but those of batches."""
MAX_BATCH_BYTES: Final = 4 * 1024 * 1024
"""Lambda takes 6 MiB of JSON in one invocation, in which the body is a string: each quote in it takes two bytes."""
_MAX_QUERY_PARAMETERS = 50
_TIMES = ("dueFrom", "dueTo", "failedFrom", "failedTo", "createdFrom", "createdTo", "scheduledAt")

ModelT = TypeVar("ModelT", bound=RequestModel)


def read_body(
    request: Request, shape: Shape, *, limit_bytes: int = MAX_BODY_BYTES, is_optional: bool = False
) -> RawObject:
    """Return the JSON object in the body. Raises ``InvalidInput`` when there is none or it is not JSON, and
    ``PayloadTooLarge``."""
    text = request.json_text(limit_bytes=limit_bytes)
    if not text and is_optional:
        return RawObject({}, [])
    if not text:
        raise InvalidInput("", "a JSON body is required")
    try:
        return read_object(text, shape)
    except ValueError as error:
        raise InvalidInput("", f"the body cannot be read as a JSON object: {error}") from None


def read_nothing(request: Request) -> None:
    """Check that the body is absent or ``{}``. Raises ``InvalidInput``."""
    validate(NothingBody, read_body(request, PLAIN_SHAPE, is_optional=True))


def read_items(request: Request, shape: Shape) -> list[Any]:
    """Return the items of a batch: the array that ``shape`` names, and nothing beside it."""
    return read_batch(request, shape)[0]


def read_batch(request: Request, shape: Shape, *beside: str) -> tuple[list[Any], RawObject]:
    """Return the items of a batch, the array that ``shape`` names, and the members ``beside`` it that were given."""
    found = read_body(request, shape, limit_bytes=MAX_BATCH_BYTES)
    name = shape.items or ""
    faults = [FieldError(*fault) for fault in found.faults]
    faults += [FieldError(other, "is not a known field") for other in found.members if other not in (name, *beside)]
    items = found.members.get(name)
    if not isinstance(items, list):
        faults.append(FieldError(name, "must be an array of objects"))
    elif len(items) > MAX_BATCH_ITEMS:
        faults.append(FieldError(name, f"must have at most {MAX_BATCH_ITEMS} items"))
    if faults:
        raise InvalidFields(faults)
    return list(items or []), RawObject({each: found.members[each] for each in beside if each in found.members}, [])


def read_query(model: type[ModelT], request: Request, *, lists: Collection[str] = ()) -> ModelT:
    """Return the query string as ``model``. Raises ``InvalidFields`` for unknown, repeated and malformed parameters.

    ``lists`` are the parameters that may be repeated: their value is the list of all that were given.
    """
    faults: list[tuple[str, str]] = []
    parameters: dict[str, Any] = {}
    try:
        pairs = parse_qsl(request.query, keep_blank_values=True, max_num_fields=_MAX_QUERY_PARAMETERS)
    except ValueError:
        raise InvalidInput("", f"there are more than {_MAX_QUERY_PARAMETERS} query parameters") from None
    for name, value in pairs:
        if name in lists:
            parameters.setdefault(name, []).append(value)
            continue
        if name in parameters:
            faults.append((name, "is given twice"))
        # The '+' of an offset, which clients forget to encode, reads as a space; a time never has one.
        parameters[name] = value.replace(" ", "+") if name in _TIMES else value
    return validate(model, RawObject(parameters, faults))


def validate(model: type[ModelT], found: RawObject) -> ModelT:
    """Return ``found`` as ``model``. Raises ``InvalidFields`` with everything that is wrong."""
    members, faults = _joined(found)
    if faults:
        raise InvalidFields([FieldError(name, message) for name, message in faults])
    try:
        return model.model_validate(members)
    except ValidationError as error:
        details = error.errors(include_url=False, include_input=False)
        raise InvalidFields([_field_error(detail) for detail in details]) from None


def _joined(found: RawObject) -> tuple[dict[str, Any], list[tuple[str, str]]]:
    """Return the members of ``found``, with those of the objects in it, and the faults of all of them."""
    if not found.objects:
        return found.members, found.faults
    members, faults = dict(found.members), list(found.faults)
    for name in found.objects:
        value = members[name]
        if isinstance(value, RawObject):  # else it is given twice, which is a fault
            members[name], inner = _joined(value)
            faults += [(f"{name}.{path}", message) for path, message in inner]
    return members, faults


def _field_error(detail: ErrorDetails) -> FieldError:
    path = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in detail["loc"]).lstrip(".")
    if detail["type"] == "duetime":
        return FieldError(path + detail["ctx"]["path"], detail["ctx"]["message"])
    return FieldError(path, message_of(detail))


def after(now: datetime, delay_seconds: float, field: str = "delay") -> datetime:
    """Return the due time that a delay leads to, never earlier than the delay by rounding."""
    try:
        return check_range(round_up(now + timedelta(seconds=delay_seconds)))
    except (OverflowError, ValueError):
        raise InvalidInput(field, "leads beyond the year 9999") from None


def read_destination(field: str, url: str | None, target: TargetBody | None) -> str | None:
    """Return what is stored of a URL, the member ``field``, or of the member ``target`` beside it: its ARN.

    Raises ``InvalidInput`` for both.
    """
    if target is None:
        return url
    if url is not None:
        raise InvalidInput(field, "cannot be given with target")
    return target.arn


def check_egress(field: str, url: str, egress: EgressPolicy, *, target: str = "target") -> None:
    """Refuse now what is wrong whenever it is sent. A name is judged by where it leads when it is sent.

    The ARN of a target is named by its own member, ``target`` beside ``field``.
    """
    try:
        egress.check(url)
    except RefusedUrl as error:
        if is_arn(url):
            field = f"{field.rpartition('.')[0]}.{target}.arn".lstrip(".")
        raise InvalidInput(field, str(error)) from None
