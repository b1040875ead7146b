"""The egress guard: which addresses libcurl gets to see, and which of them it may connect to.

Names are resolved here and not by libcurl, so that *all* addresses of a name are judged before any is connected to.
The ones that passed are pinned; whatever libcurl then wants to connect to must be among them. Why so:
docs/decisions/0007-egress-guard.md.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from ipaddress import ip_address

from duetime.delivery.dns import LookupThreads, Resolve
from duetime.delivery.egress import Address, Destination, EgressPolicy, origin_of
from duetime.delivery.port import TransportError

MAX_TARGETS = 10_000
MAX_PINNED_ADDRESSES = 32
FAILED_SECONDS = 2.0
"""How long a look-up that failed, or led where callbacks may not go, is remembered."""


class Target:
    """A host and port, and what is known of its addresses. For the event loop's thread.

    ``approved`` has the addresses of the last two look-ups that passed: a transfer may have waited for a connection
    while the second was made. They stay usable while they are looked up again, for as long as they were fresh.
    """

    __slots__ = (
        *("_newest", "approved", "destination", "fresh_until", "is_exempt", "is_looked_up", "pins", "refusal"),
        "usable_until",
    )

    def __init__(self, destination: Destination, *, is_exempt: bool) -> None:
        self.destination = destination
        self.is_exempt = is_exempt
        self.approved: frozenset[Address] = frozenset()
        self.pins: tuple[str, ...] = ()
        """For CURLOPT_RESOLVE."""
        self.refusal: Refusal | None = None
        self.fresh_until = self.usable_until = float("-inf")
        self.is_looked_up = False
        self._newest: frozenset[Address] = frozenset()

    def approve(self, addresses: Sequence[Address], *, now: float, fresh_seconds: float) -> None:
        newest = frozenset(addresses)
        self.approved = newest | self._newest
        self._newest = newest
        self.refusal = None
        self.fresh_until = now + fresh_seconds
        self.usable_until = self.fresh_until + fresh_seconds
        if self.destination.address is None:
            listed = ",".join(f"[{a}]" if a.version == 6 else str(a) for a in addresses[:MAX_PINNED_ADDRESSES])
            # With the plus sign libcurl forgets it by itself (DNS_CACHE_TIMEOUT); without, never.
            self.pins = (f"+{self.destination.host}:{self.destination.port}:{listed}",)

    def refuse(self, refusal: Refusal, *, until: float) -> None:
        self.approved = self._newest = frozenset()
        self.pins = ()
        self.refusal = refusal
        self.fresh_until = self.usable_until = until


@dataclass(frozen=True, slots=True)
class Refusal:
    error: TransportError
    message: str


@dataclass(frozen=True, slots=True)
class Lookup:
    """What a look-up brought; ``addresses`` is None when it failed."""

    target: Target
    addresses: Sequence[str] | None


class Guard:
    """Targets by the URLs that lead to them. For the event loop's thread; ``report`` alone is called in others.

    ``report`` takes a ``Lookup`` that has ended and sees to it that ``settle`` gets it.
    """

    def __init__(
        self, policy: EgressPolicy, resolve: Resolve, report: Callable[[Lookup], None], *, fresh_seconds: float
    ) -> None:
        self._policy = policy
        self._resolve = resolve
        self._report = report
        self._fresh_seconds = fresh_seconds
        self._threads = LookupThreads()
        self._by_origin: dict[str, Target] = {}
        self._targets: dict[tuple[str, int], Target] = {}

    def target(self, url: str, now: float) -> Target:
        """Return where ``url`` leads; asks for its addresses when they are not known (any more). Raises
        ``RefusedUrl``.

        Ready when ``now < usable_until``: then either ``refusal`` is set or ``approved`` may be connected to.
        """
        origin = origin_of(url)
        target = self._by_origin.get(origin) or self._new_target(origin)
        if now >= target.fresh_until and not target.is_looked_up:
            self._ask(target, now)
        return target

    def _ask(self, target: Target, now: float) -> None:
        if self._threads.run(lambda: self._report(self._look_up(target))):
            target.is_looked_up = True
        elif now >= target.usable_until:
            message = "too many host names are being looked up"
            target.refuse(Refusal(TransportError.RESOLVE, message), until=now + FAILED_SECONDS)

    def settle(self, lookup: Lookup, now: float) -> Target:
        """Judge what a look-up brought. The target is ready afterwards."""
        target = lookup.target
        target.is_looked_up = False
        addresses = _parse(lookup.addresses or ())
        kinds = [None if target.is_exempt else self._policy.refusal(address) for address in addresses]
        refused = next((kind for kind in kinds if kind is not None), None)
        if not addresses:
            target.refuse(
                Refusal(TransportError.RESOLVE, "the host's name could not be resolved"), until=now + FAILED_SECONDS
            )
        elif refused is not None:
            # Not which address: a client could read a network's inner names through us.
            message = f"the host's name leads to an address that may not be called ({refused})"
            target.refuse(Refusal(TransportError.REFUSED_ADDRESS, message), until=now + FAILED_SECONDS)
        else:
            target.approve(addresses, now=now, fresh_seconds=self._fresh_seconds)
        return target

    def may_connect(self, target: Target, family: int, text: str) -> bool:
        """Tell libcurl before each connect whether it may: the last word."""
        if family not in (socket.AF_INET, socket.AF_INET6):
            return False
        try:
            address = ip_address(text)
        except ValueError:
            return False
        return address in target.approved and (target.is_exempt or self._policy.refusal(address) is None)

    def close(self) -> None:
        self._threads.close()

    def _new_target(self, origin: str) -> Target:
        destination = self._policy.check_url(origin)
        if len(self._by_origin) >= MAX_TARGETS:
            # Those that are in use are looked up again; look-ups in flight still reach those who wait for them.
            self._by_origin.clear()
            self._targets.clear()
        key = (destination.host, destination.port)
        target = self._targets.get(key)
        if target is None:
            target = Target(destination, is_exempt=self._policy.allows_host(destination.host))
            if destination.address is not None:
                target.approve([destination.address], now=0.0, fresh_seconds=float("inf"))
            self._targets[key] = target
        self._by_origin[origin] = target
        return target

    def _look_up(self, target: Target) -> Lookup:
        """Look a host up, in a thread of its own. Whatever goes wrong, the answer is no."""
        try:
            return Lookup(target, self._resolve(target.destination.host, target.destination.port))
        except Exception:  # OSError by its contract, but those who wait must be told in any case
            return Lookup(target, None)


def _parse(texts: Iterable[str]) -> list[Address]:
    """Return the addresses without repetition, in order; none at all when one cannot be read."""
    try:
        return list(dict.fromkeys(ip_address(text.partition("%")[0]) for text in texts))
    except ValueError:
        return []
