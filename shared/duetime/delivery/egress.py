"""Where callbacks may go: the rules. Who applies them, and when: docs/decisions/0007-egress-guard.md.

Imported by the API as well, so nothing here may load the HTTP client.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

from duetime.delivery.reserved_addresses import reserved_kind
from duetime.domain.targets import Target, is_allowed, is_arn, parse_arn

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

LOOPBACK: tuple[Network, ...] = (IPv4Network("127.0.0.0/8"), IPv6Network("::1/128"))

_MAX_LIST_ITEMS = 100
# One reading only: what this does not match is refused, so no client can find another host in the same URL.
_ORIGIN = re.compile(
    r"(https?)://(?:\[([0-9A-Fa-f:.]{2,45})\]|([A-Za-z0-9._-]{1,253}))(?::([0-9]{1,5}))?(?=[/?]|\Z)", re.IGNORECASE
)
_LABEL = r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?"
_NAME = re.compile(rf"{_LABEL}(?:\.{_LABEL})*")
# The URL standard (https://url.spec.whatwg.org/#ends-in-a-number-checker): a host whose last label looks like a
# number is an IPv4 address, or nothing. Clients, and getaddrinfo, read 127.1, 0177.0.0.1, 0x7f.1 and 2130706433.
_NUMERIC_END = re.compile(r"(?:.*\.)?(?:[0-9]+|0[xX][0-9A-Fa-f]*)\.?")


class RefusedUrl(ValueError):
    """A callback may never go to this URL. The message completes "<field> ..." and shows no part of the URL."""


@dataclass(frozen=True, slots=True)
class Destination:
    """Scheme, host and port of a URL. ``host`` is in lower case, an address in its shortest form."""

    scheme: str
    host: str
    port: int
    address: Address | None
    """The host, when it is an address and not a name."""


def origin_of(url: str) -> str:
    """Return ``url`` without its path (a query that follows at once stays): what caches of destinations go by."""
    end = url.find("/", len("https://"))
    return url if end < 0 else url[:end]


def parse_destination(url: str) -> Destination:
    """Return where ``url`` leads. Raises ``RefusedUrl`` for what is no absolute http or https URL, or names its host
    in an unusual form.
    """
    return _parse_origin(origin_of(url))


@lru_cache(maxsize=1024)
def _parse_origin(origin: str) -> Destination:
    match = _ORIGIN.match(origin)
    if match is None:
        raise RefusedUrl("must be an absolute http or https URL with a plain host")
    scheme, in_brackets, plain, port_text = match.groups()
    scheme = scheme.lower()
    port = int(port_text) if port_text else 443 if scheme == "https" else 80
    if not 1 <= port <= 65_535:
        raise RefusedUrl("must have a port from 1 to 65535")
    if in_brackets:
        address = _read_address(in_brackets, IPv6Address)
        return Destination(scheme, str(address), port, address)
    if _NUMERIC_END.fullmatch(plain):
        return Destination(scheme, plain, port, _read_address(plain, IPv4Address))
    host = plain.lower()
    if _NAME.fullmatch(host) is None:
        raise RefusedUrl(
            "must name its host by labels of 1 to 63 letters, digits, - and _, none with - at an end, and without a"
            " dot at the end"
        )
    return Destination(scheme, host, port, None)


def _read_address(text: str, kind: type[IPv4Address | IPv6Address]) -> Address:
    try:
        return kind(text)  # strict: four decimal numbers without leading zeros
    except ValueError:
        raise RefusedUrl("must not have an IP address in an unusual form as its host") from None


@dataclass(frozen=True, kw_only=True)
class EgressPolicy:
    """Denies by default: callbacks go to public addresses only, and to no targets.

    ``allow_cidrs``: addresses that may be called although they are not public.
    ``allow_hosts``: hosts whose addresses are not looked at, exact names or ``*.suffix`` (not the suffix itself).
    ``https_only`` holds for every host. ``allow_targets``: ARNs, as ``domain.targets.parse_allowed`` returns them.
    """

    allow_cidrs: tuple[Network, ...] = ()
    allow_hosts: tuple[str, ...] = ()
    https_only: bool = False
    allow_targets: tuple[str, ...] = ()

    def check(self, url: str) -> None:
        """Refuse what may never be called, a URL or the ARN of a target. Raises ``RefusedUrl``."""
        if is_arn(url):
            self.check_target(url)
        else:
            self.check_url(url)

    def check_target(self, arn: str) -> Target:
        """Return the target ``arn``. Raises ``RefusedUrl`` when none may be, or this one may not."""
        try:
            target = parse_arn(arn)
        except ValueError as error:
            raise RefusedUrl(str(error)) from None
        if not is_allowed(arn, self.allow_targets):
            raise RefusedUrl("is none of the targets that this deployment allows")
        return target

    def check_url(self, url: str) -> Destination:
        """Return the destination of ``url``. Raises ``RefusedUrl`` when no callback may ever go there.

        Names are not looked up: where a name leads is judged each time that it is connected to.
        """
        return self._judged(origin_of(url))

    @cached_property
    def _judged(self) -> Callable[[str], Destination]:
        """Return what judges origins. Those that may be called are remembered: timers come in numbers for each."""
        return lru_cache(maxsize=1024)(self._judge)

    def _judge(self, origin: str) -> Destination:
        destination = parse_destination(origin)
        if self.https_only and destination.scheme != "https":
            raise RefusedUrl("must be an https URL")
        address = destination.address
        if address is not None and not self.allows_host(destination.host):
            kind = self.refusal(address)
            if kind is not None:
                raise RefusedUrl(f"must not lead to an address that is not public ({kind})")
        return destination

    def allows_host(self, host: str) -> bool:
        """Tell whether the addresses of ``host`` (in lower case) need not be public."""
        return is_listed(host, self.allow_hosts)

    def refusal(self, address: Address) -> str | None:
        """Say why ``address`` may not be connected to, in a word or two; None when it may."""
        if any(address in network for network in self.allow_cidrs):
            return None
        return reserved_kind(address)


PUBLIC_ONLY = EgressPolicy()
ANYWHERE = EgressPolicy(allow_cidrs=(IPv4Network("0.0.0.0/0"), IPv6Network("::/0")))
"""For URLs that come from whoever runs Duetime, and never for those of clients."""


def is_listed(host: str, names: Iterable[str]) -> bool:
    """Tell whether ``host`` (in lower case) is one of ``names``, exact or ``*.suffix`` (not the suffix itself)."""
    return any(host.endswith(name[1:]) if name.startswith("*.") else host == name for name in names)


def parse_cidrs(text: str) -> tuple[Network, ...]:
    """Parse networks, comma separated; a single address counts as one. Raises ``ValueError`` that shows no item."""
    try:
        return tuple(ip_network(item) for item in _items(text))
    except ValueError:
        raise ValueError("must be CIDR blocks like 10.0.0.0/8 or fd00::/8, comma separated") from None


def parse_hosts(text: str) -> tuple[str, ...]:
    """Parse host names, addresses and ``*.suffix``, comma separated. Raises ``ValueError`` that shows no item."""
    return tuple(_read_host(item) for item in _items(text))


def _items(text: str) -> Iterable[str]:
    items = [item.strip() for item in text.split(",")] if text.strip() else []
    if len(items) > _MAX_LIST_ITEMS:
        raise ValueError(f"must have at most {_MAX_LIST_ITEMS} items")
    return items


def _read_host(item: str) -> str:
    host = item.lower()
    name = host.removeprefix("*.")
    is_suffix = name != host
    if not is_suffix:
        try:
            return str(ip_address(host))
        except ValueError:
            pass
    if _NAME.fullmatch(name) is None or _NUMERIC_END.fullmatch(name):
        raise ValueError("must be host names or *.suffix, comma separated")
    return host
