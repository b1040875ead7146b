"""``duetime serve``: API and poller in one process, and further pollers in processes of their own."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress

import uvloop

from duetime import __version__
from duetime.api.http.cors import Cors
from duetime.app.tzdata_release import TzdataRelease
from duetime.calls.relay import OutboxRelay
from duetime.delivery.egress import parse_hosts
from duetime.domain.clock import Clock
from duetime.domain.errors import InvalidSettings
from duetime.domain.redaction import redact_text
from duetime.engine.poller import Poller
from duetime.engine.stats import EngineSnapshot
from duetime.engine.waiting import ThreadOffload
from duetime.local.asgi import Asgi, LambdaAsgiApp
from duetime.local.browsers import OwnOriginOnly
from duetime.local.cors import WithCors
from duetime.local.event_streams import THREADS as STREAM_THREADS
from duetime.local.event_streams import Authenticator, EventStreams
from duetime.local.hints import Due, connect, hearing
from duetime.local.http import bind, http_service, is_loopback, url_of
from duetime.local.metrics import PATH as METRICS_PATH
from duetime.local.metrics import ApiMetrics, MetricsApp, Observed, new_registry, nothing_else
from duetime.local.services import Service, ThreadService, run_services
from duetime.local.workers import WorkerService, hints_read, reports_written
from duetime.runtime import api_wiring, wiring
from duetime.runtime.ids import new_id
from duetime.runtime.metrics import with_outbox
from duetime.runtime.outbox_wiring import opened_relay
from duetime.runtime.settings import LocalSettings, WorkerSettings, child_environment, option
from duetime.runtime.tuning import EgressSettings, LocalHttp
from duetime.stores.core.calls import CallStore
from duetime.stores.core.store import Store

DEFAULT_NAMESPACE = "default"
STOP_MARGIN_SECONDS = 10.0
"""Time of a stop beyond the drain, for last records, releases and connections."""

logger = logging.getLogger(__name__)


def serve(settings: LocalSettings) -> int:
    """Serve until a signal; the exit code. Raises ``DuetimeError`` when it cannot start."""
    process_count = _process_count(settings)
    if settings.auth and wiring.is_in_memory(settings.store):
        raise InvalidSettings("--auth: nobody can make a key for a store in memory")
    with ExitStack() as stack:
        listener = stack.enter_context(bind(settings.host, settings.port))
        refuse_exposure(settings, listener)
        store = stack.enter_context(wiring.chosen_store(settings.store))
        wiring.make_ready(store, settings.store)
        clock = wiring.measured_clock(store)
        _ensure_default_namespace(store, settings, clock)
        secret_box = wiring.make_secret_box(settings)
        hook = wiring.chosen_hook(settings)
        poller = stack.enter_context(wiring.opened_poller(store, settings, clock, secret_box=secret_box, hook=hook))
        relay = stack.enter_context(opened_relay(store, settings, clock, on_stored=poller.notify))
        stop_seconds = settings.drain_seconds + STOP_MARGIN_SECONDS
        hear = hearing(poller, relay)

        def tell(due: Due, sender: WorkerService | None = None) -> None:
            for worker in workers:
                if worker is not sender:
                    worker.tell(due)

        def pass_on(sender: WorkerService, due: Due) -> None:
            hear(due)
            tell(due, sender)

        environ = child_environment(settings)
        workers = [
            WorkerService(number, environ=environ, stop_seconds=stop_seconds, clock=clock, on_hint=pass_on)
            for number in range(2, process_count + 1)
        ]
        if workers:
            connect(tell, poller, relay, store.calls, clock)
        snapshot = _counted(poller, relay)
        registry = new_registry(lambda: _observe(snapshot, workers))
        counts = ApiMetrics(registry)
        authenticator = api_wiring.key_authenticator(store, settings, clock)
        publish = None if hook is None else hook.publish
        context = api_wiring.api_context(
            store,
            settings,
            clock,
            secret_box=secret_box,
            authenticate=authenticator,
            on_stored=poller.notify,
            on_served=counts.count,
            publish=publish,
            shards_given_back=lambda: poller.shards_given_back,
        )
        handler = api_wiring.whole_api(context, settings)
        api = LambdaAsgiApp(handler, clock=clock, new_id=new_id)
        streams = event_streams(api, store.calls, authenticator, clock, stack)
        app = for_browsers(MetricsApp(registry, streams, authenticator=authenticator), settings)
        release = wiring.tzdata_release(store, clock, on_stored=poller.notify, publish=publish)
        services: list[Service] = [
            poller_service(poller),
            *_relay_services(relay),
            _tzdata_service(release),
            http_service(
                app,
                listener,
                lambda: _tell_start(settings, listener),
                on_stopping=streams.stop,
            ),
            *workers,
        ]
        code = run_services(services, stop_seconds=stop_seconds + STOP_MARGIN_SECONDS)
        logger.info("stopped", extra={"action": "server.stopped", **poller.stats()})
        return code


def _process_count(settings: LocalSettings) -> int:
    """Return the number of pollers. Raises ``InvalidSettings`` for several that would share a store in memory."""
    in_memory = wiring.is_in_memory(settings.store)
    if settings.workers > 1 and in_memory:
        raise InvalidSettings("--workers: a store in memory cannot be shared by several processes")
    return settings.workers or (1 if in_memory else min(2, os.cpu_count() or 1))


def event_streams(
    api: LambdaAsgiApp,
    calls: CallStore,
    authenticator: Authenticator | None,
    clock: Clock,
    stack: ExitStack,
) -> EventStreams:
    offload = ThreadOffload(STREAM_THREADS, "event-streams")
    stack.callback(offload.close)
    return EventStreams(api, calls, clock=clock, offload=offload, authenticator=authenticator)


def work(settings: WorkerSettings, *, stop_on_eof: bool, write_reports: bool) -> int:
    """Poll until a signal (``duetime worker``); the exit code. Raises ``DuetimeError`` when it cannot start.

    ``write_reports``: tell standard output what is counted and hints of what was stored, for the process that started
    this one. With ``stop_on_eof`` standard input has hints.
    """
    if wiring.is_in_memory(settings.store):
        raise InvalidSettings("--store: a store in memory has no timers but those of its own process")
    with ExitStack() as stack:
        store = stack.enter_context(wiring.chosen_store(settings.store))
        store.check()
        clock = wiring.measured_clock(store)
        secret_box = wiring.make_secret_box(settings)
        hook = wiring.chosen_hook(settings)
        poller = stack.enter_context(wiring.opened_poller(store, settings, clock, secret_box=secret_box, hook=hook))
        relay = stack.enter_context(opened_relay(store, settings, clock, on_stored=poller.notify))
        snapshot = _counted(poller, relay)
        services: list[Service] = [poller_service(poller), *_relay_services(relay)]
        if not stop_on_eof:  # else the process that has started this one does it
            publish = None if hook is None else hook.publish
            release = wiring.tzdata_release(store, clock, on_stored=poller.notify, publish=publish)
            services.append(_tzdata_service(release))
        if settings.metrics_port:
            listener = stack.enter_context(bind(settings.metrics_host, settings.metrics_port))
            metrics: Asgi = MetricsApp(new_registry(lambda: _observe(snapshot, ())), nothing_else)
            services.append(_metrics_service(own_origin_only(metrics, settings, settings.metrics_host), listener))
        if write_reports:
            tell = stack.enter_context(reports_written(snapshot, sys.stdout.fileno()))
            connect(tell, poller, relay, store.calls, clock)
        logger.info(
            "Duetime %s polls %s",
            __version__,
            redact_text(settings.store),
            extra={"action": "worker.polling", "lease_seconds": settings.lease_seconds},
        )
        tell_egress(settings)
        code = run_services(
            services,
            stop_seconds=settings.drain_seconds + STOP_MARGIN_SECONDS,
            on_line=hints_read(hearing(poller, relay)) if stop_on_eof else None,
        )
        logger.info("stopped", extra={"action": "worker.stopped", **poller.stats()})
        return code


def poller_service(poller: Poller) -> ThreadService:
    """Run ``poller`` in an event loop and a thread of its own."""
    loop = uvloop.new_event_loop()
    stop = asyncio.Event()

    def poll() -> None:
        with asyncio.Runner(loop_factory=lambda: loop) as runner:
            runner.run(poller.run(stop))

    def request_stop() -> None:
        with suppress(RuntimeError):  # the loop has ended by itself meanwhile
            loop.call_soon_threadsafe(stop.set)

    return ThreadService("poller", poll, request_stop)


def _tzdata_service(release: TzdataRelease) -> ThreadService:
    stop = threading.Event()

    def work() -> None:
        release.run(stop)
        stop.wait()

    return ThreadService("tzdata", work, stop.set)


def _relay_services(relay: OutboxRelay | None) -> list[ThreadService]:
    return [] if relay is None else [ThreadService("outbox", relay.run, relay.stop)]


def _counted(poller: Poller, relay: OutboxRelay | None) -> Callable[[], EngineSnapshot]:
    """Return a function that takes a snapshot of this process."""
    outbox = None if relay is None else relay.stats
    return lambda: with_outbox(poller.snapshot(), outbox)


def for_browsers(app: Asgi, settings: LocalSettings) -> Asgi:
    """Return ``app`` for pages of the listed origins and, where no key is asked for, of no others."""
    origins = settings.allowed_origins
    if not settings.auth:  # a key is nothing that a page has
        app = own_origin_only(app, settings, settings.host, origins)
    return WithCors(app, Cors(origins)) if origins else app


def own_origin_only(
    app: Asgi, settings: LocalHttp, host: str, origins: frozenset[str] = frozenset()
) -> OwnOriginOnly:
    """Refuse requests of other origins. ``host``: what it listens on, which may be a name."""
    names = (*parse_hosts(settings.allowed_hosts), host.lower())
    return OwnOriginOnly(app, names=names, new_id=new_id, origins=origins)


def _metrics_service(app: Asgi, listener: socket.socket) -> ThreadService:
    url = url_of(listener) + METRICS_PATH

    def tell() -> None:
        logger.info("metrics at %s", url, extra={"action": "metrics.served", "url": url})

    return http_service(app, listener, tell)


def _observe(snapshot: Callable[[], EngineSnapshot], workers: Sequence[WorkerService]) -> dict[str, Observed]:
    """Observe ``snapshot`` of this process, which is worker 1."""
    others = {worker.name: observed for worker in workers if (observed := worker.observe()) is not None}
    return {"worker-1": Observed(snapshot(), 0.0), **others}


def _ensure_default_namespace(store: Store, settings: LocalSettings, clock: Clock) -> None:
    if store.catalogue.get_namespace(DEFAULT_NAMESPACE) is None:
        store.catalogue.create_namespace(
            DEFAULT_NAMESPACE, num_shards=settings.default_num_shards, dedicated=False, now=clock.now()
        )


def refuse_exposure(settings: LocalSettings, listener: socket.socket) -> None:
    """Raise ``InvalidSettings`` where others reach this machine and nobody asks them who they are."""
    host = listener.getsockname()[0]
    if not (is_loopback(host) or settings.auth or settings.open_to_network):
        raise InvalidSettings(
            f"--host: everyone who reaches {host} could create timers, and so make this machine send requests: ask"
            " for API keys with --auth, or allow it with --open-to-network"
        )


def _tell_start(settings: LocalSettings, listener: socket.socket) -> None:
    """Log ``server.started`` last: whoever waits for it knows the rest."""
    if settings.auth:
        logger.info(
            "requests need an API key; `duetime keys create --store` makes one",
            extra={"action": "server.authenticated"},
        )
    else:
        logger.info("no API key is asked for", extra={"action": "server.open"})
    tell_egress(settings)
    host = listener.getsockname()[0]
    if not (is_loopback(host) or settings.auth):
        logger.warning(
            "everyone who reaches this address can create timers, and so make this machine send requests",
            extra={"action": "server.exposed", "host": host},
        )
    url = url_of(listener)
    logger.info(
        "Duetime %s serves %s (console: %s/console, documentation: %s/docs)",
        __version__,
        url,
        url,
        url,
        extra={"action": "server.started", "url": url, "store": settings.store},
    )


def tell_egress(settings: EgressSettings) -> None:
    if settings.egress_allow_loopback:
        logger.info(
            "callbacks may go to this machine itself (127.0.0.0/8, ::1) beside public addresses; %s forbids it",
            f"{option('egress_allow_loopback')} false",
            extra={"action": "egress.loopback_allowed"},
        )
