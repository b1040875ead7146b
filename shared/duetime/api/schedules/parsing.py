"""From what a client asks for to the content of a schedule: a callback, or the template of a service call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from duetime.api.context import ApiContext
from duetime.api.http.errors import FieldError, InvalidFields
from duetime.api.http.request import utf8_length
from duetime.api.http.validators import MAX_TAG_CHARACTERS, MAX_TAGS
from duetime.api.schedules.requests import OF_CALLBACKS, ScheduleFields
from duetime.api.service_calls.parsing import read_request
from duetime.api.timers.parsing import check_callback, target_content
from duetime.domain.call_templates import schedule_tag, template_json
from duetime.domain.errors import InvalidInput, PayloadTooLarge
from duetime.domain.namespaces import Namespace
from duetime.domain.service_calls import CallContent
from duetime.domain.timers import MAX_PAYLOAD_BYTES, SERVICE_CALLS

_OTHERS = ("callbackUrl", "target", *OF_CALLBACKS)


def read_target(body: ScheduleFields, space: Namespace, schedule_id: str, context: ApiContext) -> dict[str, Any]:
    """Return the fields of ``TimerContent`` that follow from ``serviceCall`` or ``target``, checked; none of a URL.

    Raises ``InvalidInput`` and ``PayloadTooLarge``.
    """
    call = body.service_call
    if call is None:
        check_callback(body, context)
        return target_content(body)
    named = type(body).model_fields.items()
    others = [field.alias for name, field in named if field.alias in _OTHERS and getattr(body, name) is not None]
    if others:
        raise InvalidFields([FieldError(str(name), "cannot be given with serviceCall") for name in others])
    request = read_request("serviceCall.request", call.request, context.egress)
    given = {name: value for name, value in vars(call).items() if value is not None}
    template = CallContent(**{"correlation_id": ""} | given | {"request": request})
    _check_tags(template.tags, schedule_tag(space.name, schedule_id))
    text = template_json(template)
    if utf8_length(text) > MAX_PAYLOAD_BYTES:
        raise PayloadTooLarge("serviceCall", f"must have at most {MAX_PAYLOAD_BYTES} bytes of JSON")
    return {"callback_url": SERVICE_CALLS, "payload_json": text}


def _check_tags(tags: Sequence[str], own: str) -> None:
    """Check that each call has room for ``own``, which it gets beside ``tags``."""
    if len(tags) >= MAX_TAGS:
        raise InvalidInput(
            "serviceCall.tags", f"must have at most {MAX_TAGS - 1} items: each call has the tag {own!r}"
        )
    if len(own) > MAX_TAG_CHARACTERS:
        most = MAX_TAG_CHARACTERS - len(schedule_tag("", ""))
        raise InvalidInput("id", f"must have, with the namespace, at most {most} characters with serviceCall")
