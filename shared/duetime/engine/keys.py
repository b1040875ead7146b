"""Dictionary keys: one for each attempt, one for each queue of a namespace and host."""

from __future__ import annotations

import re
from functools import lru_cache

from duetime.domain.targets import is_arn
from duetime.domain.timers import Timer

FiringKey = tuple[str, int]
"""(firing_id, attempts before it): one attempt of one firing, whatever else is changed about its timer meanwhile."""

QueueKey = tuple[str, str]
"""(namespace, host): the host with scheme and port, as the callback URL has them, or the ARN of a target."""

_ORIGIN = re.compile(r"https?://[^/?#\\]*", re.IGNORECASE)


def firing_key(timer: Timer) -> FiringKey:
    return timer.firing_id, timer.attempts


def queue_key(timer: Timer) -> QueueKey:
    return queue_key_of(timer.namespace, timer.content.callback_url)


def queue_key_of(namespace: str, callback_url: str) -> QueueKey:
    if is_arn(callback_url):
        return namespace, callback_url
    end = callback_url.find("/", len("https://"))
    return namespace, _origin(callback_url if end < 0 else callback_url[:end])


@lru_cache(maxsize=4096)
def _origin(url: str) -> str:
    """Scheme, host and port; what is no such URL is refused by the sender, and has a queue of its own until then."""
    match = _ORIGIN.match(url)
    return "" if match is None else match[0].lower()
