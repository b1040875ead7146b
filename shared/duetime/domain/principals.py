"""Who makes a request, and what they may do."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Role(StrEnum):
    """From the least to the most: each may do all that the one before it may."""

    READER = "reader"
    WRITER = "writer"
    ADMIN = "admin"

    def allows(self, needed: Role) -> bool:
        return _RANKS[self] >= _RANKS[needed]


_RANKS = {role: rank for rank, role in enumerate(Role)}


@dataclass(frozen=True, slots=True)
class Principal:
    """The holder of an API key: acts for one tenant, with one role."""

    tenant_id: str
    role: Role
    key_id: str
