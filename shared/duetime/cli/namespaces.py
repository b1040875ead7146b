"""Commands about namespaces and their signing secrets. They work on the store itself, by the rules of the API."""

from __future__ import annotations

import re
import sys
from typing import Any

import click

from duetime.cli.options import LOGS, opened, settings_options
from duetime.runtime.tuning import LocalKeySettings

_KEYS = ("store", "kms_key_id", "key_file")
_PAGE = 200
_MAX_SECRET_CHARACTERS = 1024
_CLEAR = "none"

_OPTIONS = {
    "maxInFlight": "--max-in-flight",
    "rateLimit": "--rate-limit",
    "retryPolicy": "--retry-policy",
    "misfire": "--misfire",
}


class _Overlap(click.ParamType[float]):
    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        from duetime.api.fields import overlap_seconds

        try:
            return overlap_seconds(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


# -- namespaces --------------------------------------------------------------------------------------------------


@click.group()
def namespaces() -> None:
    """Look at namespaces and change their settings."""


@namespaces.command("list")
@click.option("--tenant", help="Those of this tenant.  [default: of all]")
@settings_options(LocalKeySettings, "store", *LOGS)
def list_namespaces(*, tenant: str | None, **given: str | None) -> None:
    """List namespaces by name."""
    from duetime.cli.tables import show_table
    from duetime.domain.secrets import valid_secrets
    from duetime.runtime.wiring import measured_clock

    rows = [
        ("NAME", "TENANT", "STATE", "SHARDS", "DEDICATED", "MAX-IN-FLIGHT", "RATE-LIMIT", "SECRETS", "RETRY-POLICY")
    ]
    cursor: str | None = None
    with opened(LocalKeySettings, given) as (_, store):
        now = measured_clock(store).now()
        while True:
            page = store.list_namespaces(cursor=cursor, limit=_PAGE, tenant_id=tenant)
            for namespace in page.items:
                settings = namespace.settings
                rows.append(
                    (
                        namespace.name,
                        namespace.tenant_id,
                        namespace.state,
                        str(namespace.num_shards),
                        "yes" if namespace.dedicated else "no",
                        _shown(settings.max_in_flight),
                        _shown(settings.rate_limit_per_second),
                        str(len(valid_secrets(namespace, now))),
                        "(cannot be read)" if namespace.unreadable else _shown(settings.retry_policy_json),
                    )
                )
            cursor = page.next_cursor
            if cursor is None:
                break
    show_table(rows)


@namespaces.command("show")
@click.argument("namespace")
@settings_options(LocalKeySettings, "store", *LOGS)
def show_namespace(*, namespace: str, **given: str | None) -> None:
    """Show NAMESPACE as the API does."""
    from duetime.api.encoding import namespace_json
    from duetime.api.namespace_changes import found_namespace

    with opened(LocalKeySettings, given) as (_, store):
        click.echo(namespace_json(found_namespace(store, namespace, principal=None)))


@namespaces.command("set")
@click.argument("namespace")
@click.option("--max-in-flight", metavar="N|none", help="Callbacks that may be under way at once.")
@click.option("--rate-limit", metavar="N|none", help="Attempts that may be started per second.")
@click.option(
    "--retry-policy",
    metavar="JSON|none",
    help="""For timers without a policy of their own, like '{"maxAttempts": 5, "initialInterval": "10s"}'.""",
)
@click.option("--misfire", metavar="fire|expire|none", help="What becomes of timers that came due in a pause.")
@settings_options(LocalKeySettings, "store", *LOGS)
def set_namespace(
    *,
    namespace: str,
    max_in_flight: str | None,
    rate_limit: str | None,
    retry_policy: str | None,
    misfire: str | None,
    **given: str | None,
) -> None:
    """Change settings of NAMESPACE. What is not given stays; "none" clears a setting.

    Pollers follow within seconds, also for the timers that are stored already.
    """
    changes = _settings(
        max_in_flight=max_in_flight, rate_limit=rate_limit, retry_policy=retry_policy, misfire=misfire
    )
    if not changes:
        raise click.UsageError(f"give at least one of {', '.join(_OPTIONS.values())}")
    from duetime.api.encoding import namespace_json
    from duetime.api.namespace_changes import changed_settings
    from duetime.runtime.wiring import measured_clock

    with opened(LocalKeySettings, given) as (_, store):
        now = measured_clock(store).now()
        click.echo(namespace_json(changed_settings(store, namespace, changes, principal=None, now=now)))


@namespaces.command("pause", short_help="Fire nothing of a namespace until it is resumed.")
@click.argument("namespace")
@click.option("--reason", help="Why, for people: up to 255 characters.")
@settings_options(LocalKeySettings, "store", *LOGS)
def pause_namespace(*, namespace: str, reason: str | None, **given: str | None) -> None:
    """Fire nothing of NAMESPACE until it is resumed. Timers are created and changed as ever.

    Pollers follow within seconds. What is under way ends.
    """
    from duetime.api.encoding import namespace_json
    from duetime.api.namespace_states import paused
    from duetime.api.raw_json import RawObject
    from duetime.api.reading import validate
    from duetime.api.schemas import PauseBody
    from duetime.domain.errors import InvalidInput
    from duetime.runtime.wiring import measured_clock

    try:
        wanted = validate(PauseBody, RawObject({} if reason is None else {"reason": reason}, []))
    except InvalidInput as error:
        raise click.UsageError(f"--reason {error.message}") from None
    with opened(LocalKeySettings, given) as (_, store):
        now = measured_clock(store).now()
        click.echo(namespace_json(paused(store, namespace, reason=wanted.reason, principal=None, now=now)))


@namespaces.command("resume", short_help="Fire the timers of a namespace again.")
@click.argument("namespace")
@settings_options(LocalKeySettings, "store", *LOGS)
def resume_namespace(*, namespace: str, **given: str | None) -> None:
    """Fire the timers of NAMESPACE again. What came due meanwhile is fired, or expires: its --misfire says."""
    from duetime.api.encoding import namespace_json
    from duetime.api.namespace_states import resumed
    from duetime.runtime.wiring import measured_clock

    with opened(LocalKeySettings, given) as (_, store):
        click.echo(namespace_json(resumed(store, namespace, principal=None, now=measured_clock(store).now())))


@namespaces.command("delete", short_help="Delete a namespace.")
@click.argument("namespace")
@click.option("--force", is_flag=True, help="Delete its timers with it.")
@settings_options(LocalKeySettings, "store", *LOGS)
def delete_namespace(*, namespace: str, force: bool, **given: str | None) -> None:
    """Delete NAMESPACE, which takes some twenty seconds: until no process can still be creating timers in it.

    One that has timers is refused without --force. When this breaks off, the same command goes on.
    """
    import time

    from duetime.api.namespace_states import delete_some
    from duetime.runtime.wiring import measured_clock

    removed = 0
    with opened(LocalKeySettings, given) as (_, store):
        clock = measured_clock(store)
        while True:
            step = delete_some(store, namespace, is_forced=force, principal=None, now=clock.now())
            removed += step.removed
            if step.is_done:
                break
            time.sleep(min(step.wait_seconds, 1))
    click.echo(f"deleted namespace {namespace} with {removed} timers")


def _settings(
    *, max_in_flight: str | None, rate_limit: str | None, retry_policy: str | None, misfire: str | None
) -> dict[str, Any]:
    """What is to be set, by the rules of the API's body. Raises ``click.UsageError``."""
    from duetime.api.catalogue import given_settings
    from duetime.api.raw_json import RawJson, RawObject
    from duetime.api.reading import validate
    from duetime.api.schemas import NamespaceBody
    from duetime.domain.errors import InvalidInput

    values = {
        "maxInFlight": None if max_in_flight is None else _number(max_in_flight),
        "rateLimit": None if rate_limit is None else _number(rate_limit),
        "retryPolicy": None if retry_policy is None else RawJson(retry_policy.strip()),
        "misfire": misfire,
    }
    texts = {"maxInFlight": max_in_flight, "rateLimit": rate_limit, "retryPolicy": retry_policy, "misfire": misfire}
    members = {name: None if texts[name] == _CLEAR else value for name, value in values.items() if texts[name]}
    try:
        return given_settings(validate(NamespaceBody, RawObject(members, [])))
    except InvalidInput as error:
        name, _, inner = error.field.partition(".")
        raise click.UsageError(f"{_OPTIONS[name]}: {inner} {error.message}".replace(":  ", ": ")) from None


def _number(text: str) -> int | float | str:
    """The number in ``text``; what is none stays text, which the rules of the API then refuse."""
    if re.fullmatch(r"-?[0-9]{1,18}", text):
        return int(text)
    return float(text) if re.fullmatch(r"-?[0-9]{1,18}\.[0-9]{1,18}", text) else text


def _shown(value: object) -> str:
    if value is None:
        return "-"
    return f"{value:g}" if isinstance(value, float) else str(value)


# -- secrets -----------------------------------------------------------------------------------------------------


@click.group(short_help="Create, rotate, list and delete signing secrets.")
def secrets() -> None:
    """Create, rotate, list and delete the secrets that callbacks are signed with."""


@secrets.command("create", short_help="Create a signing secret, or rotate it.")
@click.argument("namespace")
@click.option(
    "--overlap",
    type=_Overlap(),
    default="24h",
    show_default=True,
    help='How long the secret before it stays valid; "0s" ends it at once.',
)
@click.option("--secret-stdin", is_flag=True, help="Read a secret of your own (whsec_...) from standard input.")
@settings_options(LocalKeySettings, *_KEYS, *LOGS)
def create_secret(*, namespace: str, overlap: float, secret_stdin: bool, **given: str | None) -> None:
    """Create a signing secret for NAMESPACE, which replaces the one before it after the overlap.

    Standard output has the secret and nothing else, and this is the only time that it is shown. One of your own is
    not shown.
    """
    from duetime.api import namespace_changes
    from duetime.domain.errors import InvalidInput
    from duetime.domain.times import format_instant
    from duetime.runtime.ids import new_id
    from duetime.runtime.wiring import make_secret_box, measured_clock

    text = sys.stdin.read(_MAX_SECRET_CHARACTERS).strip() if secret_stdin else None
    with opened(LocalKeySettings, given) as (settings, store):
        try:
            created = namespace_changes.create_secret(
                store,
                make_secret_box(settings),
                namespace,
                principal=None,
                secret_id=new_id(),
                text=text,
                overlap_seconds=overlap,
                now=measured_clock(store).now(),
            )
        except InvalidInput as error:
            raise click.UsageError(f"the secret on standard input {error.message}") from None
    click.echo(f"created secret {created.secret.secret_id} of namespace {namespace}", err=True)
    if created.previous is not None and created.previous.expires_at is not None:
        end = format_instant(created.previous.expires_at)
        click.echo(f"the one before it, {created.previous.secret_id}, is valid until {end}", err=True)
    if not secret_stdin:
        click.echo(created.text)


@secrets.command("list", short_help="List the valid secrets, without what they are.")
@click.argument("namespace")
@settings_options(LocalKeySettings, "store", *LOGS)
def list_secrets(*, namespace: str, **given: str | None) -> None:
    """List the secrets of NAMESPACE that are valid now, oldest first. What they are cannot be shown."""
    from duetime.api.namespace_changes import found_namespace
    from duetime.cli.tables import show_table
    from duetime.domain.secrets import valid_secrets
    from duetime.domain.times import format_instant
    from duetime.runtime.wiring import measured_clock

    with opened(LocalKeySettings, given) as (_, store):
        found = valid_secrets(found_namespace(store, namespace, principal=None), measured_clock(store).now())
    rows = [("ID", "CREATED", "VALID UNTIL")]
    rows += [
        (
            secret.secret_id,
            format_instant(secret.created_at),
            "replaced" if secret.expires_at is None else format_instant(secret.expires_at),
        )
        for secret in found
    ]
    show_table(rows)


@secrets.command("delete")
@click.argument("namespace")
@click.argument("secret_id", metavar="ID")
@settings_options(LocalKeySettings, "store", *LOGS)
def delete_secret(*, namespace: str, secret_id: str, **given: str | None) -> None:
    """End the secret ID of NAMESPACE at once.

    Of two, deleting the newer one undoes the rotation. Without any, callbacks are not signed.
    """
    from duetime.api import namespace_changes
    from duetime.runtime.wiring import measured_clock

    with opened(LocalKeySettings, given) as (_, store):
        namespace_changes.delete_secret(store, namespace, secret_id, principal=None, now=measured_clock(store).now())
    click.echo(f"deleted secret {secret_id} of namespace {namespace}", err=True)
