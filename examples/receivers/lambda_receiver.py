"""A receiver of Duetime's callbacks on AWS Lambda, behind a function URL or an HTTP API: verify, work once, answer.

Environment: WEBHOOK_SECRETS ("whsec_...", during a rotation both with a space between them) and TABLE, a DynamoDB
table with the key ``webhook_id`` (string) and ``expires_at`` as its time to live. The function may do
``dynamodb:PutItem`` on it. Put ``duetime_client/webhooks.py`` beside this file, or ``duetime-client`` into its layer.
"""

from __future__ import annotations

import base64
import json
import os
from functools import cache
from typing import Any

import boto3
from botocore.exceptions import ClientError

from duetime_client.webhooks import Callback, VerificationError, verify

KEEP_SECONDS = 14 * 86_400
"""Longer than any firing of yours is tried (``maxAttemptsDuration``) or may be redriven."""


def lambda_handler(event: dict[str, Any], context: object) -> dict[str, Any]:  # noqa: ARG001
    text = event.get("body") or ""
    body = base64.b64decode(text) if event.get("isBase64Encoded") else text.encode()
    try:
        callback = verify(body, event["headers"], os.environ["WEBHOOK_SECRETS"].split())
    except VerificationError as error:
        return {"statusCode": 400, "body": str(error)}
    remind_once(callback)
    # Once it is done, or was done before: any 2xx. An exception is a 500, and Duetime tries again.
    return {"statusCode": 204}


def remind_once(callback: Callback) -> None:
    """Do the work as an item of its own, whose key says which firing it was for: a second one is not written.

    Work elsewhere, such as a mail, is best started from the table's stream, or given ``webhook_id`` as its own
    idempotency key.
    """
    item = {
        "webhook_id": {"S": callback.webhook_id},
        "timer_id": {"S": callback.timer_id},
        "payload": {"S": json.dumps(callback.payload)},
        "expires_at": {"N": str(int(callback.timestamp.timestamp()) + KEEP_SECONDS)},
    }
    try:
        _table().put_item(
            TableName=os.environ["TABLE"], Item=item, ConditionExpression="attribute_not_exists(webhook_id)"
        )
    except ClientError as error:
        if error.response["Error"]["Code"] != "ConditionalCheckFailedException":
            raise


@cache
def _table() -> Any:
    """Made once for all invocations of an execution environment."""
    return boto3.client("dynamodb")
