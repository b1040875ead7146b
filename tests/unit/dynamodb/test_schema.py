"""Creating the table against a client that answers as AWS may."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from botocore.stub import Stubber

from duetime.domain.errors import StoreError
from duetime.stores.backends.dynamodb.client import make_client
from duetime.stores.backends.dynamodb.schema import create_table, table_definition
from tests.support.logs import actions


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    return make_client(endpoint_url="http://127.0.0.1:1")


def described() -> dict[str, Any]:
    definition = table_definition("timers")
    return {
        "Table": {
            "TableStatus": "ACTIVE",
            **{name: definition[name] for name in ("KeySchema", "LocalSecondaryIndexes", "GlobalSecondaryIndexes")},
        }
    }


def add_time_to_live(stub: Stubber, status: str) -> None:
    stub.add_response("describe_time_to_live", {"TimeToLiveDescription": {"TimeToLiveStatus": status}})


def add_existing_table(stub: Stubber) -> None:
    stub.add_client_error("create_table", "ResourceInUseException")
    stub.add_response("describe_table", described())
    stub.add_response("describe_table", described())


def test_another_process_may_have_switched_on_what_we_were_about_to(client: Any) -> None:
    with Stubber(client) as stub:
        add_existing_table(stub)
        add_time_to_live(stub, "DISABLED")
        stub.add_client_error("update_time_to_live", "ValidationException", "TimeToLive is already enabled")
        add_time_to_live(stub, "ENABLING")
        stub.add_response("update_continuous_backups", {})

        create_table(client, "timers")

        stub.assert_no_pending_responses()


def test_a_time_to_live_that_stays_off_is_an_error(client: Any) -> None:
    with Stubber(client) as stub:
        add_existing_table(stub)
        add_time_to_live(stub, "DISABLED")
        stub.add_client_error("update_time_to_live", "ValidationException")
        add_time_to_live(stub, "DISABLED")

        with pytest.raises(StoreError):
            create_table(client, "timers")


def test_recovery_is_switched_on_when_a_new_table_takes_it(client: Any) -> None:
    with Stubber(client) as stub:
        stub.add_response("create_table", {})
        stub.add_response("describe_table", described())
        stub.add_response("describe_table", described())
        add_time_to_live(stub, "ENABLED")
        stub.add_client_error("update_continuous_backups", "ContinuousBackupsUnavailableException")
        stub.add_response("update_continuous_backups", {})

        create_table(client, "timers")

        stub.assert_no_pending_responses()


def test_where_there_is_no_recovery_it_is_said_and_no_obstacle(client: Any, caplog: pytest.LogCaptureFixture) -> None:
    with Stubber(client) as stub, caplog.at_level(logging.WARNING):
        add_existing_table(stub)
        add_time_to_live(stub, "ENABLED")
        stub.add_client_error("update_continuous_backups", "UnknownOperationException")

        create_table(client, "timers")

    assert actions(caplog) == {"store.recovery_unavailable": 1}
