"""What a store keeps of requests with an idempotency key: a text under a key, for a while, with an owner."""

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
        """Whether ``other`` may be put in the place of this one; stores say the same in their own words."""
        return self.expires_at <= now or self.claim_id in (other.claim_id, if_claim)
