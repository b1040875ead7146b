"""Defines who makes a request, and what they may do."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from duetime.domain.tenants import DEFAULT_TENANT


class Role(StrEnum):
    """What an API key may do. Each role includes the one before it."""

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


def own_tenant(principal: Principal | None) -> str:
    """Return the tenant that owns what ``principal`` creates; None: nobody was asked (open mode)."""
    return DEFAULT_TENANT if principal is None else principal.tenant_id
