"""A receiver of Duetime's callbacks with FastAPI: verify, do the work once, answer.

    pip install duetime-client fastapi uvicorn
    WEBHOOK_SECRETS="whsec_..." uvicorn --factory fastapi_receiver:create_app

During a rotation WEBHOOK_SECRETS holds both secrets, with a space between them.
"""

from __future__ import annotations

import json
import os
import sqlite3
from contextlib import closing

from fastapi import FastAPI, Request, Response
from fastapi.concurrency import run_in_threadpool

from duetime_client.webhooks import Callback, VerificationError, verify

MAX_BODY_BYTES = 1024 * 1024


def create_app() -> FastAPI:
    secrets = os.environ["WEBHOOK_SECRETS"].split()
    database = os.environ.get("RECEIVER_DATABASE", "receiver.db")
    with closing(sqlite3.connect(database)) as connection, connection:
        connection.execute("CREATE TABLE IF NOT EXISTS handled (webhook_id TEXT PRIMARY KEY)")
        connection.execute("CREATE TABLE IF NOT EXISTS reminders (timer_id TEXT, payload TEXT)")
    app = FastAPI()

    @app.post("/hooks/reminders")
    async def receive(request: Request) -> Response:
        body = bytearray()
        async for chunk in request.stream():
            body += chunk
            if len(body) > MAX_BODY_BYTES:
                return Response(status_code=413)
        try:
            callback = verify(bytes(body), request.headers, secrets)
        except VerificationError as error:
            return Response(str(error), status_code=400)
        await run_in_threadpool(remind_once, database, callback)
        # Once it is done, or was done before: any 2xx. An exception is a 500, and Duetime tries again.
        return Response(status_code=204)

    return app


def remind_once(database: str, callback: Callback) -> None:
    """Do the work, and note that it is done, in one transaction: both happen, or neither."""
    with closing(sqlite3.connect(database)) as connection, connection:
        handled = connection.execute("INSERT OR IGNORE INTO handled VALUES (?)", (callback.webhook_id,))
        if handled.rowcount == 1:
            row = (callback.timer_id, json.dumps(callback.payload))
            connection.execute("INSERT INTO reminders VALUES (?, ?)", row)
