"""What the OpenAPI document says of a route."""

from __future__ import annotations

from dataclasses import dataclass, field

from pydantic import BaseModel

from duetime.api.http import JSON


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """``answers`` maps a status to a model; None is an answer without a body. ``answer_types`` are media types of
    answers that have no model, or another form beside the one of the model.
    """

    summary: str
    tag: str
    answers: dict[int, type[BaseModel] | None]
    problems: tuple[int, ...] = ()
    body: type[BaseModel] | None = None
    body_is_required: bool = True
    body_type: str = JSON
    query: type[BaseModel] | None = None
    headers: tuple[str, ...] = ()
    answer_types: dict[int, str] = field(default_factory=dict)
