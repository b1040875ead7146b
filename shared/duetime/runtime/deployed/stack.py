"""Reads what a stack of template.yaml looks like now, from AWS's own APIs. It changes nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from duetime.domain.errors import DuetimeError, StoreError
from duetime.stores.core.store import Store

ALARM = "AWS::CloudWatch::Alarm"
FUNCTION = "AWS::Lambda::Function"
_CONFIG: dict[str, Any] = {"connect_timeout": 3, "read_timeout": 10, "retries": {"mode": "standard"}}

MakeClient = Callable[[str], Any]
"""Makes the boto3 client of a service."""


class Unreadable(DuetimeError):
    """AWS refused to say something, or could not be reached."""

    code = "unreadable"


def aws_clients(region: str | None) -> MakeClient:
    """Return what makes clients of the configured account. Raises ``Unreadable`` where boto3 is not installed."""
    try:
        import boto3
        from botocore.config import Config
    except ImportError:
        raise Unreadable("this needs 'boto3', which is not installed: pip install 'duetime[dynamodb]'") from None

    session = boto3.session.Session(region_name=region)

    def make(service: str) -> Any:
        return session.client(service, config=Config(**_CONFIG))  # type: ignore[call-overload]  # any service

    return make


@dataclass(frozen=True)
class Stack:
    """A deployed stack by its name. ``open`` opens a store by its URL."""

    name: str
    region: str | None
    make_client: MakeClient
    open: Callable[[str], AbstractContextManager[Store]]

    def ask(self, service: str, operation: str, **parameters: Any) -> dict[str, Any]:
        """Return what AWS answers, all pages of it. Raises ``Unreadable``."""
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            client = self.make_client(service)
            if client.can_paginate(operation):
                pages = client.get_paginator(operation).paginate(**parameters)
                found: dict[str, Any] = pages.build_full_result()
            else:
                found = getattr(client, operation)(**parameters)
        except ClientError as error:
            details = error.response.get("Error", {})
            reason = f"{details.get('Code')}: {details.get('Message')}"
            raise Unreadable(f"{service}:{operation} was refused ({reason})") from None
        except BotoCoreError as error:
            raise Unreadable(f"{service}:{operation} failed ({error})") from None
        return found

    @cached_property
    def description(self) -> dict[str, Any]:
        stack: dict[str, Any] = self.ask("cloudformation", "describe_stacks", StackName=self.name)["Stacks"][0]
        return stack

    @cached_property
    def parameters(self) -> dict[str, str]:
        return {each["ParameterKey"]: each["ParameterValue"] for each in self.description.get("Parameters", ())}

    @cached_property
    def _resources(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.ask("cloudformation", "list_stack_resources", StackName=self.name)[
            "StackResourceSummaries"
        ]
        return found

    def of_type(self, kind: str) -> dict[str, str]:
        """Return the names of the resources of a type by their logical ids."""
        return {
            each["LogicalResourceId"]: each["PhysicalResourceId"]
            for each in self._resources
            if each["ResourceType"] == kind
        }

    @contextmanager
    def open_store(self) -> Iterator[Store]:
        """Open the store in the stack's tables. Raises ``Unreadable`` for what fails in it."""
        url = f"dynamodb://{self.resource('Timers')}?calls={self.resource('ServiceCalls')}"
        try:
            with self.open(url + (f"&region={self.region}" if self.region else "")) as store:
                yield store
        except StoreError as error:
            raise Unreadable(f"the tables cannot be read ({error.message})") from None

    def resource(self, logical_id: str) -> str:
        """Return the name of a resource. Raises ``Unreadable`` if the stack has none of that id."""
        for each in self._resources:
            if each["LogicalResourceId"] == logical_id:
                name: str = each["PhysicalResourceId"]
                return name
        raise Unreadable(f"the stack has no {logical_id}: is it one of Duetime, and as new as this command?")
