"""Addresses that are not on the public Internet, by an explicit list.

Sources: the IANA registries of special-purpose addresses, all blocks that are not "Globally Reachable" and the
deprecated ones (https://www.iana.org/assignments/iana-ipv4-special-registry,
https://www.iana.org/assignments/iana-ipv6-special-registry), of multicast addresses, and of IPv6 global unicast
assignments. Not ``ipaddress.is_global``: its responses differ between patch releases of Python (CPython gh-113171).
"""

from __future__ import annotations

from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network

_IPV4 = (
    ("0.0.0.0/8", "unspecified"),  # RFC 791: "this network"
    ("10.0.0.0/8", "private"),  # RFC 1918
    ("100.64.0.0/10", "carrier-grade NAT"),  # RFC 6598; some clouds keep metadata here (100.100.100.200)
    ("127.0.0.0/8", "loopback"),  # RFC 1122
    ("168.63.129.16/32", "cloud platform"),  # Azure's platform service: public in form, reachable from inside only
    ("169.254.0.0/16", "link-local"),  # RFC 3927; cloud metadata is 169.254.169.254, containers' 169.254.170.2
    ("172.16.0.0/12", "private"),  # RFC 1918
    ("192.0.0.0/24", "reserved"),  # RFC 6890: protocol assignments; Oracle's metadata is 192.0.0.192
    ("192.0.2.0/24", "documentation"),  # RFC 5737
    ("192.88.99.0/24", "6to4 relay"),  # RFC 7526: deprecated
    ("192.168.0.0/16", "private"),  # RFC 1918
    ("198.18.0.0/15", "benchmarking"),  # RFC 2544
    ("198.51.100.0/24", "documentation"),  # RFC 5737
    ("203.0.113.0/24", "documentation"),  # RFC 5737
    ("224.0.0.0/4", "multicast"),  # RFC 5771
    ("255.255.255.255/32", "broadcast"),  # RFC 919; before the block that it lies in
    ("240.0.0.0/4", "reserved"),  # RFC 1112
)

# Narrow blocks come before those that they lie in. What lies outside 2000::/3 is refused in any case; it is listed
# to be called by its name.
_IPV6 = (
    ("::/128", "unspecified"),  # RFC 4291
    ("::1/128", "loopback"),  # RFC 4291
    ("::ffff:0:0/96", "IPv4-mapped"),  # RFC 4291
    ("::ffff:0:0:0/96", "IPv4-translated"),  # RFC 2765: SIIT
    ("::/96", "IPv4-compatible"),  # RFC 4291: deprecated
    ("64:ff9b::/96", "NAT64"),  # RFC 6052
    ("64:ff9b:1::/48", "NAT64"),  # RFC 8215
    ("100::/64", "discard-only"),  # RFC 6666
    ("100:0:0:1::/64", "dummy prefix"),  # RFC 9780
    ("2001::/32", "Teredo"),  # RFC 4380
    ("2001:2::/48", "benchmarking"),  # RFC 5180
    ("2001:db8::/32", "documentation"),  # RFC 3849
    ("2001::/23", "reserved"),  # RFC 2928: protocol assignments, ORCHIDs among them
    ("2002::/16", "6to4"),  # RFC 3056
    ("3fff::/20", "documentation"),  # RFC 9637
    ("5f00::/16", "segment routing"),  # RFC 9602
    ("fc00::/7", "unique local"),  # RFC 4193; the cloud's metadata is fd00:ec2::254
    ("fe80::/10", "link-local"),  # RFC 4291
    ("fec0::/10", "site-local"),  # RFC 3879: deprecated
    ("ff00::/8", "multicast"),  # RFC 4291
)

_GLOBAL_UNICAST = IPv6Network("2000::/3")
"""All that IANA has given out: https://www.iana.org/assignments/ipv6-unicast-address-assignments"""

_IPV4_BLOCKS = tuple((IPv4Network(block), kind) for block, kind in _IPV4)
_IPV6_BLOCKS = tuple((IPv6Network(block), kind) for block, kind in _IPV6)
_ISATAP_IDENTIFIERS = (0x0000_5EFE, 0x0200_5EFE)
"""RFC 5214: the upper half of an interface identifier whose lower half is an IPv4 address."""


def reserved_kind(address: IPv4Address | IPv6Address) -> str | None:
    """Return what makes ``address`` no public one, e.g. ``loopback``; None when it is public.

    Addresses that carry an IPv4 address in them count as special whatever they carry: where they lead is decided by
    a translator that is not ours.
    """
    if isinstance(address, IPv4Address):
        return next((kind for block, kind in _IPV4_BLOCKS if address in block), None)
    for block, kind in _IPV6_BLOCKS:
        if address in block:
            return kind
    if address not in _GLOBAL_UNICAST:
        return "reserved"
    return "ISATAP" if int(address) >> 32 & 0xFFFF_FFFF in _ISATAP_IDENTIFIERS else None
