"""Commands about signing secrets: ``duetime secrets`` (of a namespace); parts of ``duetime webhook secrets``."""

from __future__ import annotations

from typing import Any

import click

from duetime.cli.options import Group
from duetime.cli.remote import Remote, json_option, on_server, path
from duetime.cli.tables import show_items
from duetime.cli.values import Duration, options, read_stdin

_COLUMNS = {
    "ID": "id",
    "CREATED": "createdAt",
    "VALID UNTIL": "expiresAt",
}
create_options = options(
    click.option(
        "--overlap",
        type=Duration(),
        default="24h",
        show_default=True,
        help='How long the previous secret stays valid; "0s" ends it at once.',
    ),
    click.option("--secret-stdin", is_flag=True, help="Read a secret of your own (whsec_...) from standard input."),
)


@click.group(cls=Group, short_help="Create, rotate, list and delete signing secrets.")
def secrets() -> None:
    """Create, rotate, list and delete the secrets that sign callbacks.

    \b
      export WEBHOOK_SECRETS=$(duetime secrets create default)
    """


@secrets.command("create", short_help="Create a signing secret, or rotate it.")
@click.argument("namespace")
@create_options
@on_server("createSecret")
def create_secret(*, remote: Remote, namespace: str, **given: Any) -> None:
    """Create a signing secret for NAMESPACE. The previous one ends after the overlap.

    Prints the secret, and nothing else, on standard output. It cannot be shown again. A secret of your own is not
    printed.
    """
    show_created(remote.client.signing_secrets(namespace), f"namespace {namespace}", **given)


@secrets.command("list", short_help="List the valid secrets, not their values.")
@click.argument("namespace")
@json_option
@on_server("listSecrets")
def list_secrets(*, remote: Remote, namespace: str, as_json: bool) -> None:
    """List the valid secrets of NAMESPACE, oldest first: ids and dates, not values."""
    show_secrets(remote, path("/v1/namespaces/{}/secrets", namespace), as_json=as_json)


@secrets.command("delete")
@click.argument("namespace")
@click.argument("secret_id", metavar="ID")
@on_server("deleteSecret")
def delete_secret(*, remote: Remote, namespace: str, secret_id: str) -> None:
    """End the secret ID of NAMESPACE at once.

    Deleting the newer of two undoes the rotation. Without a secret, callbacks are not signed.
    """
    remote.client.signing_secrets(namespace).delete(secret_id)
    click.echo(f"deleted secret {secret_id} of namespace {namespace}", err=True)


def show_created(secrets: Any, owner: str, *, overlap: Any, secret_stdin: bool) -> None:
    """Create a secret and print it."""
    from duetime.domain.times import format_instant

    own = read_stdin("a secret (whsec_...)").strip() if secret_stdin else None
    created = secrets.create(secret=own, overlap=overlap)
    click.echo(f"created secret {created.id} of {owner}", err=True)
    if created.previous is not None and created.previous.expires_at is not None:
        end = format_instant(created.previous.expires_at)
        click.echo(f"the previous secret, {created.previous.id}, is valid until {end}", err=True)
    if own is None:
        click.echo(created.secret)


def show_secrets(remote: Remote, where: str, *, as_json: bool) -> None:
    """Print the secrets at the path ``where``."""
    show_items(remote.items(where), _COLUMNS, as_json=as_json)
