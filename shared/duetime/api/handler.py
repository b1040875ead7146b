"""The Lambda handler: one event in, one response out, whatever happens in between; or many at once."""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from duetime.api.context import ApiContext, ServedRequest, Services
from duetime.api.http.authentication import has_signature, refuse_key_in_query
from duetime.api.http.errors import MethodNotAllowed
from duetime.api.http.idempotency import IDEMPOTENCY_KEY, carried_out_once, given_key
from duetime.api.http.parsing import read_query
from duetime.api.http.preconditions import IF_MATCH, IF_NONE_MATCH, refuse_unsupported
from duetime.api.http.problems import problem_reply, status_of
from duetime.api.http.request import Reply, read_request
from duetime.api.http.request_models import NothingBody
from duetime.api.http.route import PARAMETER, PUBLIC, WRITES, Deferred, Keeps, Route, authorise
from duetime.api.http.router import Router
from duetime.api.routes import TIMER_ROUTES
from duetime.app.timers import Stored
from duetime.domain.errors import NamespaceResharding, StoreNotReady, StoreUnavailable, or_raise
from duetime.stores.port.timers import PutMode

_log = logging.getLogger(__name__)
_KEY_HEADER = IDEMPOTENCY_KEY.lower()
_UNSHARED = frozenset({_KEY_HEADER, IF_MATCH.lower(), IF_NONE_MATCH.lower()})
"""What these headers ask for takes more than one write."""

Event = Mapping[str, Any]


class ApiHandler:
    """A Lambda handler for HTTP API events of payload format 2.0. It is safe to call from many threads.

    ``rawPath`` is taken as API Gateway sends it, decoded but for ``%25``; ``rawQueryString`` as the client sent it.
    """

    def __init__(self, context: ApiContext, routes: Sequence[Route]) -> None:
        self._services = Services.of(context)
        self._router = Router(routes)
        sharing = [f"{route.method} {PARAMETER.sub('[^/]+', route.path)}" for route in routes if route.shares_write]
        self._sharing = re.compile("|".join(sharing) or "(?!)")

    def __call__(self, event: Event, lambda_context: Any) -> dict[str, Any]:  # noqa: ARG002
        return self.answer_together([event])[0]

    def shares_write(self, event: Event) -> bool:
        """Tell whether a request needs nothing of the store but one write, which it can share with others."""
        operation = f"{event['requestContext']['http']['method']} {event['rawPath']}"
        return self._sharing.fullmatch(operation) is not None and _UNSHARED.isdisjoint(event["headers"])

    def answer_together(self, events: Sequence[Event]) -> list[dict[str, Any]]:
        """Return the response to each request. Those that store a timer share a write, except where two have the same
        one: what comes later is stored later. They share that the store is unavailable, too: one has waited for
        it."""
        exchanges: list[_Exchange] = []
        unavailable: StoreUnavailable | None = None
        waiting: dict[tuple[str, str], tuple[_Exchange, Deferred]] = {}
        for event in events:
            exchange = _Exchange(self._services, self._router, event)
            exchanges.append(exchange)
            deferred = exchange.begin(unavailable)
            unavailable = exchange.unavailable
            if deferred is not None:
                timer = deferred.timer.namespace, deferred.timer.timer_id
                if timer in waiting:
                    self._end(waiting.values())
                    waiting = {}
                waiting[timer] = exchange, deferred
        self._end(waiting.values())
        return [exchange.result() for exchange in exchanges]

    def _end(self, waiting: Collection[tuple[_Exchange, Deferred]]) -> None:
        services = self._services
        for mode in PutMode:
            alike = [(exchange, deferred) for exchange, deferred in waiting if deferred.mode is mode]
            if not alike:
                continue
            results: Sequence[Stored | Exception]
            try:
                timers = [deferred.timer for _, deferred in alike]
                results = services.timers.put_many(timers, mode=mode, now=services.context.clock.now())
            except Exception as error:
                results = [error] * len(alike)
            for (exchange, deferred), result in zip(alike, results, strict=True):
                exchange.end(deferred, result)


def build_handler(context: ApiContext, routes: Sequence[Route] = TIMER_ROUTES) -> ApiHandler:
    """Make a handler of ``routes``: those of timers and all that is common, of service calls, or all of them."""
    return ApiHandler(context, routes)


class _Exchange:
    """One request on its way to its reply. ``request`` and ``route`` are what is known of it by then."""

    def __init__(self, services: Services, router: Router, event: Event) -> None:
        self._services = services
        self._router = router
        self._request = read_request(event, new_id=services.context.new_id)
        self._route: Route | None = None
        self._started = services.context.clock.monotonic()
        self._reply = Reply(status=500)
        self.unavailable: StoreUnavailable | None = None
        """What the store was found to be."""

    def begin(self, unavailable: StoreUnavailable | None) -> Deferred | None:
        """Do all there is to do; or else say what is still to be stored. ``unavailable``: the store was, just now."""
        context = self._services.context
        with context.log_context(self._request.request_id):
            context.keep_time()
            try:
                answer = self._answer(unavailable)
            except MethodNotAllowed as error:
                is_question = self._request.method == "OPTIONS"
                allowed = {"allow": ", ".join(error.allowed)}
                answer = Reply(status=204, headers=allowed) if is_question else self._problem(error)
            except Exception as error:
                self.unavailable = error if isinstance(error, StoreUnavailable) else None
                answer = self._problem(error)
            if isinstance(answer, Deferred):
                return answer
            self._reply = answer
            self._report()
            return None

    def end(self, deferred: Deferred, result: Stored | Exception) -> None:
        """End the request. ``result``: of what was to be stored."""
        with self._services.context.log_context(self._request.request_id):
            try:
                if isinstance(result, Exception):
                    raise result
                self._reply = deferred.reply(result)
            except Exception as error:
                self._reply = self._problem(error)
            self._report()

    def _answer(self, unavailable: StoreUnavailable | None) -> Reply | Deferred:
        services, request = self._services, self._request
        route, parameters = self._router.find(request.method, request.path)
        self._route = route
        if unavailable is not None:
            raise unavailable
        if request.query:
            refuse_key_in_query(request)
        authenticate = services.context.authenticate
        is_signed = route.takes_signature and has_signature(request)
        if authenticate is not None and route.permission is not PUBLIC and not is_signed:
            request = self._request = replace(request, principal=authenticate(request))
        authorise(route.permission, request.principal, parameters)
        if route.method in WRITES:
            refuse_unsupported(request, route.conditions)
            if route.query is None and request.query and not is_signed:
                read_query(NothingBody, request)  # a filter that is not read would let all through

        # A signature names all that it is for, and nothing is stored before the endpoint has checked it.
        is_kept = route.is_keyed and route.keeps is not Keeps.RESOURCE and not is_signed
        key = given_key(request) if is_kept and _KEY_HEADER in request.headers else None
        if key is None:
            return route.endpoint(services, request, **parameters)
        context = services.context
        return carried_out_once(
            request,
            key,
            lambda *again: self._complete(route.endpoint(services.repeatable(*again), request, **parameters)),
            keeps=route.keeps,
            catalogue=context.store.catalogue,
            now=context.clock.now(),
            claim_id=context.new_id(),
        )

    def _complete(self, answer: Reply | Deferred) -> Reply:
        if isinstance(answer, Reply):
            return answer
        timers, now = self._services.timers, self._services.context.clock.now()
        (result,) = timers.put_many([answer.timer], mode=answer.mode, now=now)
        return answer.reply(or_raise(result))

    def _problem(self, error: Exception) -> Reply:
        if isinstance(error, StoreUnavailable | StoreNotReady):
            _log.warning("the store is unavailable: %s", error, extra={"action": "store.unavailable"})
        elif status_of(error) >= 500 and not isinstance(error, NamespaceResharding):
            facts = {"action": "request.failed", "request_id": self._request.request_id}
            _log.error("request failed", exc_info=error, extra=facts)
        return problem_reply(error, request_id=self._request.request_id)

    def _report(self) -> None:
        """Tell metrics and the log of the request."""
        request, reply = self._request, self._reply
        path = None if self._route is None else self._route.path
        seconds = self._services.context.clock.monotonic() - self._started
        self._services.context.on_served(ServedRequest(request.method, path, reply.status, seconds))
        if not _log.isEnabledFor(logging.INFO):
            return
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

    def result(self) -> dict[str, Any]:
        """Return what the gateway is given."""
        request, reply = self._request, self._reply
        headers = {"cache-control": "no-cache", **reply.headers, "x-request-id": request.request_id}
        if reply.body:
            headers["content-type"] = reply.content_type
        body = "" if request.method == "HEAD" else reply.body
        return {"statusCode": reply.status, "headers": headers, "body": body, "isBase64Encoded": False}
