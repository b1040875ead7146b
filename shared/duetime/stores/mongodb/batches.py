"""Many conditional writes at once, each of which succeeds or fails alone and says so."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pymongo import DeleteOne, InsertOne, ReplaceOne, UpdateOne
from pymongo.errors import ClientBulkWriteException, DuplicateKeyError, OperationFailure
from pymongo.results import ClientBulkWriteResult

from duetime.stores.mongodb.database import Database, Session
from duetime.stores.mongodb.errors import DUPLICATE_KEY, begin_again
from duetime.stores.mongodb.url import Document


class NotWrittenError(Exception):
    """Within a transaction, one of the writes found no document or met a unique index: nothing is to be written."""


@dataclass(frozen=True, slots=True)
class Insert:
    collection: str
    document: Document

    def model(self, namespace: str) -> InsertOne[Document]:
        return InsertOne(self.document, namespace=namespace)


@dataclass(frozen=True, slots=True, kw_only=True)
class Replace:
    collection: str
    found_by: Document
    document: Document
    upsert: bool = False
    hint: str | None = None

    def model(self, namespace: str) -> ReplaceOne[Document]:
        return ReplaceOne(self.found_by, self.document, upsert=self.upsert, hint=self.hint, namespace=namespace)


@dataclass(frozen=True, slots=True, kw_only=True)
class Update:
    collection: str
    found_by: Document
    change: Document
    hint: str | None = None

    def model(self, namespace: str) -> UpdateOne:
        return UpdateOne(self.found_by, self.change, hint=self.hint, namespace=namespace)


@dataclass(frozen=True, slots=True, kw_only=True)
class Delete:
    collection: str
    found_by: Document
    hint: str | None = None

    def model(self, namespace: str) -> DeleteOne:
        return DeleteOne(self.found_by, hint=self.hint, namespace=namespace)


Write = Insert | Replace | Update | Delete


class Batches:
    """A server before 8.0 does not tell which writes of a bulk matched: there, each is a request of its own.

    So it is on a newer one that still works as an older version, as all do for a while when a cluster is upgraded.
    Not run against either: the tests have the stand-in served in that way.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def run(self, writes: Sequence[Write]) -> list[bool]:
        """In any order; of each whether it was written. One that a unique index refuses was not."""
        if not writes:
            return []
        if self._database.tells_each_write:
            try:
                return self._run_together(writes)
            except OperationFailure as error:
                if not self._database.is_without_bulk_write(error):
                    raise
        return [self._run_alone(write, None) for write in writes]

    def _run_together(self, writes: Sequence[Write]) -> list[bool]:
        try:
            result = self._database.client.bulk_write(self._models(writes), ordered=False, verbose_results=True)
        except ClientBulkWriteException as error:
            _raise_unless_duplicates(error)
            if error.partial_result is None:
                return [False] * len(writes)
            result = error.partial_result
        return _written(result, len(writes))

    def run_all(self, writes: Sequence[Write], session: Session) -> None:
        """In order, as a part of a transaction. Raises ``NotWrittenError`` when one was not written."""
        if not writes:
            return
        if self._database.tells_each_write:
            try:
                is_written = self._run_all_together(writes, session)
            except OperationFailure as error:
                if self._database.is_without_bulk_write(error):
                    raise begin_again() from error  # the refusal has ended the transaction
                raise
        else:
            is_written = all(self._run_alone(write, session) for write in writes)
        if not is_written:
            raise NotWrittenError

    def _run_all_together(self, writes: Sequence[Write], session: Session) -> bool:
        try:
            result = self._database.client.bulk_write(
                self._models(writes), ordered=True, verbose_results=True, session=session
            )
        except ClientBulkWriteException as error:
            _raise_unless_duplicates(error)
            return False
        return all(_written(result, len(writes)))

    def _models(self, writes: Sequence[Write]) -> list[Any]:
        name = self._database.name
        return [write.model(f"{name}.{write.collection}") for write in writes]

    def _run_alone(self, write: Write, session: Session | None) -> bool:
        collection = self._database[write.collection]
        try:
            if isinstance(write, Insert):
                collection.insert_one(write.document, session=session)
                return True
            if isinstance(write, Delete):
                return collection.delete_one(write.found_by, hint=write.hint, session=session).deleted_count > 0
            if isinstance(write, Update):
                changed = collection.update_one(write.found_by, write.change, hint=write.hint, session=session)
            else:
                changed = collection.replace_one(
                    write.found_by, write.document, upsert=write.upsert, hint=write.hint, session=session
                )
        except DuplicateKeyError:
            return False
        return changed.matched_count > 0 or changed.upserted_id is not None


def _raise_unless_duplicates(error: ClientBulkWriteException) -> None:
    """Returns when unique indexes are all that stood in the way of some of the writes."""
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


def _written(result: ClientBulkWriteResult, count: int) -> list[bool]:
    inserted, updated, deleted = result.insert_results, result.update_results, result.delete_results
    return [
        place in inserted
        or (place in updated and updated[place].matched_count > 0)
        or (place in updated and updated[place].did_upsert)
        or (place in deleted and deleted[place].deleted_count > 0)
        for place in range(count)
    ]
