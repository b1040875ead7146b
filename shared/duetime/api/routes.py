"""The table of routes: which endpoint answers what. ``openapi`` describes each of them by its ``operation_id``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from duetime.api import (
    api_keys,
    attempts,
    batches,
    catalogue,
    console,
    documents,
    event_webhooks,
    redrives,
    signing_secrets,
    timer_lists,
    timers,
)
from duetime.api.auth import PUBLIC, Need
from duetime.api.conditions import IF_MATCH, IF_NONE_MATCH
from duetime.api.http import Reply
from duetime.api.idempotency import Keeps
from duetime.domain.principals import Role

_NAMESPACE = "/v1/namespaces/<namespace>"
_API_KEYS = "/v1/tenants/<tenant>/api-keys"
_WEBHOOK = "/v1/tenants/<tenant>/event-webhook"
_WEBHOOK_SECRETS = f"{_WEBHOOK}/secrets"
_DELIVERIES = f"{_WEBHOOK}/deliveries"
_TIMERS = f"{_NAMESPACE}/timers"
_SECRETS = f"{_NAMESPACE}/secrets"
_TIMER = f"{_TIMERS}/<timer_id>"
WRITES = frozenset({"POST", "PUT", "PATCH", "DELETE"})
_MATCH = (IF_MATCH,)
_NONE_MATCH = (IF_NONE_MATCH,)


@dataclass(frozen=True, slots=True)
class Route:
    """``endpoint(services, request, **path parameters)``; ``rule`` has the parameters in angle brackets.

    ``needs`` is the least role that an API key must have, or PUBLIC. It has no default, so that no route is without
    one. A parameter ``<tenant>`` must be the tenant of the key (``auth.authorise``). ``conditions``: the headers of
    conditional requests that the endpoint honours; on a write, others are refused. ``keeps``: what is kept of the
    answer to a request with an idempotency key.
    """

    method: str
    rule: str
    operation_id: str
    endpoint: Callable[..., Reply]
    needs: Need
    conditions: tuple[str, ...] = ()
    keeps: Keeps = Keeps.ANSWER


# The first rule that fits counts: the words after /timers/ are ids for every method but POST.
ROUTES = (
    Route("PUT", _NAMESPACE, "putNamespace", catalogue.put_namespace, Role.ADMIN, _MATCH),
    Route("GET", _NAMESPACE, "getNamespace", catalogue.get_namespace, Role.READER, _NONE_MATCH),
    Route("GET", "/v1/namespaces", "listNamespaces", catalogue.list_namespaces, Role.READER),
    Route("DELETE", _NAMESPACE, "deleteNamespace", catalogue.delete_namespace, Role.ADMIN, _MATCH),
    Route("POST", f"{_NAMESPACE}/pause", "pauseNamespace", catalogue.pause_namespace, Role.ADMIN, _MATCH),
    Route("POST", f"{_NAMESPACE}/resume", "resumeNamespace", catalogue.resume_namespace, Role.ADMIN, _MATCH),
    Route("POST", _SECRETS, "createSecret", signing_secrets.create_secret, Role.ADMIN, keeps=Keeps.FACT),
    Route("GET", _SECRETS, "listSecrets", signing_secrets.list_secrets, Role.ADMIN),
    Route("DELETE", f"{_SECRETS}/<secret_id>", "deleteSecret", signing_secrets.delete_secret, Role.ADMIN),
    Route("POST", _TIMERS, "createTimer", timers.create_timer, Role.WRITER),
    Route("GET", _TIMERS, "listTimers", timer_lists.list_timers, Role.READER),
    Route("POST", f"{_TIMERS}/batch", "createTimers", batches.create_batch, Role.WRITER),
    Route("POST", f"{_TIMERS}/batch-cancel", "cancelTimers", batches.cancel_batch, Role.WRITER),
    Route("PUT", _TIMER, "putTimer", timers.put_timer, Role.WRITER, (IF_MATCH, IF_NONE_MATCH)),
    Route("GET", _TIMER, "getTimer", timers.get_timer, Role.READER, _NONE_MATCH),
    Route("PATCH", _TIMER, "patchTimer", timers.patch_timer, Role.WRITER, _MATCH),
    Route("DELETE", _TIMER, "deleteTimer", timers.delete_timer, Role.WRITER, _MATCH),
    Route("POST", f"{_TIMER}/redrive", "redriveTimer", redrives.redrive_timer, Role.WRITER, _MATCH),
    Route("POST", f"{_TIMER}/fire", "fireTimer", redrives.fire_timer, Role.WRITER, _MATCH),
    Route("POST", f"{_NAMESPACE}/redrive", "redriveTimers", redrives.redrive_timers, Role.WRITER),
    Route("GET", f"{_TIMER}/attempts", "listAttempts", attempts.list_attempts, Role.READER),
    Route("POST", _API_KEYS, "createApiKey", api_keys.create_api_key, Role.ADMIN, keeps=Keeps.FACT),
    Route("GET", _API_KEYS, "listApiKeys", api_keys.list_api_keys, Role.ADMIN),
    Route("DELETE", f"{_API_KEYS}/<key_id>", "deleteApiKey", api_keys.delete_api_key, Role.ADMIN),
    Route("PUT", _WEBHOOK, "putEventWebhook", event_webhooks.put_webhook, Role.ADMIN, (IF_MATCH, IF_NONE_MATCH)),
    Route("GET", _WEBHOOK, "getEventWebhook", event_webhooks.get_webhook, Role.ADMIN, _NONE_MATCH),
    Route("DELETE", _WEBHOOK, "deleteEventWebhook", event_webhooks.delete_webhook, Role.ADMIN, _MATCH),
    Route("POST", _WEBHOOK_SECRETS, "createEventSecret", event_webhooks.create_secret, Role.ADMIN, keeps=Keeps.FACT),
    Route("GET", _WEBHOOK_SECRETS, "listEventSecrets", event_webhooks.list_secrets, Role.ADMIN),
    Route(
        "DELETE",
        f"{_WEBHOOK_SECRETS}/<event_secret_id>",
        "deleteEventSecret",
        event_webhooks.delete_secret,
        Role.ADMIN,
    ),
    Route("GET", _DELIVERIES, "listDeliveries", event_webhooks.list_deliveries, Role.READER),
    Route(
        "GET",
        f"{_DELIVERIES}/<delivery_id>/attempts",
        "listDeliveryAttempts",
        event_webhooks.list_attempts,
        Role.READER,
    ),
    Route("POST", f"{_WEBHOOK}/redrive", "redriveDeliveries", event_webhooks.redrive_deliveries, Role.WRITER),
    Route("GET", "/v1/principal", "getPrincipal", api_keys.get_principal, Role.READER),
    Route("GET", "/v1/shards", "listShards", catalogue.list_shards, Role.ADMIN),
    Route("GET", "/health", "getHealth", catalogue.get_health, PUBLIC),
    Route("GET", "/v1/openapi.json", "getOpenApi", documents.get_openapi, PUBLIC),
    Route("GET", "/docs", "getDocs", documents.get_docs, PUBLIC),
    Route("GET", "/", "getRoot", console.get_root, PUBLIC),
    Route("GET", "/console", "getConsole", console.get_console, PUBLIC, _NONE_MATCH),
    Route("GET", "/console/<file_name>", "getConsoleFile", console.get_console_file, PUBLIC, _NONE_MATCH),
)
