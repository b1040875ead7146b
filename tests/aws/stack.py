"""Requests to the HTTP API of a stack on the emulator."""

from __future__ import annotations

import http.client
import json
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from scripts.aws_local import Deployment
from tests.aws.application import PATIENCE_SECONDS


@dataclass(frozen=True)
class Answer:
    status: int
    body: str

    def json(self) -> Any:
        return json.loads(self.body)


def request(deployment: Deployment, method: str, path: str, body: Any = None, *, key: str | None = None) -> Answer:
    """A request to the HTTP API, with an API key if there is one."""
    headers = {"content-type": "application/json", "Host": deployment.host}
    if key is not None:
        headers["Authorization"] = f"Bearer {key}"
    emulator = urlsplit(deployment.endpoint_url)
    assert emulator.hostname is not None
    connection = http.client.HTTPConnection(emulator.hostname, emulator.port, timeout=PATIENCE_SECONDS)
    try:
        connection.request(method, path, None if body is None else json.dumps(body), headers)
        response = connection.getresponse()
        return Answer(response.status, response.read().decode())
    finally:
        connection.close()
