"""The table of routes: which endpoint answers what. ``openapi`` describes each of them by its ``operation_id``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from duetime.api import attempts, batches, catalogue, documents, redrives, signing_secrets, timer_lists, timers
from duetime.api.http import Reply

_NAMESPACE = "/v1/namespaces/<namespace>"
_TIMERS = f"{_NAMESPACE}/timers"
_SECRETS = f"{_NAMESPACE}/secrets"
_TIMER = f"{_TIMERS}/<timer_id>"


@dataclass(frozen=True, slots=True)
class Route:
    """``endpoint(services, request, **path parameters)``; ``rule`` has the parameters in angle brackets."""

    method: str
    rule: str
    operation_id: str
    endpoint: Callable[..., Reply]


# The first rule that fits counts: the words after /timers/ are ids for every method but POST.
ROUTES = (
    Route("PUT", _NAMESPACE, "putNamespace", catalogue.put_namespace),
    Route("GET", _NAMESPACE, "getNamespace", catalogue.get_namespace),
    Route("GET", "/v1/namespaces", "listNamespaces", catalogue.list_namespaces),
    Route("POST", _SECRETS, "createSecret", signing_secrets.create_secret),
    Route("GET", _SECRETS, "listSecrets", signing_secrets.list_secrets),
    Route("DELETE", f"{_SECRETS}/<secret_id>", "deleteSecret", signing_secrets.delete_secret),
    Route("POST", _TIMERS, "createTimer", timers.create_timer),
    Route("GET", _TIMERS, "listTimers", timer_lists.list_timers),
    Route("POST", f"{_TIMERS}/batch", "createTimers", batches.create_batch),
    Route("POST", f"{_TIMERS}/batch-cancel", "cancelTimers", batches.cancel_batch),
    Route("PUT", _TIMER, "putTimer", timers.put_timer),
    Route("GET", _TIMER, "getTimer", timers.get_timer),
    Route("PATCH", _TIMER, "patchTimer", timers.patch_timer),
    Route("DELETE", _TIMER, "deleteTimer", timers.delete_timer),
    Route("POST", f"{_TIMER}/redrive", "redriveTimer", redrives.redrive_timer),
    Route("POST", f"{_TIMER}/fire", "fireTimer", redrives.fire_timer),
    Route("POST", f"{_NAMESPACE}/redrive", "redriveTimers", redrives.redrive_timers),
    Route("GET", f"{_TIMER}/attempts", "listAttempts", attempts.list_attempts),
    Route("GET", "/v1/shards", "listShards", catalogue.list_shards),
    Route("GET", "/health", "getHealth", catalogue.get_health),
    Route("GET", "/v1/openapi.json", "getOpenApi", documents.get_openapi),
    Route("GET", "/docs", "getDocs", documents.get_docs),
)
