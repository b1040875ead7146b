"""For HTTP clients of servers on loopback."""

from __future__ import annotations

import ssl

NO_TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
"""Trusts nobody, and is there at once: httpx would load all authorities for each client."""
