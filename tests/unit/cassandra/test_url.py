"""URLs of Cassandra stores."""

from __future__ import annotations

import pytest

from duetime.domain.errors import InvalidSettings
from duetime.stores.backends.cassandra.schema import make_keyspace_cql
from duetime.stores.backends.cassandra.session import CassandraSession
from duetime.stores.backends.cassandra.url import CassandraUrl, parse_cassandra_url


def test_a_url_may_say_everything() -> None:
    url = "cassandra://us%40er:p%3Aw%40@h1,h2:9142,[::1]/timers_1?dc=dc-1&replication=2&tls=on&tls_ca=/ca.pem&timeout=3.5"

    assert parse_cassandra_url(url) == CassandraUrl(
        hosts=("h1", "h2", "::1"),
        port=9142,
        keyspace="timers_1",
        user="us@er",
        password="p:w@",
        datacenter="dc-1",
        replication=2,
        has_tls=True,
        tls_ca="/ca.pem",
        timeout_seconds=3.5,
    )


@pytest.mark.parametrize("url", ["cassandra://h", "cassandra://h/", "cassandra://h/duetime"])
def test_a_url_may_say_little(url: str) -> None:
    assert parse_cassandra_url(url) == CassandraUrl(hosts=("h",))


def test_a_ca_file_means_tls() -> None:
    assert parse_cassandra_url("cassandra://h?tls_ca=x").has_tls


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("cassandra:///ks", "it names hosts"),
        ("cassandra://h1,,h2/ks", "it names hosts"),
        ("cassandra://h1:9042,h2:9043/ks", "the same port"),
        ("cassandra://h:0/ks", "a port is"),
        ("cassandra://h/Upper", "the keyspace has"),
        ("cassandra://h/a/b", "the keyspace has"),
        ("cassandra://h/1ks", "the keyspace has"),
        ("cassandra://user@h/ks", "credentials are"),
        ("cassandra://:secret@h/ks", "credentials are"),
        ("cassandra://h/ks?dc='x", "dc is"),
        ("cassandra://h/ks?consistency=one", "unknown option 'consistency'"),
        ("cassandra://h/ks?dc=a&dc=b", "given twice"),
        ("cassandra://h/ks?dc", "name=value"),
        ("cassandra://h/ks?replication=0", "replication is"),
        ("cassandra://h/ks?replication=three", "replication is"),
        ("cassandra://h/ks?tls=yes", "tls is"),
        ("cassandra://h/ks?tls=off&tls_ca=x", "tls is"),
        ("cassandra://h/ks?timeout=0", "timeout is"),
        ("cassandra://h/ks?timeout=nan", "timeout is"),
    ],
)
def test_a_wrong_url_is_refused_with_one_line(url: str, reason: str) -> None:
    with pytest.raises(InvalidSettings, match=reason) as caught:
        parse_cassandra_url(url)

    assert "\n" not in str(caught.value)
    assert "secret" not in str(caught.value)


def test_a_password_is_not_shown() -> None:
    assert "hidden" not in repr(parse_cassandra_url("cassandra://user:hidden@h/ks"))


def test_a_ca_file_that_is_not_there_is_refused() -> None:
    with pytest.raises(InvalidSettings, match="tls_ca"):
        CassandraSession(parse_cassandra_url("cassandra://h?tls_ca=/nowhere/ca.pem"))


@pytest.mark.parametrize(
    ("options", "replication"),
    [
        ("", "{'class': 'SimpleStrategy', 'replication_factor': 3}"),
        ("?replication=1", "{'class': 'SimpleStrategy', 'replication_factor': 1}"),
        ("?dc=dc1&replication=2", "{'class': 'NetworkTopologyStrategy', 'dc1': 2}"),
    ],
)
def test_a_keyspace_is_made_for_the_data_centre_that_is_named(options: str, replication: str) -> None:
    url = parse_cassandra_url(f"cassandra://h/ks{options}")

    assert make_keyspace_cql(url) == f"CREATE KEYSPACE IF NOT EXISTS ks WITH replication = {replication}"
