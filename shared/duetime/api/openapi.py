"""The OpenAPI 3.1 document, generated from the routes, the request models and the answer models."""

from __future__ import annotations

import re
from http import HTTPStatus
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import JsonSchemaMode, models_json_schema

from duetime import __version__
from duetime.api import answers, schemas
from duetime.api.auth import PUBLIC, TENANT_PARAMETER
from duetime.api.call_operations import CALL_OPERATIONS, TAG_CALLS
from duetime.api.call_routes import ALL_ROUTES
from duetime.api.http import JSON
from duetime.api.idempotency import IDEMPOTENCY_KEY, KEYED_METHODS
from duetime.api.operation import Operation
from duetime.api.problems import PROBLEM_JSON
from duetime.api.routes import Route
from duetime.api.webhook_operations import TAG_WEBHOOKS, WEBHOOK_OPERATIONS
from duetime.domain.tenants import TENANT_PATTERN

Json = dict[str, Any]
References = dict[str, Json]
"""References into the components, by the name of the model."""

_TAG_NAMESPACES, _TAG_TIMERS, _TAG_KEYS, _TAG_SERVICE = "namespaces", "timers", "API keys", "service"
_PARAMETER = re.compile(r"<(\w+)>")
_PARAMETER_NAMES = {
    "namespace": "namespace",
    "timer_id": "timerId",
    "secret_id": "secretId",
    "tenant": "tenant",
    "key_id": "keyId",
    "call_id": "serviceCallId",
    "execution_id": "executionId",
    "delivery_id": "deliveryId",
    "event_secret_id": "secretId",
    "file_name": "fileName",
}
_PATH_PARAMETERS: dict[str, Json] = {
    "namespace": {"schema": {"type": "string", "pattern": "^[a-z0-9][a-z0-9._-]{0,62}$"}},
    "timerId": {
        "schema": {"type": "string", "minLength": 1},
        "description": "percent-encoded, or base64url: and the base64url of its UTF-8",
    },
    "secretId": {"schema": {"type": "string", "minLength": 1}},
    "keyId": {"schema": {"type": "string", "minLength": 1}},
    "tenant": {"schema": {"type": "string", "pattern": f"^{TENANT_PATTERN}$"}},
    "serviceCallId": {"schema": {"type": "string", "format": "uuid"}},
    "executionId": {"schema": {"type": "string", "format": "uuid"}},
    "deliveryId": {"schema": {"type": "string", "minLength": 1}},
    "fileName": {"schema": {"type": "string", "minLength": 1}},
}
_SCHEME = "apiKey"
_SECURITY_SCHEME: Json = {
    "type": "http",
    "scheme": "bearer",
    "bearerFormat": "dtk_...",
    "description": "An API key acts for one tenant. Its role must be the operation's x-duetime-role or more (reader,"
    " writer, admin). A server without --auth asks for no key.",
}
_REFERENCES = "#/components/schemas/{model}"


_TIMER_STORED: dict[int, type[BaseModel] | None] = {200: answers.TimerAnswer, 201: answers.TimerAnswer}
_WRITE_PROBLEMS = (400, 404, 409, 413, 415, 507)

OPERATIONS: dict[str, Operation] = {
    "putNamespace": Operation(
        summary="Create a namespace, confirm it, or change its settings",
        tag=_TAG_NAMESPACES,
        body=schemas.NamespaceBody,
        body_is_required=False,
        answers={200: answers.NamespaceAnswer, 201: answers.NamespaceAnswer},
        problems=(400, 409, 412, 413, 415),
    ),
    "getNamespace": Operation(
        summary="Read a namespace",
        tag=_TAG_NAMESPACES,
        answers={200: answers.NamespaceAnswer, 304: None},
        problems=(400, 404),
    ),
    "deleteNamespace": Operation(
        summary="Delete a namespace, and with force its timers: a step at a time, until the answer is 200",
        tag=_TAG_NAMESPACES,
        query=schemas.DeleteNamespaceQuery,
        answers={200: answers.NamespaceDeletionAnswer, 202: answers.NamespaceDeletionAnswer},
        problems=(400, 404, 409, 412),
    ),
    "pauseNamespace": Operation(
        summary="Fire nothing of a namespace until it is resumed",
        tag=_TAG_NAMESPACES,
        body=schemas.PauseBody,
        body_is_required=False,
        answers={200: answers.NamespaceAnswer},
        problems=(400, 404, 409, 412, 413, 415),
    ),
    "resumeNamespace": Operation(
        summary="Fire the timers of a namespace again; late ones as its misfire says",
        tag=_TAG_NAMESPACES,
        answers={200: answers.NamespaceAnswer},
        problems=(400, 404, 409, 412, 413, 415),
    ),
    "createSecret": Operation(
        summary="Create a signing secret; the one before it stays valid for an overlap",
        tag=_TAG_NAMESPACES,
        body=schemas.SecretBody,
        body_is_required=False,
        answers={201: answers.CreatedSecretAnswer},
        problems=(400, 404, 409, 413, 415, 503),
    ),
    "listSecrets": Operation(
        summary="List the signing secrets that are valid",
        tag=_TAG_NAMESPACES,
        answers={200: answers.SecretPage},
        problems=(404,),
    ),
    "deleteSecret": Operation(
        summary="End a signing secret at once", tag=_TAG_NAMESPACES, answers={204: None}, problems=(404,)
    ),
    "listNamespaces": Operation(
        summary="List namespaces",
        tag=_TAG_NAMESPACES,
        query=schemas.PageQuery,
        answers={200: answers.NamespacePage},
        problems=(400,),
    ),
    "createTimer": Operation(
        summary="Create a timer",
        tag=_TAG_TIMERS,
        body=schemas.TimerBody,
        answers=_TIMER_STORED,
        problems=_WRITE_PROBLEMS,
    ),
    "listTimers": Operation(
        summary="List timers",
        tag=_TAG_TIMERS,
        query=schemas.TimerQuery,
        answers={200: answers.TimerPage},
        problems=(400, 404),
    ),
    "createTimers": Operation(
        summary="Create up to 500 timers, with a result for each",
        tag=_TAG_TIMERS,
        body=answers.TimerBatch,
        answers={200: answers.CreatedBatch},
        problems=(400, 404, 413, 415),
    ),
    "cancelTimers": Operation(
        summary="Cancel up to 500 timers, with a result for each",
        tag=_TAG_TIMERS,
        body=answers.CancelBatch,
        answers={200: answers.CancelledBatch},
        problems=(400, 404, 413, 415),
    ),
    "putTimer": Operation(
        summary="Create or replace a timer, even after it fired",
        tag=_TAG_TIMERS,
        body=schemas.TimerBody,
        answers=_TIMER_STORED,
        problems=(400, 404, 412, 413, 415, 507),
    ),
    "getTimer": Operation(
        summary="Read a timer",
        tag=_TAG_TIMERS,
        answers={200: answers.TimerAnswer, 304: None},
        problems=(400, 404),
    ),
    "patchTimer": Operation(
        summary="Change what is given of a timer that has not finished",
        tag=_TAG_TIMERS,
        body=schemas.TimerPatch,
        body_type="application/merge-patch+json",
        answers={200: answers.TimerAnswer},
        problems=(400, 404, 409, 412, 413, 415),
    ),
    "deleteTimer": Operation(
        summary="Cancel a timer",
        tag=_TAG_TIMERS,
        answers={200: answers.CancelAnswer},
        problems=(400, 404, 412),
    ),
    "redriveTimer": Operation(
        summary="Put a failed timer back to scheduled, due now",
        tag=_TAG_TIMERS,
        answers={200: answers.TimerAnswer},
        problems=(400, 404, 409, 412, 413, 415),
    ),
    "fireTimer": Operation(
        summary="Fire a waiting timer now",
        tag=_TAG_TIMERS,
        answers={200: answers.TimerAnswer},
        problems=(400, 404, 409, 412, 413, 415),
    ),
    "redriveTimers": Operation(
        summary="Redrive failed timers by filter, a page at a time, or by ids",
        tag=_TAG_TIMERS,
        body=schemas.RedriveBody,
        body_is_required=False,
        answers={200: answers.RedriveAnswer},
        problems=(400, 404, 413, 415),
    ),
    "listAttempts": Operation(
        summary="List the last attempts of a timer, oldest first",
        tag=_TAG_TIMERS,
        answers={200: answers.AttemptPage},
        problems=(400, 404),
    ),
    "createApiKey": Operation(
        summary="Create an API key of the tenant",
        tag=_TAG_KEYS,
        body=schemas.ApiKeyBody,
        answers={201: answers.CreatedKeyAnswer},
        problems=(400, 413, 415),
    ),
    "listApiKeys": Operation(
        summary="List the API keys of the tenant, without their secrets",
        tag=_TAG_KEYS,
        query=schemas.PageQuery,
        answers={200: answers.ApiKeyPage},
        problems=(400,),
    ),
    "deleteApiKey": Operation(summary="Delete an API key", tag=_TAG_KEYS, answers={204: None}, problems=(400, 404)),
    "getPrincipal": Operation(
        summary="Tell for which tenant and with which role the key acts",
        tag=_TAG_KEYS,
        answers={200: answers.PrincipalAnswer},
    ),
    "listShards": Operation(
        summary="List shards and who polls them",
        tag=_TAG_SERVICE,
        query=schemas.PageQuery,
        answers={200: answers.ShardPage},
        problems=(400,),
    ),
    "getHealth": Operation(
        summary="Is the service, with its store, ready?",
        tag=_TAG_SERVICE,
        answers={200: answers.HealthAnswer, 503: answers.HealthAnswer},
    ),
    "getOpenApi": Operation(summary="This document", tag=_TAG_SERVICE, answers={200: None}, answer_types={200: JSON}),
    "getDocs": Operation(
        summary="This document as a page", tag=_TAG_SERVICE, answers={200: None}, answer_types={200: "text/html"}
    ),
    "getRoot": Operation(summary="Leads to the console", tag=_TAG_SERVICE, answers={307: None}),
    "getConsole": Operation(
        summary="The web console",
        tag=_TAG_SERVICE,
        answers={200: None, 304: None},
        answer_types={200: "text/html"},
        problems=(400,),
    ),
    "getConsoleFile": Operation(
        summary="A file of the web console",
        tag=_TAG_SERVICE,
        answers={200: None, 304: None},
        answer_types={200: "*/*"},
        problems=(400, 404),
    ),
    **CALL_OPERATIONS,
    **WEBHOOK_OPERATIONS,
}


def openapi_document() -> Json:
    references, components = _schemas()
    paths: dict[str, Json] = {}
    for route in ALL_ROUTES:
        path = _PARAMETER.sub(lambda match: "{" + _PARAMETER_NAMES[match[1]] + "}", route.rule)
        paths.setdefault(path, {})[route.method.lower()] = _operation(route, references)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Duetime",
            "version": __version__,
            "description": "A durable timer service: call this URL with this payload at this time.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "tags": [
            {"name": name}
            for name in (_TAG_TIMERS, TAG_CALLS, TAG_WEBHOOKS, _TAG_NAMESPACES, _TAG_KEYS, _TAG_SERVICE)
        ],
        "paths": paths,
        "components": {"schemas": components, "securitySchemes": {_SCHEME: _SECURITY_SCHEME}},
    }


def _schemas() -> tuple[References, Json]:
    """References to all models in use, and their definitions."""
    used: dict[type[BaseModel], JsonSchemaMode] = {answers.Problem: "serialization"}
    for operation in OPERATIONS.values():
        used |= {model: "serialization" for model in operation.answers.values() if model is not None}
        if operation.body is not None:
            used[operation.body] = "validation"
    references, whole = models_json_schema(list(used.items()), by_alias=True, ref_template=_REFERENCES)
    return {model.__name__: references[model, mode] for model, mode in used.items()}, whole["$defs"]


def _operation(route: Route, references: References) -> Json:
    about = OPERATIONS[route.operation_id]
    described: Json = {
        "operationId": route.operation_id,
        "summary": about.summary,
        "tags": [about.tag],
        "parameters": _parameters(route, about),
        "responses": {},
    }
    if route.needs is not PUBLIC:
        described["security"] = [{_SCHEME: []}]
        described["x-duetime-role"] = route.needs.value
    if about.body is not None:
        content = {about.body_type: {"schema": references[about.body.__name__]}}
        described["requestBody"] = {"required": about.body_is_required, "content": content}
    for status, model in about.answers.items():
        answer: Json = {"description": HTTPStatus(status).phrase}
        content = {} if model is None else {JSON: {"schema": references[model.__name__]}}
        if status in about.answer_types:
            content[about.answer_types[status]] = {}
        if content:
            answer["content"] = content
        described["responses"][str(status)] = answer
    problem = {PROBLEM_JSON: {"schema": references["Problem"]}}
    for status in problems_of(route):
        described["responses"][str(status)] = {"description": HTTPStatus(status).phrase, "content": problem}
    described["responses"]["default"] = {"description": "Any other problem", "content": problem}
    return described


def problems_of(route: Route) -> tuple[int, ...]:
    """The statuses of the problems that a route answers with: its own, and those of every route like it."""
    # 400: a key in the query.
    needed = (400,) if route.needs is PUBLIC else (400, 401, 403)
    of_tenant = (404,) if f"<{TENANT_PARAMETER}>" in route.rule else ()
    # What is stored of the namespace may be unreadable.
    of_namespace = (409,) if "<namespace>" in route.rule or "/event-webhook" in route.rule else ()
    of_key = (409,) if route.method in KEYED_METHODS else ()
    return tuple(sorted({*OPERATIONS[route.operation_id].problems, *needed, *of_tenant, *of_namespace, *of_key}))


def _parameters(route: Route, about: Operation) -> list[Json]:
    names = [_PARAMETER_NAMES[name] for name in _PARAMETER.findall(route.rule)]
    listed = [{"name": name, "in": "path", "required": True} | _PATH_PARAMETERS[name] for name in names]
    keys = (IDEMPOTENCY_KEY,) if route.method in KEYED_METHODS else ()
    headers = (*route.conditions, *keys, *about.headers)
    listed += [{"name": name, "in": "header", "schema": {"type": "string"}} for name in headers]
    if about.query is not None:
        schema = about.query.model_json_schema(by_alias=True, ref_template=_REFERENCES)
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
