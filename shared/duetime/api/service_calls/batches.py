"""Many service calls in one request, as ``timers.batches`` has it of timers."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from duetime.api.context import Services
from duetime.api.http.batches import (
    BatchResponse,
    ItemResult,
    each_item,
    item_result,
)
from duetime.api.http.parsing import read_items, validate
from duetime.api.http.raw_json import RawObject
from duetime.api.http.request import Reply, Request
from duetime.api.http.responses import ascii_reply
from duetime.api.http.route import Route
from duetime.api.service_calls.parsing import CORRELATION_ID, read_submission
from duetime.api.service_calls.requests import (
    CALLS_SHAPE,
    PLAIN_CALLS_SHAPE,
    ServiceCallBatch,
    ServiceCallItem,
    ServiceCallItemBatch,
)
from duetime.app.revisions import Revision
from duetime.app.service_calls import AskedCall
from duetime.calls.submission import Submitted
from duetime.domain.errors import DuetimeError
from duetime.domain.principals import Role
from duetime.domain.service_calls import Submission
from duetime.stores.port.calls import CallRef

ResultT = TypeVar("ResultT")


_SERVICE_CALLS = "/v1/tenants/<tenant>/service-calls"


@Route(
    "POST",
    f"{_SERVICE_CALLS}/batch",
    Role.WRITER,
    summary="Submit up to 500 service calls, with a result for each",
    body=ServiceCallBatch,
    responses={200: BatchResponse},
    headers=(CORRELATION_ID,),
)
def submit_service_calls(services: Services, request: Request, *, tenant: str) -> Reply:
    """Submit up to 500 service calls. Each succeeds or fails alone."""
    context = services.context
    now = context.clock.now()
    found = read_items(request, CALLS_SHAPE)

    def read(item: RawObject) -> tuple[str | None, Submission]:
        submission = read_submission(
            request, item, egress=context.egress, new_id=context.new_id, now=now, is_one_of_many=True
        )
        return submission.idempotency_key, submission

    def submitted(_: str | None, result: Submitted | DuetimeError) -> ItemResult:
        if isinstance(result, DuetimeError):
            return item_result(None, result)
        return item_result(result.call.call_id, result, status=202 if result.is_new else 200)

    items = each_item(found, read, lambda some: services.calls.submit_many(tenant, some, now=now), submitted)
    return ascii_reply(BatchResponse(items))


@Route(
    "POST",
    f"{_SERVICE_CALLS}/batch-cancel",
    Role.WRITER,
    summary="Cancel up to 500 waiting service calls, with a result for each",
    body=ServiceCallItemBatch,
    responses={200: BatchResponse},
)
def cancel_service_calls(services: Services, request: Request, *, tenant: str) -> Reply:
    """Cancel up to 500 waiting service calls, which stay readable. Each succeeds or fails alone."""
    return _each_ref(services, request, tenant, services.calls.cancel_many)


@Route(
    "POST",
    f"{_SERVICE_CALLS}/batch-delete",
    Role.WRITER,
    summary="Remove up to 500 finished service calls, with a result for each",
    body=ServiceCallItemBatch,
    responses={200: BatchResponse},
)
def delete_service_calls(services: Services, request: Request, *, tenant: str) -> Reply:
    """Remove up to 500 finished service calls with all that they have. Each succeeds or fails alone."""
    return _each_ref(services, request, tenant, services.calls.delete_many)


def _each_ref(
    services: Services, request: Request, tenant: str, act: Callable[..., list[ResultT | DuetimeError]]
) -> Reply:
    """Do ``act`` to the calls that the body names."""
    context = services.context
    now = context.clock.now()
    found = read_items(request, PLAIN_CALLS_SHAPE)

    def read(item: RawObject) -> tuple[str, AskedCall]:
        wanted = validate(ServiceCallItem, item)
        revisions = None if wanted.revision is None else Revision(wanted.revision)
        return wanted.id, AskedCall(CallRef(tenant, wanted.id), revisions)

    items = each_item(found, read, lambda asked: act(asked, new_id=context.new_id, now=now), item_result)
    return ascii_reply(BatchResponse(items))
