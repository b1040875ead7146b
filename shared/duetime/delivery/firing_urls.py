"""URLs by which a receiver answers for a firing that waits, without an API key: they are signed.

The signature names one attempt of one firing, so it is good for nothing else, and for nothing once that has ended.
Where attempts of a firing have the same number (``domain.answers.life_of``), the signature tells them apart.
"""

from __future__ import annotations

import hashlib
import hmac
from base64 import urlsafe_b64encode
from typing import Final

from duetime.domain.answers import life_of
from duetime.domain.ids import item_path
from duetime.domain.timers import Timer
from duetime.domain.times import format_instant

FIRING_KEY: Final = "firing"
"""The name of the key, which all processes share (``stores.shared_keys``)."""


class FiringUrls:
    __slots__ = ("_key", "_public_url")

    def __init__(self, public_url: str, key: bytes) -> None:
        """``public_url``: of the API, without a slash at its end."""
        self._public_url = public_url
        self._key = key

    def ack_url(self, timer: Timer) -> str:
        """Return the URL of an ack of the attempt that comes next. Nothing in it has to be escaped in JSON."""
        items, item_id, query = "timers", timer.timer_id, ""
        if timer.schedule is not None and timer.schedule.pending is not None:
            items, item_id = "schedules", timer.schedule_id or ""
            query = f"scheduledAt={format_instant(timer.schedule.pending.scheduled_at)}&"
        attempt = timer.attempts + 1
        path = f"{item_path(timer.namespace, items, item_id)}/firings/{timer.firing_id}/ack"
        names = (timer.namespace, items, item_id, timer.firing_id)
        signature = firing_signature(self._key, names, attempt, life_of(timer))
        return f"{self._public_url}{path}?{query}attempt={attempt}&signature={signature}"


def firing_signature(key: bytes, names: tuple[str, str, str, str], attempt: int, life: str) -> str:
    """Sign an attempt: 43 characters, base64url, and behind a dot ``life`` (``domain.answers.life_of``), if it is not
    empty.

    ``names``: the namespace, ``timers`` or ``schedules``, the id there, the firing.
    """
    # None of the parts has a control character.
    signed = "\n".join((*names, str(attempt), life))
    mac = urlsafe_b64encode(hmac.digest(key, signed.encode(), hashlib.sha256)).rstrip(b"=").decode()
    return f"{mac}.{life}" if life else mac


def signed_life(signature: str) -> str:
    """Return the ``life`` in a signature, whether that is right or not."""
    return signature.partition(".")[2]
