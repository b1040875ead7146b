"""The Lambda handler: one event in, one response out, whatever happens in between."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from duetime.api.context import ApiContext, ServedRequest, Services
from duetime.api.http.authentication import refuse_key_in_query
from duetime.api.http.authorization import authorise
from duetime.api.http.errors import MethodNotAllowed
from duetime.api.http.idempotency import IDEMPOTENCY_KEY, carried_out_once, given_key
from duetime.api.http.preconditions import refuse_unsupported
from duetime.api.http.problems import problem_reply, status_of
from duetime.api.http.request import Reply, Request, read_request
from duetime.api.http.route import PUBLIC, WRITES, Keeps, Route
from duetime.api.http.router import Router
from duetime.api.routes import TIMER_ROUTES
from duetime.domain.errors import StoreNotReady, StoreUnavailable

_log = logging.getLogger(__name__)

Handler = Callable[[Mapping[str, Any], Any], dict[str, Any]]


def build_handler(context: ApiContext, routes: Sequence[Route] = TIMER_ROUTES) -> Handler:
    """Make a Lambda handler for HTTP API events of payload format 2.0. It is safe to call from many threads.

    It answers ``routes``: those of timers and all that is common, of service calls, or all of them.

    ``rawPath`` is taken as API Gateway sends it, decoded but for ``%25``; ``rawQueryString`` as the client sent it.
    """
    services = Services.of(context)
    router = Router(routes)

    def handle(event: Mapping[str, Any], lambda_context: Any) -> dict[str, Any]:  # noqa: ARG001
        request = read_request(event, new_id=context.new_id)
        with context.log_context(request.request_id):
            context.keep_time()
            started = context.clock.monotonic()
            exchange = _Exchange(services, router, request)
            reply = exchange.reply()
            exchange.report(reply, seconds=context.clock.monotonic() - started)
            return _result(request, reply)

    return handle


class _Exchange:
    """One request on its way to its reply. ``request`` and ``route`` are what is known of it by then."""

    def __init__(self, services: Services, router: Router, request: Request) -> None:
        self._services = services
        self._router = router
        self._request = request
        self._route: Route | None = None

    def reply(self) -> Reply:
        """Return what the endpoint answers, or a problem."""
        try:
            return self._answer()
        except MethodNotAllowed as error:
            if self._request.method == "OPTIONS":
                return Reply(status=204, headers={"allow": ", ".join(error.allowed)})
            return self._problem(error)
        except Exception as error:
            return self._problem(error)

    def _answer(self) -> Reply:
        services, request = self._services, self._request
        route, parameters = self._router.find(request.method, request.path)
        self._route = route
        if request.query:
            refuse_key_in_query(request)
        authenticate = services.context.authenticate
        if authenticate is not None and route.permission is not PUBLIC:
            request = self._request = replace(request, principal=authenticate(request))
        authorise(route.permission, request.principal, parameters)
        if route.method in WRITES:
            refuse_unsupported(request, route.conditions)

        is_kept = route.is_keyed and route.keeps is not Keeps.RESOURCE
        key = given_key(request) if is_kept and IDEMPOTENCY_KEY.lower() in request.headers else None
        if key is None:
            return route.endpoint(services, request, **parameters)
        context = services.context
        return carried_out_once(
            request,
            key,
            lambda new_id: route.endpoint(services.with_ids(new_id), request, **parameters),
            keeps=route.keeps,
            catalogue=context.store.catalogue,
            now=context.clock.now(),
            claim_id=context.new_id(),
        )

    def _problem(self, error: Exception) -> Reply:
        if isinstance(error, StoreUnavailable | StoreNotReady):
            _log.warning("the store is unavailable: %s", error, extra={"action": "store.unavailable"})
        elif status_of(error) >= 500:
            facts = {"action": "request.failed", "request_id": self._request.request_id}
            _log.error("request failed", exc_info=error, extra=facts)
        return problem_reply(error, request_id=self._request.request_id)

    def report(self, reply: Reply, *, seconds: float) -> None:
        """Tell metrics and the log of the request."""
        request, path = self._request, None if self._route is None else self._route.path
        self._services.context.on_served(ServedRequest(request.method, path, reply.status, seconds))
        facts = {
            "action": "request.served",
            "method": request.method,
            "route": path,
            "status": reply.status,
            "duration_ms": round(1000 * seconds, 3),
            "request_id": request.request_id,
        }
        if request.principal is not None:
            facts |= {"tenant_id": request.principal.tenant_id, "key_id": request.principal.key_id}
        _log.info("request served", extra=facts)


def _result(request: Request, reply: Reply) -> dict[str, Any]:
    headers = {"cache-control": "no-cache", **reply.headers, "x-request-id": request.request_id}
    if reply.body:
        headers["content-type"] = reply.content_type
    body = "" if request.method == "HEAD" else reply.body
    return {"statusCode": reply.status, "headers": headers, "body": body, "isBase64Encoded": False}
