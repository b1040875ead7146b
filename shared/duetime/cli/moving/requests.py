"""Reads the request that a ``curl`` or ``wget`` command sends."""

from __future__ import annotations

import argparse
import math
import re
import shlex
from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import Any, Final, NoReturn

from duetime.delivery.headers import is_reserved

_REDIRECTIONS: Final = (">", ">>", ">&", "&>", "&>>", ">|")
_LIST, _FLAG = "append", "store_true"
_OPERATORS: Final = frozenset("();<>|&")
_COMMENTED: Final = re.compile(r"""((?:\\.|'[^']*'|"(?:\\.|[^"\\])*"|[^\\'"])*?)(?<!\S)#.*""")
"""A command, and a comment at its end: a ``#`` at the start of a word, outside of quotes."""
_TELL_NOTHING: Final = ("content-type", "user-agent")
"""Headers that a callback has anyway."""


class NoRequest(ValueError):
    """The command is no request, or does more than to send one. The message says what."""


class _Options(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise NoRequest(f"{self.prog}: {message}")

    def ignore(self, *names: str, **more: Any) -> None:
        self.add_argument(*names, dest="ignored", **more)


def _parser(prog: str) -> _Options:
    parser = _Options(prog=prog, add_help=False, allow_abbrev=False)
    parser.add_argument("url")
    return parser


def _curl() -> _Options:
    parser = _parser("curl")
    parser.add_argument("-X", "--request", dest="method")
    parser.add_argument("-H", "--header", dest="headers", action=_LIST, default=[])
    parser.add_argument(
        *("-d", "--data", "--data-raw", "--data-ascii", "--data-binary", "--json"), dest="data", action=_LIST
    )
    parser.add_argument("-m", "--max-time", dest="timeout_seconds", type=float)
    parser.add_argument("--retry", dest="retries", type=int)
    parser.ignore("-o", "--output", "-w", "--write-out", "--connect-timeout", "--retry-delay", "--retry-max-time")
    for names in (("-s", "--silent"), ("-S", "--show-error"), ("-f", "--fail"), ("--fail-with-body",)):
        parser.ignore(*names, action=_FLAG)
    for names in (("-L", "--location"), ("--compressed",), ("-i", "--include"), ("-v", "--verbose")):
        parser.ignore(*names, action=_FLAG)
    return parser


def _wget() -> _Options:
    parser = _parser("wget")
    parser.add_argument("--method")
    parser.add_argument("--header", dest="headers", action=_LIST, default=[])
    parser.add_argument("--post-data", "--body-data", dest="data", action=_LIST)
    parser.add_argument("-T", "--timeout", dest="timeout_seconds", type=float)
    parser.add_argument("-t", "--tries", dest="tries", type=int)
    parser.ignore("-O", "--output-document", "-o", "--output-file")
    for names in (("-q", "--quiet"), ("-nv", "--no-verbose"), ("--no-cache",)):
        parser.ignore(*names, action=_FLAG)
    return parser


_PROGRAMS: Final = {"curl": _curl, "wget": _wget}


def request_of(command: str) -> tuple[dict[str, Any], list[str]]:
    """Return the members of a schedule that sends what ``command`` does, and what will differ.

    Raises ``NoRequest``.
    """
    words = _words(command)
    program = PurePosixPath(words[0]).name if words else ""
    if program not in _PROGRAMS:
        raise NoRequest("is no curl or wget command")
    options = _PROGRAMS[program]().parse_intermixed_args(words[1:])
    found: dict[str, Any] = {"callbackUrl": options.url}
    notes = []
    method = (options.method or ("POST" if options.data else "GET")).upper()
    if method != "POST":
        notes.append(f"it is sent as POST, not as {method}")
    if headers := _headers(options.headers):
        found["headers"] = headers
    if options.data:
        found["payload"] = _payload(program, options.data)
        notes.append("the data is the payload in the body, not the whole body")
    if options.timeout_seconds:
        found["timeoutSeconds"] = math.ceil(options.timeout_seconds)
    attempts = options.tries if program == "wget" else options.retries and options.retries + 1
    if attempts:
        found["retryPolicy"] = {"maxAttempts": attempts}
    return found, notes


def _words(command: str) -> list[str]:
    """Split as a shell does, without where the output goes."""
    if commented := _COMMENTED.fullmatch(command):
        command = commented[1]
    if "$" in command or "`" in command:
        raise NoRequest("has a variable or a command in it that a shell would fill in")
    lexer = shlex.shlex(command, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    lexer.commenters = ""
    try:
        split = list(lexer)
    except ValueError as error:
        raise NoRequest(str(error).lower()) from None
    words: list[str] = []
    rest = iter(split)
    for word in rest:
        if word in _REDIRECTIONS:
            if words and words[-1] in ("1", "2"):
                words.pop()
            next(rest, None)
        elif set(word) <= _OPERATORS:
            raise NoRequest(f"has {word!r} in it, so it is more than one request")
        else:
            words.append(word)
    return words


def _headers(lines: Sequence[str]) -> dict[str, str]:
    headers = {}
    for line in lines:
        name, _, value = line.partition(":")
        if name.strip().lower() in _TELL_NOTHING:
            continue
        if is_reserved(name.strip()):
            raise NoRequest(f"has the header {name.strip()!r}, which callbacks cannot have")
        headers[name.strip()] = value.strip()
    return headers


def _payload(program: str, data: Sequence[str]) -> Any:
    from duetime_client import InvalidArgument, RawJson

    if len(data) == 1:
        try:
            return RawJson(data[0].strip())
        except InvalidArgument:
            pass
    raise NoRequest(f"{program}: its data is not JSON, and a payload is")
