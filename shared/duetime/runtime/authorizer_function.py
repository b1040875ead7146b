"""The Lambda authorizer of the HTTP API: who asks, by the same check as behind ``duetime serve --auth``.

Request: an authorizer's event of payload format 2.0. Answer: a simple response, ``{"isAuthorized": bool}``, and for
who gets in the context that the functions behind it read (``api.authentication.principal_of_authorizer``). What a
role may do is judged there, since the gateway keeps one answer for all routes.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

from duetime.api.http.authentication import KeyAuthenticator, authorizer_context
from duetime.api.http.errors import Unauthenticated
from duetime.domain.errors import StoreError

_HEADER = "authorization"

_log = logging.getLogger(__name__)


class Authorizer:
    def __init__(self, authenticator: KeyAuthenticator, *, keep_time: Callable[[], None] = lambda: None) -> None:
        """``keep_time`` sees to it that the authenticator's clock is right."""
        self._authenticator = authenticator
        self._keep_time = keep_time

    def __call__(self, event: Mapping[str, Any], context: Any) -> dict[str, Any]:  # noqa: ARG002
        """Raises ``StoreError``: the gateway then answers 500 and keeps nothing, where it would keep a refusal."""
        self._keep_time()
        try:
            principal = self._authenticator.authenticate(_header(event))
        except Unauthenticated:
            return {"isAuthorized": False}
        except StoreError as error:
            _log.warning("the store is unavailable: %s", error, extra={"action": "store.unavailable"})
            raise
        return {"isAuthorized": True, "context": authorizer_context(principal)}


def _header(event: Mapping[str, Any]) -> str | None:
    headers = event.get("headers") or {}
    return next((value for name, value in headers.items() if name.lower() == _HEADER), None)
