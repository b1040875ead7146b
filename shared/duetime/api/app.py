"""The Lambda handler: one event in, one answer out, whatever happens in between.

Powertools' resolver matches routes, calls endpoints and translates exceptions; bodies and queries are read by
``reading`` and not by Powertools' validation, which parses JSON into floats (docs/decisions/0010).
"""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any
from urllib.parse import unquote

from aws_lambda_powertools.event_handler import APIGatewayHttpResolver, Response
from aws_lambda_powertools.event_handler.exceptions import NotFoundError
from aws_lambda_powertools.utilities.data_classes import APIGatewayProxyEventV2

from duetime.api.auth import PUBLIC, authorise
from duetime.api.authentication import refuse_key_in_query
from duetime.api.conditions import refuse_unsupported
from duetime.api.context import ApiContext, ServedRequest, Services
from duetime.api.errors import MethodNotAllowed, RouteNotFound
from duetime.api.http import Reply, Request, read_request
from duetime.api.idempotency import KEYED_METHODS, Keeps, carried_out_once, given_key
from duetime.api.paths import routable
from duetime.api.problems import problem_reply, status_of
from duetime.api.routes import ROUTES, WRITES, Route
from duetime.domain.errors import StoreNotReady, StoreUnavailable

_log = logging.getLogger(__name__)

Handler = Callable[[Mapping[str, Any], Any], dict[str, Any]]

_PARAMETER = re.compile(r"<\w+>")


def build_handler(context: ApiContext, routes: Sequence[Route] = ROUTES) -> Handler:
    """A Lambda handler for HTTP API events of payload format 2.0. Safe to call from many threads.

    It answers ``routes``: those of timers and all that is common, of service calls, or all of them.

    ``rawPath`` is taken as API Gateway sends it, decoded but for ``%25``; ``rawQueryString`` as the client sent it.
    """
    services = Services.of(context)
    table = _RouteTable(routes)
    # A resolver keeps the request that it is working on, so every thread has its own.
    local = threading.local()
    # On Lambda this thread serves all requests, and building is best done while the function initialises.
    local.router = _Router(services, table)

    def handle(event: Mapping[str, Any], lambda_context: Any) -> dict[str, Any]:
        router = getattr(local, "router", None)
        if router is None:
            router = local.router = _Router(services, table)
        request = read_request(event, new_id=context.new_id)
        with context.log_context(request.request_id):
            context.keep_time()
            return router.serve(request, lambda_context)

    return handle


class _RouteTable:
    """Routes, and which methods the path of a request has among them."""

    def __init__(self, routes: Sequence[Route]) -> None:
        self.routes = routes
        by_rule: dict[str, list[str]] = {}
        for route in routes:
            methods = by_rule.setdefault(route.rule, ["OPTIONS"])
            methods += ["GET", "HEAD"] if route.method == "GET" else [route.method]
        self._methods = [
            (re.compile(_PARAMETER.sub("[^/]+", rule)), sorted(methods)) for rule, methods in by_rule.items()
        ]

    def methods(self, path: str) -> list[str]:
        """The methods that the first rule with a match for ``path`` takes."""
        return next((methods for pattern, methods in self._methods if pattern.fullmatch(path)), [])


class _Router:
    """The routes bound to the request under way. For one thread."""

    def __init__(self, services: Services, table: _RouteTable) -> None:
        self._services = services
        self._table = table
        self._request: Request
        self._rule: str | None = None
        self._resolver = APIGatewayHttpResolver()
        for route in table.routes:
            self._resolver.route(route.rule, route.method)(self._bound(route))
        self._resolver.not_found(self._answer_no_route)
        self._resolver.exception_handler(Exception)(self._answer_error)

    def serve(self, request: Request, lambda_context: Any) -> dict[str, Any]:
        clock = self._services.context.clock
        started = clock.monotonic()
        self._request, self._rule = request, None
        method = "GET" if request.method == "HEAD" else request.method
        http = {"method": method, "path": request.path}
        event = {
            "rawPath": routable(request.path),
            "headers": {},
            "requestContext": {"http": http, "stage": "$default"},
        }
        # Powertools keeps the event on a class, for all threads alike; an attribute of this resolver hides that one.
        self._resolver.current_event = APIGatewayProxyEventV2(event)
        answer = self._resolver.resolve(event, lambda_context)
        answer["headers"] = {"cache-control": "no-cache"} | answer["headers"] | {"x-request-id": request.request_id}
        if request.method == "HEAD":
            answer["body"] = ""
        status, seconds = answer["statusCode"], clock.monotonic() - started
        self._services.context.on_served(ServedRequest(request.method, self._rule, status, seconds))
        facts = {
            "action": "request.served",
            "method": request.method,
            "route": self._rule,
            "status": status,
            "duration_ms": round(1000 * seconds, 3),
            "request_id": request.request_id,
        }
        principal = self._request.principal
        if principal is not None:
            facts |= {"tenant_id": principal.tenant_id, "key_id": principal.key_id}
        _log.info("request served", extra=facts)
        return answer

    def _bound(self, route: Route) -> Callable[..., Response[str]]:
        def call(**parameters: str) -> Response[str]:
            self._rule = route.rule
            decoded = {name: unquote(value) for name, value in parameters.items()}
            request = self._request
            refuse_key_in_query(request)
            authenticate = self._services.context.authenticate
            if authenticate is not None and route.needs is not PUBLIC:
                request = self._request = replace(request, principal=authenticate(request))
            authorise(route.needs, request.principal, decoded)
            if route.method in WRITES:
                refuse_unsupported(request, route.conditions)

            def act(services: Services) -> Reply:
                return route.endpoint(services, request, **decoded)

            key = given_key(request) if route.method in KEYED_METHODS and route.keeps is not Keeps.RESOURCE else None
            if key is None:
                return _response(act(self._services))
            return _response(carried_out_once(self._services, request, key, act, keeps=route.keeps))

        return call

    def _answer_no_route(self, error: NotFoundError) -> Response[str]:
        methods = self._table.methods(routable(self._request.path))
        if not methods:
            raise RouteNotFound("there is nothing at this path") from error
        if self._request.method == "OPTIONS":
            return _response(Reply(status=204, headers={"allow": ", ".join(methods)}))
        raise MethodNotAllowed(f"{self._request.method} is not possible here", allowed=methods) from error

    def _answer_error(self, error: Exception) -> Response[str]:
        if isinstance(error, StoreUnavailable | StoreNotReady):
            _log.warning("the store is unavailable: %s", error, extra={"action": "store.unavailable"})
        elif status_of(error) >= 500:
            facts = {"action": "request.failed", "request_id": self._request.request_id}
            _log.error("request failed", exc_info=error, extra=facts)
        return _response(problem_reply(error, request_id=self._request.request_id))


def _response(reply: Reply) -> Response[str]:
    content_type = reply.content_type if reply.body else None
    return Response(status_code=reply.status, content_type=content_type, body=reply.body, headers=dict(reply.headers))
