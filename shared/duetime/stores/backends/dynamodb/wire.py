"""A cheap way from botocore to DynamoDB's JSON and back.

botocore walks each request and response by its model, in Python, to make of them what they nearly are already: of an
attribute value only bytes look different in JSON. msgspec does the same at once. It also reads the data files of
botocore (models, endpoints), which is a part of each cold start.
"""

from __future__ import annotations

import gzip
from base64 import b64decode
from collections.abc import Mapping
from typing import Any, Final

import msgspec
from botocore.loaders import JSONFileLoader
from botocore.parsers import JSONParser, ResponseParser, ResponseParserError, ResponseParserFactory

_PLAIN: Final = frozenset(
    f"{operation}Output"
    for operation in (
        "BatchExecuteStatement",
        "BatchGetItem",
        "DeleteItem",
        "GetItem",
        "PutItem",
        "Query",
        "TransactWriteItems",
        "UpdateItem",
    )
)
"""Responses with attribute values, and without instants."""


class FastFiles(JSONFileLoader):
    """botocore's files without its ordered dictionaries, and in a fraction of the time."""

    def load_file(self, file_path: str) -> Any:
        for ending, opened in ((".json", open), (".json.gz", gzip.open)):
            try:
                with opened(file_path + ending, "rb") as file:
                    return msgspec.json.decode(file.read())
            except FileNotFoundError:
                continue
        return None


class FastSerializer:
    """``whole``: botocore's, which makes all of a request but its body."""

    def __init__(self, whole: Any) -> None:
        self._whole = whole

    def serialize_to_request(self, parameters: Mapping[str, Any], operation_model: Any) -> dict[str, Any]:
        request: dict[str, Any] = self._whole.serialize_to_request({}, operation_model)
        request["body"] = msgspec.json.encode(parameters)  # bytes in base64, as DynamoDB has them
        return request


class FastParsers(ResponseParserFactory):
    def create_parser(self, protocol_name: str) -> ResponseParser:
        return _FastParser() if protocol_name == "json" else super().create_parser(protocol_name)


class _FastParser(JSONParser):
    """Problems, and responses of other operations, are botocore's to parse."""

    def parse(self, response: Any, shape: Any) -> Any:
        if response["status_code"] != 200 or shape is None or shape.name not in _PLAIN:
            return super().parse(response, shape)
        body = response["body"] or b"{}"
        try:
            parsed = msgspec.json.decode(body, type=dict[str, Any])
        except msgspec.DecodeError as error:  # botocore would take it for an empty response
            raise ResponseParserError(f"a response of DynamoDB is not JSON: {error}") from error
        if b'"B"' in body:
            _decode_bytes(parsed)
        headers = {name.lower(): value for name, value in response["headers"].items()}
        parsed["ResponseMetadata"] = {
            "RequestId": headers.get("x-amzn-requestid"),
            "HTTPStatusCode": 200,
            "HTTPHeaders": headers,
        }
        return parsed


def _decode_bytes(value: Any) -> None:
    """Make bytes of what ``value`` holds as ``{"B": text}``."""
    if isinstance(value, list):
        for each in value:
            _decode_bytes(each)
    elif isinstance(value, dict):
        for name, each in value.items():
            if name == "B" and isinstance(each, str):
                value[name] = b64decode(each)
            else:
                _decode_bytes(each)
