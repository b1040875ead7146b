"""Delivering events to tenants' webhooks: decides their order (``engine.firing.ordering_policy``).

A delivery is sent when nothing of its call is ahead of it (``calls.webhook_order``), to the URL that the tenant has
set by now, with the envelope as its body and the event's id as ``webhook-id``.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from duetime.calls.webhook_order import look_again_at, predecessor, wake_next
from duetime.delivery.encryption import SecretBox
from duetime.delivery.port import CallbackResult
from duetime.delivery.request import document_callback
from duetime.delivery.signing import Signer
from duetime.domain.clock import Clock
from duetime.domain.event_webhooks import EVENTS_PREFIX, DeliveryId, EventWebhook, read_delivery_id
from duetime.domain.namespaces import Namespace
from duetime.domain.outcomes import Outcome
from duetime.domain.timers import Failure, FailureReason, Timer, TimerState
from duetime.domain.times import round_up
from duetime.engine.firing.ordering_policy import Decision
from duetime.engine.namespace_cache import NamespaceCache
from duetime.engine.response.classify import Classification, Disposition, classify, retry_after_seconds
from duetime.stores.core.store import Store

UNUSABLE_SECONDS = 30.0
MAX_UNUSABLE_SECONDS = 900.0
"""How long a delivery waits at least and at most while the webhook is switched off, or its signing secret cannot be
had: a tenth of its age. Each look costs a write, and a tenant may hold very many of them for a week."""
_GONE = 410


@dataclass(frozen=True, slots=True)
class _Target:
    """What is known of a tenant's webhook; ``webhook`` None: it was removed."""

    namespace: Namespace
    webhook: EventWebhook | None
    signer: Signer | None
    is_usable: bool


class WebhookOrdering:
    """``engine.firing.ordering_policy.OrderingPolicy``."""

    def __init__(
        self,
        store: Store,
        *,
        clock: Clock,
        secret_box: SecretBox | None,
        on_stored: Callable[[Sequence[Timer]], None] = lambda _: None,
    ) -> None:
        """``on_stored`` is told of timers that were made due: a hint for the poller."""
        self._timers = store.timers
        self._namespaces = NamespaceCache(store.catalogue, clock=clock, secret_box=secret_box)
        self._lock = threading.Lock()  # the cache is made for one thread
        self._on_stored = on_stored

    def takes(self, namespace: str) -> bool:
        return namespace.startswith(EVENTS_PREFIX)

    # -- before ----------------------------------------------------------------------------------------------

    def admit(self, timers: Sequence[Timer], *, now: datetime) -> list[Decision]:
        targets = self._targets({timer.namespace for timer in timers})
        return [self._admit(timer, targets.get(timer.namespace), now) for timer in timers]

    def _admit(self, timer: Timer, target: _Target | None, now: datetime) -> Decision:
        delivery = read_delivery_id(timer.timer_id)
        if target is not None and target.namespace.unreadable is not None:
            return _later(timer, now)
        if target is None or target.webhook is None or delivery is None or timer.content.payload_json is None:
            return Decision(failure=Failure(FailureReason.REFUSED_URL, "the webhook was removed", now))
        if not target.is_usable:
            return _later(timer, now)
        waits_for = predecessor(self._timers, target.namespace, delivery, now=now)
        if waits_for is not None:
            return Decision(wait_until=look_again_at(waits_for, now=now))
        url, signer = target.webhook.url, target.signer
        return Decision(callback=document_callback(timer, url=url, fired_at=now, signer=signer))

    # -- after -----------------------------------------------------------------------------------------------

    def classify(self, result: CallbackResult, *, now: datetime) -> Classification:
        """Say what a response means. A 2xx is the end whatever the body says, and 410 is: the receiver wants no more.

        All else is tried again: a receiver that is mended answers 200 to what it refused before.
        """
        status = result.status
        if status is None:
            return classify(result, now=now)
        if 200 <= status < 300:
            return Classification(Disposition.FIRED)
        return Classification(
            Disposition.FAILED if status == _GONE else Disposition.RETRY,
            retry_after_seconds=retry_after_seconds(result.retry_after, now=now),
            reason=FailureReason.HTTP_STATUS,
            message=f"the receiver answered with status {status}",
        )

    def recorded(self, outcomes: Sequence[Outcome], *, now: datetime) -> None:
        targets = self._targets({outcome.timer.namespace for outcome in outcomes})
        for outcome in outcomes:
            target, delivery = targets.get(outcome.timer.namespace), read_delivery_id(outcome.timer.timer_id)
            if target is None or delivery is None:
                continue
            if outcome.state is not TimerState.SCHEDULED:
                self._wake_after(target, delivery, now)
            elif target.is_usable and predecessor(self._timers, target.namespace, delivery, now=now) is None:
                # What it waited for ended while it was being put off, and found nothing that waited.
                self._wake_after(target, DeliveryId(delivery.call_id, delivery.sequence - 1), now)

    def _wake_after(self, target: _Target, ended: DeliveryId, now: datetime) -> None:
        woken = wake_next(self._timers, target.namespace, ended, now=now)
        if woken:
            self._on_stored(woken)

    # -- webhooks --------------------------------------------------------------------------------------------

    def _targets(self, names: set[str]) -> dict[str, _Target]:
        """Return the webhooks of ``names`` as they were a few seconds ago at most. Raises ``StoreError``."""
        with self._lock:
            self._namespaces.load(names)
            found = {name: (self._namespaces.stored(name), self._namespaces.get(name)) for name in names}
        targets: dict[str, _Target] = {}
        for name, (namespace, view) in found.items():
            if namespace is not None and view is not None:
                webhook = namespace.settings.webhook
                is_usable = view.is_usable and webhook is not None and webhook.is_enabled
                targets[name] = _Target(namespace, webhook, view.signer, is_usable)
        return targets


def _later(timer: Timer, now: datetime) -> Decision:
    """Put a delivery off whose webhook cannot be used for now."""
    age_seconds = (now - timer.created_at).total_seconds()
    wait = min(max(age_seconds / 10, UNUSABLE_SECONDS), MAX_UNUSABLE_SECONDS)
    return Decision(wait_until=round_up(now + timedelta(seconds=wait)))
