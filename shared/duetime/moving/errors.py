"""What stops a move. The messages are for whoever runs the command: one line each."""

from __future__ import annotations

from duetime.domain.errors import DuetimeError


class BadExport(DuetimeError):
    """A file is no export, is damaged or incomplete, or a newer program wrote it."""

    code = "bad_export"


class MoveRefused(DuetimeError):
    """The source or the target is not in a state in which moving is safe."""

    code = "move_refused"


class MoveFailed(DuetimeError):
    """Not all could be moved: something else was in its place, or the target does not hold what the file does."""

    code = "move_failed"
