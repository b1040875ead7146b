"""A receiver of Duetime's callbacks with Flask: verify, do the work once, answer.

    pip install duetime-client flask
    WEBHOOK_SECRETS="whsec_..." flask --app flask_receiver run

During a rotation WEBHOOK_SECRETS holds both secrets, with a space between them.
"""

from __future__ import annotations

import json
import os
import sqlite3
from contextlib import closing

from flask import Flask, request

from duetime_client.webhooks import Callback, VerificationError, verify


def create_app() -> Flask:
    secrets = os.environ["WEBHOOK_SECRETS"].split()
    database = os.environ.get("RECEIVER_DATABASE", "receiver.db")
    with closing(sqlite3.connect(database)) as connection, connection:
        connection.execute("CREATE TABLE IF NOT EXISTS handled (webhook_id TEXT PRIMARY KEY)")
        connection.execute("CREATE TABLE IF NOT EXISTS reminders (timer_id TEXT, payload TEXT)")
    app = Flask(__name__)
    app.config["MAX_CONTENT_LENGTH"] = 1024 * 1024  # Flask answers 413 beyond it

    @app.post("/hooks/reminders")
    def receive() -> tuple[str, int]:
        try:
            callback = verify(request.get_data(), request.headers, secrets)
        except VerificationError as error:
            return str(error), 400
        remind_once(database, callback)
        # Once it is done, or was done before: any 2xx. An exception is a 500, and Duetime tries again.
        return "", 204

    return app


def remind_once(database: str, callback: Callback) -> None:
    """Do the work, and note that it is done, in one transaction: both happen, or neither."""
    with closing(sqlite3.connect(database)) as connection, connection:
        handled = connection.execute("INSERT OR IGNORE INTO handled VALUES (?)", (callback.webhook_id,))
        if handled.rowcount == 1:
            row = (callback.timer_id, json.dumps(callback.payload))
            connection.execute("INSERT INTO reminders VALUES (?, ?)", row)
