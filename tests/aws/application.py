"""The application as the template has it, and its built functions with a table of the emulator."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from duetime.domain.api_keys import SECRET_BYTES, ApiKey, hash_of, key_text, new_secret
from duetime.domain.call_steps import Transition
from duetime.domain.principals import Role
from duetime.domain.service_calls import ServiceCall
from duetime.runtime.clock import SystemClock
from duetime.stores.backends.dynamodb.url import default_calls_table_name
from duetime.stores.core.store import Store
from duetime.stores.port.calls import ApplyStatus
from scripts.aws_local import ROOT
from tests.aws.permissions import Permission, permissions_for
from tests.support.dynamodb_proxy import Body, DynamoDbProxy, Forward
from tests.support.runtime_api import LambdaFunction

Event = dict[str, Any]
KEY_SECRET = new_secret(b"s" * SECRET_BYTES)
KEY = ApiKey(
    key_id="k1",
    tenant_id="default",
    role=Role.ADMIN,
    secret_hash=hash_of(KEY_SECRET),
    created_at=datetime(2026, 1, 1, tzinfo=UTC),
)
"""The API key of the requests in ``events/``, which the table of an account has."""
PATIENCE_SECONDS = 180
"""Nothing takes that long; a machine may be busy."""
LoadEvent = Callable[[str], Event]
"""Gives an event of ``events/`` by its name."""


def read_event(name: str) -> Event:
    """An event of ``events/`` by its name. Requests have the key that is in an account's table."""
    event: Event = json.loads((ROOT / "events" / f"{name}.json").read_text())
    if "authorization" in event.get("headers", {}):
        event["headers"]["authorization"] = f"Bearer {key_text(KEY.key_id, KEY_SECRET)}"
    return event


@dataclass(frozen=True)
class Template:
    """template.yaml, and the CloudFormation that the SAM transform makes of it."""

    source: dict[str, Any]
    translated: dict[str, Any]

    def of_type(self, kind: str) -> dict[str, dict[str, Any]]:
        """Properties of the resources of a type, by logical id, as CloudFormation will see them."""
        resources = self.translated["Resources"].items()
        return {name: resource["Properties"] for name, resource in resources if resource["Type"] == kind}

    def layers_of(self, function: str) -> list[str]:
        """Names of the layers of a function, as the source has them."""
        own = self.source["Resources"][function]["Properties"].get("Layers", [])
        return [each["Ref"] for each in [*self.source["Globals"]["Function"]["Layers"], *own]]


class Account:
    """A table on the emulator, and what the functions that use it asked of DynamoDB."""

    def __init__(self, template: Template, built: Path, table_name: str, proxy: DynamoDbProxy) -> None:
        self.used: set[Permission] = set()
        self._template = template
        self._built = built
        self._table_name = table_name
        self._proxy = proxy
        self.before: Callable[[str, Body], None] = lambda operation, body: None
        """Called before a request is answered."""
        proxy.intercept = self._note

    def _note(self, operation: str, body: Body, forward: Forward) -> Body:
        tables = {self._table_name: "Timers", default_calls_table_name(self._table_name): "ServiceCalls"}
        self.used |= permissions_for(operation, body, tables)
        self.before(operation, body)
        return forward(body)

    def environment(self, function: str) -> dict[str, str]:
        """The function's variables as the template sets them by default, and where DynamoDB and receivers are."""
        given = self._properties(function)["Environment"]["Variables"]
        variables = {name: self._resolve(value) for name, value in given.items()}
        return variables | {
            "AWS_ENDPOINT_URL_DYNAMODB": self._proxy.url,
            "DUETIME_EGRESS_ALLOW_CIDRS": "127.0.0.0/8",
            "DUETIME_PUBLIC_URL": "https://timers.example.com",
        }

    def _properties(self, function: str) -> dict[str, Any]:
        return self._template.of_type("AWS::Lambda::Function")[function]

    def _resolve(self, value: Any) -> str:
        if "Ref" in value:
            return self._default(value["Ref"])
        if "Fn::Sub" in value:
            own = {"Timers": self._table_name, "ServiceCalls": default_calls_table_name(self._table_name)}
            return re.sub(r"\$\{(\w+)\}", lambda name: own.get(name[1]) or self._default(name[1]), value["Fn::Sub"])
        return str(value)

    def _default(self, parameter: str) -> str:
        return str(self._template.source["Parameters"][parameter]["Default"])

    @contextmanager
    def running(self, function: str, **variables: str) -> Iterator[LambdaFunction]:
        environment = self.environment(function) | variables
        handler = self._properties(function)["Handler"]
        code, *layers = (self._built / name for name in (function, *self._template.layers_of(function)))
        with LambdaFunction(code, layers=layers, environment=environment, handler=handler) as running:
            yield running


class Api:
    """Sends requests to a running API by way of events like the real one."""

    def __init__(self, function: LambdaFunction, event: Event) -> None:
        self._function = function
        self._event = event

    def call(self, method: str, path: str, body: Any = None, query: str = "") -> tuple[int, str]:
        event = copy.deepcopy(self._event)
        event |= {"rawPath": path, "rawQueryString": query, "body": None if body is None else json.dumps(body)}
        event["requestContext"]["http"] |= {"method": method, "path": path}
        answer = self._function.invoke(event)
        return answer["statusCode"], answer["body"]


def received(sqs: Any, queue_url: str, is_enough: Callable[[list[Any]], bool]) -> list[Any]:
    """The bodies of a queue's messages as soon as they are enough; what there is after some minutes."""
    bodies: list[Any] = []
    for _ in range(PATIENCE_SECONDS):
        answer = sqs.receive_message(QueueUrl=queue_url, WaitTimeSeconds=1, MaxNumberOfMessages=10)
        for message in answer.get("Messages", []):
            bodies.append(json.loads(message["Body"]))
            sqs.delete_message(QueueUrl=queue_url, ReceiptHandle=message["ReceiptHandle"])
        if is_enough(bodies):
            break
    return bodies


def apply(store: Store, transition: Transition) -> ServiceCall:
    assert store.calls.apply([transition], now=SystemClock().now()) == [ApplyStatus.APPLIED]
    return transition.after
