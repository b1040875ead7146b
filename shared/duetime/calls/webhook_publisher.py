"""Webhooks as a publisher: an event is taken when the timer that will deliver it is stored.

From then on the pollers answer for it (``calls.webhook_delivery``). So a receiver that does not answer holds up
neither the relay nor another tenant.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from duetime.calls.webhook_order import look_again_at, predecessor, wake_next
from duetime.domain.call_events import CallEvent
from duetime.domain.clock import Clock
from duetime.domain.errors import NamespaceUnreadable, StoreError, StoreRefused
from duetime.domain.event_webhooks import (
    EXPIRE_AFTER_MS,
    WEBHOOK_RETRY_POLICY_JSON,
    WEBHOOK_TIMEOUT_SECONDS,
    DeliveryId,
    EventWebhook,
    delivery_of,
    events_namespace,
)
from duetime.domain.namespaces import Namespace
from duetime.domain.timers import Timer, TimerContent, content_digest, new_timer
from duetime.stores.core.store import Store
from duetime.stores.port.timers import PutMode, PutResult, PutStatus
from duetime.stores.refusals import apart


class WebhookPublisher:
    """``calls.publishing.EventPublisher``."""

    name = "webhook"

    def __init__(
        self, store: Store, *, clock: Clock, on_stored: Callable[[Sequence[Timer]], None] = lambda _: None
    ) -> None:
        """``on_stored`` is told of the timers: a hint for a poller in this process."""
        self._store = store
        self._clock = clock
        self._on_stored = on_stored

    def publish(self, events: Sequence[CallEvent]) -> Mapping[str, str]:
        by_tenant: dict[str, list[CallEvent]] = {}
        for event in events:
            by_tenant.setdefault(event.tenant_id, []).append(event)
        refused: dict[str, str] = {}
        for tenant_id, of_tenant in by_tenant.items():
            try:
                refused |= self._publish(tenant_id, of_tenant)
            except StoreError as error:  # each tenant by itself: one may be all that cannot be read
                refused |= dict.fromkeys((event.event_id for event in of_tenant), error.code)
        return refused

    def close(self) -> None:
        """Do nothing: the store belongs to the caller."""

    def _publish(self, tenant_id: str, events: Sequence[CallEvent]) -> dict[str, str]:
        """Return the events whose timers the database refuses."""
        # Asked for every time: what is published after a webhook was set is delivered to it.
        namespace = self._store.catalogue.get_namespace(events_namespace(tenant_id))
        if namespace is not None and namespace.unreadable is not None:
            raise NamespaceUnreadable(namespace.name)  # the events wait: whether anybody wants them cannot be read
        webhook = None if namespace is None else namespace.settings.webhook
        if namespace is None or webhook is None:
            return {}
        wanted = [event for event in events if webhook.wants(event.type)]
        if not wanted:
            return {}
        now = self._clock.now()
        timers = [self._timer(namespace, webhook, event, now) for event in wanted]
        results = apart(
            lambda some: self._store.timers.put(some, mode=PutMode.CREATE, now=now),
            timers,
            lambda _: PutResult(PutStatus.REFUSED, None),
        )
        stored = [result.timer for result in results if result.status is PutStatus.CREATED and result.timer]
        self._on_stored(stored)
        for event, timer in zip(wanted, timers, strict=True):
            if timer.next_attempt_at != now:
                self._look_again(namespace, delivery_of(event))
        pairs = zip(wanted, results, strict=True)
        return {event.event_id: StoreRefused.code for event, result in pairs if result.status is PutStatus.REFUSED}

    def _timer(self, namespace: Namespace, webhook: EventWebhook, event: CallEvent, now: datetime) -> Timer:
        """Return the timer of ``event``: due now if its turn has come, else when it is to look again."""
        content = TimerContent(
            execute_at=now,
            callback_url=webhook.url,
            payload_json=event.to_json(),
            retry_policy_json=WEBHOOK_RETRY_POLICY_JSON,
            callback_timeout_seconds=WEBHOOK_TIMEOUT_SECONDS,
            correlation_id=event.correlation_id,
            tags=(str(event.type),),
            expire_after_ms=EXPIRE_AFTER_MS,
        )
        delivery = delivery_of(event)
        timer = new_timer(
            namespace, str(delivery), content, digest=content_digest(content), firing_id=event.event_id, now=now
        )
        waits_for = predecessor(self._store.timers, namespace, delivery, now=now)
        return timer if waits_for is None else replace(timer, next_attempt_at=look_again_at(waits_for, now=now))

    def _look_again(self, namespace: Namespace, delivery: DeliveryId) -> None:
        """Wake the delivery if its predecessor ended, and looked for it in vain, before its timer was stored."""
        now = self._clock.now()
        if predecessor(self._store.timers, namespace, delivery, now=now) is None:
            before = DeliveryId(delivery.call_id, delivery.sequence - 1)
            self._on_stored(wake_next(self._store.timers, namespace, before, now=now))
