"""``mongodb://[user:password@]host[:port][,...]/[database][?options]`` and ``mongodb+srv://...``.

What is asked of a majority was not run against a replica set of several members.
"""

from __future__ import annotations

import re
import warnings
from typing import Any
from urllib.parse import unquote, urlsplit

from pymongo import MongoClient
from pymongo.errors import PyMongoError
from pymongo.read_preferences import ReadPreference

from duetime.domain.errors import InvalidSettings

DEFAULT_DATABASE = "duetime"
DEFAULT_TIMEOUT_MS = 10_000
DEFAULT_SELECTION_TIMEOUT_MS = 5_000
_DATABASE_NAME = re.compile(r"[A-Za-z0-9_-]{1,63}")

Document = dict[str, Any]


def open_client(url: str) -> tuple[MongoClient[Document], str]:
    """Make a client. Return it and the name of the database. Nothing is contacted before the first operation.

    What the promises of the port rest on is not left to the URL: writes are acknowledged by a majority and retried
    once by the driver, reads go to the primary. Every operation ends within ``timeoutMS`` (10 s), looking for a
    server within ``serverSelectionTimeoutMS`` (5 s); the URL may set other times.
    """
    name = _database_name(url)
    given = {pair.partition("=")[0] for pair in re.split("[&;]", urlsplit(url).query.lower())}
    timeouts = {
        "timeoutMS": DEFAULT_TIMEOUT_MS,
        "serverSelectionTimeoutMS": DEFAULT_SELECTION_TIMEOUT_MS,
    }
    options: dict[str, Any] = {key: value for key, value in timeouts.items() if key.lower() not in given}
    if "journal" in given:
        options["journal"] = True  # unless it is told otherwise, a majority has journaled what it acknowledges
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # the driver would only warn of an option that it cannot read
            client: MongoClient[Document] = MongoClient(
                url,
                connect=False,
                appname="duetime",
                uuidRepresentation="standard",
                retryWrites=True,
                retryReads=True,
                w="majority",
                readConcernLevel="majority",
                read_preference=ReadPreference.PRIMARY,
                **options,
            )
    except (PyMongoError, ValueError, TypeError, KeyError, Warning) as error:
        # The driver's messages name options and hosts. One that may quote credentials is not passed on.
        lines = str(error).splitlines() or [type(error).__name__]
        reason = "it cannot be understood" if "@" in url else lines[0]
        raise InvalidSettings(f"the MongoDB store URL is wrong: {reason}") from None
    if not client.options.timeout:
        client.close()
        raise InvalidSettings(
            "the MongoDB store URL is wrong: timeoutMS is more than 0, so that every operation ends"
        )
    return client, name


def _database_name(url: str) -> str:
    path = unquote(urlsplit(url).path.removeprefix("/"))
    if not path:
        return DEFAULT_DATABASE
    if _DATABASE_NAME.fullmatch(path) is None:
        raise InvalidSettings("the database in a MongoDB store URL has 1 to 63 letters, digits, '_' and '-'")
    return path
