"""Calls the API's handler as a gateway would, and holds every answer against the OpenAPI models."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, unquote, urlencode

import msgspec

from duetime.api.http.problems import Problem
from duetime.api.routes import all_routes
from duetime.local.gateway import HttpRequest, from_result, to_event
from duetime.runtime.wiring import Handler
from tests.support.clock import NOW

JSON_TYPE = "application/json"


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    headers: Mapping[str, str]
    text: str

    def json(self) -> Any:
        return json.loads(self.text)

    @property
    def code(self) -> str:
        """The code of a problem."""
        assert self.headers["content-type"] == "application/problem+json", self
        code: str = self.json()["code"]
        return code

    @property
    def faults(self) -> dict[str, str]:
        """The faulty fields of a problem, with what is wrong."""
        return {fault["field"]: fault["message"] for fault in self.json()["errors"]}


class Api:
    """A client of one handler. ``namespace`` is where the timer shortcuts go, ``key`` the API key that is sent."""

    def __init__(self, handler: Handler, *, namespace: str = "default", key: str | None = None) -> None:
        self._handler = handler
        self._headers = {"content-type": JSON_TYPE} | ({"authorization": f"Bearer {key}"} if key else {})
        self.timers = f"/v1/namespaces/{namespace}/timers"

    def call(
        self,
        method: str,
        path: str,
        body: str | bytes | Mapping[str, Any] | None = None,
        *,
        query: Mapping[str, Any] | str = "",
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """``path`` is percent-encoded, as a client writes it; so is ``query``, unless it is a mapping."""
        return self.invoke(self.event(method, path, body, query=query, headers=headers))

    def event(
        self,
        method: str,
        path: str,
        body: str | bytes | Mapping[str, Any] | None = None,
        *,
        query: Mapping[str, Any] | str = "",
        headers: Mapping[str, str] | None = None,
    ) -> dict[str, Any]:
        """What ``call`` gives the handler."""
        raw = json.dumps(body) if isinstance(body, Mapping) else body or ""
        sent = self._headers | dict(headers or {})
        return to_event(
            HttpRequest(
                method=method,
                raw_path=path,
                raw_query=query if isinstance(query, str) else urlencode(query, doseq=True),
                headers=tuple(sent.items()),
                body=raw.encode() if isinstance(raw, str) else raw,
                http_version="1.1",
                client_host="127.0.0.1",
                request_id="gateway-request",
                received_at=NOW,
            )
        )

    def invoke(self, event: Mapping[str, Any]) -> Answer:
        return answer_of(event, self._handler(json.loads(json.dumps(event)), None))

    def get(self, path: str, **more: Any) -> Answer:
        return self.call("GET", path, **more)

    def create(self, body: str | bytes | Mapping[str, Any], **more: Any) -> Answer:
        return self.call("POST", self.timers, body, **more)

    def put(self, timer_id: str, body: str | bytes | Mapping[str, Any], **more: Any) -> Answer:
        return self.call("PUT", self.timer(timer_id), body, **more)

    def patch(self, timer_id: str, body: str | bytes | Mapping[str, Any], **more: Any) -> Answer:
        return self.call("PATCH", self.timer(timer_id), body, **more)

    def delete(self, timer_id: str, **more: Any) -> Answer:
        return self.call("DELETE", self.timer(timer_id), **more)

    def read(self, timer_id: str, **more: Any) -> Answer:
        return self.get(self.timer(timer_id), **more)

    def list(self, path: str | None = None, **query: str) -> Answer:
        return self.get(path or self.timers, query=query)

    def timer(self, timer_id: str) -> str:
        return f"{self.timers}/{quote(timer_id, safe='')}"

    def all_pages(self, path: str | None = None, **query: str) -> Sequence[Any]:
        """The items of every page of a list."""
        return _all_items(lambda more: self.list(path, **query, **more))


def answer_of(event: Mapping[str, Any], result: Mapping[str, Any]) -> Answer:
    """What a client is sent of a handler's ``result``."""
    response = from_result(result)
    answer = Answer(response.status, dict(response.headers), response.body.decode())
    http = event["requestContext"]["http"]
    _check(http["method"], quote(unquote(event["rawPath"])), answer)
    return answer


def _all_items(fetch: Callable[[dict[str, str]], Answer]) -> list[Any]:
    items: list[Any] = []
    more: dict[str, str] = {}
    for _ in range(1000):
        page = fetch(more)
        assert page.status == 200, page
        items += page.json()["items"]
        if page.json()["nextCursor"] is None:
            return items
        more = {"cursor": page.json()["nextCursor"]}
    raise AssertionError("the list has no end")


_SURROGATE = re.compile(r"\\(?:(u[dD][89a-fA-F][0-9a-fA-F]{2})|.)")


def _check(method: str, path: str, answer: Answer) -> None:
    """Fails when the OpenAPI document does not describe ``answer``."""
    if method in ("HEAD", "OPTIONS") or not answer.text:
        return
    # Half a surrogate pair, which an id or a field name may hold, is JSON and no text.
    text = _SURROGATE.sub(lambda escape: "?" if escape[1] else escape[0], answer.text)
    if answer.headers["content-type"] == "application/problem+json":
        msgspec.json.decode(text, type=Problem)
    for route in all_routes():
        if route.method == method and re.fullmatch(re.sub(r"<\w+>", "[^/]+", route.path), path):
            assert answer.status in (*route.responses, *route.problem_statuses) or answer.status >= 500, (
                route,
                answer,
            )
            model = route.responses.get(answer.status)
            if model is not None:
                msgspec.json.decode(text, type=model)
            return


def outcomes(answer: Answer) -> list[tuple[str | None, int, str | None]]:
    """Id, status and code of the problem of each item of a batch."""
    assert answer.status == 200, answer
    return [(item["id"], item["status"], item.get("problem", {}).get("code")) for item in answer.json()["items"]]
