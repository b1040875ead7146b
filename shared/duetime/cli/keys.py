"""Commands about API keys: ``duetime keys``. They work on the store itself, so they also make the first key."""

from __future__ import annotations

from typing import Any

import click

from duetime.cli.options import LOGS, opened, settings_options
from duetime.domain.principals import Role
from duetime.domain.tenants import DEFAULT_TENANT
from duetime.runtime.tuning import StoreSettings

_PAGE = 200


class _Tenant(click.ParamType[str]):
    name = "tenant"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        from duetime.domain.tenants import check_tenant

        try:
            return check_tenant(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


class _KeyName(click.ParamType[str]):
    name = "name"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        from duetime.domain.api_keys import check_key_name

        try:
            return check_key_name(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


class _Life(click.ParamType[float]):
    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        from duetime.api.fields import key_seconds

        try:
            return key_seconds(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


_TENANT_OPTION = click.option(
    "--tenant", type=_Tenant(), default=DEFAULT_TENANT, show_default=True, help="Whom the key acts for."
)


@click.group(short_help="Create, list and delete API keys.")
def keys() -> None:
    """Create, list and delete the API keys that `duetime serve --auth` and the HTTP API on AWS ask for."""


@keys.command("create")
@_TENANT_OPTION
@click.option("--role", type=click.Choice([str(role) for role in Role]), required=True, help="What it may do.")
@click.option("--name", type=_KeyName(), default="", help="For people: what it is for.  [default: none]")
@click.option("--expires-in", type=_Life(), help='How long it is valid, like "90d".  [default: without an end]')
@settings_options(StoreSettings, "store", *LOGS)
def create_key(*, tenant: str, role: str, name: str, expires_in: float | None, **given: str | None) -> None:
    """Create an API key.

    Standard output has the key and nothing else, and this is the only time that it is shown.
    """
    from datetime import timedelta

    from duetime.api import key_changes
    from duetime.domain.times import format_instant, round_up
    from duetime.runtime.ids import new_id
    from duetime.runtime.wiring import measured_clock

    with opened(StoreSettings, given) as (_, store):
        now = measured_clock(store).now()
        created = key_changes.create_key(
            store,
            key_id=new_id(),
            tenant_id=tenant,
            role=Role(role),
            name=name,
            expires_at=None if expires_in is None else round_up(now + timedelta(seconds=expires_in)),
            now=now,
        )
    key = created.key
    end = "" if key.expires_at is None else f", valid until {format_instant(key.expires_at)}"
    click.echo(f"created API key {key.key_id} of tenant {tenant}, role {role}{end}", err=True)
    click.echo(created.text)


@keys.command("list", short_help="List the API keys of a tenant.")
@_TENANT_OPTION
@settings_options(StoreSettings, "store", *LOGS)
def list_keys(*, tenant: str, **given: str | None) -> None:
    """List the API keys of a tenant in order of creation, expired ones too. What they are cannot be shown."""
    from duetime.cli.tables import show_table
    from duetime.domain.times import format_instant
    from duetime.runtime.wiring import measured_clock

    rows = [("ID", "ROLE", "CREATED", "VALID UNTIL", "NAME")]
    cursor: str | None = None
    with opened(StoreSettings, given) as (_, store):
        now = measured_clock(store).now()
        while True:
            page = store.list_api_keys(tenant, cursor=cursor, limit=_PAGE)
            for key in page.items:
                end = "deleted" if key.expires_at is None else format_instant(key.expires_at)
                expired = " (expired)" if key.is_expired(now) else ""
                role = "(cannot be read)" if key.role is None else key.role.value
                rows.append((key.key_id, role, format_instant(key.created_at), end + expired, key.name))
            cursor = page.next_cursor
            if cursor is None:
                break
    show_table(rows)


@keys.command("delete")
@click.argument("key_id", metavar="ID")
@_TENANT_OPTION
@settings_options(StoreSettings, "store", *LOGS)
def delete_key(*, key_id: str, tenant: str, **given: str | None) -> None:
    """Delete the API key ID of a tenant. Where it was checked a moment ago it works on for seconds."""
    from duetime.api.errors import ApiKeyNotFound

    with opened(StoreSettings, given) as (_, store):
        if not store.delete_api_key(tenant, key_id):
            raise ApiKeyNotFound(key_id)
    click.echo(f"deleted API key {key_id} of tenant {tenant}", err=True)
