"""The command ``doctor``."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from duetime.cli.options import Command

if TYPE_CHECKING:
    from datetime import datetime

    from duetime.cli.doctor.checks import Finding
    from duetime.runtime.deployed.stack import Stack


@click.command(cls=Command, short_help="Look at a stack on AWS, and say what is wrong.")
@click.option("--aws", "name", metavar="STACK", required=True, help="Name of the CloudFormation stack.")
@click.option("--region", help="AWS region.  [default: that of the AWS configuration]")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def doctor(*, name: str, region: str | None, as_json: bool) -> int:
    """Look at a stack on AWS, and say what is wrong and what to do. It changes nothing.

    It reads alarms, errors and throttles of the functions, whether pollers run, schedules, dead letters, the settings
    of the tables, and parameters that contradict each other, with your AWS credentials. Exit code 1: something is
    wrong.
    """
    from duetime.cli.doctor.checks import Level
    from duetime.runtime.clock import SystemClock
    from duetime.runtime.deployed.stack import Stack, aws_clients
    from duetime.runtime.wiring import opened_store

    stack = Stack(name, region, aws_clients(region), opened_store)
    assert stack.description  # a stack that cannot be read fails the command
    findings = sorted(examined(stack, SystemClock().now()), key=lambda finding: finding.level is not Level.WRONG)
    if as_json:
        click.echo(json.dumps({"stack": name, "findings": [asdict(finding) for finding in findings]}))
    else:
        for finding in findings:
            click.echo(f"{finding.level.upper()}: {finding.what}\n    {finding.todo}")
        if not findings:
            click.echo(f"nothing is wrong with {name}")
    return 1 if any(finding.level is Level.WRONG for finding in findings) else 0


def examined(stack: Stack, now: datetime) -> Iterator[Finding]:
    """Yield what all checks find, and which of them could not be made."""
    from duetime.cli.doctor.checks import CHECKS, Finding, Level
    from duetime.runtime.deployed.stack import Unreadable

    for check in CHECKS:
        try:
            yield from check(stack, now)
        except Unreadable as error:
            yield Finding(Level.WRONG, error.message, "Allow it to who runs this, or deploy again")
