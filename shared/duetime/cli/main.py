"""Runs the ``duetime`` command and reports a failure in one line.

Exit codes: 0 done, 1 failed, 2 wrong usage or configuration, 130 interrupted; `duetime export` also has 3.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import NoReturn

from duetime.domain.errors import DuetimeError, InvalidSettings
from duetime.runtime.aws_region import use_aws_region


def main() -> NoReturn:
    sys.exit(run(sys.argv[1:]))


def run(arguments: Sequence[str]) -> int:
    """Run a command and return its exit code. Expected errors are one line on standard error; others are raised."""
    try:
        import click
    except ImportError:
        return _fail(1, "the command needs further packages: pip install 'duetime[local]'")

    from duetime.cli.app import app

    use_aws_region()
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
    except UnicodeDecodeError as error:
        return _fail(2, f"what was read is not UTF-8: {error.reason} at byte {error.start}")
    except InvalidSettings as error:
        return _fail(2, error.message)
    except DuetimeError as error:
        return _fail(1, error.message)
    return code if isinstance(code, int) else 0


def _fail(code: int, message: str) -> int:
    one_line = " ".join(message.split())
    print(f"duetime: error: {one_line}", file=sys.stderr)
    return code
