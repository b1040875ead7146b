"""``cassandra://[user:password@]host[:port][,host...]/[keyspace][?dc=...&replication=3&tls=on&timeout=10]``."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from urllib.parse import parse_qsl, unquote

from duetime.domain.errors import InvalidSettings

DEFAULT_PORT = 9042
DEFAULT_KEYSPACE = "duetime"
DEFAULT_REPLICATION = 3
DEFAULT_TIMEOUT_SECONDS = 10.0
_MAX_TIMEOUT_SECONDS = 600.0
_KEYSPACE = re.compile(r"[a-z][a-z0-9_]{0,47}")
_DATACENTER = re.compile(r"[A-Za-z0-9._-]{1,100}")
_HOST = re.compile(r"(?P<name>\[[0-9a-fA-F:.]+\]|[A-Za-z0-9._-]+)(?::(?P<port>[0-9]{1,5}))?")
_OPTIONS = frozenset({"dc", "replication", "tls", "tls_ca", "timeout"})


@dataclass(frozen=True, slots=True, kw_only=True)
class CassandraUrl:
    """``replication``: copies in ``datacenter`` (None: of the whole cluster), for a keyspace that is yet to be made.

    ``tls_ca``: a file with the certificates to trust; None: those of the system.
    """

    hosts: tuple[str, ...]
    port: int = DEFAULT_PORT
    keyspace: str = DEFAULT_KEYSPACE
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    datacenter: str | None = None
    replication: int = DEFAULT_REPLICATION
    has_tls: bool = False
    tls_ca: str | None = None
    timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS


def parse_cassandra_url(url: str) -> CassandraUrl:
    """Parse ``url``. Raises ``InvalidSettings`` with one line that quotes no credentials."""
    _, _, rest = url.partition("://")
    place, _, query = rest.partition("?")
    authority, _, path = place.partition("/")
    credentials, _, host_list = authority.rpartition("@")
    user, colon, password = credentials.partition(":")
    if credentials and not (user and colon):
        raise _wrong("credentials are user:password")
    hosts, port = _hosts(host_list)
    keyspace = path or DEFAULT_KEYSPACE
    if _KEYSPACE.fullmatch(keyspace) is None:
        raise _wrong("the keyspace has 1 to 48 lower-case letters, digits and '_', and begins with a letter")
    options = _options(query)
    datacenter = options.get("dc")
    if datacenter is not None and _DATACENTER.fullmatch(datacenter) is None:
        raise _wrong("dc is the name of a data centre: letters, digits, '.', '_' and '-'")
    tls = options.get("tls", "on" if "tls_ca" in options else "off")
    if tls not in ("on", "off") or (tls == "off" and "tls_ca" in options):
        raise _wrong("tls is on or off, and tls_ca goes with tls=on")
    return CassandraUrl(
        hosts=hosts,
        port=port,
        keyspace=keyspace,
        user=unquote(user) if credentials else None,
        password=unquote(password) if credentials else None,
        datacenter=datacenter,
        replication=_whole(options, "replication", DEFAULT_REPLICATION, most=99),
        has_tls=tls == "on",
        tls_ca=options.get("tls_ca"),
        timeout_seconds=_seconds(options),
    )


def _hosts(host_list: str) -> tuple[tuple[str, ...], int]:
    names: list[str] = []
    ports: set[int] = set()
    for text in host_list.split(","):
        match = _HOST.fullmatch(text)
        if match is None:
            raise _wrong("it names hosts like cassandra://host1,host2:9042/keyspace")
        names.append(match["name"].strip("[]"))
        if match["port"] is not None:
            ports.add(int(match["port"]))
    if len(ports) > 1:
        raise _wrong("all its hosts have the same port")
    port = ports.pop() if ports else DEFAULT_PORT
    if not 0 < port < 65536:
        raise _wrong("a port is 1 to 65535")
    return tuple(names), port


def _options(query: str) -> dict[str, str]:
    try:
        pairs = parse_qsl(query, keep_blank_values=True, strict_parsing=True) if query else []
    except ValueError:
        raise _wrong("its options are name=value, with & between them") from None
    options = dict(pairs)
    if len(options) < len(pairs):
        raise _wrong("an option is given twice")
    unknown = sorted(options.keys() - _OPTIONS)
    if unknown:
        raise _wrong(f"unknown option {unknown[0]!r}; known are {', '.join(sorted(_OPTIONS))}")
    return options


def _whole(options: dict[str, str], name: str, default: int, *, most: int) -> int:
    text = options.get(name)
    if text is None:
        return default
    if not (text.isascii() and text.isdigit() and 0 < int(text) <= most):
        raise _wrong(f"{name} is a whole number from 1 to {most}")
    return int(text)


def _seconds(options: dict[str, str]) -> float:
    try:
        seconds = float(options.get("timeout", DEFAULT_TIMEOUT_SECONDS))
    except ValueError:
        seconds = 0.0
    if not 0 < seconds <= _MAX_TIMEOUT_SECONDS:
        raise _wrong(f"timeout is seconds, more than 0 and at most {_MAX_TIMEOUT_SECONDS:g}")
    return seconds


def _wrong(reason: str) -> InvalidSettings:
    return InvalidSettings(f"the Cassandra store URL is wrong: {reason}")
