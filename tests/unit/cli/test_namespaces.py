"""``duetime namespaces`` and ``duetime secrets`` on an SQLite store."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from duetime.domain.namespaces import Misfire, Namespace, NamespaceState
from duetime.domain.secrets import parse_secret, secret_text, valid_secrets
from duetime.runtime.clock import SystemClock
from duetime.runtime.local_key import KeyFile, LocalSecretBox
from duetime.stores.core.store import Store
from duetime.stores.port.timers import PutMode
from duetime.testing.contract.builders import make_timer
from tests.support.commands import Cli

NOW = SystemClock().now()
"""The commands read the real clock."""

OWN = secret_text(bytes(range(24)))


@pytest.fixture
def key_file(tmp_path: Path) -> Path:
    return tmp_path / "duetime.key"


@pytest.fixture
def store(store: Store) -> Store:
    store.catalogue.create_namespace("orders", num_shards=4, dedicated=False, now=NOW)
    return store


def orders(store: Store) -> Namespace:
    namespace = store.catalogue.get_namespace("orders")
    assert namespace is not None
    return namespace


@pytest.fixture
def cli(store: Store, cli: Cli) -> Cli:
    return cli


class TestNamespaces:
    def test_settings_are_set_shown_and_cleared(self, cli: Cli, store: Store) -> None:
        policy = '{"maxAttempts":  3}'
        words = ["--max-in-flight", "7", "--rate-limit", "2.5", "--retry-policy", f" {policy} "]
        out, _ = cli("namespaces", "update", "orders", *words)

        assert "max in flight" in out
        shown = json.loads(cli("namespaces", "show", "orders", "--json")[0])
        assert (shown["maxInFlight"], shown["rateLimit"], shown["retryPolicy"]) == (7, 2.5, {"maxAttempts": 3})
        assert orders(store).settings.retry_policy_json == policy
        assert cli("namespaces", "show", "orders")[0] == out
        cli("namespaces", "update", "orders", "--max-in-flight", "none", "--rate-limit", "10")
        assert orders(store).settings.max_in_flight is None
        assert orders(store).settings.rate_limit_per_second == 10
        assert orders(store).settings.retry_policy_json == policy

    def test_one_is_resharded(self, cli: Cli, store: Store) -> None:
        shown = json.loads(cli("namespaces", "reshard", "orders", "--num-shards", "9", "--json")[0])

        assert (shown["numShards"], [each["numShards"] for each in shown["earlierShards"]]) == (9, [4])
        stored = store.catalogue.get_namespace("orders")
        assert stored is not None
        assert (stored.num_shards, stored.earlier_shards[0].num_shards) == (9, 4)

    def test_one_is_paused_and_resumed(self, cli: Cli, store: Store) -> None:
        shown = json.loads(cli("namespaces", "pause", "orders", "--json", "--reason", "stocktaking")[0])
        assert (shown["state"], shown["pauseReason"]) == ("Paused", "stocktaking")
        assert orders(store).state is NamespaceState.PAUSED
        assert json.loads(cli("namespaces", "resume", "orders", "--json")[0])["state"] == "Active"
        cli("namespaces", "update", "orders", "--misfire", "expire")
        assert orders(store).settings.misfire is Misfire.EXPIRE

    def test_one_that_has_timers_is_not_deleted_without_force(self, cli: Cli, store: Store) -> None:
        store.timers.put([make_timer(orders(store), execute_at=NOW)], mode=PutMode.CREATE, now=NOW)
        assert "force" in cli.fails("namespaces", "delete", "orders", code=1)
        assert orders(store).state is NamespaceState.ACTIVE

    def test_they_are_listed(self, cli: Cli, store: Store) -> None:
        store.catalogue.create_namespace("vip", num_shards=2, dedicated=True, now=NOW, tenant_id="acme")
        cli("namespaces", "update", "vip", "--rate-limit", "10", "--retry-policy", '{"maxAttempts": 3}')
        cli("secrets", "create", "vip")

        lines = [re.split(r" {2,}", line) for line in cli("namespaces", "list")[0].splitlines()]

        assert lines[1:] == [
            ["orders", "default", "Active", "4", "no", "-", "-", "-"],
            ["vip", "acme", "Active", "2", "yes", "-", "10", '{"maxAttempts": 3}'],
        ]
        found = [json.loads(line) for line in cli("namespaces", "list", "--json")[0].splitlines()]
        assert [item["name"] for item in found] == ["orders", "vip"]

    def test_one_is_created_and_confirmed(self, cli: Cli, store: Store) -> None:
        words = ["namespaces", "create", "bills", "--num-shards", "3", "--dedicated", "--rate-limit", "5"]
        assert "num shards" in cli(*words)[0]
        cli(*words)
        created = store.catalogue.get_namespace("bills")
        assert created is not None
        assert (created.num_shards, created.dedicated, created.settings.rate_limit_per_second) == (3, True, 5)
        assert "HTTP 409" in cli.fails("namespaces", "create", "bills", "--num-shards", "4", code=1)

    @pytest.mark.parametrize(
        ("words", "reason"),
        [
            (["--max-in-flight", "0"], "'--max-in-flight': 0 is not in the range x>=1"),
            (["--rate-limit", "nan"], "'--rate-limit': must be a number"),
            (["--retry-policy", "{"], "'--retry-policy': is not JSON"),
            (["--retry-policy", '{}, "numShards": 9'], "'--retry-policy': is not JSON"),
            (["--misfire", "never"], "'--misfire': 'never' is not one of"),
            ([], "give at least one of --max-in-flight, --rate-limit, --retry-policy"),
        ],
    )
    def test_what_cannot_be_set_is_one_line_that_names_the_option(
        self, cli: Cli, store: Store, words: list[str], reason: str
    ) -> None:
        assert reason in cli.fails("namespaces", "update", "orders", *words, code=2)
        assert orders(store).revision == 1

    @pytest.mark.parametrize(
        ("policy", "reason"), [("7", "must be an object"), ('{"maxAttempts": 0}', "must be a whole number")]
    )
    def test_what_the_api_refuses_is_one_line(self, cli: Cli, store: Store, policy: str, reason: str) -> None:
        assert reason in cli.fails("namespaces", "update", "orders", "--retry-policy", policy, code=1)
        assert orders(store).revision == 1


@pytest.mark.parametrize(
    "words",
    [
        ["namespaces", "show", "nobody"],
        ["namespaces", "update", "nobody", "--rate-limit", "1"],
        ["secrets", "create", "nobody"],
        ["secrets", "list", "nobody"],
        ["secrets", "delete", "nobody", "x"],
        ["secrets", "list", "NOBODY"],
    ],
)
def test_a_namespace_that_does_not_exist_is_one_line(cli: Cli, words: list[str]) -> None:
    assert "does not exist" in cli.fails(*words, code=1)


@pytest.mark.parametrize(
    "words",
    [
        ["namespaces", "list"],
        ["namespaces", "redrive", "orders"],
        ["secrets", "create", "orders"],
        ["secrets", "list", "orders"],
    ],
)
def test_a_store_that_does_not_exist_is_not_made(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "duetime init" in Cli(capsys, "--store", f"sqlite:///{tmp_path}/none.db").fails(*words, code=1)
    assert list(tmp_path.iterdir()) == []


class TestSecrets:
    def test_one_is_created_and_is_all_that_standard_output_has(self, cli: Cli, store: Store, key_file: Path) -> None:
        out, error = cli("secrets", "create", "orders")

        (secret,) = valid_secrets(orders(store), NOW)
        box = LocalSecretBox(KeyFile(key_file))
        assert box.decrypt(secret.ciphertext, context="orders") == parse_secret(out.removesuffix("\n"))
        assert error == f"created secret {secret.secret_id} of namespace orders\n"

    def test_it_is_rotated_listed_and_undone(self, cli: Cli, store: Store) -> None:
        cli("secrets", "create", "orders")
        _, error = cli("secrets", "create", "orders", "--overlap", "2h")

        old, new = orders(store).secrets
        assert old.expires_at is not None
        assert (old.expires_at - new.created_at).total_seconds() == 7200
        assert f"the previous secret, {old.secret_id}, is valid until " in error
        rows = [line.split() for line in cli("secrets", "list", "orders")[0].splitlines()]
        assert [(row[0], row[-1]) for row in rows[1:]] == [
            (old.secret_id, old.expires_at.isoformat(timespec="milliseconds").replace("+00:00", "Z")),
            (new.secret_id, "-"),
        ]
        assert "two secrets of namespace 'orders' are valid" in cli.fails("secrets", "create", "orders", code=1)

        cli("secrets", "delete", "orders", new.secret_id)

        assert [secret.expires_at for secret in orders(store).secrets] == [None]

    def test_one_of_ones_own_is_read_and_not_shown(self, cli: Cli, store: Store, key_file: Path) -> None:
        out, error = cli("secrets", "create", "orders", "--secret-stdin", stdin=OWN + "\n")

        assert out == ""
        assert OWN not in error
        (secret,) = orders(store).secrets
        assert LocalSecretBox(KeyFile(key_file)).decrypt(secret.ciphertext, context="orders") == bytes(range(24))

    @pytest.mark.parametrize("text", ["", "confidential", "whsec_confidential", OWN * 100])
    def test_a_bad_one_is_refused_and_not_shown(self, cli: Cli, store: Store, text: str) -> None:
        line = cli.fails("secrets", "create", "orders", "--secret-stdin", code=1 if text else 2, stdin=text)

        assert "confidential" not in line
        assert orders(store).secrets == ()

    @pytest.mark.parametrize("overlap", ["soon", "-1s"])
    def test_a_bad_overlap_is_a_usage_error(self, cli: Cli, overlap: str) -> None:
        assert "'--overlap'" in cli.fails("secrets", "create", "orders", "--overlap", overlap, code=2)

    def test_an_unknown_one_cannot_be_deleted(self, cli: Cli) -> None:
        assert "no valid secret 'x'" in cli.fails("secrets", "delete", "orders", "x", code=1)

    def test_a_key_that_others_may_read_is_refused(self, cli: Cli, store: Store, key_file: Path) -> None:
        cli("secrets", "create", "orders")
        key_file.chmod(0o644)
        assert "chmod 600" in cli.fails("secrets", "create", "orders", code=2)
        assert len(orders(store).secrets) == 1
