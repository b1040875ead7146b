"""The OpenAPI 3.1 document, generated from the routes, the request models and the response models."""

from __future__ import annotations

from collections.abc import Sequence
from http import HTTPStatus
from typing import Any

import msgspec
from pydantic.alias_generators import to_camel
from pydantic.json_schema import models_json_schema

from duetime import __version__
from duetime.api.http.idempotency import IDEMPOTENCY_KEY
from duetime.api.http.problems import PROBLEM_JSON, Problem
from duetime.api.http.request import JSON
from duetime.api.http.request_models import RequestModel
from duetime.api.http.responses import ResponseModel
from duetime.api.http.route import PARAMETER, PUBLIC, Route
from duetime.domain.tenants import TENANT_PATTERN

Json = dict[str, Any]
References = dict[str, Json]
"""References into the components, by the name of the model."""

_TAGS = ("timers", "service calls", "event webhooks", "namespaces", "API keys", "service")
_PATH_PARAMETERS: dict[str, Json] = {
    "namespace": {"schema": {"type": "string", "pattern": "^[a-z0-9][a-z0-9._-]{0,62}$"}},
    "timer_id": {
        "schema": {"type": "string", "minLength": 1},
        "description": "percent-encoded, or base64url: and the base64url of its UTF-8",
    },
    "tenant": {"schema": {"type": "string", "pattern": f"^{TENANT_PATTERN}$"}},
    "service_call_id": {"schema": {"type": "string", "format": "uuid"}},
    "execution_id": {"schema": {"type": "string", "format": "uuid"}},
}
"""Those that are more than a text."""
_TEXT: Json = {"schema": {"type": "string", "minLength": 1}}
_SCHEME = "apiKey"
_SECURITY_SCHEME: Json = {
    "type": "http",
    "scheme": "bearer",
    "bearerFormat": "dtk_...",
    "description": "An API key acts for one tenant. Its role must be the operation's x-duetime-role or more (reader,"
    " writer, admin). A server without --auth asks for no key.",
}
_REFERENCES = "#/components/schemas/{name}"


def openapi_document(routes: Sequence[Route]) -> Json:
    references, components = _schemas(routes)
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
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "tags": [{"name": name} for name in _TAGS],
        "paths": paths,
        "components": {"schemas": components, "securitySchemes": {_SCHEME: _SECURITY_SCHEME}},
    }


def _schemas(routes: Sequence[Route]) -> tuple[References, Json]:
    """References to all models in use, by the name of the model, and their definitions."""
    bodies: dict[type[RequestModel], None] = {}
    responses: dict[type[ResponseModel], None] = {Problem: None}
    for route in routes:
        responses |= dict.fromkeys(model for model in route.responses.values() if model is not None)
        if route.body is not None:
            bodies[route.body] = None
    of_bodies, whole = models_json_schema(
        [(model, "validation") for model in bodies], by_alias=True, ref_template=_REFERENCES.format(name="{model}")
    )
    of_responses, components = msgspec.json.schema_components(responses, ref_template=_REFERENCES)
    references = {model.__name__: reference for model, reference in zip(responses, of_responses, strict=True)}
    return references | {model.__name__: of_bodies[model, "validation"] for model in bodies}, (
        components | whole["$defs"]
    )


def _operation(route: Route, references: References) -> Json:
    described: Json = {
        "operationId": route.operation_id,
        "summary": route.summary,
        "tags": [route.tag],
        "parameters": _parameters(route),
        "responses": {},
    }
    if route.permission is not PUBLIC:
        described["security"] = [{_SCHEME: []}]
        described["x-duetime-role"] = route.permission.value
    if route.body is not None:
        content = {route.body_type: {"schema": references[route.body.__name__]}}
        described["requestBody"] = {"required": route.body_is_required, "content": content}
    for status, model in route.responses.items():
        response: Json = {"description": HTTPStatus(status).phrase}
        content = {} if model is None else {JSON: {"schema": references[model.__name__]}}
        if status in route.media_types:
            content[route.media_types[status]] = {}
        if content:
            response["content"] = content
        described["responses"][str(status)] = response
    problem = {PROBLEM_JSON: {"schema": references["Problem"]}}
    for status in route.problem_statuses:
        described["responses"][str(status)] = {"description": HTTPStatus(status).phrase, "content": problem}
    described["responses"]["default"] = {"description": "Any other problem", "content": problem}
    return described


def _parameters(route: Route) -> list[Json]:
    listed = [
        {"name": to_camel(name), "in": "path", "required": True} | _PATH_PARAMETERS.get(name, _TEXT)
        for name in route.parameters
    ]
    keys = (IDEMPOTENCY_KEY,) if route.is_keyed else ()
    headers = (*route.conditions, *keys, *route.headers)
    listed += [{"name": name, "in": "header", "schema": {"type": "string"}} for name in headers]
    if route.query is not None:
        schema = route.query.model_json_schema(by_alias=True, ref_template=_REFERENCES.format(name="{model}"))
        listed += [_query_parameter(name, _inlined(one, schema)) for name, one in schema["properties"].items()]
    return listed


def _query_parameter(name: str, schema: Json) -> Json:
    parameter: Json = {"name": name, "in": "query"}
    description = schema.pop("description", None)
    return parameter | ({"description": description} if description else {}) | {"schema": schema}


def _inlined(schema: Json, whole: Json) -> Json:
    """``schema`` without its null alternative (a parameter is given or not) and without references."""
    alternatives = [one for one in schema.get("anyOf", []) if one != {"type": "null"}]
    if len(alternatives) == 1:
        rest = {name: value for name, value in schema.items() if name not in ("anyOf", "default", "title")}
        schema = rest | alternatives[0]
    reference = schema.pop("$ref", None)
    if reference is not None:
        schema |= whole["$defs"][reference.rpartition("/")[2]]
    return schema
