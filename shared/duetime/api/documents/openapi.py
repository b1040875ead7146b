"""The OpenAPI 3.1 document, generated from the routes, the request models and the response models."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from http import HTTPStatus
from typing import Any, Final

from pydantic.alias_generators import to_camel

from duetime import __version__
from duetime.api.documents.parameters import RESPONSE_HEADERS, parameters_of, response_headers
from duetime.api.documents.schemas import References, schemas_of
from duetime.api.documents.webhooks import WEBHOOK_BODIES, WEBHOOK_RESPONSES, webhooks
from duetime.api.http.problems import PROBLEM_JSON, Problem
from duetime.api.http.request import JSON
from duetime.api.http.request_models import RequestModel
from duetime.api.http.responses import ResponseModel
from duetime.api.http.route import PARAMETER, PUBLIC, Route

Json = dict[str, Any]

_TAGS: Final = {
    "timers": "A callback with a payload, at a time.",
    "service calls": "An HTTP request of a tenant at a time, with a status, a log of its executions and events.",
    "event webhooks": "Where the events of a tenant's service calls are delivered to.",
    "schedules": "Times that recur, by cron expressions, intervals and rules, in a time zone.",
    "namespaces": "Sets of timers, with limits, a retry policy and signing secrets of their own.",
    "API keys": "Who may do what for a tenant.",
    "service": "The service itself: health, shards, this document, the web console.",
}
_TAG_OF_PART: Final = {
    "event-webhook": "event webhooks",
    "service-calls": "service calls",
    "timers": "timers",
    "redrive": "timers",
    "schedules": "schedules",
    "calendars": "schedules",
    "namespaces": "namespaces",
    "api-keys": "API keys",
    "principal": "API keys",
}
"""By a part of the path; the first that a path has counts."""
_SCHEME: Final = "apiKey"
_SECURITY_SCHEME: Final[Json] = {
    "type": "http",
    "scheme": "bearer",
    "bearerFormat": "dtk_...",
    "description": "An API key acts for one tenant. Its role must be the operation's x-duetime-role or more (reader,"
    " writer, admin). A server without --auth asks for no key.",
}


def openapi_document(routes: Sequence[Route]) -> Json:
    references, components = schemas_of(*_models(routes))
    paths: dict[str, Json] = {}
    for route in routes:
        path = PARAMETER.sub(lambda match: "{" + to_camel(match[1]) + "}", route.path)
        paths.setdefault(path, {})[route.method.lower()] = _operation(route, references)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Duetime",
            "version": __version__,
            "description": "A durable timer service: call this URL with this payload at this time.",
            "contact": {"name": "The maintainers of Duetime"},
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/", "description": "the server that this document is from"}],
        "tags": [{"name": name, "description": description} for name, description in _TAGS.items()],
        "paths": paths,
        "webhooks": webhooks(references),
        "components": {
            "schemas": components,
            "headers": RESPONSE_HEADERS,
            "securitySchemes": {_SCHEME: _SECURITY_SCHEME},
        },
    }


def _models(routes: Sequence[Route]) -> tuple[list[type[RequestModel]], list[type[ResponseModel]]]:
    """Return all models in use: what is sent to the service, and what it sends."""
    requests: dict[type[RequestModel], None] = dict.fromkeys(WEBHOOK_RESPONSES)
    responses: dict[type[ResponseModel], None] = dict.fromkeys((Problem, *WEBHOOK_BODIES))
    for route in routes:
        responses |= dict.fromkeys(model for model in route.responses.values() if model is not None)
        if route.body is not None:
            requests[route.body] = None
    return list(requests), list(responses)


def _operation(route: Route, references: References) -> Json:
    described: Json = {
        "operationId": route.operation_id,
        "summary": route.summary,
        "description": _description(route),
        "tags": [_tag(route)],
        "parameters": parameters_of(route),
        "responses": _responses(route, references),
    }
    if route.permission is not PUBLIC:
        described["security"] = [{_SCHEME: []}, *([{}] if route.takes_signature else [])]
        described["x-duetime-role"] = route.permission.value
    if route.body is not None:
        content = {route.body_type: {"schema": references[route.body.__name__]}}
        described["requestBody"] = {"required": route.body_is_required, "content": content}
    return described


def _tag(route: Route) -> str:
    parts = route.path.split("/")
    return next((tag for part, tag in _TAG_OF_PART.items() if part in parts), "service")


def _description(route: Route) -> str:
    """Return the docstring of the endpoint."""
    return (inspect.getdoc(route.endpoint) or route.summary).replace("``", "`")


def _responses(route: Route, references: References) -> Json:
    responses: Json = {}
    for status, model in route.responses.items():
        content: Json = {} if model is None else {JSON: {"schema": references[model.__name__]}}
        if status in route.media_types:
            media_type = route.media_types[status]
            content[media_type] = {"schema": {"type": "object" if media_type == JSON else "string"}}
        has_revision = model is not None and "revision" in model.__struct_fields__
        responses[str(status)] = {
            "description": HTTPStatus(status).phrase,
            "headers": response_headers(route, status, has_revision=has_revision),
        } | ({"content": content} if content else {})
    problem = {PROBLEM_JSON: {"schema": references["Problem"]}}
    for status in route.problem_statuses:
        headers = response_headers(route, status, has_revision=False)
        responses[str(status)] = {"description": HTTPStatus(status).phrase, "headers": headers, "content": problem}
    responses["default"] = {"description": "Any other problem", "content": problem}
    return responses
