"""Protects a server without API keys from web pages: DNS rebinding and cross-site requests.

A page can send requests to every address that the browser's machine reaches, loopback included, without the user's
consent. Two checks of headers that no page can change keep it out:

- ``Host`` must be an address, ``localhost`` or a name that the operator has given. A page whose own name resolves to
  this machine (DNS rebinding) has the same origin as this server, but sends that name.
- ``Origin`` and ``Sec-Fetch-Site``, which browsers add, must not name another site. Following a link is allowed.

Other programs send neither of the latter, and name the server as it is addressed. See docs/decisions/0024.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from ipaddress import IPv6Address, ip_address
from typing import Final

from duetime.api.http.errors import CrossSiteRequest, UnknownHost
from duetime.api.http.problems import problem_reply
from duetime.delivery.egress import is_listed
from duetime.domain.errors import DuetimeError
from duetime.local.asgi import Asgi, Receive, Scope, Send, send_response, to_response

_ALWAYS: Final = ("localhost", "*.localhost")
"""The machine itself resolves them, so nobody else can redirect them."""
_AUTHORITY = re.compile(r"(?:\[([0-9a-f:.]{2,45})\]|([a-z0-9._-]{1,253}))(?::[0-9]{1,5})?", re.IGNORECASE)
_OTHER_SITES = frozenset({"cross-site", "same-site"})
_MAX_SHOWN = 100
_KEPT_HOSTS = 64

logger = logging.getLogger(__name__)


class OwnOriginOnly:
    """An ASGI application that passes only requests of no foreign page to ``app``.

    ``names``: host names of the server, besides addresses and localhost, exact or ``*.suffix``. ``origins``: foreign
    ones that the operator has listed (``api.http.cors``).
    """

    def __init__(
        self,
        app: Asgi,
        *,
        names: Sequence[str],
        new_id: Callable[[], str],
        origins: frozenset[str] = frozenset(),
    ) -> None:
        self._app = app
        self._names = (*_ALWAYS, *names)
        self._origins = origins
        self._new_id = new_id
        self._is_known = lru_cache(_KEPT_HOSTS)(self._is_name_of_server)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        error = self._refusal(scope) if scope["type"] == "http" else None
        if error is None:
            await self._app(scope, receive, send)
            return
        facts = {"action": "http.refused", "reason": error.code, "method": scope["method"]}
        logger.info("a request was refused: %s", error, extra=facts)
        await send_response(to_response(problem_reply(error, request_id=self._new_id())), send)

    def _refusal(self, scope: Scope) -> DuetimeError | None:
        hosts = _values(scope, b"host")  # none with HTTP/1.0, which no browser speaks
        for host in hosts:
            if not self._is_known(host):
                return UnknownHost(host[:_MAX_SHOWN])
        origins = _values(scope, b"origin")
        if origins and self._origins.issuperset(origins):
            return None
        for origin in origins:
            if not hosts or origin.partition("://")[2].lower() != hosts[0].lower():
                return CrossSiteRequest()
        is_link = scope["method"] in ("GET", "HEAD") and _values(scope, b"sec-fetch-mode") == ["navigate"]
        if _OTHER_SITES.intersection(_values(scope, b"sec-fetch-site")) and not is_link:
            return CrossSiteRequest()
        return None

    def _is_name_of_server(self, host: str) -> bool:
        match = _AUTHORITY.fullmatch(host)
        if match is None:
            return False
        in_brackets, plain = match.groups()
        try:
            address = ip_address(in_brackets or plain)
        except ValueError:
            return in_brackets is None and is_listed(plain.lower(), self._names)
        return isinstance(address, IPv6Address) is (in_brackets is not None)


def _values(scope: Scope, wanted: bytes) -> list[str]:
    return [value.decode("latin-1").strip() for name, value in scope["headers"] if name == wanted]
