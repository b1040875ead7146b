"""What the commands ask of the API of service calls."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any
from urllib.parse import quote

from duetime.cli.api_client import ApiClient, ApiProblem

_PAGE = 100
_TRIES = 5


class CallDesk:
    """Service calls of one tenant. Texts are JSON as the API takes and answers it."""

    def __init__(self, client: ApiClient, tenant: str) -> None:
        self._client = client
        self._path = f"/v1/tenants/{quote(tenant, safe='')}/service-calls"

    def submit(self, text: str) -> str:
        return self._client.call("POST", self._path, text)

    def read(self, call_id: str) -> str:
        return self._client.call("GET", self._of(call_id))

    def found(self, query: Mapping[str, Any], *, limit: int) -> Iterator[dict[str, Any]]:
        """At most ``limit`` calls."""
        return islice(self._client.items(self._path, {**query, "limit": min(limit, _PAGE)}), limit)

    def executions(self, call_id: str) -> Iterator[dict[str, Any]]:
        return self._client.items(self._of(call_id, "executions"), {"limit": _PAGE})

    def execution(self, call_id: str, execution_id: str) -> str:
        return self._client.call("GET", self._of(call_id, "executions", execution_id))

    def events(self, call_id: str) -> Iterator[dict[str, Any]]:
        """Those that there are."""
        after = 0
        while True:
            page = json.loads(
                self._client.call("GET", self._of(call_id, "events"), query={"after": after, "limit": _PAGE})
            )
            yield from page["items"]
            if not page["items"]:
                return
            after = page["nextAfter"]

    def follow(self, call_id: str) -> Iterator[dict[str, Any]]:
        """Those that there are and that there will be."""
        return self._client.follow(self._of(call_id, "events"))

    def cancel(self, call_id: str) -> str:
        return self._client.call("POST", self._of(call_id, "cancel"))

    def fire(self, call_id: str) -> str:
        return self._client.call("POST", self._of(call_id, "fire"))

    def delete(self, call_id: str) -> None:
        self._client.call("DELETE", self._of(call_id))

    def rerun(self, call_id: str, text: str) -> str:
        return self._client.call("POST", self._of(call_id, "rerun"), text)

    def change(self, call_id: str, patch: Mapping[str, Any], *, revision: int | None = None) -> str:
        headers = {} if revision is None else {"if-match": f'"{revision}"'}
        return self._client.call("PATCH", self._of(call_id), json.dumps(patch), headers=headers)

    def retag(self, call_id: str, *, add: Sequence[str], remove: Sequence[str]) -> list[str]:
        """The tags that the call has then. Tags that others add or remove meanwhile are not lost."""
        for tries_left in reversed(range(_TRIES)):
            call = json.loads(self.read(call_id))
            tags = [tag for tag in dict.fromkeys([*call["tags"], *add]) if tag not in remove]
            try:
                self.change(call_id, {"tags": tags}, revision=call["revision"])
            except ApiProblem as problem:
                if problem.status != 412 or not tries_left:
                    raise
            else:
                return tags
        raise AssertionError("the last try returns or raises")

    def _of(self, call_id: str, *segments: str) -> str:
        return "/".join([self._path, *(quote(segment, safe="") for segment in (call_id, *segments))])
