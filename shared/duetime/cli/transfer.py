"""``duetime export`` and ``duetime import``: transfer all that a store holds through a file."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from duetime.cli.options import LOGS, Command, load, settings_options
from duetime.runtime.tuning import LocalKeySettings, StoreSettings

if TYPE_CHECKING:
    from datetime import datetime

    from duetime.domain.clock import Clock
    from duetime.domain.namespaces import EncryptedSecret, Namespace
    from duetime.transfer.importing import Loaded
    from duetime.transfer.lines import Header
    from duetime.transfer.reading import ExportReader
    from duetime.transfer.totals import Totals

LEFT_OUT = 3
"""Exit code: done, except for records that the source could not read."""
_PROGRESS_SECONDS = 2.0
_MARK_CHARACTERS = 16
_WORDS = {
    "secret": ("shared secret", "shared secrets"),
    "namespace": ("namespace", "namespaces"),
    "apiKey": ("API key", "API keys"),
    "timer": ("timer", "timers"),
    "occurrence": ("past occurrence", "past occurrences"),
    "serviceCall": ("service call", "service calls"),
    "execution": ("execution", "executions"),
    "event": ("event", "events"),
    "unreadable": ("unreadable record", "unreadable records"),
}
"""Singular and plural, by kind of record."""

_PROGRESS = click.option(
    "--progress/--quiet",
    "shows_progress",
    default=True,
    help="Print progress every two seconds.",
)
_RUNNING = click.option(
    "--allow-running",
    is_flag=True,
    help="Continue although workers hold shards (see docs/transfer.md).",
)


@click.command("export", cls=Command, short_help="Export all that a store holds to a file.")
@settings_options(StoreSettings, "store")
@click.option("--output", required=True, metavar="FILE", help='File to write, "-" for standard output.')
@click.option("--resume", is_flag=True, help="Continue an interrupted export to FILE.")
@_RUNNING
@_PROGRESS
@settings_options(StoreSettings, *LOGS)
def export_store(*, output: str, resume: bool, allow_running: bool, shows_progress: bool, **given: str | None) -> int:
    """Write all that a store holds to a file of JSON Lines, for `duetime import`.

    Stop all servers and workers first (docs/transfer.md). The file is named FILE.partial until it is complete.
    Only its owner can read it: it holds payloads, hashes of API keys and encrypted secrets.

    Exit code 3: done, except for unreadable records, which are named in the file.
    """
    settings = load(StoreSettings, given)
    from duetime.runtime.wiring import measured_clock, opened_store
    from duetime.transfer.errors import TransferRefused
    from duetime.transfer.exporting import export
    from duetime.transfer.files import STANDARD, export_file
    from duetime.transfer.serving import refuse_if_served

    with opened_store(settings.store) as store:
        store.check()
        clock = measured_clock(store)
        now = clock.now()
        leases_mark = "" if allow_running else refuse_if_served(store, now=now)

        def confirm() -> None:
            if leases_mark and refuse_if_served(store, now=clock.now()) != leases_mark:
                raise TransferRefused(
                    "the store was served during the export, so the file is not consistent. "
                    "Stop all servers and workers and start again, or pass --allow-running"
                )

        header = _header(settings.store, now, leases_mark)
        with (
            _goes_on_by("duetime export --resume" if output != STANDARD else None),
            export_file(output, header, is_resumed=resume) as (file, written),
        ):
            start = 0
            if written is not None:
                start = written.totals.total
                click.echo(f"resuming after {_counted(written.totals.shown_counts())}", err=True)
            progress = _Progress("exported", clock, is_shown=shows_progress, start=start)
            totals = export(store, file, now=now, header=header, written=written, progress=progress, confirm=confirm)
    click.echo(f"exported {_counted(totals.shown_counts())}", err=True)
    return LEFT_OUT if "unreadable" in totals.shown_counts() else 0


@click.command("import", cls=Command, short_help="Load an exported file into another store.")
@settings_options(LocalKeySettings, "store")
@click.option("--input", "input_", required=True, metavar="FILE", help='File to read, "-" for standard input.')
@click.option("--dry-run", is_flag=True, help="Check the file and the store; write nothing.")
@click.option("--verify-only", is_flag=True, help="Compare the store with the file; write nothing.")
@click.option("--no-verify", is_flag=True, help="Skip the comparison of the store with the file at the end.")
@click.option("--no-key-check", is_flag=True, help="Skip the check that the key decrypts the signing secrets.")
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
    """Load the file of `duetime export` into a store that `duetime init` created, then compare the two.

    After an interruption, run it again: records that are there already are left as they are. Conflicts and
    records that the store refuses, such as a timer that is too large, are reported; the rest is loaded and the exit
    code is 1. Nothing is overwritten. Signing secrets stay encrypted: the new store
    needs the same key.
    """
    if verify_only and (dry_run or no_verify):
        raise click.UsageError("--verify-only cannot be combined with --dry-run or --no-verify")
    settings = load(LocalKeySettings, given)
    from duetime.runtime.wiring import measured_clock, opened_store
    from duetime.transfer.files import import_file, share_read
    from duetime.transfer.importing import Importer, verify
    from duetime.transfer.reading import ExportReader
    from duetime.transfer.serving import refuse_if_served

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
                share=lambda there: there.total / max(reader.totals.total, 1),
            )
            _compare(verify(store, reader.totals, now=clock.now(), progress=progress), reader)
    return 0


@contextmanager
def _goes_on_by(command: str | None) -> Iterator[None]:
    """Print how to resume when the command is interrupted."""
    try:
        yield
    except KeyboardInterrupt:
        click.echo(f"interrupted: {command} resumes it" if command else "interrupted", err=True)
        raise


def _header(url: str, now: datetime, leases_mark: str) -> Header:
    """Make the header. A hash of the URL without its password tells stores apart."""
    from hashlib import sha256

    from duetime import __version__
    from duetime.domain.redaction import redact_text
    from duetime.domain.times import round_down
    from duetime.transfer.lines import Header

    mark = sha256(redact_text(url).encode()).hexdigest()[:_MARK_CHARACTERS]
    return Header.model_construct(
        exported_at=round_down(now),
        source=url.partition(":")[0],
        source_mark=mark,
        leases_mark=leases_mark,
        program=f"duetime {__version__}",
    )


def _secret_check(settings: LocalKeySettings) -> Callable[[Namespace, EncryptedSecret], None]:
    from duetime.delivery.encryption import SecretUnavailable
    from duetime.runtime.wiring import make_secret_box
    from duetime.transfer.errors import TransferRefused

    def check(namespace: Namespace, secret: EncryptedSecret) -> None:
        box = make_secret_box(settings)
        try:
            if box is None:
                raise SecretUnavailable("no key is given")
            box.decrypt(secret.ciphertext, context=namespace.name)
        except SecretUnavailable as error:
            raise TransferRefused(
                f"the signing secrets of namespace {namespace.name!r} cannot be decrypted for the target: "
                f"{error.message}. Give the source's key by --key-file or --kms-key-id, or pass --no-key-check"
            ) from error

    return check


def _report(loaded: Loaded, reader: ExportReader, *, is_rehearsal: bool) -> None:
    from duetime.stores.port.transfer import LoadStatus
    from duetime.transfer.errors import TransferFailed

    counts = _counted(reader.totals.shown_counts())
    if loaded.num_unreadable:
        click.echo(f"{_counted({'unreadable': loaded.num_unreadable})} in the source, not in the file", err=True)
    if is_rehearsal:
        click.echo(f"the file is valid and the store can take it: {counts}", err=True)
        return
    new, known = loaded.statuses[LoadStatus.LOADED], loaded.statuses[LoadStatus.PRESENT]
    gone = f", {loaded.num_expired} expired meanwhile" if loaded.num_expired else ""
    click.echo(f"imported {counts}: {new} loaded, {known} already there{gone}", err=True)
    conflicts, refused = loaded.statuses[LoadStatus.CONFLICT], loaded.num_refused
    _list([f"conflict: the store has another {name}" for name in loaded.conflicts], conflicts)
    _list([f"refused: {refusal}" for refusal in loaded.refusals], refused)
    reasons = [
        f"{conflicts} not loaded: the store has others in their place" if conflicts else "",
        f"{refused} not loaded: the store refuses them" if refused else "",
    ]
    if conflicts or refused:
        raise TransferFailed("; ".join(filter(None, reasons)))


def _list(lines: list[str], count: int) -> None:
    """Print ``lines``, the first of ``count``."""
    for line in lines:
        click.echo(line, err=True)
    if count > len(lines):
        click.echo(f"and {count - len(lines)} more", err=True)


def _compare(differences: list[str], reader: ExportReader) -> None:
    from duetime.transfer.errors import TransferFailed

    if differences:
        found = "; ".join(differences)
        raise TransferFailed(
            f"the store differs from the file: {found} (what expires within the next hour is not counted)"
        )
    click.echo(f"verified: the store holds the same as the file, {_counted(reader.totals.shown_counts())}", err=True)


def _counted(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {_WORDS[name][count != 1]}" for name, count in counts.items()) or "nothing"


class _Progress:
    """Prints progress on standard error, at most every two seconds.

    ``start``: the number of records at the beginning. ``share``: the share that is done, if known.
    """

    def __init__(
        self,
        done: str,
        clock: Clock,
        *,
        is_shown: bool,
        start: int = 0,
        share: Callable[[Totals], float | None] = lambda _: None,
    ) -> None:
        self._done = done
        self._clock = clock
        self._is_shown = is_shown
        self._began_at = self._said_at = clock.monotonic()
        self._start = start
        self._share = share

    def __call__(self, totals: Totals) -> None:
        now = self._clock.monotonic()
        if not self._is_shown or now - self._said_at < _PROGRESS_SECONDS:
            return
        self._said_at = now
        rate = (totals.total - self._start) / (now - self._began_at)
        share = self._share(totals)
        shown = "" if share is None else f"{min(share, 1):.0%}, "
        click.echo(f"{self._done} {_counted(totals.shown_counts())} ({shown}{rate:.0f}/s)", err=True)
