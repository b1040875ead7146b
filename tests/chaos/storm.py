"""Clients that change timers at the worst moment: a few milliseconds before, at and after their due time."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx

from tests.chaos.cluster import Cluster
from tests.chaos.ledger import Expected

_AHEAD = timedelta(seconds=1)


class Storm(threading.Thread):
    """One client. Each of its timers is disturbed once, within ``_NEAR_MS`` of its due time."""

    _NEAR_MS = 80

    def __init__(self, cluster: Cluster, *, number: int, until: float) -> None:
        super().__init__(name=f"storm-{number}")
        self.accepted: dict[str, Expected] = {}
        self._cluster = cluster
        self._number = number
        self._until = until
        self._chance = random.Random(number)
        self._deeds: list[Callable[[str, datetime], Expected | None]] = [
            self._put_again,
            self._replace,
            self._patch_tags,
            self._remove,
            self._fire,
        ]

    def run(self) -> None:
        count = 0
        while time.monotonic() < self._until:
            timer_id = f"s{self._number}-{count}"
            due_at = datetime.now(UTC).replace(microsecond=0) + _AHEAD
            if self._put(timer_id, due_at):
                moment = due_at + timedelta(milliseconds=self._chance.randint(-self._NEAR_MS, self._NEAR_MS))
                time.sleep(max(0.0, (moment - datetime.now(UTC)).total_seconds()))
                promise = self._deeds[count % len(self._deeds)](timer_id, due_at)
                if promise is not None:
                    self.accepted[timer_id] = promise
            count += 1

    def _ask(self, method: str, path: str, **options: Any) -> httpx.Response | None:
        """None when there was no answer, or one that leaves open what was done."""
        try:
            answer = self._cluster.client.request(method, f"/timers/{path}", **options)
        except httpx.HTTPError:
            return None
        return None if answer.status_code >= 500 else answer

    def _put(self, timer_id: str, due_at: datetime, **more: Any) -> bool:
        answer = self._ask("PUT", timer_id, json=self._cluster.body(due_at, **more))
        return answer is not None and answer.is_success

    def _put_again(self, timer_id: str, due_at: datetime) -> Expected:
        """The same content and time: nothing changes."""
        self._put(timer_id, due_at)
        return Expected(due_at)

    def _replace(self, timer_id: str, due_at: datetime) -> Expected | None:
        """Another payload and time: the old firing may have been made, the new one must be."""
        later = due_at + timedelta(seconds=1)
        return Expected(later, at_most=2) if self._put(timer_id, later, payload=2) else None

    def _patch_tags(self, timer_id: str, due_at: datetime) -> Expected:
        self._ask("PATCH", timer_id, json={"tags": ["storm"]})
        return Expected(due_at)

    def _remove(self, timer_id: str, due_at: datetime) -> Expected | None:
        answer = self._ask("DELETE", timer_id)
        if answer is None:
            return None
        if datetime.now(UTC) < due_at and answer.status_code == 200:
            return Expected(due_at, at_least=0, at_most=0)
        return Expected(due_at, at_least=0)

    def _fire(self, timer_id: str, due_at: datetime) -> Expected:
        self._ask("POST", f"{timer_id}/fire")
        return Expected(due_at, is_by_hand=True)
