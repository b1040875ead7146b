from __future__ import annotations

from ipaddress import ip_network
from pathlib import Path

import pytest

from duetime.delivery.egress import LOOPBACK, PUBLIC_ONLY, EgressPolicy
from duetime.domain.errors import InvalidSettings
from duetime.engine.settings import EngineSettings
from duetime.runtime.logs import LogFormat, LogLevel
from duetime.runtime.settings import (
    ENTRY_POINTS,
    ClientSettings,
    LocalSettings,
    PollerSettings,
    TimersApiSettings,
    WorkerSettings,
    child_environment,
    load_settings,
    unknown_variables,
)
from duetime.runtime.tuning import LambdaSettings, Settings, StoreSettings

ON_LAMBDA = {"DUETIME_STORE": "dynamodb://timers"}


@pytest.mark.parametrize("model", ENTRY_POINTS)
def test_every_setting_has_a_description_and_only_a_lambdas_store_has_no_default(model: type[Settings]) -> None:
    assert all(field.description for field in model.model_fields.values())
    required = [name for name, field in model.model_fields.items() if field.is_required()]
    assert required == (["store"] if issubclass(model, LambdaSettings) else [])


@pytest.mark.parametrize("model", [TimersApiSettings, PollerSettings])
def test_a_lambda_without_a_store_says_so(model: type[Settings]) -> None:
    with pytest.raises(InvalidSettings, match=r"^DUETIME_STORE: is required$"):
        load_settings(model, environ={})


def test_an_option_wins_over_the_environment_over_the_default() -> None:
    environ = {"DUETIME_PORT": "9000", "DUETIME_HOST": "0.0.0.0", "DUETIME_LOG_LEVEL": "DEBUG"}
    settings = load_settings(LocalSettings, {"port": "9001", "workers": None}, environ)
    assert (settings.port, settings.host, settings.workers) == (9001, "0.0.0.0", 0)
    assert settings.log_level is LogLevel.DEBUG


def test_an_empty_variable_counts_as_absent() -> None:
    assert load_settings(LocalSettings, environ={"DUETIME_PORT": ""}).port == 8080


def test_lambda_logs_json_and_people_read_text() -> None:
    for model in (TimersApiSettings, PollerSettings):
        assert load_settings(model, environ=ON_LAMBDA).log_format is LogFormat.JSON
    for other in (LocalSettings, WorkerSettings, StoreSettings):
        assert load_settings(other, environ={}).log_format is LogFormat.TEXT


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("DUETIME_PORT", "http"),
        ("DUETIME_PORT", "70000"),
        ("DUETIME_WORKERS", "-1"),
        ("DUETIME_LEASE_SECONDS", "nan"),
        ("DUETIME_LEASE_SECONDS", "inf"),
        ("DUETIME_LEASE_SECONDS", "2.0"),
        ("DUETIME_DRAIN_SECONDS", "-1"),
        *((f"DUETIME_{kind}_RETENTION_SECONDS", "1e11") for kind in ("FIRED", "FAILED", "CALL", "EVENT")),
        ("DUETIME_LOG_FORMAT", "yaml"),
        ("DUETIME_EGRESS_ALLOW_CIDRS", "10.0.0.1/8"),
        ("DUETIME_EGRESS_ALLOW_CIDRS", "everywhere"),
        ("DUETIME_EGRESS_ALLOW_HOSTS", "*"),
        ("DUETIME_EGRESS_ALLOW_HOSTS", "http://a.test"),
        ("DUETIME_EGRESS_HTTPS_ONLY", "perhaps"),
        ("DUETIME_ALLOWED_HOSTS", "*"),
        ("DUETIME_ALLOWED_HOSTS", "http://a.test"),
        ("DUETIME_STORE", "postgresql://u:pass word@host/db"),
        ("DUETIME_EGRESS_ALLOW_LOOPBACK", "perhaps"),
        ("DUETIME_FAILED_HOOK_URL", "ftp://x:k3y@h/"),
    ],
)
def test_a_bad_variable_is_named_and_its_value_is_not_shown(variable: str, value: str) -> None:
    with pytest.raises(InvalidSettings) as caught:
        load_settings(LocalSettings, environ={variable: value})
    assert caught.value.message.startswith(f"{variable}: ")
    assert value not in caught.value.message.split(": ", 1)[1].split()
    assert caught.value.__cause__ is None


@pytest.fixture
def duetime_toml(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path / "duetime.toml"


def test_a_file_wins_over_the_default_only(duetime_toml: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    duetime_toml.write_text('lease_seconds = 15\nport = 9000\nauth = true\nlog_level = "debug"\nworkers = 3\n')
    monkeypatch.setenv("DUETIME_PORT", "9001")
    settings = load_settings(LocalSettings, {"workers": "2"})

    assert (settings.lease_seconds, settings.port, settings.workers) == (15.0, 9001, 2)
    assert settings.auth is True
    assert load_settings(WorkerSettings).log_level is LogLevel.DEBUG  # what is for others does no harm


def test_neither_functions_nor_clients_read_a_file(duetime_toml: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who calls a server may be in anyone's directory: the API key must not go where a file there says."""
    monkeypatch.setenv("DUETIME_STORE", "dynamodb://timers")
    for text in ('store = "dynamodb://other"', 'url = "http://other.test"', "no TOML"):
        duetime_toml.write_text(text)
        assert load_settings(TimersApiSettings).store == "dynamodb://timers"
        assert load_settings(ClientSettings).url == "http://127.0.0.1:8080"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("lease_seconds = 'hunter2'", "duetime.toml: lease_seconds: "),
        ("leese_seconds = 15", "duetime.toml: leese_seconds: no such setting"),
        ("api_key = 'hunter2'", "duetime.toml: api_key: no such setting"),
        ("store 'hunter2'", "duetime.toml is not TOML: "),
        ("[serve]\nport = 1", "duetime.toml: serve: no such setting"),
    ],
)
def test_what_is_wrong_in_a_file_is_named_and_not_shown(duetime_toml: Path, text: str, message: str) -> None:
    duetime_toml.write_text(text)
    with pytest.raises(InvalidSettings) as caught:
        load_settings(LocalSettings)
    assert caught.value.message.startswith(message)
    assert "hunter2" not in caught.value.message


def test_a_bad_option_is_named_as_the_option_that_it_was() -> None:
    with pytest.raises(InvalidSettings, match=r"^--lease-seconds: "):
        load_settings(LocalSettings, {"lease_seconds": "soon"}, {"DUETIME_LEASE_SECONDS": "5"})


def test_all_that_is_wrong_is_told_at_once() -> None:
    with pytest.raises(InvalidSettings) as caught:
        load_settings(LocalSettings, {"port": "x"}, {"DUETIME_WORKERS": "-1"})
    assert "--port: " in caught.value.message
    assert "DUETIME_WORKERS: " in caught.value.message


def test_a_store_url_with_a_password_is_in_no_repr() -> None:
    settings = load_settings(WorkerSettings, {"store": "postgresql://u:hunter2@db/x"})
    assert "hunter2" not in repr(settings)


def test_engine_settings_come_from_the_fields_of_the_same_name() -> None:
    settings = load_settings(WorkerSettings, environ={"DUETIME_LEASE_SECONDS": "20", "DUETIME_MAX_IN_FLIGHT": "7"})
    engine = settings.engine_settings(page_size=25)
    assert (engine.lease_seconds, engine.max_in_flight, engine.page_size) == (20.0, 7, 25)
    assert WorkerSettings().engine_settings() == EngineSettings()


def test_a_child_gets_the_same_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTHER", "stays")
    settings = load_settings(LocalSettings, {"lease_seconds": 4, "store": "sqlite:///x.db", "workers": 3})
    environ = child_environment(settings)
    assert environ["OTHER"] == "stays"
    child = load_settings(WorkerSettings, environ=environ).model_dump()
    shared = LocalSettings.model_fields.keys() & WorkerSettings.model_fields.keys()
    assert {name: child[name] for name in shared} == {name: getattr(settings, name) for name in shared}
    assert child.keys() - shared == {"metrics_host", "metrics_port"}


def test_unknown_variables_are_found() -> None:
    environ = {"DUETIME_PORT": "1", "DUETIME_LEASE_SECS": "1", "DUETIMEX": "1", "PATH": "x"}
    assert unknown_variables(environ) == ["DUETIME_LEASE_SECS"]


def test_bounds_that_are_not_given_follow_the_one_on_callbacks() -> None:
    engine = load_settings(WorkerSettings, {"max_in_flight": 1000}, environ={}).engine_settings()
    assert engine.max_slow_in_flight == engine.max_in_flight_per_namespace == 800
    assert (engine.max_in_flight_per_host, engine.max_connections) == (500, 1800)

    given = {"max_in_flight": 1, "max_slow_in_flight": 0, "max_in_flight_per_host": 7}
    engine = load_settings(WorkerSettings, given, environ={}).engine_settings()
    assert (engine.max_slow_in_flight, engine.max_in_flight_per_namespace) == (0, 1)
    assert (engine.max_in_flight_per_host, engine.max_connections) == (7, 1)


@pytest.mark.parametrize("model", [TimersApiSettings, PollerSettings])
def test_a_lambda_calls_public_addresses_alone(model: type[TimersApiSettings | PollerSettings]) -> None:
    assert load_settings(model, environ=ON_LAMBDA).egress_policy() == PUBLIC_ONLY


@pytest.mark.parametrize("model", [LocalSettings, WorkerSettings])
def test_a_command_may_call_its_own_machine_unless_it_is_told_not_to(
    model: type[LocalSettings | WorkerSettings],
) -> None:
    assert load_settings(model, environ={}).egress_policy() == EgressPolicy(allow_cidrs=LOOPBACK)
    told = load_settings(model, {"egress_allow_loopback": "false"}, {"DUETIME_EGRESS_ALLOW_LOOPBACK": "true"})
    assert told.egress_policy() == PUBLIC_ONLY


def test_the_egress_policy_is_what_the_lists_say() -> None:
    environ = {
        "DUETIME_EGRESS_ALLOW_CIDRS": "10.0.0.0/8, fd00::/8",
        "DUETIME_EGRESS_ALLOW_HOSTS": "Hooks.internal,*.corp.test",
        "DUETIME_EGRESS_HTTPS_ONLY": "true",
    }
    expected = EgressPolicy(
        allow_cidrs=(ip_network("10.0.0.0/8"), ip_network("fd00::/8")),
        allow_hosts=("hooks.internal", "*.corp.test"),
        https_only=True,
    )
    settings = load_settings(PollerSettings, environ=environ | ON_LAMBDA)
    assert settings.egress_policy() == expected
    child = load_settings(PollerSettings, environ=child_environment(settings))
    assert child.egress_policy() == expected


@pytest.mark.parametrize(
    ("text", "names"),
    [("webhook,log", ("webhook", "log")), (" LOG , eventbridge ", ("log", "eventbridge")), ("none", ())],
)
def test_publishers_are_a_list_of_names(text: str, names: tuple[str, ...]) -> None:
    settings = load_settings(WorkerSettings, environ={"DUETIME_EVENT_PUBLISHERS": text})
    assert settings.publishers == names


@pytest.mark.parametrize("text", ["kafka", "log,log", "log,none", "log,,webhook", ","])
def test_other_publishers_are_refused(text: str) -> None:
    with pytest.raises(InvalidSettings, match=r"DUETIME_EVENT_PUBLISHERS: .*must be none, or some of webhook"):
        load_settings(LocalSettings, environ={"DUETIME_EVENT_PUBLISHERS": text})


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"max_in_flight": "many"}, "--max-in-flight: must be a whole number"),
        ({"lease_seconds": "soon"}, "--lease-seconds: must be a number"),
        ({"lease_seconds": "0"}, "--lease-seconds: must be greater than 2"),
        ({"egress_https_only": "maybe"}, "--egress-https-only: must be true or false"),
        ({"egress_allow_cidrs": "x"}, "--egress-allow-cidrs: must be CIDR blocks like"),
        ({"log_level": "loud"}, "--log-level: must be 'debug', 'info', 'warning' or 'error'"),
    ],
)
def test_what_is_wrong_is_said_in_the_words_of_the_api(given: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidSettings) as caught:
        load_settings(LocalSettings, given, environ={})
    assert caught.value.message.startswith(message)


@pytest.mark.parametrize("names", ["a,,b", "Orders", ",".join(f"n{each}" for each in range(21))])
def test_namespaces_with_metrics_are_few_and_named(names: str) -> None:
    given = {"DUETIME_METRICS_NAMESPACES": "orders, billing"}
    assert load_settings(LocalSettings, environ=given).engine_settings().metrics_namespaces == ("orders", "billing")
    with pytest.raises(InvalidSettings, match="DUETIME_METRICS_NAMESPACES: must"):
        load_settings(LocalSettings, environ=given | {"DUETIME_METRICS_NAMESPACES": names})


@pytest.mark.parametrize("url", ["ftp://x.test", "https://x.test/?q", "https://x.test/#f", "https://user:pw@x.test"])
def test_a_public_url_that_receivers_cannot_use_or_should_not_see_is_refused(url: str) -> None:
    with pytest.raises(InvalidSettings, match="DUETIME_PUBLIC_URL: must be an http or https URL") as refused:
        load_settings(LocalSettings, environ={"DUETIME_PUBLIC_URL": url})

    assert "pw" not in str(refused.value)
