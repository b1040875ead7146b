"""Webhooks of events in virtual time: pollers and store are real, the outbox and the receiver are not."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from duetime.calls.webhook_delivery import WebhookOrdering
from duetime.calls.webhook_publisher import WebhookPublisher
from duetime.domain.call_events import CallEvent
from duetime.domain.event_webhooks import EventWebhook, delivery_of, events_namespace
from duetime.domain.namespaces import EncryptedSecret, Namespace, NamespaceSettings
from duetime.domain.timers import Timer, TimerState
from duetime.engine.poller import Poller
from duetime.runtime.local_key import LocalSecretBox, ProcessKey
from duetime.stores.core.store import Store
from duetime.stores.port.timers import TimerFilter
from duetime.testing.virtual_time import VirtualClock
from tests.support.clock import NOW as START
from tests.support.engine import Script, make_poller, run
from tests.support.outbox import FakeOutbox, make_event, make_relay
from tests.support.scripted_sender import RequestSender

URL = "http://hooks.test/events?key=s3cret"


@dataclass
class WebhookWorld:
    """A tenant's webhook, the outbox, pollers and what arrived."""

    store: Store
    clock: VirtualClock = field(default_factory=lambda: VirtualClock(START))
    sender: RequestSender = field(default_factory=RequestSender)
    outbox: FakeOutbox = field(default_factory=FakeOutbox)
    box: LocalSecretBox = field(default_factory=lambda: LocalSecretBox(ProcessKey()))
    pollers: list[Poller] = field(default_factory=list)

    def add_webhook(self, tenant_id: str = "acme", *, secret: bytes | None = None, **fields: Any) -> None:
        name = events_namespace(tenant_id)
        self.store.catalogue.create_namespace(name, num_shards=4, dedicated=False, now=START, tenant_id=tenant_id)
        if secret is not None:
            ciphertext = EncryptedSecret("s1", self.box.encrypt(secret, context=name), START)
            self._change(tenant_id, lambda namespace: replace(namespace, secrets=(ciphertext,)))
        self.set_webhook(EventWebhook(**({"url": URL} | fields)), tenant_id)

    def set_webhook(self, webhook: EventWebhook | None, tenant_id: str = "acme") -> None:
        self._change(tenant_id, lambda namespace: replace(namespace, settings=NamespaceSettings(webhook=webhook)))

    def _change(self, tenant_id: str, change: Callable[[Namespace], Namespace]) -> None:
        namespace = self.namespace(tenant_id)
        assert self.store.catalogue.update_namespace(change(namespace), if_revision=namespace.revision, now=START)

    def namespace(self, tenant_id: str = "acme") -> Namespace:
        namespace = self.store.catalogue.get_namespace(events_namespace(tenant_id))
        assert namespace is not None
        return namespace

    def gate(self) -> WebhookOrdering:
        return WebhookOrdering(self.store, clock=self.clock, secret_box=self.box, on_stored=self.notify)

    def notify(self, timers: Sequence[Timer]) -> None:
        for poller in self.pollers:
            poller.notify(timers)

    def poller(self, worker_id: str = "worker-a", **options: Any) -> Poller:
        sender = self.sender if not self.pollers else self.sender.for_another_poller()
        poller = make_poller(
            self.store, sender, self.clock, worker_id=worker_id, ordering=self.gate(), secret_box=self.box, **options
        )
        self.pollers.append(poller)
        return poller

    def dispatch(self) -> None:
        """What waits in the outbox becomes timers."""
        publisher = WebhookPublisher(self.store, clock=self.clock, on_stored=self.notify)
        make_relay(self.outbox, [publisher], self.clock).run_once()
        assert self.outbox.waiting == []

    def emit(self, *events: CallEvent) -> None:
        self.outbox.append(*events)
        self.dispatch()

    def run(self, script: Script, *pollers: Poller) -> None:
        run(self.clock, pollers or [self.poller()], script)

    def arrived(self, tenant_id: str = "acme") -> list[tuple[str, int]]:
        bodies = [event_in(request) for request in self.sender.requests]
        return [(body["aggregateId"], body["sequence"]) for body in bodies if body["tenantId"] == tenant_id]

    def timer(self, event: CallEvent) -> Timer:
        timer = self.store.timers.get(self.namespace(event.tenant_id), str(delivery_of(event)), now=self.clock.now())
        assert timer is not None
        return timer

    def states(self, tenant_id: str = "acme") -> list[TimerState]:
        page = self.store.timers.list(
            self.namespace(tenant_id), TimerFilter(), cursor=None, limit=500, now=self.clock.now()
        )
        return [timer.state for timer in page.items]


def event_in(request: Any) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(request.body)
    return document


def life(call_id: str = "call-1", *, tenant_id: str = "acme", length: int = 7) -> list[CallEvent]:
    return [make_event(call_id, number, tenant_id=tenant_id) for number in range(1, length + 1)]
