"""What the OpenAPI document says of the routes of event webhooks."""

from __future__ import annotations

from duetime.api import answers, schemas, webhook_answers, webhook_schemas
from duetime.api.operation import Operation

TAG_WEBHOOKS = "event webhooks"

WEBHOOK_OPERATIONS: dict[str, Operation] = {
    "putEventWebhook": Operation(
        summary="Set where the events of the tenant's service calls are delivered to",
        tag=TAG_WEBHOOKS,
        body=webhook_schemas.EventWebhookBody,
        answers={200: webhook_answers.EventWebhookAnswer, 201: webhook_answers.EventWebhookAnswer},
        problems=(400, 412, 413, 415),
    ),
    "getEventWebhook": Operation(
        summary="Read the event webhook",
        tag=TAG_WEBHOOKS,
        answers={200: webhook_answers.EventWebhookAnswer, 304: None},
        problems=(404,),
    ),
    "deleteEventWebhook": Operation(
        summary="Remove the event webhook and its secrets; what waits becomes dead letters",
        tag=TAG_WEBHOOKS,
        answers={204: None},
        problems=(404, 412),
    ),
    "createEventSecret": Operation(
        summary="Create a signing secret; the one before it stays valid for an overlap",
        tag=TAG_WEBHOOKS,
        body=schemas.SecretBody,
        body_is_required=False,
        answers={201: answers.CreatedSecretAnswer},
        problems=(400, 409, 413, 415, 503),
    ),
    "listEventSecrets": Operation(
        summary="List the signing secrets that are valid", tag=TAG_WEBHOOKS, answers={200: answers.SecretPage}
    ),
    "deleteEventSecret": Operation(
        summary="End a signing secret at once", tag=TAG_WEBHOOKS, answers={204: None}, problems=(404,)
    ),
    "listDeliveries": Operation(
        summary="List events on their way to the webhook, delivered ones and dead letters",
        tag=TAG_WEBHOOKS,
        query=webhook_schemas.DeliveryQuery,
        answers={200: webhook_answers.DeliveryPage},
        problems=(400,),
    ),
    "listDeliveryAttempts": Operation(
        summary="List the last attempts of a delivery, oldest first",
        tag=TAG_WEBHOOKS,
        answers={200: answers.AttemptPage},
        problems=(404,),
    ),
    "redriveDeliveries": Operation(
        summary="Deliver dead letters again, by filter, a page at a time, or by ids",
        tag=TAG_WEBHOOKS,
        body=schemas.RedriveBody,
        body_is_required=False,
        answers={200: answers.RedriveAnswer},
        problems=(400, 413, 415),
    ),
}
