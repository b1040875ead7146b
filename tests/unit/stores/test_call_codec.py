"""What a step of a service call writes: no more than it changes, and the timer that the call says."""

from __future__ import annotations

from dataclasses import replace

import pytest

from duetime.domain.service_calls import Method, ServiceCall, request_spec, timer_of
from duetime.stores.core.call_codec import STEP, call_changes, encode_call, encode_timer
from duetime.stores.core.timer_codec import encode
from duetime.stores.entities import SERVICE_CALL
from duetime.testing.contract import call_builders as make

SUBMITTED = make.submitted()
BEGUN = make.begun(SUBMITTED.after)
ENDED = make.concluded(BEGUN.after, BEGUN.executions[0])


@pytest.mark.parametrize("call", [SUBMITTED.after, BEGUN.after, ENDED.after], ids=["waiting", "open", "over"])
def test_the_row_of_a_timer_is_that_of_the_calls_timer(call: ServiceCall) -> None:
    assert encode_timer(call) == encode(timer_of(call))


def test_a_step_leaves_alone_what_stands_in_indexes_and_the_request() -> None:
    assert tuple(call_changes(SUBMITTED.after, BEGUN.after)) == STEP


def test_what_an_owner_changes_is_written_with_the_step() -> None:
    before = SUBMITTED.after
    request = request_spec(method=Method.PUT, url="https://example.com/", headers_json=None, body_json="1")
    after = replace(before, name="other", tags=("new",), request=request)

    changes = call_changes(before, after)

    row = dict(zip(SERVICE_CALL.names, encode_call(after), strict=True))
    assert changes == {name: row[name] for name in changes}
    assert {"name", "tags", "request_spec", "request_body"} <= changes.keys()
