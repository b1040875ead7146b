"""Commands about the server: ``health``, ``shards``, ``whoami``, ``openapi``."""

from __future__ import annotations

import json
from dataclasses import asdict

import click

from duetime.cli.options import Command
from duetime.cli.remote import Remote, json_option, limit_option, on_server
from duetime.cli.tables import show_item, show_items, show_lines

_SHARD_COLUMNS = {
    "SHARD": "shardId",
    "LIVE": "live",
    "OWNER": "ownerId",
    "CLAIMED": "claimedAt",
    "LEASE EXPIRES": "leaseExpiresAt",
    "VERSION": "version",
    "HOST": "owner.host",
}


@click.command(cls=Command)
@json_option
@on_server("getHealth")
def health(*, remote: Remote, as_json: bool) -> int:
    """Show whether the server and its store are ready. Exit code 1: they are not."""
    found = remote.client.health()
    if as_json:
        from duetime_client.values import camel

        click.echo(json.dumps({camel(name): value for name, value in asdict(found).items()}))
    else:
        show_lines({name.replace("_", " "): value for name, value in asdict(found).items()})
    return 0 if found.is_ok else 1


@click.command(cls=Command)
@limit_option
@json_option
@on_server("listShards")
def shards(*, remote: Remote, limit: int, as_json: bool) -> None:
    """List the shards and their owners."""
    show_items(remote.items("/v1/shards", limit=limit), _SHARD_COLUMNS, as_json=as_json, limit=limit)


@click.command(cls=Command)
@json_option
@on_server("getPrincipal")
def whoami(*, remote: Remote, as_json: bool) -> None:
    """Show the tenant and the role of the API key."""
    response = remote.call("GET", "/v1/principal", has="tenantId")
    if as_json or response.json()["tenantId"] is not None:
        show_item(response.content, as_json=as_json)
    else:
        click.echo("the server requires no API key")


@click.command(cls=Command)
@on_server("getOpenApi")
def openapi(*, remote: Remote) -> None:
    """Print the OpenAPI document of the server."""
    click.echo(remote.call("GET", "/v1/openapi.json", has="openapi").content.decode())
