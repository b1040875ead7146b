"""The low-level client of botocore: short timeouts, few retries, connections enough for the threads of a process."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from botocore.config import Config
from botocore.session import get_session

from duetime.stores.backends.dynamodb.wire import FastFiles, FastParsers, FastSerializer

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

CONNECT_TIMEOUT_SECONDS = 1.0
READ_TIMEOUT_SECONDS = 3.0
MAX_TRIES = 3
"""One request and its retries, by the driver's standard mode: jittered back-off, at most 1 s and then 2 s."""
MAX_CONNECTIONS = 32

_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})


def make_client(
    *,
    endpoint_url: str | None = None,
    region: str | None = None,
    max_tries: int = MAX_TRIES,
    read_timeout_seconds: float = READ_TIMEOUT_SECONDS,
) -> DynamoDBClient:
    """Return a client of the configured AWS account, or of the emulator at ``endpoint_url``.

    An emulator on this machine needs no AWS configuration: fixed credentials and a default region stand in.
    """
    arguments: dict[str, Any] = {"endpoint_url": endpoint_url, "region_name": region}
    if endpoint_url is not None and urlsplit(endpoint_url).hostname in _LOOPBACK:
        arguments |= {
            "region_name": region or "us-east-1",
            "aws_access_key_id": "test",
            "aws_secret_access_key": "test",
        }
    config = Config(
        connect_timeout=CONNECT_TIMEOUT_SECONDS,
        read_timeout=read_timeout_seconds,
        retries={"mode": "standard", "total_max_attempts": max_tries},
        max_pool_connections=MAX_CONNECTIONS,
        tcp_keepalive=True,
        # Every parameter is built by this package; checking each of them again costs a fifth of a request's CPU.
        parameter_validation=False,
    )
    session = get_session()
    loader = session.get_component("data_loader")
    loader.file_loader = FastFiles()
    loader.list_available_services = lambda _: ["dynamodb"]  # else it looks into the folders of all services
    session.register_component("response_parser_factory", FastParsers())
    client: Any = session.create_client("dynamodb", config=config, **arguments)
    serializer = getattr(client, "_serializer", None)
    # Lambda updates botocore by itself: one that is made otherwise, or speaks no JSON, does without.
    if serializer is not None and client.meta.service_model.resolved_protocol == "json":
        client._serializer = FastSerializer(serializer)
    made: DynamoDBClient = client
    return made
