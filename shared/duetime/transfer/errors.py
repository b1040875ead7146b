"""Defines the errors that end an export or an import. Each message is one line for the user of the command."""

from __future__ import annotations

from duetime.domain.errors import DuetimeError


class BadExport(DuetimeError):
    """The file is no export, is damaged or incomplete, or comes from a newer version."""

    code = "bad_export"


class TransferRefused(DuetimeError):
    """The source or the target is in a state in which a transfer is not safe."""

    code = "transfer_refused"


class TransferFailed(DuetimeError):
    """Some records were not transferred, or the target differs from the file."""

    code = "transfer_failed"
