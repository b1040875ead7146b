"""Makes command-line options of settings: name, help, default and variable come from the model."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from typing import Any, TypeVar, get_args

import click
from pydantic.fields import FieldInfo

from duetime.runtime.settings import load_settings, option, variable
from duetime.runtime.tuning import Settings, StoreSettings
from duetime.stores.core.store import Store

F = TypeVar("F", bound=Callable[..., Any])
S = TypeVar("S", bound=Settings)
StoreS = TypeVar("StoreS", bound=StoreSettings)

LOGS = ("log_level", "log_format")
"""Settings of every command."""


_HEADINGS = {
    "Who may call": ("auth", "open_to_network", "allowed_hosts", "cors_origins"),
    "Where callbacks may go": ("egress_", "allowed_targets"),
    "Firing": ("lease_", "poll_", "max_", "initial_window", "breaker_", "drain_", "call_watchdog_"),
    "What is kept": ("fired_retention_", "failed_retention_", "call_retention_", "call_log_", "attempt_excerpt_"),
    "Events of service calls": ("event_",),
    "Signing secrets": ("kms_key_id", "key_file"),
    "Tests": ("clock", "start"),
    "Logs": LOGS,
}
"""Beginnings of the names of settings under each heading; all others are plain options."""


class Command(click.Command):
    """A command that refuses an option given twice that takes one value, in place of ignoring the first one."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        _, _, given = self.make_parser(ctx).parse_args([*args])
        for each in given:
            if isinstance(each, click.Option) and not (each.multiple or each.is_flag) and given.count(each) > 1:
                raise click.UsageError(f"Option '{each.opts[-1]}' is given twice.", ctx)
        return super().parse_args(ctx, args)


class Group(click.Group):
    command_class = Command
    group_class = type


class HeadedCommand(Command):
    """A command with so many settings that its help has them under headings."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        found: dict[str, list[tuple[str, str]]] = {"Options": [], **{heading: [] for heading in _HEADINGS}}
        for parameter in self.get_params(ctx):
            if record := parameter.get_help_record(ctx):
                found[_heading(parameter.name or "")].append(record)
        for heading, records in found.items():
            if records:
                with formatter.section(heading):
                    formatter.write_dl(records)


def _heading(name: str) -> str:
    return next((heading for heading, starts in _HEADINGS.items() if name.startswith(starts)), "Options")


def settings_options(model: type[Settings], *names: str) -> Callable[[F], F]:
    """Make options of the fields ``names`` of ``model``, in this order. The model parses their values."""

    def decorate(command: F) -> F:
        for name in reversed(names):
            field = model.model_fields[name]
            # A switch alone stands for "true".
            more: dict[str, Any] = {"is_flag": False, "flag_value": "true"} if isinstance(field.default, bool) else {}
            make = click.option(option(name), name, metavar=_metavar(name, field), help=_help(name, field), **more)
            command = make(command)
        return command

    return decorate


def _metavar(name: str, field: FieldInfo) -> str:
    if isinstance(field.default, StrEnum):
        return "|".join(type(field.default))
    if isinstance(field.default, bool):
        return "true|false"
    if name == "store":
        return "URL"
    if name.endswith("_seconds"):
        return "SECONDS"
    is_number = int in (field.annotation, *get_args(field.annotation))
    return "N" if is_number else name.rpartition("_")[2].upper()


def _help(name: str, field: FieldInfo) -> str:
    return f"{field.description}  [default: {shown_default(field)}; env: {variable(name)}]"


def shown_default(field: FieldInfo) -> str:
    """Format the default for people: ``10`` rather than ``10.0``. A field without one is required."""
    default = field.default
    if field.is_required():
        return "required"
    if has_no_default(field):
        return "none"
    if isinstance(default, bool):
        return str(default).lower()
    return str(int(default)) if isinstance(default, float) and default.is_integer() else str(default)


def has_no_default(field: FieldInfo) -> bool:
    """Tell whether the default is None or empty."""
    return not field.is_required() and field.default in (None, "")


def load(model: type[S], given: dict[str, str | None], **log_fields: object) -> S:
    """Load settings and set up logging; ``log_fields`` are on every log event."""
    import logging

    from duetime.runtime.logs import configure_logging
    from duetime.runtime.settings import unknown_variables

    settings = load_settings(model, given)
    configure_logging(settings.log_format, settings.log_level, sys.stderr, **log_fields)
    for name in unknown_variables():
        logging.getLogger(__name__).warning(
            "%s is not a setting and has no effect", name, extra={"action": "settings.unknown"}
        )
    return settings


@contextmanager
def opened(model: type[StoreS], given: dict[str, str | None]) -> Iterator[tuple[StoreS, Store]]:
    """Load settings and open their store, whose tables must exist."""
    settings = load(model, given)
    from duetime.runtime.wiring import opened_store

    with opened_store(settings.store) as store:
        store.check()
        yield settings, store
