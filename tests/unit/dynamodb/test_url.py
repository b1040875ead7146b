from __future__ import annotations

import pytest

from duetime.domain.errors import InvalidSettings
from duetime.stores.backends.dynamodb.backend import open_dynamodb
from duetime.stores.backends.dynamodb.url import DynamoDbUrl, parse_dynamodb_url


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("dynamodb://timers", DynamoDbUrl("timers")),
        ("dynamodb://Stage-1_Timers.v2/", DynamoDbUrl("Stage-1_Timers.v2")),
        (
            "dynamodb://timers?endpoint_url=http://127.0.0.1:4566&region=eu-west-1",
            DynamoDbUrl("timers", "http://127.0.0.1:4566", "eu-west-1"),
        ),
        ("dynamodb://timers?endpoint_url=http%3A%2F%2Fhost%3A1", DynamoDbUrl("timers", "http://host:1")),
        ("dynamodb://timers?partiql=off", DynamoDbUrl("timers", batch_statements=False)),
    ],
)
def test_a_url_names_the_table_and_where_it_is(url: str, expected: DynamoDbUrl) -> None:
    assert parse_dynamodb_url(url) == expected


@pytest.mark.parametrize(
    "url",
    [
        "dynamodb://",
        "dynamodb://ab",
        "dynamodb://ti mers",
        'dynamodb://ti"mers',
        "dynamodb://timers/other",
        "dynamodb://timers:80",
        "dynamodb://key:secret@timers",
        "dynamodb://timers#x",
        "dynamodb://timers?endpoint_url=127.0.0.1:4566",
        "dynamodb://timers?endpoint_url=ftp://host",
        "dynamodb://timers?endpoint_url=http://",
        "dynamodb://timers?region",
        "dynamodb://timers?region=",
        "dynamodb://timers?region=a&region=b",
        "dynamodb://timers?partiql=maybe",
        "dynamodb://timers?retries=9",
        "sqlite://timers",
    ],
)
def test_other_urls_are_refused_in_one_line(url: str) -> None:
    with pytest.raises(InvalidSettings) as caught:
        parse_dynamodb_url(url)
    assert "\n" not in caught.value.message
    assert "secret" not in caught.value.message


def test_opening_contacts_nothing() -> None:
    store = open_dynamodb("dynamodb://timers?endpoint_url=http://127.0.0.1:1")
    store.close()


def test_a_region_that_cannot_be_is_refused() -> None:
    with pytest.raises(InvalidSettings):
        open_dynamodb("dynamodb://timers?region=not/a/region")


@pytest.mark.parametrize(
    ("url", "calls_table_name"),
    [("dynamodb://timers", None), ("dynamodb://timers?calls=Calls_2", "Calls_2"), (f"dynamodb://{'t' * 241}", None)],
)
def test_a_url_may_name_the_table_of_service_calls(url: str, calls_table_name: str | None) -> None:
    assert parse_dynamodb_url(url).calls_table_name == calls_table_name


@pytest.mark.parametrize(
    "url", ["dynamodb://timers?calls=a!", "dynamodb://timers?calls=timers", f"dynamodb://{'t' * 242}"]
)
def test_the_table_of_service_calls_has_a_name_of_its_own(url: str) -> None:
    with pytest.raises(InvalidSettings, match="another DynamoDB table"):
        parse_dynamodb_url(url)
