"""Defines the ``duetime`` command. ``cli.main`` runs it and explains its failures.

Each command imports what it needs when it runs, so that ``--help`` and ``--version`` are fast.
"""

from __future__ import annotations

import os

import click

from duetime import __version__
from duetime.cli.cost.command import cost
from duetime.cli.doctor.command import doctor
from duetime.cli.moving.apply import apply
from duetime.cli.options import LOGS, Group, HeadedCommand, load, settings_options
from duetime.cli.resources.calendars import calendars
from duetime.cli.resources.calls import calls
from duetime.cli.resources.keys import keys
from duetime.cli.resources.namespaces import namespaces
from duetime.cli.resources.schedules import schedules
from duetime.cli.resources.signing_secrets import secrets
from duetime.cli.resources.timers import timers
from duetime.cli.resources.webhook import webhook
from duetime.cli.system import health, openapi, shards, whoami
from duetime.cli.transfer import export_store, import_store
from duetime.domain.errors import InvalidSettings
from duetime.runtime.settings import ClockKind, LocalSettings, WorkerSettings
from duetime.runtime.tuning import EngineTuning, KeySettings, StoreSettings
from duetime.stores.kinds import levels_in_words

_ENGINE = tuple(name for name in EngineTuning.model_fields if name not in KeySettings.model_fields)
_ACCESS = ("auth", "auth_cache_seconds", "open_to_network", "allowed_hosts", "cors_origins")
_KEYS = ("kms_key_id", "key_file")
_EVENTS = ("event_publishers", "event_bus", "event_retention_seconds")


@click.group(
    cls=Group,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    epilog=f"Stores. {levels_in_words()} See docs/stores.md.",
)
@click.version_option(__version__, prog_name="duetime", message="%(prog)s %(version)s")
def app() -> None:
    """Duetime, a durable timer service: call this URL with this payload at this time.

    All commands except serve, worker, init, export, import, listen, cost and doctor call the server at DUETIME_URL
    with the API key in DUETIME_API_KEY; with --store they use a store directly. The help of an option names its
    environment variable; the option overrides the variable.

    Exit codes: 0 done, 1 failed (one line on standard error says why), 2 wrong usage or configuration,
    130 interrupted. The help of a command names further ones.
    """


@app.command(cls=HeadedCommand)
@settings_options(
    LocalSettings,
    "port",
    "host",
    "store",
    *_ACCESS,
    "workers",
    "clock",
    "start",
    *_ENGINE,
    *_EVENTS,
    *_KEYS,
    *LOGS,
)
def serve(**given: str | None) -> int:
    """Serve the API and fire timers, all on this machine.

    Creates a missing SQLite store, and the namespace "default". SIGTERM and Ctrl-C wait for the
    callbacks in flight; a second signal stops at once.

    Without --auth anyone who can reach the address may do everything, so it must be a loopback address, unless
    --open-to-network allows others.
    """
    settings = load(LocalSettings, given)
    if settings.clock is ClockKind.VIRTUAL:
        from duetime.testing.server import serve as serve_virtually

        return serve_virtually(settings)
    if settings.start:
        raise InvalidSettings("--start: only a virtual clock can be set (--clock virtual)")
    from duetime.local.server import serve as run

    return run(settings)


@app.command(cls=HeadedCommand)
@settings_options(
    WorkerSettings, "store", *_ENGINE, *_EVENTS, *_KEYS, "metrics_port", "metrics_host", "allowed_hosts", *LOGS
)
@click.option("--stop-on-eof", is_flag=True, help="Stop when standard input ends, too (for a parent process).")
@click.option(
    "--reports",
    is_flag=True,
    help="Write metrics, every second, and hints to standard output (for a parent process).",
)
def worker(*, stop_on_eof: bool, reports: bool, **given: str | None) -> int:
    """Fire timers without serving the API.

    Any number of workers and servers share the shards of one store. The others take over the shards of one that stops
    at once, and of one that dies within the lease time.
    """
    # Several workers often share one place to log to.
    settings = load(WorkerSettings, given, pid=os.getpid())
    from duetime.local.server import work

    return work(settings, stop_on_eof=stop_on_eof, write_reports=reports)


@app.command()
@settings_options(StoreSettings, "store", *LOGS)
def init(**given: str | None) -> None:
    """Create the store's tables, or migrate them to this version. Safe to repeat."""
    settings = load(StoreSettings, given)
    from duetime.domain.redaction import redact_text
    from duetime.runtime.wiring import chosen_store

    with chosen_store(settings.store) as store:
        store.initialise()
    click.echo(f"{redact_text(settings.store)} is ready")


@app.command(short_help="Receive callbacks and print them.")
@click.option(
    "--port", default=9000, show_default=True, type=click.IntRange(0, 65_535), help="Port; 0 takes a free one."
)
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option(
    "--status", default=200, show_default=True, type=click.IntRange(200, 599), help="Status of the response."
)
@click.option("--body", default="", help="""Body of the response, like '{"ok": false}'.  [default: none]""")
@click.option(
    "--delay-seconds",
    default=0.0,
    show_default=True,
    type=click.FloatRange(0, 3600),
    help="Time before the response.",
)
@click.option(
    "--secret",
    "secrets_",
    multiple=True,
    envvar="WEBHOOK_SECRETS",
    metavar="whsec_...",
    help="Verify the signatures of callbacks with this secret. Can be repeated. Other users of this machine can see"
    " the arguments of a command, so prefer the variable.  [env: WEBHOOK_SECRETS, separated by spaces]",
)
def listen(*, port: int, host: str, status: int, body: str, delay_seconds: float, secrets_: tuple[str, ...]) -> int:
    """Receive callbacks and print them: a receiver for experiments.

    Use http://127.0.0.1:9000/ (any path) as the callbackUrl of a timer.
    """
    from duetime.local.listener import Reply
    from duetime.local.listener import listen as run
    from duetime.runtime.clock import SystemClock

    def show(block: str) -> None:
        click.echo(block + "\n")

    return run(host, port, Reply(status, body, delay_seconds), clock=SystemClock(), show=show, secrets=secrets_)


for command in (
    *(calendars, calls, keys, namespaces, schedules, secrets, timers, webhook),
    *(apply, cost, doctor, health, openapi, shards, whoami),
    *(export_store, import_store),
):
    app.add_command(command)
