"""Clients of AWS that answer what a test says, checked against botocore's own models of the services."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import boto3
from botocore.exceptions import ClientError
from botocore.validate import ParamValidator

Answer = Mapping[str, Any] | Callable[[dict[str, Any]], Mapping[str, Any]] | ClientError
"""A response, what makes it of the parameters, or an error."""


class AwsAnswers:
    """``answers`` are by service and operation, like ``lambda:GetFunctionConfiguration``. Nothing goes out."""

    def __init__(self, answers: Mapping[str, Answer]) -> None:
        self.answers = dict(answers)

    def client(self, service: str) -> Any:
        """Return the client of a service, which answers for this one from now on."""
        client, state = _client(service)
        state["answers"] = self.answers
        return client


@cache
def _client(service: str) -> tuple[Any, dict[str, Any]]:
    """Make a client once, since that takes a while."""
    client = boto3.client(
        service,  # type: ignore[call-overload]  # any service
        region_name="us-east-1",
        aws_access_key_id="none",
        aws_secret_access_key="none",
    )
    state: dict[str, Any] = {}

    def note(params: dict[str, Any], **_: Any) -> None:
        state["params"] = params

    def answer(model: Any, **_: Any) -> tuple[Any, Any]:
        given = state["answers"][f"{service}:{model.name}"]
        if isinstance(given, ClientError):
            raise given
        response = dict(given(state["params"]) if callable(given) else given)
        report = ParamValidator().validate(response, model.output_shape)
        assert not report.has_errors(), report.generate_report()
        return _Http(), response

    client.meta.events.register("before-parameter-build", note)
    client.meta.events.register("before-call", answer)
    return client, state


class _Http:
    status_code = 200
