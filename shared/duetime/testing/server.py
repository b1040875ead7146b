"""``duetime serve --clock virtual``: a server whose time stands still until a request moves it."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
from collections.abc import Callable
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta

from duetime import __version__
from duetime.api.context import ApiContext, Services
from duetime.api.handler import build_handler
from duetime.api.http.errors import FieldError, InvalidFields
from duetime.api.http.parsing import read_body, validate
from duetime.api.http.request import Reply, Request
from duetime.api.http.request_models import PLAIN_SHAPE, Duration, Instant, RequestModel
from duetime.api.http.route import Route
from duetime.api.routes import all_routes
from duetime.delivery.port import CallbackResult
from duetime.delivery.sender_thread import SenderThread
from duetime.domain.errors import InvalidInput, InvalidSettings
from duetime.domain.principals import Role
from duetime.domain.times import MAX_INSTANT, format_instant, round_down, round_up
from duetime.local import server
from duetime.local.asgi import LambdaAsgiApp
from duetime.local.http import bind, http_service, url_of
from duetime.local.metrics import MetricsApp, Observed, new_registry
from duetime.local.services import ThreadService, run_services
from duetime.runtime import api_wiring, wiring
from duetime.runtime.clock import SystemClock
from duetime.runtime.ids import new_id
from duetime.runtime.settings import LocalSettings
from duetime.runtime.wiring import Handler
from duetime.testing.service import VirtualService, engine_settings, virtual_service
from duetime.testing.virtual_time import VirtualClock

logger = logging.getLogger(__name__)


class AdvanceBody(RequestModel):
    """The body of a request that moves time: exactly one of the two."""

    by: Duration | None = None
    to: Instant | None = None


def serve(settings: LocalSettings) -> int:
    """Serve until a signal; the exit code. Raises ``DuetimeError`` when it cannot start."""
    settings = in_memory_alone(settings)
    with ExitStack() as stack:
        listener = stack.enter_context(bind(settings.host, settings.port))
        server.refuse_exposure(settings, listener)
        clock = VirtualClock(_start(settings))
        sender = _RealTimeSender(wiring.make_sender(settings, engine_settings(settings)))
        service = stack.enter_context(
            virtual_service(
                settings,
                clock,
                sender,
                is_sending=True,
                make_handler=lambda service, context: handler_with_clock(service, context, settings),
            )
        )
        api = LambdaAsgiApp(service.handler, clock=clock, new_id=new_id)
        streams = server.event_streams(api, service.calls, None, clock, stack)
        registry = new_registry(lambda: {"worker-1": Observed(service.poller.snapshot(), 0.0)})
        app = server.for_browsers(MetricsApp(registry, streams), settings)
        stop_seconds = settings.drain_seconds + server.STOP_MARGIN_SECONDS
        return run_services(
            [
                ThreadService("virtual time", service.run, service.stop),
                http_service(app, listener, lambda: _tell_start(settings, listener, clock), on_stopping=streams.stop),
            ],
            stop_seconds=stop_seconds,
        )


def in_memory_alone(settings: LocalSettings) -> LocalSettings:
    """Return ``settings`` for a store in memory. Raises ``InvalidSettings`` for what a virtual clock does not
    allow."""
    given = settings.model_fields_set
    if "store" in given and not wiring.is_in_memory(settings.store):
        raise InvalidSettings(
            "--clock: a virtual clock is for tests and requires a store in memory (--store sqlite://): what"
            " it stores has times that never were"
        )
    if settings.auth:
        raise InvalidSettings("--auth: nobody can make a key for a store in memory")
    if settings.workers > 1:
        raise InvalidSettings("--workers: a virtual clock is the clock of one process")
    # In one shard all that is due fires in the order of its times, and not only within each.
    shards = {} if "default_num_shards" in given else {"default_num_shards": 1}
    return settings.model_copy(update={"store": "sqlite://", **shards})


def handler_with_clock(service: VirtualService, context: ApiContext, settings: LocalSettings) -> Handler:
    """Return the whole API, and the routes that read and move the clock of ``service``."""

    @Route("GET", "/v1/clock", Role.READER, summary="Read the virtual clock", responses={200: None})
    def get_clock(services: Services, request: Request) -> Reply:  # noqa: ARG001
        return Reply(status=200, body=json.dumps({"now": format_instant(service.now())}))

    @Route("POST", "/v1/clock/advance", Role.ADMIN, summary="Move it", responses={200: None})
    def advance_clock(services: Services, request: Request) -> Reply:  # noqa: ARG001
        body = validate(AdvanceBody, read_body(request, PLAIN_SHAPE))
        try:
            advanced = service.advance(_target(body, service.now()))
        except ValueError as error:
            raise InvalidInput("to", str(error)) from None
        answer = {"now": format_instant(advanced.now), "attempts": advanced.attempts}
        return Reply(status=200, body=json.dumps(answer))

    return build_handler(api_wiring.with_calls(context, settings), (get_clock, advance_clock, *all_routes()))


def _target(body: AdvanceBody, now: datetime) -> datetime:
    if (body.by is None) == (body.to is None):
        raise InvalidFields([FieldError(name, "give exactly one of by and to") for name in ("by", "to")])
    if body.to is not None:
        return body.to
    assert body.by is not None
    try:
        to = round_up(now + timedelta(seconds=body.by))
    except OverflowError:
        to = None
    if to is None or to > MAX_INSTANT:
        raise InvalidInput("by", "goes beyond the year 9999")
    return to


class _RealTimeSender(SenderThread):
    """Sends beside a loop of virtual time, which stands still meanwhile."""

    def start(self, on_results: Callable[[list[CallbackResult]], None]) -> None:
        loop = asyncio.get_running_loop()

        def hand_over(results: list[CallbackResult]) -> None:
            loop.call_soon_threadsafe(on_results, results)

        super().start(hand_over)


def _start(settings: LocalSettings) -> datetime:
    return settings.start_at or round_down(SystemClock().now().astimezone(UTC))


def _tell_start(settings: LocalSettings, listener: socket.socket, clock: VirtualClock) -> None:
    """Log ``server.started`` last: whoever waits for it knows the rest."""
    server.tell_egress(settings)
    logger.warning(
        "for tests only: time stands still at %s until POST /v1/clock/advance moves it, and all is gone at the end",
        format_instant(clock.now()),
        extra={"action": "server.virtual_clock", "now": format_instant(clock.now())},
    )
    url = url_of(listener)
    logger.info(
        "Duetime %s serves %s (documentation: %s/docs)",
        __version__,
        url,
        url,
        extra={"action": "server.started", "url": url, "store": settings.store},
    )
