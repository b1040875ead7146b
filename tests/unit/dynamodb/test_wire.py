"""What msgspec makes of requests and responses is what botocore makes of them."""

from __future__ import annotations

import json
from base64 import b64encode
from typing import Any

import pytest
from botocore.parsers import JSONParser, ResponseParserError
from botocore.session import get_session

from duetime.stores.backends.dynamodb.client import make_client
from duetime.stores.backends.dynamodb.wire import FastFiles, FastParsers

ITEM: dict[str, Any] = {
    "shard_id": {"N": "7"},
    "sortKey": {"S": "TIMER#a#\u00e9\U0001f600"},
    "is_dedicated": {"BOOL": True},
    "ciphertext": {"B": b"\x00\xff+/"},
    "names": {"L": [{"S": "a"}, {"B": b"b"}]},
    "gone": {"NULL": True},
    "B": {"S": "an attribute of that name"},
}
ON_THE_WIRE = json.dumps(ITEM, default=lambda raw: b64encode(raw).decode())


@pytest.fixture(scope="module")
def client() -> Any:
    return make_client(endpoint_url="http://127.0.0.1:9")


@pytest.mark.parametrize(
    ("operation", "answer"),
    [
        ("GetItem", f'{{"Item": {ON_THE_WIRE}, "ConsumedCapacity": {{"TableName": "t", "CapacityUnits": 0.5}}}}'),
        ("GetItem", "{}"),
        ("Query", f'{{"Items": [{ON_THE_WIRE}], "Count": 1, "LastEvaluatedKey": {ON_THE_WIRE}}}'),
        ("BatchGetItem", f'{{"Responses": {{"t": [{ON_THE_WIRE}]}}, "UnprocessedKeys": {{}}}}'),
        (
            "BatchExecuteStatement",
            f'{{"Responses": [{{"TableName": ""}}, {{"Error": {{"Code": "Duplicate", "Item": {ON_THE_WIRE}}}}}]}}',
        ),
        ("UpdateItem", f'{{"Attributes": {ON_THE_WIRE}}}'),
        ("DescribeTable", '{"Table": {"TableName": "t", "CreationDateTime": 1700000000.5}}'),
    ],
)
def test_responses(client: Any, operation: str, answer: str) -> None:
    shape = client.meta.service_model.operation_model(operation).output_shape
    headers = {"x-amzn-requestid": "r", "date": "Mon, 30 Nov 2026 20:00:00 GMT"}
    response = {"status_code": 200, "headers": headers, "body": answer.encode()}

    assert FastParsers().create_parser("json").parse(response, shape) == JSONParser().parse(response, shape)


def test_problems_and_what_is_no_json(client: Any) -> None:
    shape = client.meta.service_model.operation_model("GetItem").output_shape
    parser = FastParsers().create_parser("json")
    body = b'{"__type": "com.amazonaws.dynamodb.v20120810#ResourceNotFoundException", "message": "no"}'
    problem = parser.parse({"status_code": 400, "headers": {}, "body": body}, shape)
    assert problem["Error"]["Code"] == "ResourceNotFoundException"
    with pytest.raises(ResponseParserError):
        parser.parse({"status_code": 200, "headers": {}, "body": b"<html>"}, shape)


def test_requests(client: Any) -> None:
    plain: Any = get_session().create_client(
        "dynamodb", region_name="us-east-1", aws_access_key_id="x", aws_secret_access_key="x"
    )
    parameters = {"TableName": "t", "Item": ITEM, "ReturnConsumedCapacity": "TOTAL"}
    model = client.meta.service_model.operation_model("PutItem")

    ours = client._serializer.serialize_to_request(parameters, model)
    theirs = plain._serializer.serialize_to_request(parameters, model)
    assert json.loads(ours.pop("body")) == json.loads(theirs.pop("body"))
    assert ours == theirs


@pytest.mark.parametrize("name", ["endpoints", "dynamodb/2012-08-10/service-2", "no-such-file"])
def test_files_of_botocore(name: str) -> None:
    loader = get_session().get_component("data_loader")
    path = f"{loader.BUILTIN_DATA_PATH}/{name}"
    assert FastFiles().load_file(path) == loader.file_loader.load_file(path)
