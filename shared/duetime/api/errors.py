"""Errors that only HTTP knows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from duetime.domain.errors import DuetimeError, InvalidInput


@dataclass(frozen=True, slots=True)
class FieldError:
    """``field`` is the path of the value as the caller wrote it, e.g. ``tags[3]``; empty for the whole input."""

    field: str
    message: str


class InvalidFields(InvalidInput):
    """Several values of one request are not acceptable; ``errors`` has them all, the first one is ``field``."""

    def __init__(self, errors: Sequence[FieldError]) -> None:
        first = errors[0]
        super().__init__(first.field, first.message)
        self.errors = tuple(errors)


class RouteNotFound(DuetimeError):
    code = "route_not_found"


class MethodNotAllowed(DuetimeError):
    """The path exists, with other methods."""

    code = "method_not_allowed"

    def __init__(self, message: str, *, allowed: Sequence[str]) -> None:
        super().__init__(message)
        self.allowed = tuple(allowed)


class UnsupportedMediaType(DuetimeError):
    code = "unsupported_media_type"


class DuplicateId(DuetimeError):
    """A batch names one timer twice; the first one counts."""

    code = "duplicate_id"
