"""What the OpenAPI document says of the routes of service calls."""

from __future__ import annotations

from duetime.api import call_answers, call_schemas
from duetime.api.operation import Operation
from duetime.api.schemas import PageQuery

TAG_CALLS = "service calls"
EVENT_STREAM = "text/event-stream"

CALL_OPERATIONS: dict[str, Operation] = {
    "submitServiceCall": Operation(
        summary="Submit a service call; 200 when the same was submitted under the same idempotency key before",
        tag=TAG_CALLS,
        body=call_schemas.ServiceCallBody,
        answers={202: call_answers.ServiceCallAnswer, 200: call_answers.ServiceCallAnswer},
        problems=(400, 409, 413, 415),
        headers=("X-Correlation-Id",),
    ),
    "listServiceCalls": Operation(
        summary="List service calls",
        tag=TAG_CALLS,
        query=call_schemas.CallQuery,
        answers={200: call_answers.ServiceCallPage},
        problems=(400,),
    ),
    "getServiceCall": Operation(
        summary="Read a service call",
        tag=TAG_CALLS,
        answers={200: call_answers.ServiceCallAnswer, 304: None},
        problems=(400, 404, 409),
    ),
    "patchServiceCall": Operation(
        summary="Change name, tags or star; while nothing of it is under way also due time and request",
        tag=TAG_CALLS,
        body=call_schemas.ServiceCallPatch,
        body_type="application/merge-patch+json",
        answers={200: call_answers.ServiceCallAnswer},
        problems=(400, 404, 409, 412, 413, 415),
    ),
    "deleteServiceCall": Operation(
        summary="Remove a finished service call with its executions",
        tag=TAG_CALLS,
        answers={204: None},
        problems=(400, 404, 409, 412),
    ),
    "cancelServiceCall": Operation(
        summary="Cancel a service call that waits for its due time or its next attempt: it is kept as Cancelled",
        tag=TAG_CALLS,
        answers={200: call_answers.ServiceCallAnswer},
        problems=(400, 404, 409, 412, 413, 415),
        headers=("If-Match",),
    ),
    "fireServiceCall": Operation(
        summary="Make a service call that waits for its due time or its next attempt due now",
        tag=TAG_CALLS,
        answers={200: call_answers.ServiceCallAnswer},
        problems=(400, 404, 409, 412, 413, 415),
        headers=("If-Match",),
    ),
    "rerunServiceCall": Operation(
        summary="Submit a finished service call anew",
        tag=TAG_CALLS,
        body=call_schemas.RerunBody,
        body_is_required=False,
        answers={202: call_answers.ServiceCallAnswer, 200: call_answers.ServiceCallAnswer},
        problems=(400, 404, 409, 412, 413, 415),
        headers=("X-Correlation-Id",),
    ),
    "listExecutions": Operation(
        summary="List the executions of a service call, without bodies",
        tag=TAG_CALLS,
        query=PageQuery,
        answers={200: call_answers.ExecutionPage},
        problems=(400, 404, 409),
    ),
    "getExecution": Operation(
        summary="Read an execution: what was sent and what came back",
        tag=TAG_CALLS,
        answers={200: call_answers.ExecutionAnswer},
        problems=(400, 404, 409),
    ),
    "listEvents": Operation(
        summary="List the events of a service call in order; as server-sent events where one process serves all,"
        " with a 204 when there will be no more",
        tag=TAG_CALLS,
        query=call_schemas.EventQuery,
        answers={200: call_answers.EventPage, 204: None},
        answer_types={200: EVENT_STREAM},
        problems=(400, 404, 409),
        headers=("Last-Event-ID",),
    ),
}
