"""``duetime export`` and ``duetime import``: all that a store holds, into a file and into another store."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from duetime.cli.options import LOGS, load, settings_options
from duetime.runtime.tuning import LocalKeySettings, StoreSettings

if TYPE_CHECKING:
    from datetime import datetime

    from duetime.domain.clock import Clock
    from duetime.domain.namespaces import Namespace, SealedSecret
    from duetime.moving.importing import Loaded
    from duetime.moving.lines import Header
    from duetime.moving.reading import ExportReader
    from duetime.moving.tally import Tally

LEFT_OUT = 3
"""The exit code when all is done but for what the source could not read."""
_PROGRESS_SECONDS = 2.0
_MARK_CHARACTERS = 16
_WORDS = {
    "secret": ("secret of the catalogue", "secrets of the catalogue"),
    "namespace": ("namespace", "namespaces"),
    "apiKey": ("API key", "API keys"),
    "timer": ("timer", "timers"),
    "serviceCall": ("service call", "service calls"),
    "execution": ("execution", "executions"),
    "event": ("event", "events"),
    "unreadable": ("that cannot be read", "that cannot be read"),
}
"""One and many, by kind of record."""

_PROGRESS = click.option(
    "--progress/--quiet", "shows_progress", default=True, help="Say every two seconds how far it is.  [default: yes]"
)
_RUNNING = click.option(
    "--allow-running",
    is_flag=True,
    help="Go on though workers hold shards; docs/transfer.md says what comes of it.",
)


@click.command("export", short_help="Write all that a store holds to a file.")
@settings_options(StoreSettings, "store")
@click.option("--output", required=True, metavar="FILE", help='File to write, "-" for standard output.')
@click.option("--resume", is_flag=True, help="Go on with an export to FILE that was cut short.")
@_RUNNING
@_PROGRESS
@settings_options(StoreSettings, *LOGS)
def export_store(*, output: str, resume: bool, allow_running: bool, shows_progress: bool, **given: str | None) -> int:
    """Write all that a store holds to a file of JSON Lines, for `duetime import`.

    Stop all servers and workers first (docs/transfer.md). The file is FILE.partial until it is complete,
    and its owner alone can read it: it holds payloads, the hashes of API keys and sealed secrets.

    Exit code 3: it is done, but for what the store itself could not read, which is named in the file.
    """
    settings = load(StoreSettings, given)
    from duetime.moving.errors import MoveRefused
    from duetime.moving.exporting import export
    from duetime.moving.files import STANDARD, export_file
    from duetime.moving.running import refuse_if_served
    from duetime.runtime.wiring import measured_clock, opened_store

    with opened_store(settings.store) as store:
        store.check()
        clock = measured_clock(store)
        now = clock.now()
        leases_mark = "" if allow_running else refuse_if_served(store, now=now)

        def confirm() -> None:
            if leases_mark and refuse_if_served(store, now=clock.now()) != leases_mark:
                raise MoveRefused(
                    "the store was served while it was exported, so what was written is not of one moment. "
                    "Stop all servers and workers and begin anew, or allow it by --allow-running"
                )

        header = _header(settings.store, now, leases_mark)
        with (
            _goes_on_by("duetime export --resume" if output != STANDARD else None),
            export_file(output, header, is_resumed=resume) as (file, written),
        ):
            start = 0
            if written is not None:
                start = written.tally.total
                click.echo(f"going on after {_counted(written.tally.shown_counts())}", err=True)
            progress = _Progress("exported", clock, is_shown=shows_progress, start=start)
            tally = export(store, file, now=now, header=header, written=written, progress=progress, confirm=confirm)
    click.echo(f"exported {_counted(tally.shown_counts())}", err=True)
    return LEFT_OUT if "unreadable" in tally.shown_counts() else 0


@click.command("import", short_help="Load such a file into another store.")
@settings_options(LocalKeySettings, "store")
@click.option("--input", "input_", required=True, metavar="FILE", help='File to read, "-" for standard input.')
@click.option("--dry-run", is_flag=True, help="Check the file and whether the store can take it. Nothing is written.")
@click.option("--verify-only", is_flag=True, help="Write nothing: compare the store with the file.")
@click.option("--no-verify", is_flag=True, help="Do not compare the store with the file at the end.")
@click.option("--no-key-check", is_flag=True, help="Do not try whether the sealing key opens the signing secrets.")
@_RUNNING
@_PROGRESS
@settings_options(LocalKeySettings, "kms_key_id", "key_file", *LOGS)
def import_store(
    *,
    input_: str,
    dry_run: bool,
    verify_only: bool,
    no_verify: bool,
    no_key_check: bool,
    allow_running: bool,
    shows_progress: bool,
    **given: str | None,
) -> int:
    """Load what `duetime export` wrote into a store that `duetime init` has made, then compare the two.

    It can be run again after it was cut short: what is there already is left as it is. Something else in the place of
    what is to be loaded is reported and never written over, and so is what the store refuses, such as a timer that is
    too large for it: all the rest is loaded, and the exit code is 1. Signing secrets stay sealed with the key that
    they were sealed with, so the same key has to serve the new store.
    """
    if verify_only and (dry_run or no_verify):
        raise click.UsageError("--verify-only goes with neither --dry-run nor --no-verify")
    settings = load(LocalKeySettings, given)
    from duetime.moving.files import import_file, share_read
    from duetime.moving.importing import Importer, verify
    from duetime.moving.reading import ExportReader
    from duetime.moving.running import refuse_if_served
    from duetime.runtime.wiring import measured_clock, opened_store

    with _goes_on_by("the same command"), import_file(input_) as file, opened_store(settings.store) as store:
        store.check()
        clock = measured_clock(store)
        if not allow_running:
            refuse_if_served(store, now=clock.now())
        reader = ExportReader(file)
        if verify_only:
            for _ in reader.pages():
                pass
        else:
            importer = Importer(
                store,
                now=clock.now(),
                is_rehearsal=dry_run,
                check_secret=None if no_key_check else _secret_check(settings),
                progress=_Progress(
                    "read" if dry_run else "imported", clock, is_shown=shows_progress, share=share_read(file)
                ),
            )
            _report(importer.run(reader), reader, is_rehearsal=dry_run)
        if not dry_run and not no_verify:
            progress = _Progress(
                "verified",
                clock,
                is_shown=shows_progress,
                share=lambda there: there.total / max(reader.tally.total, 1),
            )
            _compare(verify(store, reader.tally, now=clock.now(), progress=progress), reader)
    return 0


@contextmanager
def _goes_on_by(command: str | None) -> Iterator[None]:
    """Says so when it is interrupted."""
    try:
        yield
    except KeyboardInterrupt:
        click.echo(f"interrupted: {command} goes on with it" if command else "interrupted", err=True)
        raise


def _header(url: str, now: datetime, leases_mark: str) -> Header:
    """The URL with its password left out tells one store from another; only its hash is in the file."""
    from hashlib import sha256

    from duetime import __version__
    from duetime.domain.times import round_down
    from duetime.moving.lines import Header
    from duetime.runtime.redaction import redact_text

    mark = sha256(redact_text(url).encode()).hexdigest()[:_MARK_CHARACTERS]
    return Header.model_construct(
        exported_at=round_down(now),
        source=url.partition(":")[0],
        source_mark=mark,
        leases_mark=leases_mark,
        program=f"duetime {__version__}",
    )


def _secret_check(settings: LocalKeySettings) -> Callable[[Namespace, SealedSecret], None]:
    from duetime.delivery.sealing import SecretUnavailable
    from duetime.moving.errors import MoveRefused
    from duetime.runtime.wiring import make_secret_box

    def check(namespace: Namespace, secret: SealedSecret) -> None:
        box = make_secret_box(settings)
        try:
            if box is None:
                raise SecretUnavailable("no key is given")
            box.unseal(secret.sealed, context=namespace.name)
        except SecretUnavailable as error:
            raise MoveRefused(
                f"the signing secrets of namespace {namespace.name!r} could not be used with the target: "
                f"{error.message}. Give the source's key by --key-file or --kms-key-id, or go on by --no-key-check"
            ) from error

    return check


def _report(loaded: Loaded, reader: ExportReader, *, is_rehearsal: bool) -> None:
    from duetime.moving.errors import MoveFailed
    from duetime.stores.port.transfer import LoadStatus

    counts = _counted(reader.tally.shown_counts())
    if loaded.num_unreadable:
        click.echo(f"{loaded.num_unreadable} could not be read in the source and are not in the file", err=True)
    if is_rehearsal:
        click.echo(f"the file is whole and the store can take it: {counts}", err=True)
        return
    new, known = loaded.statuses[LoadStatus.LOADED], loaded.statuses[LoadStatus.PRESENT]
    gone = f", {loaded.num_expired} expired meanwhile" if loaded.num_expired else ""
    click.echo(f"imported {counts}: {new} loaded, {known} there already{gone}", err=True)
    conflicts, refused = loaded.statuses[LoadStatus.CONFLICT], loaded.num_refused
    _list([f"conflict: the store has another {name}" for name in loaded.conflicts], conflicts)
    _list([f"refused: {refusal}" for refusal in loaded.refusals], refused)
    reasons = [
        f"{conflicts} were not loaded, since the store has others in their place" if conflicts else "",
        f"{refused} were not loaded, since the store refuses them" if refused else "",
    ]
    if conflicts or refused:
        raise MoveFailed("; ".join(filter(None, reasons)))


def _list(lines: list[str], count: int) -> None:
    """``lines`` are the first of ``count``."""
    for line in lines:
        click.echo(line, err=True)
    if count > len(lines):
        click.echo(f"and {count - len(lines)} more", err=True)


def _compare(differences: list[str], reader: ExportReader) -> None:
    from duetime.moving.errors import MoveFailed

    if differences:
        found = "; ".join(differences)
        raise MoveFailed(
            f"the store does not hold what the file does: {found} (what expires within the next hour is not counted)"
        )
    click.echo(f"verified: the store holds what the file does, {_counted(reader.tally.shown_counts())}", err=True)


def _counted(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {_WORDS[name][count != 1]}" for name, count in counts.items()) or "nothing"


class _Progress:
    """Says on standard error how far it is, at most every two seconds.

    ``start``: so many records were there before. ``share``: how much of all has been done, where that is known.
    """

    def __init__(
        self,
        done: str,
        clock: Clock,
        *,
        is_shown: bool,
        start: int = 0,
        share: Callable[[Tally], float | None] = lambda _: None,
    ) -> None:
        self._done = done
        self._clock = clock
        self._is_shown = is_shown
        self._began_at = self._said_at = clock.monotonic()
        self._start = start
        self._share = share

    def __call__(self, tally: Tally) -> None:
        now = self._clock.monotonic()
        if not self._is_shown or now - self._said_at < _PROGRESS_SECONDS:
            return
        self._said_at = now
        rate = (tally.total - self._start) / (now - self._began_at)
        share = self._share(tally)
        shown = "" if share is None else f"{min(share, 1):.0%}, "
        click.echo(f"{self._done} {_counted(tally.shown_counts())} ({shown}{rate:.0f}/s)", err=True)
