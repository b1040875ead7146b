"""A tenant's webhook for the events of its service calls: set, show, remove; its signing secrets; its deliveries.

All of it is kept in the internal namespace ``events@<tenant>``, which is made with the first setting or secret.
"""

from __future__ import annotations

from dataclasses import replace

from duetime.api.context import Services
from duetime.api.http.errors import EventWebhookNotFound
from duetime.api.http.page_size import page_reply
from duetime.api.http.parsing import check_egress, read_body, read_query, validate
from duetime.api.http.preconditions import (
    IF_MATCH,
    IF_NONE_MATCH,
    EntityTags,
    etag,
    if_match,
    if_none_match,
    not_modified,
)
from duetime.api.http.request import Reply, Request
from duetime.api.http.request_models import PLAIN_SHAPE
from duetime.api.http.responses import json_reply
from duetime.api.http.route import Keeps, Route
from duetime.api.namespaces.requests import SecretBody
from duetime.api.namespaces.responses import CreatedSecretResponse, SecretPage
from duetime.api.namespaces.secrets import created_reply, listed_reply
from duetime.api.timers.attempts import attempts_reply
from duetime.api.timers.redrives import redrive_within
from duetime.api.timers.requests import RedriveBody
from duetime.api.timers.responses import AttemptPage, RedriveResponse
from duetime.api.webhooks.requests import DeliveryQuery, EventWebhookBody
from duetime.api.webhooks.responses import (
    DeliveryPage,
    EventWebhookResponse,
    delivery_response,
    webhook_response,
)
from duetime.app.namespaces import delete_secret as end_secret
from duetime.app.namespaces import readable, with_settings
from duetime.domain.call_events import CallEventType
from duetime.domain.errors import NamespaceConflict, RevisionMismatch, SecretNotFound, TimerNotFound
from duetime.domain.event_webhooks import EventWebhook, events_namespace, read_delivery_id
from duetime.domain.namespaces import Namespace, NamespaceSettings
from duetime.domain.principals import Role
from duetime.domain.secrets import valid_secrets
from duetime.stores.port.timers import TimerFilter

# -- the webhook ---------------------------------------------------------------------------------------------------


_WEBHOOK = "/v1/tenants/<tenant>/event-webhook"
_WEBHOOK_SECRETS = "/v1/tenants/<tenant>/event-webhook/secrets"
_DELIVERIES = "/v1/tenants/<tenant>/event-webhook/deliveries"


@Route(
    "PUT",
    _WEBHOOK,
    Role.ADMIN,
    summary="Set where the events of the tenant's service calls are delivered to",
    body=EventWebhookBody,
    responses={200: EventWebhookResponse, 201: EventWebhookResponse},
    conditions=(IF_MATCH, IF_NONE_MATCH),
)
def put_event_webhook(services: Services, request: Request, *, tenant: str) -> Reply:
    """Create the event webhook (201) or replace it (200). It holds for events that are published from now on."""
    body = validate(EventWebhookBody, read_body(request, PLAIN_SHAPE))
    check_egress("url", body.url, services.context.egress)
    types = None if body.event_types is None else tuple(map(CallEventType, body.event_types))
    webhook = EventWebhook(url=body.url, event_types=types, is_enabled=body.enabled)
    wanted, unwanted = if_match(request), if_none_match(request)
    if wanted is not None and _found(services, tenant) is None:
        raise _mismatch()
    is_new = False

    def change(namespace: Namespace) -> Namespace:
        nonlocal is_new
        is_new = namespace.settings.webhook is None
        _check_revision(namespace, wanted)
        if unwanted is not None and not is_new and unwanted.match_weakly(namespace.revision):
            raise _mismatch()
        return with_settings(namespace, webhook=webhook)

    name = _ensured(services, tenant).name
    stored = services.access(request, is_internal=True).change(name, change)
    return _webhook_reply(201 if is_new else 200, stored, webhook)


@Route(
    "GET",
    _WEBHOOK,
    Role.ADMIN,
    summary="Read the event webhook",
    responses={200: EventWebhookResponse, 304: None},
    conditions=(IF_NONE_MATCH,),
)
def get_event_webhook(services: Services, request: Request, *, tenant: str) -> Reply:
    """Return the event webhook; 304 when ``If-None-Match`` names its revision."""
    namespace = _found(services, tenant)
    if namespace is None or namespace.settings.webhook is None:
        raise EventWebhookNotFound(tenant)
    return not_modified(request, namespace.revision) or _webhook_reply(200, namespace, namespace.settings.webhook)


def _webhook_reply(status: int, namespace: Namespace, webhook: EventWebhook) -> Reply:
    """Answer with the revision of all that is kept of the webhook: it counts changes of its secrets too."""
    response = webhook_response(webhook, revision=namespace.revision)
    return json_reply(status, response, {"etag": etag(namespace.revision)})


def _check_revision(namespace: Namespace, wanted: EntityTags | None) -> None:
    if wanted is not None and (namespace.settings.webhook is None or not wanted.match_strongly(namespace.revision)):
        raise _mismatch()


def _mismatch() -> RevisionMismatch:
    return RevisionMismatch("the event webhook is not in a state that the precondition allows")


@Route(
    "DELETE",
    _WEBHOOK,
    Role.ADMIN,
    summary="Remove the event webhook and its secrets; what waits becomes dead letters",
    responses={204: None},
    conditions=(IF_MATCH,),
)
def delete_event_webhook(services: Services, request: Request, *, tenant: str) -> Reply:
    """Remove the event webhook and its secrets (204). Waiting deliveries become dead letters."""
    wanted = if_match(request)

    def change(namespace: Namespace) -> Namespace:
        if namespace.settings.webhook is None:
            raise EventWebhookNotFound(tenant)
        _check_revision(namespace, wanted)
        return replace(namespace, settings=NamespaceSettings(), secrets=())

    namespace = _found(services, tenant)
    if namespace is None:
        raise EventWebhookNotFound(tenant)
    services.access(request, is_internal=True).change(namespace.name, change)
    return Reply(status=204)


# -- its secrets ---------------------------------------------------------------------------------------------------


@Route(
    "POST",
    _WEBHOOK_SECRETS,
    Role.ADMIN,
    summary="Create a signing secret; the one before it stays valid for an overlap",
    body=SecretBody,
    body_is_required=False,
    responses={201: CreatedSecretResponse},
    problems=(503,),
    keeps=Keeps.FACT,
)
def create_event_secret(services: Services, request: Request, *, tenant: str) -> Reply:
    """Create a signing secret and return it (201).

    No other response shows it. At most two are valid: a third is a 409.
    """
    return created_reply(services, request, lambda: _ensured(services, tenant).name, is_internal=True)


@Route(
    "GET",
    _WEBHOOK_SECRETS,
    Role.ADMIN,
    summary="List the signing secrets that are valid",
    responses={200: SecretPage},
)
def list_event_secrets(services: Services, request: Request, *, tenant: str) -> Reply:  # noqa: ARG001
    """Return the ids and times of the secrets that are valid now, oldest first, without their values."""
    namespace = _found(services, tenant)
    return listed_reply(() if namespace is None else valid_secrets(namespace, services.context.clock.now()))


@Route(
    "DELETE",
    f"{_WEBHOOK_SECRETS}/<secret_id>",
    Role.ADMIN,
    summary="End a signing secret at once",
    responses={204: None},
)
def delete_event_secret(services: Services, request: Request, *, tenant: str, secret_id: str) -> Reply:
    """End a signing secret (204). Events are not signed with it any more."""
    namespace = _found(services, tenant)
    if namespace is None:
        raise SecretNotFound(events_namespace(tenant), secret_id)
    end_secret(services.access(request, is_internal=True), namespace.name, secret_id)
    return Reply(status=204)


# -- its deliveries ------------------------------------------------------------------------------------------------


@Route(
    "GET",
    _DELIVERIES,
    Role.READER,
    summary="List events on their way to the webhook, delivered ones and dead letters",
    query=DeliveryQuery,
    responses={200: DeliveryPage},
)
def list_deliveries(services: Services, request: Request, *, tenant: str) -> Reply:
    """Return a page of the deliveries that match. A page may be short or empty and not be the last."""
    query = read_query(DeliveryQuery, request)
    cursors = services.cursors.of(request.principal, "deliveries", tenant, query.state, query.type)
    cursor = cursors.decode(query.cursor)
    namespace = _found(services, tenant)
    if namespace is None:
        return json_reply(200, DeliveryPage([], None))
    timer_filter = TimerFilter(state=query.state, tag=None if query.type is None else str(query.type))
    store, now = services.context.store, services.context.clock.now()
    return page_reply(
        DeliveryPage,
        lambda limit: store.timers.list(namespace, timer_filter, cursor=cursor, limit=limit, now=now),
        delivery_response,
        limit=query.limit,
        to_cursor=cursors.encode,
    )


@Route(
    "GET",
    f"{_DELIVERIES}/<delivery_id>/attempts",
    Role.READER,
    summary="List the last attempts of a delivery, oldest first",
    responses={200: AttemptPage},
)
def list_delivery_attempts(services: Services, request: Request, *, tenant: str, delivery_id: str) -> Reply:
    """Return the last attempts of a delivery, oldest first, on one page."""
    namespace = _found(services, tenant)
    timer = None
    if namespace is not None and read_delivery_id(delivery_id) is not None:
        timer = services.context.store.timers.get(namespace, delivery_id, now=services.context.clock.now())
    if timer is None:
        raise TimerNotFound(events_namespace(tenant), delivery_id)
    return attempts_reply(services, request, timer)


@Route(
    "POST",
    f"{_WEBHOOK}/redrive",
    Role.WRITER,
    summary="Deliver dead letters again, by filter, a page at a time, or by ids",
    body=RedriveBody,
    body_is_required=False,
    responses={200: RedriveResponse},
)
def redrive_deliveries(services: Services, request: Request, *, tenant: str) -> Reply:
    """Deliver dead letters again: one page of those that match the filters, or those with the given ids."""
    return redrive_within(services, request, _ensured(services, tenant))


# -- the namespace -------------------------------------------------------------------------------------------------


def _found(services: Services, tenant: str) -> Namespace | None:
    """Find it as it is now. The path's tenant is the key's (``auth.authorise``), and the name is made of it."""
    found = services.context.store.catalogue.get_namespace(events_namespace(tenant))
    return None if found is None else readable(found)


def _ensured(services: Services, tenant: str) -> Namespace:
    context = services.context
    found = _found(services, tenant)
    if found is not None:
        return found
    try:
        made, _ = context.store.catalogue.create_namespace(
            events_namespace(tenant),
            num_shards=context.default_num_shards,
            dedicated=False,
            now=context.clock.now(),
            tenant_id=tenant,
        )
    except NamespaceConflict:  # a process with another setting came first: what it made counts
        found = _found(services, tenant)
        if found is None:
            raise
        return found
    return made
