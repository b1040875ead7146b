"""Answers to firings that wait: the receiver took the work (a 202), and says what came of it.

By a signed URL (``delivery.firing_urls``), which needs no API key, or with a key.
"""

from __future__ import annotations

import hmac
from dataclasses import replace
from datetime import datetime
from typing import Annotated, Final

from msgspec import Meta
from pydantic import AfterValidator, Field, PlainValidator, WithJsonSchema

from duetime.api.context import Services
from duetime.api.http import validators
from duetime.api.http.authentication import has_signature
from duetime.api.http.errors import FieldError, InvalidFields, RouteNotFound, Unauthenticated
from duetime.api.http.parsing import read_body, read_query, validate
from duetime.api.http.request import Reply, Request
from duetime.api.http.request_models import PLAIN_SHAPE, Instant, RequestModel, duration_schema, text_schema
from duetime.api.http.responses import Instant as ShownInstant
from duetime.api.http.responses import ResponseModel, instant, json_reply
from duetime.api.http.route import Route
from duetime.api.http.router import read_id
from duetime.api.schedules.endpoints import schedule_address
from duetime.api.timers.endpoints import timer_address
from duetime.delivery.firing_urls import firing_signature, signed_life
from duetime.domain import ids
from duetime.domain.answers import (
    LONGEST_WAIT,
    MAX_MESSAGE_CHARACTERS,
    Answer,
    AnswerKind,
    logged_attempt,
    waiting_attempt,
)
from duetime.domain.attempts import AttemptOutcome
from duetime.domain.namespaces import Namespace
from duetime.domain.principals import Role
from duetime.domain.retry import MAX_ATTEMPTS
from duetime.domain.timers import TimerState
from duetime.domain.times import read_seconds

_LONGEST_SECONDS: Final = LONGEST_WAIT.total_seconds()


def _within_seconds(value: object) -> float:
    seconds = read_seconds(value)  # type: ignore[arg-type]  # it refuses what is neither text nor number
    if not 0 < seconds <= _LONGEST_SECONDS:
        raise ValueError(f"must be more than 0 and at most {_LONGEST_SECONDS / 3600:g} hours")
    return seconds


class AnswerQuery(RequestModel):
    attempt: (
        Annotated[
            int,
            PlainValidator(validators.whole_number(1, MAX_ATTEMPTS)),
            WithJsonSchema({"type": "integer", "minimum": 1, "maximum": MAX_ATTEMPTS}),
        ]
        | None
    ) = Field(default=None, description="the attempt that is answered for; without it, the present one")
    signature: str | None = Field(
        default=None, max_length=128, description="as it is in ackUrl: in the place of an API key"
    )


class OccurrenceAnswerQuery(AnswerQuery):
    scheduled_at: Instant = Field(description="of the occurrence, as in its callback")


class AnswerBody(RequestModel):
    """``within`` is needed with a heartbeat; ``message`` and ``retry`` go with a nack. An ack has no body."""

    within: (
        Annotated[
            float,
            PlainValidator(_within_seconds),
            WithJsonSchema(duration_schema(least_seconds=0.001, most_seconds=_LONGEST_SECONDS)),
        ]
        | None
    ) = Field(default=None, description="until the next answer, from now; 24 hours from the start at most")
    message: (
        Annotated[
            str,
            AfterValidator(lambda value: validators.text(value, MAX_MESSAGE_CHARACTERS)),
            WithJsonSchema(text_schema(MAX_MESSAGE_CHARACTERS) | {"examples": ["the render farm is full"]}),
        ]
        | None
    ) = Field(default=None, description="why it failed: the body of the attempt in the log")
    retry: bool | None = Field(default=None, description="false: the timer fails, whatever its retry policy says")


_NEEDED: Final = {AnswerKind.ACK: (), AnswerKind.NACK: ("message", "retry"), AnswerKind.HEARTBEAT: ("within",)}


class AnswerResponse(ResponseModel):
    """What is stored of the attempt now."""

    firing_id: str
    attempt: Annotated[int, Meta(ge=1, description="the attempt that is answered for")]
    outcome: Annotated[AttemptOutcome, Meta(description="Retry: once more, as far as the retry policy allows")]
    answer_by: ShownInstant | None


def _route(path: str, query: type[AnswerQuery], summary: str) -> Route:
    return Route(
        "POST",
        f"/v1/namespaces/<namespace>/{path}/firings/<firing_id>/<answer>",
        Role.WRITER,
        summary=summary,
        query=query,
        body=AnswerBody,
        body_is_required=False,
        responses={200: AnswerResponse},
        problems=(507,),
        takes_signature=True,
    )


@_route("timers/<timer_id>", AnswerQuery, "Say what came of work that a receiver took with a 202")
def answer_timer(
    services: Services, request: Request, *, namespace: str, timer_id: str, firing_id: str, answer: str
) -> Reply:
    """Answer for a firing whose receiver responded 202 with `ack`: it is done, it failed, or it goes on.

    The same answer again changes nothing. A 409 `firing_not_waiting` may come before the 202 is recorded, which takes
    a moment: send it again after that.
    """
    query = read_query(AnswerQuery, request)
    life = _signed_life(services, request, query, (namespace, "timers", read_id(timer_id), firing_id))
    space, timer_id = timer_address(services, request, namespace, timer_id)
    given = _read_answer(request, query, firing_id, answer)
    return _answered(services, space, [timer_id], replace(given, life=life))


@_route(
    "schedules/<schedule_id>",
    OccurrenceAnswerQuery,
    "Say what came of an occurrence whose receiver took it with a 202",
)
def answer_occurrence(
    services: Services, request: Request, *, namespace: str, schedule_id: str, firing_id: str, answer: str
) -> Reply:
    """Answer for an occurrence whose receiver responded 202 with `ack`: it is done, it failed, or it goes on."""
    query = read_query(OccurrenceAnswerQuery, request)
    life = _signed_life(services, request, query, (namespace, "schedules", read_id(schedule_id), firing_id))
    space, schedule_id = schedule_address(services, request, namespace, schedule_id)
    timer_ids, given = _timers_of(schedule_id, query.scheduled_at), _read_answer(request, query, firing_id, answer)
    return _answered(services, space, timer_ids, replace(given, life=life))


def _timers_of(schedule_id: str, scheduled_at: datetime) -> list[str]:
    """Return what an occurrence may be: a timer of its own, fired by hand, of a backfill, or still the schedule."""
    return [
        ids.occurrence_timer_id(schedule_id, scheduled_at),
        ids.trigger_timer_id(schedule_id, scheduled_at),
        ids.backfill_timer_id(schedule_id, scheduled_at),
        ids.schedule_timer_id(schedule_id),
    ]


def _signed_life(
    services: Services, request: Request, query: AnswerQuery, names: tuple[str, str, str, str]
) -> str | None:
    """Return what a signature says of the attempt's ``life``; None without one: there was a key.

    Raises ``Unauthenticated`` for a signature that is none of this attempt.
    """
    if not has_signature(request):
        return None
    signature = query.signature or ""
    life = signed_life(signature)
    expected = firing_signature(services.firing_key(), names, query.attempt or 0, life)
    if not hmac.compare_digest(signature.encode(errors="replace"), expected.encode(errors="replace")):
        raise Unauthenticated("the signature is not one of this attempt", was_given=True)
    return life


def _read_answer(request: Request, query: AnswerQuery, firing_id: str, answer: str) -> Answer:
    if answer not in list(AnswerKind):
        raise RouteNotFound(f"an answer is one of {', '.join(AnswerKind)}")
    kind = AnswerKind(answer)
    body = validate(AnswerBody, read_body(request, PLAIN_SHAPE, is_optional=True))
    faults = [
        FieldError(name, f"does not go with {kind}")
        for name in AnswerBody.model_fields
        if getattr(body, name) is not None and name not in _NEEDED[kind]
    ]
    if kind is AnswerKind.HEARTBEAT and body.within is None:
        faults.append(FieldError("within", "is needed"))
    if faults:
        raise InvalidFields(faults)
    return Answer(
        kind=kind,
        firing_id=firing_id,
        attempt=query.attempt,
        message=body.message,
        is_final=body.retry is False,
        within_seconds=body.within or 0.0,
    )


def _answered(services: Services, space: Namespace, timer_ids: list[str], answer: Answer) -> Reply:
    timer = services.timers.answer(space, timer_ids, answer, now=services.context.clock.now())
    attempt = logged_attempt(timer, answer.attempt) or waiting_attempt(timer)
    is_awaited = timer.state is TimerState.WAITING and attempt.outcome is AttemptOutcome.WAITING
    response = AnswerResponse(
        firing_id=answer.firing_id,
        attempt=attempt.number,
        outcome=attempt.outcome,
        answer_by=instant(timer.next_attempt_at) if is_awaited else None,
    )
    return json_reply(200, response)
