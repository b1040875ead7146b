"""One operation of the API: what the router matches, the endpoint that answers, and what the document says of it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from types import ModuleType
from typing import Final, Self

from pydantic.alias_generators import to_camel

from duetime.api.http.errors import Forbidden, TenantNotFound
from duetime.api.http.preconditions import IF_MATCH
from duetime.api.http.request import JSON, Reply
from duetime.api.http.request_models import RequestModel
from duetime.api.http.responses import ResponseModel
from duetime.app.timers import Stored
from duetime.domain.errors import InvalidInput
from duetime.domain.principals import Principal, Role
from duetime.domain.tenants import check_tenant
from duetime.domain.timers import Timer
from duetime.stores.port.timers import PutMode

WRITES: Final = frozenset({"POST", "PUT", "PATCH", "DELETE"})
KEYED_METHODS: Final = frozenset({"POST", "PUT", "PATCH"})
"""Requests that may carry an ``Idempotency-Key``."""
PARAMETER: Final = re.compile(r"<(\w+)>")
TENANT_PARAMETER: Final = "tenant"


class Public(Enum):
    """The permission of a route that needs no API key."""

    PUBLIC = "public"


PUBLIC: Final = Public.PUBLIC
Permission = Role | Public


class Keeps(Enum):
    """What is kept of the response to a request with an idempotency key."""

    RESPONSE = "response"
    FACT = "fact"
    """That it was carried out. The response has a secret, which is shown once and stored nowhere."""
    RESOURCE = "resource"
    """Nothing: what the request makes keeps the key itself, for as long as it lives."""
    NOTHING = "nothing"
    """Nothing: the request changes nothing, and has no key."""


@dataclass(frozen=True, slots=True)
class Deferred:
    """What an endpoint returns in place of a reply that needs one timer stored: requests that arrive together may
    share the write. ``reply`` makes the reply of what is stored then."""

    timer: Timer
    mode: PutMode
    reply: Callable[[Stored], Reply]


Endpoint = Callable[..., "Reply | Deferred"]


@dataclass(eq=False)
class Route:
    """Decorates ``endpoint(services, request, **path parameters)``, and has its name in its module (``routes_of``).

    The name of the endpoint is the id of the operation. ``path`` has the parameters in angle brackets.
    ``permission`` is the least role that an API key must have, or PUBLIC. It has no default, so that no route is
    without one. A parameter ``<tenant>`` must be the tenant of the key (``authorise``).

    ``responses`` maps a status to the model of its body; None: without one, or one of ``media_types``, which also has
    a second form beside the model's. ``problems`` are the statuses of problems that the rest of the route does not
    imply (``problem_statuses``). ``conditions``: the headers of conditional requests that the endpoint honours; on a
    write, others are refused. ``headers`` are further ones that it reads. ``shares_write``: the endpoint answers
    ``Deferred`` to a request without conditions. ``takes_signature``: a request with a ``signature`` in its query
    needs no API key; the endpoint checks it.
    """

    method: str
    path: str
    permission: Permission
    endpoint: Endpoint = field(init=False)
    summary: str = field(kw_only=True)
    responses: Mapping[int, type[ResponseModel] | None] = field(kw_only=True)
    media_types: Mapping[int, str] = field(default_factory=dict, kw_only=True)
    problems: tuple[int, ...] = field(default=(), kw_only=True)
    body: type[RequestModel] | None = field(default=None, kw_only=True)
    body_is_required: bool = field(default=True, kw_only=True)
    body_type: str = field(default=JSON, kw_only=True)
    query: type[RequestModel] | None = field(default=None, kw_only=True)
    headers: tuple[str, ...] = field(default=(), kw_only=True)
    conditions: tuple[str, ...] = field(default=(), kw_only=True)
    keeps: Keeps = field(default=Keeps.RESPONSE, kw_only=True)
    shares_write: bool = field(default=False, kw_only=True)
    takes_signature: bool = field(default=False, kw_only=True)

    def __call__(self, endpoint: Endpoint) -> Self:
        self.endpoint = endpoint
        return self

    @cached_property
    def operation_id(self) -> str:
        return to_camel(self.endpoint.__name__)

    @cached_property
    def parameters(self) -> tuple[str, ...]:
        """Return the names of the parameters of the path, in order."""
        return tuple(PARAMETER.findall(self.path))

    @cached_property
    def is_keyed(self) -> bool:
        """Tell whether requests may carry an ``Idempotency-Key``."""
        return self.method in KEYED_METHODS and self.keeps is not Keeps.NOTHING

    @cached_property
    def problem_statuses(self) -> tuple[int, ...]:
        """Return the statuses of the route's problems: those that its parts imply, and its own."""
        # 400: a key in the query, if nothing else.
        # 429: of the store, which a public route does without.
        implied = {400} if self.permission is PUBLIC else {400, 401, 403, 429}
        if self.method in KEYED_METHODS:
            implied |= {413, 415}
        if self.method in WRITES and IF_MATCH in self.conditions:
            implied |= {412}
        if self.is_keyed or "namespace" in self.parameters or "/event-webhook" in self.path:
            implied |= {409}  # What is stored of the namespace may be unreadable.
        # The last part of the path is what a PUT creates.
        named = self.parameters[:-1] if self.method == "PUT" else self.parameters
        if named or TENANT_PARAMETER in self.parameters:
            implied |= {404}
        return tuple(sorted({*implied, *self.problems}))


def routes_of(*modules: ModuleType) -> tuple[Route, ...]:
    """Return the routes that ``modules`` define, in order."""
    return tuple(each for module in modules for each in vars(module).values() if isinstance(each, Route))


def authorise(permission: Permission, principal: Principal | None, parameters: Mapping[str, str]) -> None:
    """Raise ``Forbidden`` (role), ``TenantNotFound`` (another tenant's path) or ``InvalidInput`` (no tenant's id).

    ``parameters`` are those of the path, decoded.
    """
    if isinstance(permission, Public):
        return
    if principal is not None and not principal.role.allows(permission):
        raise Forbidden(permission)
    tenant_id = parameters.get(TENANT_PARAMETER)
    if tenant_id is None:
        return
    if principal is not None:
        if tenant_id != principal.tenant_id:
            raise TenantNotFound(tenant_id)
        return
    try:
        check_tenant(tenant_id)
    except ValueError as error:
        raise InvalidInput(TENANT_PARAMETER, str(error)) from None
