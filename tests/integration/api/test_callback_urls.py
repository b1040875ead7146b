"""Which callback URLs are accepted, and for how long a callback may take.

Where names lead is judged when they fire: tests/integration/delivery/test_guard.py.
"""

from __future__ import annotations

import socket
from ipaddress import ip_network
from typing import Any

import pytest

from duetime.delivery.egress import EgressPolicy
from tests.support.api import World, api_world

GOOD: dict[str, Any] = {"id": "good", "executeAt": "2026-12-21T00:00:00Z", "callbackUrl": "http://receiver.test/"}


def assert_refused(world: World, url: str, *, message: str) -> None:
    assert_field_refused(world, {"callbackUrl": url}, message=message)


def assert_field_refused(world: World, wrong: dict[str, Any], *, message: str) -> None:
    """By every way in, and nothing is stored."""
    assert world.api.create(GOOD).status in (200, 201)
    (field,) = wrong
    body = GOOD | {"id": "bad"} | wrong
    for answer in (
        world.api.create(body),
        world.api.put("bad", body),
        world.api.put("good", GOOD | wrong),
        world.api.patch("good", wrong),
    ):
        assert answer.status == 400
        assert list(answer.faults) == [field]
        assert message in answer.faults[field]
        assert "hunter2" not in answer.text
    (item,) = world.api.call("POST", f"{world.api.timers}/batch", {"timers": [body]}).json()["items"]
    assert (item["status"], item["problem"]["errors"][0]["field"]) == (400, field)
    assert [timer["id"] for timer in world.api.all_pages()] == ["good"]
    assert world.timer("good").revision == 1


@pytest.mark.parametrize(
    ("host", "kind"),
    [
        ("127.0.0.1", "loopback"),
        ("10.1.2.3", "private"),
        ("169.254.169.254", "link-local"),
        ("100.64.0.1", "carrier-grade NAT"),
        ("224.0.0.1", "multicast"),
        ("0.0.0.0", "unspecified"),
        ("255.255.255.255", "broadcast"),
        ("[::1]", "loopback"),
        ("[::ffff:127.0.0.1]", "IPv4-mapped"),
        ("[::127.0.0.1]", "IPv4-compatible"),
        ("[64:ff9b::7f00:1]", "NAT64"),
        ("[2002:7f00:1::]", "6to4"),
        ("[fd00:ec2::254]", "unique local"),
        ("[fe80::1]", "link-local"),
    ],
)
def test_an_address_that_is_not_public_is_a_400(world: World, host: str, kind: str) -> None:
    assert_refused(
        world, f"https://{host}:8443/x", message=f"must not lead to an address that is not public ({kind})"
    )


@pytest.mark.parametrize(
    ("host", "message"),
    [
        *(
            (host, "unusual form")
            for host in ("2130706433", "0177.0.0.1", "0x7f.1", "127.1", "127.0.0.1.", "08.8.8.8")
        ),
        *(
            (host, "in ASCII")
            for host in ("[::1%25lo]", "%31%32%37.0.0.1", "１２７.0.0.1", "127。0。0。1", "straße.test")
        ),
        *((host, "no zone of an address") for host in ("[fe80::1%25eth0]", "2606:4700::1")),
        *((host, "a port in digits") for host in ("receiver.test:", "receiver.test:-1")),
        ("receiver.test.", "without a dot at the end"),
        *((host, "labels of 1 to 63 letters") for host in ("-receiver.test", f"{'a' * 64}.test")),
        ("user:hunter2@receiver.test", "user information"),
        ("receiver.test:0", "port"),
        ("receiver.test\r\nX: y", "control characters"),
    ],
)
def test_a_host_that_clients_read_in_different_ways_is_a_400(world: World, host: str, message: str) -> None:
    assert_refused(world, f"http://{host}/", message=message)


LONGEST = "http://receiver.test/" + "a" * 2027


@pytest.mark.parametrize(
    "url",
    [
        *("", "receiver.test", "//receiver.test/", "ftp://receiver.test/", "javascript:alert(1)", "http:///path"),
        *("http://receiver.test/#part", "http://receiver.test/a b", "http://receiver.test/a\tb"),
        *("http://receiver.test/\\x", "http://receiver.test/☃", f"{LONGEST}a"),
    ],
)
def test_what_is_no_url_of_a_receiver_is_a_400(world: World, url: str) -> None:
    assert_refused(world, url, message="")


@pytest.mark.parametrize(
    "url", ["HTTPS://Receiver.Test:443/", "http://receiver.test?x", "http://a.test/a|b{c}", LONGEST]
)
def test_a_url_is_kept_as_it_was_given(world: World, url: str) -> None:
    assert world.api.create(GOOD | {"callbackUrl": url}).json()["callbackUrl"] == url


def test_http_is_a_400_where_https_is_required() -> None:
    with api_world(egress=EgressPolicy(https_only=True)) as world:
        https = {"callbackUrl": "https://receiver.test/"}
        assert world.api.create(GOOD | https).status == 201
        http = {"callbackUrl": GOOD["callbackUrl"]}
        for answer in (world.api.create(GOOD | {"id": "t2"}), world.api.patch("good", http)):
            assert (answer.status, answer.faults) == (400, {"callbackUrl": "must be an https URL"})


def test_what_is_allowed_is_accepted() -> None:
    policy = EgressPolicy(allow_cidrs=(ip_network("10.1.0.0/16"),), allow_hosts=("192.168.0.1",))
    with api_world(egress=policy) as world:
        for host, status in [("10.1.2.3", 201), ("192.168.0.1:81", 201), ("10.2.0.1", 400), ("127.0.0.1", 400)]:
            assert world.api.create(GOOD | {"id": host, "callbackUrl": f"http://{host}/"}).status == status


def test_a_name_is_accepted_unresolved_wherever_it_leads(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may lead elsewhere by the time it fires, and a look-up would make creating depend on a client's DNS."""

    def resolve(*args: object, **more: object) -> list[object]:
        raise AssertionError("creating a timer looked a name up")

    for function in ("getaddrinfo", "gethostbyname", "gethostbyname_ex"):
        monkeypatch.setattr(socket, function, resolve)
    for number, host in enumerate(["localhost", "localtest.me", "metadata.google.internal", "not-yet.test"]):
        created = world.api.create(GOOD | {"id": f"t{number}", "callbackUrl": f"http://{host}/"})
        assert created.status == 201


def test_a_timeout_that_a_poller_at_its_end_cannot_wait_for_is_a_400() -> None:
    """Where pollers end, as on Lambda. Elsewhere every timeout is accepted."""
    schedules = "/v1/namespaces/default/schedules"
    schedule = {"id": "s", "every": "1h", "callbackUrl": GOOD["callbackUrl"], "timeoutSeconds": 120}
    with api_world(max_timeout_seconds=120) as world:
        message = "must be at most 120 in this deployment"
        assert_field_refused(world, {"timeoutSeconds": 121}, message=message)
        assert world.api.patch("good", {"timeoutSeconds": 120}).status == 200
        assert world.api.patch("good", {"timeoutSeconds": None}).status == 200

        assert world.api.call("POST", schedules, schedule).status == 201
        long = {"timeoutSeconds": 121}
        for answer in (
            world.api.call("POST", schedules, schedule | {"id": "t"} | long),
            world.api.call("PUT", f"{schedules}/s", schedule | long),
            world.api.call("PATCH", f"{schedules}/s", long),
        ):
            assert answer.status == 400
            assert message in answer.faults["timeoutSeconds"]
    with api_world() as world:
        assert world.api.create(GOOD | {"timeoutSeconds": 900}).status == 201
