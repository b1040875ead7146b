"""What a request may do: the one place that compares a route's need with the principal.

Without a principal (open mode: nobody is asked for a key) everything is allowed. Another tenant's path reads as one
where nothing is, whatever there is: the answer depends on the key and the path alone, never on what is stored.
"""

from __future__ import annotations

from collections.abc import Mapping

from duetime.api.http.errors import Forbidden, TenantNotFound
from duetime.api.http.route import Permission, Public
from duetime.domain.errors import InvalidInput
from duetime.domain.principals import Principal
from duetime.domain.tenants import check_tenant

TENANT_PARAMETER = "tenant"


def authorise(permission: Permission, principal: Principal | None, parameters: Mapping[str, str]) -> None:
    """Raises ``Forbidden`` (role), ``TenantNotFound`` (another tenant's path) or ``InvalidInput`` (no tenant's id).

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
