"""Commands about a tenant's event webhook: ``duetime webhook``."""

from __future__ import annotations

from typing import Any

import click

from duetime.cli.options import Group
from duetime.cli.remote import Remote, if_revision_option, json_option, limit_option, on_server, path
from duetime.cli.resources.namespaces import Progress, show_redriven
from duetime.cli.resources.signing_secrets import create_options, show_created, show_secrets
from duetime.cli.resources.timers import ATTEMPT_COLUMNS
from duetime.cli.tables import show_item, show_items
from duetime.cli.values import timer_filter_options

_PATH = "/v1/tenants/{tenant}/event-webhook"
_COLUMNS = {
    "ID": "id",
    "TYPE": "type",
    "SEQUENCE": "sequence",
    "STATE": "state",
    "ATTEMPTS": "attempts",
    "REASON": "failure.reason",
    "MESSAGE": "failure.message",
}


@click.group(cls=Group, short_help="Set the event webhook; see its deliveries.")
def webhook() -> None:
    """Set the webhook that receives the events of service calls, and see its deliveries.

    \b
      duetime webhook set https://example.com/events --type ServiceCallFailed
      duetime webhook deliveries --state Failed
      duetime webhook redrive
    """


@webhook.command("set")
@click.argument("url_", metavar="URL")
@click.option("--type", "types", multiple=True, help="A type of event to deliver. Can be repeated.  [default: all]")
@click.option("--disabled", is_flag=True, help="Deliver nothing until the webhook is set again.")
@if_revision_option
@json_option
@on_server("putEventWebhook", tenant=True)
def put(
    *, remote: Remote, url_: str, types: tuple[str, ...], disabled: bool, if_revision: int | None, as_json: bool
) -> None:
    """Set the event webhook of the tenant to URL, or replace it."""
    body = {"url": url_, "eventTypes": list(types) or None, "enabled": not disabled}
    show_item(remote.call("PUT", _PATH, body=body, if_revision=if_revision, has="url").content, as_json=as_json)


@webhook.command()
@json_option
@on_server("getEventWebhook", tenant=True)
def show(*, remote: Remote, as_json: bool) -> None:
    """Show the event webhook."""
    show_item(remote.call("GET", _PATH, has="url").content, as_json=as_json)


@webhook.command()
@if_revision_option
@on_server("deleteEventWebhook", tenant=True)
def delete(*, remote: Remote, if_revision: int | None) -> None:
    """Remove the event webhook and its secrets. Pending deliveries become dead letters."""
    remote.client.event_webhook.delete(if_revision=if_revision)
    click.echo("removed the event webhook", err=True)


@webhook.command(short_help="List deliveries of events.")
@click.option("--state", metavar="STATE", help="Deliveries in this state, like Scheduled or Failed.")
@click.option("--type", "type_", metavar="TYPE", help="Deliveries of events of this type.")
@limit_option
@json_option
@on_server("listDeliveries", tenant=True)
def deliveries(*, remote: Remote, state: str | None, type_: str | None, limit: int, as_json: bool) -> None:
    """List deliveries: pending ones, delivered ones and dead letters."""
    found = remote.items(f"{_PATH}/deliveries", {"state": state, "type": type_}, limit=limit)
    show_items(found, _COLUMNS, as_json=as_json, limit=limit)


@webhook.command()
@click.argument("delivery_id", metavar="ID")
@json_option
@on_server("listDeliveryAttempts", tenant=True)
def attempts(*, remote: Remote, delivery_id: str, as_json: bool) -> None:
    """List the last attempts of a delivery, oldest first."""
    found = remote.items(_PATH + path("/deliveries/{}/attempts", delivery_id))
    show_items(found, ATTEMPT_COLUMNS, as_json=as_json)


@webhook.command(short_help="Deliver dead letters again.")
@timer_filter_options
@click.option("--delivery-id", "ids", multiple=True, help="This delivery. Can be repeated; excludes filters.")
@on_server("redriveDeliveries", tenant=True)
def redrive(*, remote: Remote, ids: tuple[str, ...], **filters: Any) -> int:
    """Deliver dead letters again: all, those that match all filters, or the named ones."""
    if ids and any(value is not None for value in filters.values()):
        raise click.UsageError("--delivery-id cannot be combined with filters")
    if ids:
        return show_redriven(remote.client.event_webhook.redrive_ids(dict.fromkeys(ids)))
    with Progress() as progress:
        remote.client.event_webhook.redrive_many(**filters, on_page=progress.add)
    return progress.finish()


@webhook.group("secrets", short_help="Create, list and delete signing secrets.")
def secrets() -> None:
    """Create, rotate, list and delete the secrets that sign events."""


@secrets.command("create", short_help="Create a signing secret, or rotate it.")
@create_options
@on_server("createEventSecret", tenant=True)
def create_secret(*, remote: Remote, **given: Any) -> None:
    """Create a signing secret for events. Prints the secret on standard output; it cannot be shown again."""
    show_created(remote.client.event_webhook.secrets, "the event webhook", **given)


@secrets.command("list")
@json_option
@on_server("listEventSecrets", tenant=True)
def list_secrets(*, remote: Remote, as_json: bool) -> None:
    """List the valid secrets, oldest first: ids and dates, not values."""
    show_secrets(remote, f"{_PATH}/secrets", as_json=as_json)


@secrets.command("delete")
@click.argument("secret_id", metavar="ID")
@on_server("deleteEventSecret", tenant=True)
def delete_secret(*, remote: Remote, secret_id: str) -> None:
    """End the secret ID at once."""
    remote.client.event_webhook.secrets.delete(secret_id)
    click.echo(f"deleted secret {secret_id} of the event webhook", err=True)
