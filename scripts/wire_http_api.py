"""Give the HTTP APIs of a stack on ministack the routes that its CloudFormation leaves out.

ministack 1.5 makes the API and its stage, and ignores the OpenAPI body in which SAM describes routes, integrations
and authorization. This reads that body from the processed template and makes them with API Gateway's own API. A
second run, after a second deployment, replaces what the first one made. AWS itself needs none of this.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

_METHODS = ("get", "put", "post", "delete", "patch", "head", "options")

Client = Callable[[str], Any]
"""A boto3 client of the emulator, by the name of the service."""


@dataclass(frozen=True, slots=True)
class _Route:
    method: str
    path: str
    function: str
    """Its logical id."""
    authorizer: str | None
    """The name of its security scheme; None: it is for everyone."""


@dataclass(frozen=True, slots=True)
class _Authorizer:
    function: str
    """Its logical id."""
    identity_source: list[str]
    ttl_seconds: int


def wire_http_apis(client: Client, stack_name: str) -> dict[str, str]:
    """Make the routes of all HTTP APIs of the stack. The ids of the APIs, by logical id."""
    cloudformation = client("cloudformation")
    template = cloudformation.get_template(StackName=stack_name, TemplateStage="Processed")["TemplateBody"]
    if isinstance(template, str):
        template = json.loads(template)
    resources = cloudformation.describe_stack_resources(StackName=stack_name)["StackResources"]
    physical_ids = {resource["LogicalResourceId"]: resource["PhysicalResourceId"] for resource in resources}
    (stack,) = cloudformation.describe_stacks(StackName=stack_name)["Stacks"]
    parameters = {each["ParameterKey"]: each["ParameterValue"] for each in stack.get("Parameters", [])}
    defaults = {name: each.get("Default") for name, each in template.get("Parameters", {}).items()}
    wired = {}
    for logical_id, resource in template["Resources"].items():
        if resource["Type"] == "AWS::ApiGatewayV2::Api" and "Body" in resource["Properties"]:
            wired[logical_id] = physical_ids[logical_id]
            body = resource["Properties"]["Body"]
            authorizers = dict(_authorizers(body, defaults | parameters))
            _wire(client, physical_ids, physical_ids[logical_id], list(_routes(body, authorizers)), authorizers)
    return wired


def _wire(
    client: Client,
    physical_ids: dict[str, str],
    api_id: str,
    routes: list[_Route],
    authorizers: dict[str, _Authorizer],
) -> None:
    gateway, functions = client("apigatewayv2"), client("lambda")
    _remove_all(gateway, api_id)

    def arn_of(function: str) -> str:
        found = functions.get_function(FunctionName=physical_ids[function])
        arn: str = found["Configuration"]["FunctionArn"]
        return arn

    authorizer_ids = {
        name: gateway.create_authorizer(
            ApiId=api_id,
            Name=name,
            AuthorizerType="REQUEST",
            AuthorizerUri=f"arn:aws:apigateway:us-east-1:lambda:path/2015-03-31/functions/{arn_of(each.function)}"
            "/invocations",
            AuthorizerPayloadFormatVersion="2.0",
            EnableSimpleResponses=True,
            IdentitySource=each.identity_source,
            AuthorizerResultTtlInSeconds=each.ttl_seconds,
        )["AuthorizerId"]
        for name, each in authorizers.items()
    }
    integrations: dict[str, str] = {}
    for route in routes:
        if route.function not in integrations:
            integrations[route.function] = gateway.create_integration(
                ApiId=api_id,
                IntegrationType="AWS_PROXY",
                IntegrationMethod="POST",
                IntegrationUri=arn_of(route.function),
                PayloadFormatVersion="2.0",
            )["IntegrationId"]
        who = (
            {"AuthorizationType": "NONE"}
            if route.authorizer is None
            else {"AuthorizationType": "CUSTOM", "AuthorizerId": authorizer_ids[route.authorizer]}
        )
        gateway.create_route(
            ApiId=api_id,
            RouteKey=f"{route.method} {route.path}",
            Target=f"integrations/{integrations[route.function]}",
            **who,
        )


def _remove_all(gateway: Any, api_id: str) -> None:
    for route in gateway.get_routes(ApiId=api_id)["Items"]:
        gateway.delete_route(ApiId=api_id, RouteId=route["RouteId"])
    for integration in gateway.get_integrations(ApiId=api_id)["Items"]:
        gateway.delete_integration(ApiId=api_id, IntegrationId=integration["IntegrationId"])
    for authorizer in gateway.get_authorizers(ApiId=api_id)["Items"]:
        gateway.delete_authorizer(ApiId=api_id, AuthorizerId=authorizer["AuthorizerId"])


def _authorizers(body: dict[str, Any], parameters: dict[str, Any]) -> Iterator[tuple[str, _Authorizer]]:
    """The Lambda authorizers of ``body``. Raises ``ValueError`` for one of another kind than the template has."""
    for name, scheme in body.get("components", {}).get("securitySchemes", {}).items():
        about = scheme["x-amazon-apigateway-authorizer"]
        is_known = about["type"] == "request" and about["enableSimpleResponses"] is True
        if not is_known or about["authorizerPayloadFormatVersion"] != "2.0":
            raise ValueError(f"unknown kind of authorizer: {name}")
        _, values = about["authorizerUri"]["Fn::Sub"]
        (function,) = (each["Fn::GetAtt"][0] for each in values.values())
        ttl = about["authorizerResultTtlInSeconds"]
        seconds = parameters[ttl["Ref"]] if isinstance(ttl, dict) else ttl
        yield name, _Authorizer(function, about["identitySource"], int(seconds))


def _routes(body: dict[str, Any], authorizers: dict[str, _Authorizer]) -> Iterator[_Route]:
    for path, operations in body["paths"].items():
        for method in _METHODS:
            if operation := operations.get(method):
                yield _Route(
                    method=method.upper(),
                    path=path,
                    function=_function_of(operation["x-amazon-apigateway-integration"]["uri"]),
                    authorizer=_authorizer_of(operation, authorizers),
                )


def _function_of(uri: dict[str, str]) -> str:
    """The logical id in ``{"Fn::Sub": "arn:...:path/.../functions/${TimersApi.Arn}/invocations"}``."""
    return uri["Fn::Sub"].partition("/functions/${")[2].partition(".Arn}")[0]


def _authorizer_of(operation: dict[str, Any], authorizers: dict[str, _Authorizer]) -> str | None:
    """Raises ``ValueError`` for an unknown one, or none at all: no route must be open for want of knowing it."""
    names = [name for requirement in operation.get("security", []) for name in requirement]
    if names == ["NONE"]:
        return None
    if len(names) != 1 or names[0] not in authorizers:
        raise ValueError(f"unknown authorizer: {', '.join(sorted(names)) or 'not even NONE'}")
    return names[0]
