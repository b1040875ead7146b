"""What can be set about sending."""

from __future__ import annotations

from dataclasses import dataclass

from duetime.delivery.egress import PUBLIC_ONLY, EgressPolicy


@dataclass(frozen=True, slots=True, kw_only=True)
class SenderSettings:
    """``max_connections`` and ``max_connections_per_host`` are the last bound on open sockets.

    The engine bounds how many callbacks are in flight. Where it allows more than there may be connections, the
    rest waits inside libcurl with its deadline running and may reach it unsent: these should not be smaller than the
    engine's bounds. Each connection needs a file descriptor.
    """

    max_connections: int = 512
    max_connections_per_host: int = 512
    connect_timeout_seconds: float = 10.0
    dns_cache_seconds: float = 60.0
    """After this a name that is in use is looked up again; until that is done, for as long again, it is used."""
    egress: EgressPolicy = PUBLIC_ONLY
    ca_file: str | None = None
    """The certificates to trust, as a PEM file. None leaves it to libcurl; see ``delivery.trust.find_ca_file``."""
