"""The API put together: all of it for the local server, and a part for each Lambda function.

Imports are local to the functions that need them, since what is imported is cold start: the timers API needs nothing
of service calls.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from duetime.domain.clock import Clock
from duetime.domain.events import Event
from duetime.domain.timers import Timer
from duetime.runtime.ids import new_id
from duetime.runtime.logs import LogContext
from duetime.runtime.settings import (
    LocalSettings,
    ServiceCallsApiSettings,
    TimersApiSettings,
    load_settings,
)
from duetime.runtime.tuning import ApiTuning, HttpTuning
from duetime.runtime.wiring import Handler, log_to_lambda, make_secret_box, make_waker, store_clock
from duetime.stores.core.store import Store
from duetime.stores.store_clock import StoreClock

if TYPE_CHECKING:
    from duetime.api.context import ApiContext, ServedRequest
    from duetime.api.http.authentication import KeyAuthenticator
    from duetime.api.http.request import Request
    from duetime.delivery.encryption import SecretBox
    from duetime.domain.principals import Principal


def api_context(
    store: Store,
    settings: ApiTuning,
    clock: StoreClock,
    *,
    secret_box: SecretBox | None,
    authenticate: Callable[[Request], Principal] | None,
    keeps_time: bool = False,
    on_stored: Callable[[Sequence[Timer]], None] | None = None,
    on_served: Callable[[ServedRequest], None] | None = None,
    publish: Callable[[Sequence[Event]], None] | None = None,
    shards_given_back: Callable[[], int] | None = None,
) -> ApiContext:
    """``authenticate`` None: open mode, in which nobody is asked who they are. ``keeps_time``: no poller of this
    process measures the store's time, so requests have to."""
    from duetime.api.context import ApiContext

    hooks: dict[str, Any] = {
        "on_stored": on_stored,
        "on_served": on_served,
        "publish": publish,
        "shards_given_back": shards_given_back,
        "keep_time": clock.keep if keeps_time else None,
    }
    return ApiContext(
        store=store,
        clock=clock,
        clock_offset_seconds=lambda: clock.offset_seconds,
        new_id=new_id,
        log_context=lambda request_id: LogContext(request_id=request_id),
        default_num_shards=settings.default_num_shards,
        secret_box=secret_box,
        egress=settings.egress_policy(),
        authenticate=authenticate,
        redaction=settings.redaction_rules(),
        cancelled_retention=timedelta(seconds=settings.fired_retention_seconds),
        **{name: hook for name, hook in hooks.items() if hook is not None},
    )


def with_calls(context: ApiContext, settings: ApiTuning) -> ApiContext:
    """Return ``context`` for handlers that serve service calls too."""
    from duetime.app.service_calls import CallServices

    services = CallServices.of(
        context.store,
        rules=settings.call_rules(),
        num_shards=settings.default_num_shards,
        new_id=context.new_id,
        on_stored=context.on_stored,
        clock=context.clock,
    )
    return replace(context, calls=services)


def whole_api(context: ApiContext, settings: ApiTuning) -> Handler:
    """Return the handler where one process serves everything; safe to call from several threads."""
    from duetime.api.handler import build_handler
    from duetime.api.routes import all_routes

    return build_handler(with_calls(context, settings), all_routes())


def key_authenticator(store: Store, settings: LocalSettings, clock: Clock) -> KeyAuthenticator | None:
    """Make the authenticator of ``--auth``; None if no key is required."""
    from duetime.api.http.authentication import KeyAuthenticator

    return (
        KeyAuthenticator(store.catalogue, clock, cache_seconds=settings.auth_cache_seconds) if settings.auth else None
    )


# -- Lambda functions: settings from the environment. They serve nobody without an API key. ------------------------


def timers_api_function() -> Handler:
    """Return the timers API, with all that is no tenant's or no service call's."""
    from duetime.api.handler import build_handler
    from duetime.runtime.eventbridge import EventBridgeEvents

    settings = load_settings(TimersApiSettings)
    context = _context_on_lambda(settings)
    events = EventBridgeEvents(settings.event_bus, clock=context.clock)
    context = replace(context, publish=events.publish, max_timeout_seconds=int(settings.drain_seconds))
    return with_cors(build_handler(context), settings)


def service_calls_api_function() -> Handler:
    """Return the API of service calls."""
    from duetime.api.handler import build_handler
    from duetime.api.routes import call_routes

    settings = load_settings(ServiceCallsApiSettings)
    context = _context_on_lambda(settings)
    return with_cors(build_handler(with_calls(context, settings), call_routes()), settings)


def _context_on_lambda(settings: TimersApiSettings | ServiceCallsApiSettings) -> ApiContext:
    from duetime.api.http.authentication import KeyAuthenticator
    from duetime.stores.open import open_store

    log_to_lambda(settings)
    store = open_store(settings.store)
    clock = store_clock(store)
    return api_context(
        store,
        settings,
        clock,
        secret_box=make_secret_box(settings),
        authenticate=KeyAuthenticator(store.catalogue, clock, cache_seconds=settings.auth_cache_seconds),
        keeps_time=True,
        on_stored=make_waker(store, clock, settings),
    )


def with_cors(handler: Handler, settings: HttpTuning) -> Handler:
    """Return ``handler`` for pages of the listed origins, too. The local server has responses that are no
    handler's."""
    if not settings.allowed_origins:
        return handler
    from duetime.api.http.cors import Cors

    cors = Cors(settings.allowed_origins)

    def answer(event: dict[str, Any], lambda_context: Any) -> dict[str, Any]:
        given = event["headers"]
        allowed = cors.preflight(event["requestContext"]["http"]["method"], given)
        if allowed is not None:
            return {"statusCode": 204, "headers": allowed, "body": "", "isBase64Encoded": False}
        result = handler(event, lambda_context)
        return {**result, "headers": {**result["headers"], **cors.headers(given.get("origin"))}}

    return answer
