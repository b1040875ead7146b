"""Give the HTTP APIs of a stack on ministack the routes that its CloudFormation leaves out.

ministack 1.5 makes the API and its stage, and ignores the OpenAPI body in which SAM describes its routes. This reads
that body from the processed template and makes them with API Gateway's own API. A second run, after a second
deployment, replaces what the first one made. AWS itself needs none of this.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

_ANY = "x-amazon-apigateway-any-method"

Client = Callable[[str], Any]
"""A boto3 client of the emulator, by the name of the service."""


@dataclass(frozen=True, slots=True)
class _Route:
    key: str
    """Like ``ANY /path``, or ``$default``."""
    function: str
    """Its logical id."""


def wire_http_apis(client: Client, stack_name: str) -> dict[str, str]:
    """Make the routes of all HTTP APIs of the stack. The ids of the APIs, by logical id."""
    cloudformation = client("cloudformation")
    template = cloudformation.get_template(StackName=stack_name, TemplateStage="Processed")["TemplateBody"]
    if isinstance(template, str):
        template = json.loads(template)
    resources = cloudformation.describe_stack_resources(StackName=stack_name)["StackResources"]
    physical_ids = {resource["LogicalResourceId"]: resource["PhysicalResourceId"] for resource in resources}
    wired = {}
    for logical_id, resource in template["Resources"].items():
        if resource["Type"] == "AWS::ApiGatewayV2::Api" and "Body" in resource["Properties"]:
            wired[logical_id] = physical_ids[logical_id]
            _wire(client, physical_ids, physical_ids[logical_id], _routes(resource["Properties"]["Body"]))
    return wired


def _wire(client: Client, physical_ids: dict[str, str], api_id: str, routes: Iterable[_Route]) -> None:
    gateway, functions = client("apigatewayv2"), client("lambda")
    _remove_all(gateway, api_id)
    integrations: dict[str, str] = {}
    for route in routes:
        if route.function not in integrations:
            found = functions.get_function(FunctionName=physical_ids[route.function])
            integrations[route.function] = gateway.create_integration(
                ApiId=api_id,
                IntegrationType="AWS_PROXY",
                IntegrationMethod="POST",
                IntegrationUri=found["Configuration"]["FunctionArn"],
                PayloadFormatVersion="2.0",
            )["IntegrationId"]
        gateway.create_route(ApiId=api_id, RouteKey=route.key, Target=f"integrations/{integrations[route.function]}")


def _remove_all(gateway: Any, api_id: str) -> None:
    for route in gateway.get_routes(ApiId=api_id)["Items"]:
        gateway.delete_route(ApiId=api_id, RouteId=route["RouteId"])
    for integration in gateway.get_integrations(ApiId=api_id)["Items"]:
        gateway.delete_integration(ApiId=api_id, IntegrationId=integration["IntegrationId"])


def _routes(body: dict[str, Any]) -> Iterator[_Route]:
    """Yield the routes. Raises ``ValueError`` for a route of another kind than the template has: it must not be left
    out unseen.
    """
    for path, operations in body["paths"].items():
        if operations.keys() != {_ANY} or "security" in operations[_ANY]:
            raise ValueError(f"unknown kind of route: {path}")
        key = path if path == "$default" else f"ANY {path}"
        yield _Route(key, _function_of(operations[_ANY]["x-amazon-apigateway-integration"]["uri"]))


def _function_of(uri: dict[str, str]) -> str:
    """Return the logical id in ``{"Fn::Sub": "arn:...:path/.../functions/${TimersApi.Arn}/invocations"}``."""
    return uri["Fn::Sub"].partition("/functions/${")[2].partition(".Arn}")[0]
