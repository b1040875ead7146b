"""The secrets that a namespace's callbacks are signed with: create (which rotates), list, delete."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from duetime.api.context import Services
from duetime.api.http.parsing import read_body, validate
from duetime.api.http.request import Reply, Request
from duetime.api.http.request_models import PLAIN_SHAPE
from duetime.api.http.responses import json_reply
from duetime.api.http.route import Keeps, Route
from duetime.api.namespaces.requests import SecretBody
from duetime.api.namespaces.responses import (
    CreatedSecretResponse,
    SecretPage,
    created_secret_response,
    secret_response,
)
from duetime.app import namespaces as namespace_changes
from duetime.domain.namespaces import EncryptedSecret
from duetime.domain.principals import Role
from duetime.domain.secrets import DEFAULT_OVERLAP_SECONDS, valid_secrets

_NEVER_KEPT = {"cache-control": "no-store"}


_SECRETS = "/v1/namespaces/<namespace>/secrets"


@Route(
    "POST",
    _SECRETS,
    Role.ADMIN,
    summary="Create a signing secret; the one before it stays valid for an overlap",
    body=SecretBody,
    body_is_required=False,
    responses={201: CreatedSecretResponse},
    problems=(503,),
    keeps=Keeps.FACT,
)
def create_secret(services: Services, request: Request, *, namespace: str) -> Reply:
    """Create a signing secret and return it (201).

    No other response shows it. At most two are valid: a third is a 409.
    """
    return created_reply(services, request, lambda: namespace)


@Route("GET", _SECRETS, Role.ADMIN, summary="List the signing secrets that are valid", responses={200: SecretPage})
def list_secrets(services: Services, request: Request, *, namespace: str) -> Reply:
    """Return the ids and times of the secrets that are valid now, oldest first, without their values."""
    access = services.access(request)
    return listed_reply(valid_secrets(access.found(namespace), access.now))


@Route("DELETE", f"{_SECRETS}/<secret_id>", Role.ADMIN, summary="End a signing secret at once", responses={204: None})
def delete_secret(services: Services, request: Request, *, namespace: str, secret_id: str) -> Reply:
    """End a signing secret (204). Callbacks are not signed with it any more."""
    namespace_changes.delete_secret(services.access(request), namespace, secret_id)
    return Reply(status=204)


def created_reply(
    services: Services, request: Request, name: Callable[[], str], *, is_internal: bool = False
) -> Reply:
    """Create the secret that the body asks for. ``name`` is called for the namespace when the body is valid."""
    context = services.context
    body = validate(SecretBody, read_body(request, PLAIN_SHAPE, is_optional=True))
    created = namespace_changes.create_secret(
        services.access(request, is_internal=is_internal),
        context.secret_box,
        name(),
        secret_id=context.new_id(),
        text=body.secret,
        overlap_seconds=DEFAULT_OVERLAP_SECONDS if body.overlap is None else body.overlap,
    )
    return json_reply(201, created_secret_response(created), _NEVER_KEPT)


def listed_reply(secrets: Sequence[EncryptedSecret]) -> Reply:
    return json_reply(200, SecretPage([secret_response(secret) for secret in secrets], None))
