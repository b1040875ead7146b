"""The table of the routes of service calls. ``call_operations`` describes each of them."""

from __future__ import annotations

from duetime.api import call_lists, service_calls
from duetime.api.conditions import IF_MATCH, IF_NONE_MATCH
from duetime.api.idempotency import Keeps
from duetime.api.routes import ROUTES, Route
from duetime.domain.principals import Role

_CALLS = "/v1/tenants/<tenant>/service-calls"
_CALL = f"{_CALLS}/<call_id>"
_EXECUTIONS = f"{_CALL}/executions"
_MATCH = (IF_MATCH,)
_NONE_MATCH = (IF_NONE_MATCH,)

CALL_ROUTES = (
    Route("POST", _CALLS, "submitServiceCall", service_calls.submit_call, Role.WRITER, keeps=Keeps.RESOURCE),
    Route("GET", _CALLS, "listServiceCalls", call_lists.list_calls, Role.READER),
    Route("GET", _CALL, "getServiceCall", service_calls.get_call, Role.READER, _NONE_MATCH),
    Route("PATCH", _CALL, "patchServiceCall", service_calls.patch_call, Role.WRITER, _MATCH),
    Route("DELETE", _CALL, "deleteServiceCall", service_calls.delete_call, Role.WRITER, _MATCH),
    Route("POST", f"{_CALL}/cancel", "cancelServiceCall", service_calls.cancel_call, Role.WRITER, _MATCH),
    Route("POST", f"{_CALL}/fire", "fireServiceCall", service_calls.fire_call, Role.WRITER, _MATCH),
    Route(
        "POST",
        f"{_CALL}/rerun",
        "rerunServiceCall",
        service_calls.rerun_call,
        Role.WRITER,
        _MATCH,
        keeps=Keeps.RESOURCE,
    ),
    Route("GET", _EXECUTIONS, "listExecutions", call_lists.list_executions, Role.READER),
    Route("GET", f"{_EXECUTIONS}/<execution_id>", "getExecution", call_lists.get_execution, Role.READER),
    Route("GET", f"{_CALL}/events", "listEvents", call_lists.list_events, Role.READER),
)

ALL_ROUTES = (*ROUTES, *CALL_ROUTES)
"""What one handler answers where one serves everything, and what the OpenAPI document describes."""
