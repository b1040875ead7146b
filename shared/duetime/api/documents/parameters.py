"""Parameters and headers of the document: those of paths, of conditional and repeated requests, and of responses."""

from __future__ import annotations

from typing import Any, Final

from pydantic.alias_generators import to_camel

from duetime.api.calendars.requests import CALENDAR_NAME_SCHEMA
from duetime.api.documents.glossary import GLOSSARY
from duetime.api.documents.schemas import REFERENCE, parameter_schema
from duetime.api.http.idempotency import IDEMPOTENCY_KEY, REPLAYED
from duetime.api.http.preconditions import IF_MATCH, IF_NONE_MATCH
from duetime.api.http.route import Route
from duetime.api.http.validators import HEADER_TEXT_PATTERN
from duetime.api.schedules.requests import SCHEDULE_ID_SCHEMA
from duetime.api.timers.requests import TIMER_ID_SCHEMA
from duetime.domain.answers import AnswerKind
from duetime.domain.ids import NAMESPACE_PATTERN
from duetime.domain.tenants import TENANT_PATTERN

Json = dict[str, Any]

_UUID: Json = {"type": "string", "format": "uuid"}
_SPELLING: Final = "percent-encoded; or base64url: and the base64url of its UTF-8"
_TEXT: Json = {"type": "string", "minLength": 1}
_PATH_SCHEMAS: Final[dict[str, Json]] = {
    "namespace": {"type": "string", "pattern": f"^{NAMESPACE_PATTERN}$"},
    "timerId": {**TIMER_ID_SCHEMA, "description": f"the id of a timer, {_SPELLING}"},
    "scheduleId": {**SCHEDULE_ID_SCHEMA, "description": f"the id of a schedule, {_SPELLING}"},
    "tenant": {"type": "string", "pattern": f"^{TENANT_PATTERN}$"},
    "serviceCallId": _UUID,
    "executionId": _UUID,
    "answer": {"type": "string", "enum": list(AnswerKind)},
    "calendar": CALENDAR_NAME_SCHEMA,
}
_ENTITY_TAGS = r'^(?:\*|(?:W/)?"[!#-~]*"(?:, (?:W/)?"[!#-~]*")*)$'
_HEADERS: Final[dict[str, tuple[str, Json]]] = {
    IF_MATCH: (
        "the request is carried out only if the ETag is one of these; * for any",
        {"type": "string", "pattern": _ENTITY_TAGS, "examples": ['"3"']},
    ),
    IF_NONE_MATCH: (
        "the request is carried out only if the ETag is none of these; * for any",
        {"type": "string", "pattern": _ENTITY_TAGS, "examples": ['"3"']},
    ),
    IDEMPOTENCY_KEY: (
        "makes it safe to send the request again: within a day the same key and request get the first response",
        {"type": "string", "pattern": HEADER_TEXT_PATTERN, "examples": ["invoice-4711-2026-11"]},
    ),
    "X-Correlation-Id": (
        "the correlation id, when the body has none and this is not empty",
        {"type": "string", "pattern": f"^$|{HEADER_TEXT_PATTERN}", "examples": ["order-4711"]},
    ),
    "Last-Event-ID": (
        "the sequence of the last event that was received; counts for the parameter after, unless it is empty",
        {"type": "string", "pattern": "^[0-9]{0,15}$", "examples": ["9"]},
    ),
}
_CREATE_ONLY: Final = (
    "the request is carried out only if there is nothing yet; not together with If-Match",
    {"type": "string", "enum": ["*"]},
)

_ETAG, _LOCATION, _RETRY_AFTER = "ETag", "Location", "Retry-After"
_AUTHENTICATE, _REQUEST_ID = "WWW-Authenticate", "X-Request-Id"
RESPONSE_HEADERS: Final[dict[str, Json]] = {
    _ETAG: {
        "description": "the revision in quotes, for If-Match and If-None-Match",
        "schema": {"type": "string", "examples": ['"3"']},
    },
    _LOCATION: {
        "description": "the path of what the response is about",
        "schema": {"type": "string", "format": "uri-reference"},
    },
    _RETRY_AFTER: {
        "description": "seconds after which the request may succeed",
        "schema": {"type": "string", "pattern": "^[0-9]+$", "examples": ["5"]},
    },
    _AUTHENTICATE: {
        "description": "how to authenticate (RFC 6750)",
        "schema": {"type": "string", "examples": ['Bearer realm="duetime"']},
    },
    REPLAYED: {
        "description": "true: the response was given before, to a request with the same idempotency key",
        "schema": {"type": "string", "enum": ["true"]},
    },
    _REQUEST_ID: {
        "description": "names the request in the log: the one that it came with, or a new one",
        "schema": {"type": "string", "examples": ["0193e5a1-7c00-7abc-8def-0123456789ab"]},
    },
}


def parameters_of(route: Route) -> list[Json]:
    listed = [_path_parameter(to_camel(name)) for name in route.parameters]
    keys = (IDEMPOTENCY_KEY,) if route.is_keyed else ()
    for name in (*route.conditions, *keys, *route.headers):
        description, schema = _CREATE_ONLY if (route.method, name) == ("PUT", IF_NONE_MATCH) else _HEADERS[name]
        listed.append({"name": name, "in": "header", "description": description, "schema": schema})
    if route.query is not None:
        whole = route.query.model_json_schema(by_alias=True, ref_template=REFERENCE.format(name="{model}"))
        for name, given in whole["properties"].items():
            schema = parameter_schema(name, given, whole.get("$defs", {}))
            listed.append({"name": name, "in": "query", "description": schema.pop("description"), "schema": schema})
    return listed


def _path_parameter(name: str) -> Json:
    schema = dict(_PATH_SCHEMAS.get(name, _TEXT))
    description, example = GLOSSARY[name]
    description = schema.pop("description", description)
    schema["examples"] = [example]
    return {"name": name, "in": "path", "required": True, "description": description, "schema": schema}


def response_headers(route: Route, status: int, *, has_revision: bool) -> Json:
    """Return references to the headers of a response. ``has_revision``: its body is of a resource with an ETag."""
    names = [_REQUEST_ID]
    if has_revision or status == 304:
        names.append(_ETAG)
    if status in (307, *((201, 202) if has_revision else ())):
        names.append(_LOCATION)
    if status == 401:
        names.append(_AUTHENTICATE)
    if status in (409, 429, 503):
        names.append(_RETRY_AFTER)
    if route.is_keyed and status < 300:
        names.append(REPLAYED)
    return {name: {"$ref": f"#/components/headers/{name}"} for name in names}
