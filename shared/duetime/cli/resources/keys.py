"""Commands about API keys: ``duetime keys``."""

from __future__ import annotations

from datetime import datetime, timedelta

import click

from duetime.cli.options import Group
from duetime.cli.remote import Remote, json_option, on_server
from duetime.cli.tables import show_items
from duetime.cli.values import Duration, Instant, choice
from duetime.domain.principals import Role

_COLUMNS = {
    "ID": "id",
    "ROLE": lambda key: key["role"] or "(cannot be read)",
    "CREATED": "createdAt",
    "VALID UNTIL": "expiresAt",
    "NAME": "name",
}


@click.group(cls=Group, short_help="Create, list and delete API keys.")
def keys() -> None:
    """Create, list and delete the API keys that `duetime serve --auth` and the HTTP API on AWS require.

    The first key is created on the store, the others with a key of the role admin:

    \b
      duetime keys create --tenant acme --role admin --store sqlite:///data/duetime.db
      DUETIME_API_KEY=dtk_... duetime keys create --role writer --name shop --expires-in 90d
    """


@keys.command("create")
@click.option(
    "--role",
    type=choice([str(role) for role in Role]),
    required=True,
    help="What the key may do.",
)
@click.option("--name", help="A name for people.")
@click.option("--expires-in", type=Duration(), help='How long the key is valid, like "90d".  [default: no limit]')
@click.option("--expires-at", type=Instant(), help="The same as an RFC 3339 time.")
@on_server("createApiKey", tenant=True)
def create_key(
    *, remote: Remote, role: str, name: str | None, expires_in: timedelta | None, expires_at: datetime | None
) -> None:
    """Create an API key.

    Prints the key, and nothing else, on standard output. It cannot be shown again.
    """
    from duetime.domain.times import format_instant

    created = remote.client.api_keys.create(role=role, name=name, expires_in=expires_in, expires_at=expires_at)
    end = "" if created.expires_at is None else f", valid until {format_instant(created.expires_at)}"
    click.echo(f"created API key {created.id} of tenant {created.tenant_id}, role {role}{end}", err=True)
    click.echo(created.key)


@keys.command("list", short_help="List the API keys of a tenant.")
@json_option
@on_server("listApiKeys", tenant=True)
def list_keys(*, remote: Remote, as_json: bool) -> None:
    """List the API keys of a tenant by time of creation, expired ones too, without their secrets."""
    show_items(remote.items("/v1/tenants/{tenant}/api-keys"), _COLUMNS, as_json=as_json)


@keys.command("delete")
@click.argument("key_id", metavar="ID")
@on_server("deleteApiKey", tenant=True)
def delete_key(*, remote: Remote, key_id: str) -> None:
    """Delete the API key ID of a tenant. Servers that have cached it accept it for some more seconds."""
    remote.client.api_keys.delete(key_id)
    click.echo(f"deleted API key {key_id}", err=True)
