from __future__ import annotations

from ipaddress import IPv6Address, ip_address, ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duetime.delivery.egress import (
    LOOPBACK,
    Address,
    Destination,
    EgressPolicy,
    RefusedUrl,
    origin_of,
    parse_cidrs,
    parse_destination,
    parse_hosts,
)

NOTHING_ALLOWED = EgressPolicy()

# The first and the last address of every block, and addresses that are known targets.
SPECIAL = {
    "unspecified": ("0.0.0.0", "0.255.255.255", "::"),
    "private": ("10.0.0.0", "10.255.255.255", "172.16.0.0", "172.31.255.255", "192.168.0.0", "192.168.255.255"),
    "carrier-grade NAT": ("100.64.0.0", "100.127.255.255", "100.100.100.200"),
    "loopback": ("127.0.0.0", "127.0.0.1", "127.255.255.255", "::1"),
    "cloud platform": ("168.63.129.16",),
    "link-local": (
        *("169.254.0.0", "169.254.169.254", "169.254.170.2", "169.254.255.255", "fe80::", "fe80::1"),
        *("febf:ffff:ffff:ffff:ffff:ffff:ffff:ffff",),
    ),
    "documentation": (
        *("192.0.2.0", "192.0.2.255", "198.51.100.0", "198.51.100.255", "203.0.113.0", "203.0.113.255"),
        *("2001:db8::", "2001:db8:ffff:ffff:ffff:ffff:ffff:ffff", "3fff::"),
        *("3fff:fff:ffff:ffff:ffff:ffff:ffff:ffff",),
    ),
    "6to4 relay": ("192.88.99.0", "192.88.99.255"),
    "benchmarking": ("198.18.0.0", "198.19.255.255", "2001:2::", "2001:2:0:ffff:ffff:ffff:ffff:ffff"),
    "multicast": ("224.0.0.0", "239.255.255.255", "ff00::", "ff02::1", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"),
    "broadcast": ("255.255.255.255",),
    "reserved": (
        *("192.0.0.0", "192.0.0.192", "192.0.0.255", "240.0.0.0", "255.255.255.254", "2001:1::1", "2001:20::"),
        *("2001:1ff:ffff:ffff:ffff:ffff:ffff:ffff", "1fff::1", "4000::", "200::1", "e000::1"),
    ),
    "IPv4-mapped": ("::ffff:0:0", "::ffff:127.0.0.1", "::ffff:8.8.8.8", "::ffff:255.255.255.255"),
    "IPv4-translated": ("::ffff:0:127.0.0.1", "::ffff:0:8.8.8.8"),
    "IPv4-compatible": ("::2", "::127.0.0.1", "::8.8.8.8", "::255.255.255.255"),
    "NAT64": (
        *("64:ff9b::", "64:ff9b::7f00:1", "64:ff9b::808:808", "64:ff9b::ffff:ffff", "64:ff9b:1::"),
        *("64:ff9b:1::a00:1", "64:ff9b:1:ffff:ffff:ffff:ffff:ffff"),
    ),
    "discard-only": ("100::", "100::ffff:ffff:ffff:ffff"),
    "dummy prefix": ("100:0:0:1::", "100::1:ffff:ffff:ffff:ffff"),
    "Teredo": ("2001::", "2001:0:4136:e378:8000:63bf:3fff:fdd2", "2001:0:ffff:ffff:ffff:ffff:ffff:ffff"),
    "6to4": ("2002::", "2002:7f00:1::", "2002:808:808::1", "2002:ffff:ffff:ffff:ffff:ffff:ffff:ffff"),
    "segment routing": ("5f00::", "5f00:ffff::"),
    "unique local": ("fc00::", "fd00:ec2::254", "fdff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"),
    "site-local": ("fec0::", "feff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"),
    "ISATAP": ("2606:4700::5efe:7f00:1", "2606:4700::200:5efe:a00:1"),
}

# The neighbours of every block on either side, as far as they are public, and well-known hosts.
PUBLIC = [
    *("1.0.0.0", "9.255.255.255", "11.0.0.0", "100.63.255.255", "100.128.0.0", "126.255.255.255", "128.0.0.0"),
    *("168.63.129.15", "168.63.129.17", "169.253.255.255", "169.255.0.0", "172.15.255.255", "172.32.0.0"),
    *("191.255.255.255", "192.0.1.0", "192.0.1.255", "192.0.3.0", "192.88.98.255", "192.88.100.0"),
    *("192.167.255.255", "192.169.0.0", "198.17.255.255", "198.20.0.0", "198.51.99.255", "198.51.101.0"),
    *("203.0.112.255", "203.0.114.0", "223.255.255.255", "8.8.8.8", "1.1.1.1"),
    *("2000::", "2001:200::", "2001:db7:ffff:ffff:ffff:ffff:ffff:ffff", "2001:db9::", "2001:ffff:ffff::", "2003::"),
    *("3ffe:ffff::1", "3fff:1000::", "2606:4700:4700::1111", "2001:4860:4860::8888", "2a05:d018::5eff:7f00:1"),
]


@pytest.mark.parametrize(("kind", "text"), [(kind, text) for kind, texts in SPECIAL.items() for text in texts])
def test_what_is_not_public_is_refused_by_its_name(kind: str, text: str) -> None:
    assert NOTHING_ALLOWED.refusal(ip_address(text)) == kind


@pytest.mark.parametrize("text", PUBLIC)
def test_public_addresses_may_be_called(text: str) -> None:
    assert NOTHING_ALLOWED.refusal(ip_address(text)) is None


@given(st.ip_addresses())
def test_nothing_that_python_knows_to_be_special_is_called_public(address: Address) -> None:
    if address.is_private or address.is_multicast or address.is_reserved or address.is_link_local:
        assert NOTHING_ALLOWED.refusal(address) is not None


@given(st.ip_addresses(v=4), st.sampled_from(["::ffff:0:0", "::ffff:0:0:0", "::", "64:ff9b::", "64:ff9b:1::"]))
def test_no_ipv4_address_can_be_reached_inside_an_ipv6_one(embedded: object, prefix: str) -> None:
    address = IPv6Address(int(IPv6Address(prefix)) + int(embedded))  # type: ignore[call-overload]
    assert NOTHING_ALLOWED.refusal(address) is not None


class TestAllowing:
    def test_addresses_by_block(self) -> None:
        policy = EgressPolicy(allow_cidrs=(*LOOPBACK, ip_network("10.1.0.0/16"), ip_network("64:ff9b::/96")))
        for text in ("127.0.0.1", "127.9.9.9", "::1", "10.1.255.255", "64:ff9b::808:808", "8.8.8.8"):
            assert policy.refusal(ip_address(text)) is None
        for text in ("10.2.0.0", "::2", "169.254.169.254", "::ffff:127.0.0.1", "::ffff:10.1.0.1"):
            assert policy.refusal(ip_address(text)) is not None

    def test_hosts_by_name_and_by_suffix(self) -> None:
        policy = EgressPolicy(allow_hosts=("hooks.internal", "*.corp.test"))
        for host in ("hooks.internal", "a.corp.test", "a.b.corp.test"):
            assert policy.allows_host(host)
        others = ("x.hooks.internal", "internal", "corp.test", "evilcorp.test", "corp.test.evil", "hooks.internal.")
        for host in others:
            assert not policy.allows_host(host)

    def test_a_host_that_is_an_address(self) -> None:
        policy = EgressPolicy(allow_hosts=("10.0.0.7", "fd00::7"))
        assert policy.check_url("http://10.0.0.7:81/x").port == 81
        assert policy.check_url("http://[FD00:0::7]/").host == "fd00::7"
        with pytest.raises(RefusedUrl):
            policy.check_url("http://10.0.0.8/")

    def test_https_only_holds_for_allowed_hosts_too(self) -> None:
        policy = EgressPolicy(allow_hosts=("hooks.internal",), https_only=True)
        assert policy.check_url("HTTPS://hooks.internal/").scheme == "https"
        with pytest.raises(RefusedUrl, match="https"):
            policy.check_url("http://hooks.internal/")


class TestUrls:
    @pytest.mark.parametrize(
        ("url", "expected"),
        [
            ("http://receiver.test", Destination("http", "receiver.test", 80, None)),
            ("HTTPS://Receiver.TEST/a?b", Destination("https", "receiver.test", 443, None)),
            ("https://under_score.test:8443?x", Destination("https", "under_score.test", 8443, None)),
            ("http://1.2.3.4:5/", Destination("http", "1.2.3.4", 5, ip_address("1.2.3.4"))),
            ("http://[2606:4700:0::1]/", Destination("http", "2606:4700::1", 80, ip_address("2606:4700::1"))),
            ("http://1.2.3.4.test/", Destination("http", "1.2.3.4.test", 80, None)),
            ("http://xn--strae-oqa.test/", Destination("http", "xn--strae-oqa.test", 80, None)),
        ],
    )
    def test_that_can_be_read_in_one_way_only(self, url: str, expected: Destination) -> None:
        assert parse_destination(url) == expected
        assert NOTHING_ALLOWED.check_url(url) == expected

    @pytest.mark.parametrize(
        "host",
        [
            *("2130706433", "017700000001", "0x7f000001", "0X7F000001", "127.1", "127.0.1", "0177.0.0.1", "0x7f.1"),
            *("0x7f.0.0.1", "127.0.0.0x1", "127.0.0.01", "127.0.0.1.", "127.0.0.1.0", "256.0.0.1", "1.2.3"),
            *("0", "0x", "8.8.8.8.", "8.8.2056", "08.8.8.8", "134744072", "a.1", "a.0x1", "a.1.", "0x7f.0x0.0x0.0x1"),
            *(
                "[::1%25lo]",
                "[::1%lo]",
                "[fe80::1%25eth0]",
                "[::ffff:127.0.0.1",
                "[127.0.0.1]",
                "[::1]x",
                "[1::2::3]",
            ),
            *("%31%32%37.0.0.1", "127%2e0.0.1", "localhost%00.test", "１２７.0.0.1", "①②⑦.0.0.1", "127。0。0。1"),
            *(
                "ⓛocalhost",
                "straße.test",
                "receiver.test.",
                "a..test",
                ".test",
                "-a.test",
                "a-.test",
                "a@b@c",
                "[1::2::3]",
            ),
            *(
                "[1::2::3]",
                "user@receiver.test",
                "user:pw@receiver.test",
                "receiver.test\\@evil.test",
                "a" * 64 + ".test",
            ),
            *("receiver.test:0", "receiver.test:65536", "receiver.test:", "receiver.test:80:80", "receiver test", ""),
            *("receiver.test\n", "receiver.test#x", "receiver.test;x", "\treceiver.test", "receiver.test\x00"),
        ],
    )
    def test_whose_host_has_an_odd_form_are_refused(self, host: str) -> None:
        """Whatever is allowed: nobody needs them, and clients do not agree on what they mean."""
        everything = EgressPolicy(allow_cidrs=(ip_network("0.0.0.0/0"), ip_network("::/0")))
        with pytest.raises(RefusedUrl) as caught:
            everything.check_url(f"http://{host}/")
        assert "pw" not in str(caught.value)

    @pytest.mark.parametrize(
        "url", ["", "http:/a.test/", "//a.test", "ftp://a.test/", "httpx://a.test/", " http://a.test"]
    )
    def test_of_another_kind_are_refused(self, url: str) -> None:
        with pytest.raises(RefusedUrl):
            NOTHING_ALLOWED.check_url(url)

    @pytest.mark.parametrize("host", ["127.0.0.1", "169.254.169.254", "[::ffff:8.8.8.8]", "[64:ff9b:1::a00:1]"])
    def test_with_an_address_that_is_not_public_are_refused(self, host: str) -> None:
        with pytest.raises(RefusedUrl, match="not public"):
            NOTHING_ALLOWED.check_url(f"https://{host}:8443/latest/meta-data")

    def test_are_known_by_what_comes_before_the_path(self) -> None:
        assert origin_of("https://a.test:8443/b/c?d") == "https://a.test:8443"
        assert origin_of("http://a.test/") == origin_of("http://a.test") == "http://a.test"


class TestLists:
    def test_of_blocks(self) -> None:
        assert parse_cidrs("") == parse_cidrs("  ") == ()
        assert parse_cidrs(" 10.0.0.0/8 ,fd00::/8,127.0.0.1") == (
            ip_network("10.0.0.0/8"),
            ip_network("fd00::/8"),
            ip_network("127.0.0.1/32"),
        )

    @pytest.mark.parametrize(
        "text", ["10.0.0.1/8", "10/8", "x", ",", "10.0.0.0/8,", "10.0.0.0/33", ",".join(["::1"] * 101)]
    )
    def test_of_something_else(self, text: str) -> None:
        with pytest.raises(ValueError, match="must"):
            parse_cidrs(text)

    def test_of_hosts(self) -> None:
        assert parse_hosts("") == ()
        assert parse_hosts("Hooks.Internal, *.corp.test ,10.0.0.7,FD00:0::7") == (
            "hooks.internal",
            "*.corp.test",
            "10.0.0.7",
            "fd00::7",
        )

    @pytest.mark.parametrize(
        "text",
        ["*", "*.", "a.*", "*a.test", "http://a.test", "a.test:80", "a.test.", "127.1", "*.1", "a,,b", "[::1]"],
    )
    def test_of_what_is_no_host(self, text: str) -> None:
        with pytest.raises(ValueError, match="must"):
            parse_hosts(text)
