"""``functions/timers_api`` as Lambda loads it, with the event of an HTTP API; and the paths that a gateway makes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.api import World
from tests.support.http import Api

ROOT = Path(__file__).parents[3]
HANDLER = ROOT / "functions/timers_api/handler.py"
EVENT = ROOT / "events/timers_api.json"

RUN = """
import json, os, runpy, sys
from pathlib import Path
from duetime.app.api_keys import create_key
from duetime.domain.principals import Role
from duetime.domain.times import parse_instant
from duetime.stores.open import open_store
store = open_store(sys.argv[1])
store.initialise()
now = parse_instant("2026-12-20T15:30:00Z")
store.catalogue.create_namespace("default", num_shards=4, dedicated=False, now=now)
key = create_key(store, key_id="k1", tenant_id="default", role=Role.ADMIN, name="", expires_at=None, now=now)
store.close()
handler = runpy.run_path(sys.argv[2])["lambda_handler"]
event = json.loads(Path(sys.argv[3]).read_text())
event["headers"]["authorization"] = f"Bearer {key.text}"
print(json.dumps(handler(event, None)), file=sys.stderr, flush=True)
sys.stdout.flush()
os._exit(0)  # as Lambda ends a process: nothing is closed
"""
LOAD = """
import json, runpy, sys
runpy.run_path(sys.argv[1])
print(json.dumps(sorted(sys.modules)), file=sys.stderr)
"""


def run(script: str, *arguments: object, store: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": str(ROOT / "shared"), "DUETIME_STORE": store}
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", script, *map(str, arguments)],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )


def test_the_function_answers_a_real_event(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/timers.db"
    done = run(RUN, store, HANDLER, EVENT, store=store)
    answer = json.loads(done.stderr)
    assert answer["statusCode"] == 201
    assert answer["headers"]["location"] == "/v1/namespaces/default/timers/invoice%207%20%23%C3%A9"
    assert answer["headers"]["x-request-id"] == "ATfSmjLgPHcESJw="
    assert '"payload":{"amount": 12.50, "big": 123456789012345678901234567890}}' in answer["body"]
    assert json.loads(answer["body"])["executeAt"] == "2026-12-21T08:00:00.000Z"
    logged = [json.loads(line) for line in done.stdout.splitlines()]
    assert [event["action"] for event in logged] == ["request.served"]
    assert logged[0]["request_id"] == "ATfSmjLgPHcESJw="


NEVER_LOADED = {
    "sqlalchemy",
    "pycurl",
    "duetime.engine.poller",
    "duetime.api.documents.openapi",
    "aws_lambda_powertools",
}


def test_the_function_loads_nothing_that_a_request_does_not_need() -> None:
    """What is imported is cold start: the HTTP client, the other stores and the OpenAPI models are for others."""
    loaded = json.loads(run(LOAD, HANDLER, store="dynamodb://timers?region=eu-central-1").stderr)
    unwanted = NEVER_LOADED | {
        "duetime.api.service_calls.endpoints",
        "duetime.calls.submission",
        "duetime.stores.core.calls",
    }
    unwanted |= {
        "cron_descriptor",
        "cronsim",
        "dateutil.rrule",
        "tzdata",
        "duetime.recurrence.occurrences",
    }
    assert not unwanted & set(loaded)
    assert not any(name.startswith(("duetime.local", "duetime.stores.backends.sql")) for name in loaded)


def test_the_function_of_service_calls_loads_nothing_that_executes_them() -> None:
    handler = ROOT / "functions/service_calls_api/handler.py"
    loaded = json.loads(run(LOAD, handler, store="dynamodb://timers?region=eu-central-1").stderr)
    unwanted = NEVER_LOADED | {"duetime.calls.executor", "duetime.calls.relay"}
    assert not unwanted & set(loaded)
    assert "duetime.api.service_calls.endpoints" in loaded


def gateway_event(raw_path: str, *, stage: str = "$default") -> dict[str, Any]:
    """The event of a GET, made of the one of a POST."""
    event: dict[str, Any] = json.loads(EVENT.read_text())
    event |= {"rawPath": raw_path, "body": None}
    event["requestContext"] |= {"stage": stage}
    event["requestContext"]["http"] |= {"method": "GET", "path": raw_path}
    return event


@pytest.mark.parametrize(
    ("timer_id", "raw_segment"),
    [
        # What HTTP APIs were seen to deliver (decision 0010), for the id sent percent-encoded once.
        ("space value", "space value"),
        ("hash#value", "hash#value"),
        ("unicode-λ-世界", "unicode-λ-世界"),
        # What they do not deliver faithfully, in the spelling that survives.
        ("question?value", "base64url:cXVlc3Rpb24_dmFsdWU"),
        ("percent%done", "base64url:cGVyY2VudCVkb25l"),
        ("a%2Fb", "base64url:YSUyRmI"),
    ],
)
@pytest.mark.parametrize("stage", ["$default", "prod"])
def test_paths_as_the_gateway_delivers_them(world: World, timer_id: str, raw_segment: str, stage: str) -> None:
    api: Api = world.api
    api.create({"id": timer_id, "delay": "1h", "callbackUrl": "http://receiver.test/"})
    prefix = "" if stage == "$default" else f"/{stage}"
    answer = api.invoke(gateway_event(f"{prefix}{api.timers}/{raw_segment}", stage=stage))
    assert answer.json()["id"] == timer_id
