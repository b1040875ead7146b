"""Tenants: the owners of namespaces and service calls. A tenant is nothing but its id; it is not created.

Internal namespaces hold timers that Duetime itself needs for a tenant: ``calls@acme``. No client can name one, since
a namespace of a client's has no ``@``.
"""

from __future__ import annotations

import re

MAX_TENANT_CHARACTERS = 55
"""``calls@<tenant>``, the longest name that is made of it, then fits where a namespace does (63 characters)."""
TENANT_PATTERN = f"[a-z0-9][a-z0-9._-]{{0,{MAX_TENANT_CHARACTERS - 1}}}"
DEFAULT_TENANT = "default"
"""Owns what is created where nobody is asked for a key, and what was stored before there were tenants."""

_INTERNAL_MARK = "@"
_TENANT = re.compile(TENANT_PATTERN)


def check_tenant(tenant_id: str) -> str:
    """Return ``tenant_id``; raise ``ValueError`` saying what a tenant's id may be."""
    if _TENANT.fullmatch(tenant_id) is None:
        raise ValueError(f"must match {TENANT_PATTERN}")
    return tenant_id


def internal_namespace(purpose: str, tenant_id: str) -> str:
    """Name ``calls@acme`` of ``calls`` and ``acme``."""
    return f"{purpose}{_INTERNAL_MARK}{check_tenant(tenant_id)}"


def is_internal(namespace: str) -> bool:
    return _INTERNAL_MARK in namespace
