"""Defines what a store keeps of a request with an idempotency key: a text, its owner, until a time."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class IdempotencyRecord:
    """``key``: up to 64 ASCII characters. ``claim_id``, likewise, names who wrote it: who knows it may write anew.

    ``content`` is not empty and opaque to stores. At ``expires_at`` the record reads as absent.
    """

    key: str
    claim_id: str
    content: str = field(repr=False)
    expires_at: datetime

    def yields_to(self, other: IdempotencyRecord, if_claim: str | None, now: datetime) -> bool:
        """Tell whether ``other`` may replace this one. Stores express the same rule as a condition."""
        return self.expires_at <= now or self.claim_id in (other.claim_id, if_claim)
