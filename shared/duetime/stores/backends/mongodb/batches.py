"""Many conditional writes at once. Each succeeds or fails alone, with a result of its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pymongo.errors import BulkWriteError, ClientBulkWriteException, OperationFailure
from pymongo.results import ClientBulkWriteResult

from duetime.stores.backends.mongodb.database import Database, Session
from duetime.stores.backends.mongodb.errors import DUPLICATE_KEY, begin_again
from duetime.stores.backends.mongodb.requests import Request


class NotWrittenError(Exception):
    """Within a transaction, one of the writes found no document or met a unique index: nothing is to be written."""


class Batches:
    """A server before 8.0 does not tell which writes of a bulk matched: there, each is a request of its own.

    So it is on a newer one that still works as an older version, as all do for a while when a cluster is upgraded.
    Not run against either: the tests have the stand-in served in that way.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def run(self, requests: Sequence[Request]) -> list[bool]:
        """In any order; of each whether it was written. One that a unique index refuses was not."""
        if not requests:
            return []
        if self._database.tells_each_write:
            try:
                return self._run_together(requests)
            except OperationFailure as error:
                if not self._database.is_without_bulk_write(error):
                    raise
        return [self._run_alone(request, None) for request in requests]

    def _run_together(self, requests: Sequence[Request]) -> list[bool]:
        try:
            result = self._database.client.bulk_write(
                [request.model for request in requests], ordered=False, verbose_results=True
            )
        except ClientBulkWriteException as error:
            _raise_unless_duplicates(error)
            if error.partial_result is None:
                return [False] * len(requests)
            result = error.partial_result
        return _written(result, requests)

    def run_all(self, requests: Sequence[Request], session: Session) -> None:
        """In order, as a part of a transaction. Raises ``NotWrittenError`` when one was not written."""
        if not requests:
            return
        if self._database.tells_each_write:
            try:
                is_written = self._run_all_together(requests, session)
            except OperationFailure as error:
                if self._database.is_without_bulk_write(error):
                    raise begin_again() from error  # the refusal has ended the transaction
                raise
        else:
            is_written = all(self._run_alone(request, session) for request in requests)
        if not is_written:
            raise NotWrittenError

    def _run_all_together(self, requests: Sequence[Request], session: Session) -> bool:
        try:
            result = self._database.client.bulk_write(
                [request.model for request in requests], ordered=True, verbose_results=True, session=session
            )
        except ClientBulkWriteException as error:
            _raise_unless_duplicates(error)
            return False
        return all(_written(result, requests))

    def _run_alone(self, request: Request, session: Session | None) -> bool:
        try:
            result = self._database[request.collection].bulk_write([request.model], session=session)
        except BulkWriteError as error:
            if {each.get("code") for each in error.details.get("writeErrors", ())} != {DUPLICATE_KEY}:
                raise
            return False
        changed = result.inserted_count + result.matched_count + result.upserted_count + result.deleted_count
        return changed > 0 or not request.needs_match


def _raise_unless_duplicates(error: ClientBulkWriteException) -> None:
    """Return when unique indexes are all that stood in the way of some of the writes."""
    failed = error.error
    if isinstance(failed, Exception):  # the request itself failed
        raise failed from None
    if failed is not None:  # what the results were read by; the driver tells it as a document
        raise OperationFailure("the results of a bulk cannot be read", failed.get("code")) from None
    failures: list[Any] = [*(error.write_errors or ()), *(error.write_concern_errors or ())]
    codes = {failure["code"] for failure in failures}
    if codes != {DUPLICATE_KEY}:
        # The driver's own exception quotes all documents whole.
        details = {"writeErrors": [{"code": code} for code in codes]}
        raise OperationFailure("writes of a bulk failed", details=details) from None


def _written(result: ClientBulkWriteResult, requests: Sequence[Request]) -> list[bool]:
    inserted, updated, deleted = result.insert_results, result.update_results, result.delete_results
    return [
        place in inserted
        or (place in updated and (updated[place].matched_count > 0 or updated[place].did_upsert))
        or (place in deleted and (deleted[place].deleted_count > 0 or not request.needs_match))
        for place, request in enumerate(requests)
    ]
