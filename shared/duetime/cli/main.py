"""The entry point of the ``duetime`` command: runs it, and says in one line why it could not.

Exit codes: 0 done, 1 it failed, 2 it was called or configured wrongly, 130 interrupted; `duetime export` also has 3.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import NoReturn

from duetime.domain.errors import DuetimeError, InvalidSettings


def main() -> NoReturn:
    sys.exit(run(sys.argv[1:]))


def run(arguments: Sequence[str]) -> int:
    """The exit code. Errors that are understood are one line on standard error; others keep their traceback."""
    try:
        import click
    except ImportError:
        return _fail(1, "the command needs further packages: pip install 'duetime[local]'")

    from duetime.cli.app import app

    try:
        code = app.main(args=list(arguments), prog_name="duetime", standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as help_:
        help_.show()
        return 2
    except click.UsageError as error:
        command = error.ctx.command_path if error.ctx else "duetime"
        return _fail(2, f"{error.format_message()} (see {command} --help)")
    except (click.Abort, KeyboardInterrupt):
        return 130
    except InvalidSettings as error:
        return _fail(2, error.message)
    except DuetimeError as error:
        return _fail(1, error.message)
    return code if isinstance(code, int) else 0


def _fail(code: int, message: str) -> int:
    one_line = " ".join(message.split())
    print(f"duetime: error: {one_line}", file=sys.stderr)
    return code
