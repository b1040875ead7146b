"""The requests of DynamoDB, with partial answers completed and errors translated."""

from __future__ import annotations

import random
import time
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import uuid4

from botocore.exceptions import BotoCoreError, ClientError
from botocore.parsers import ResponseParserError

from duetime.domain.errors import StoreError, StoreNotReady, StoreUnavailable
from duetime.stores.backend import NOT_WRITTEN, WRITTEN, WriteStatus, Written
from duetime.stores.backends.dynamodb.errors import (
    RETRY_AFTER_SECONDS,
    TRANSIENT_STATEMENT_CODES,
    ConditionFailed,
    cancelled_for_good,
    statement_refused,
    throttled,
    translate,
    unprocessed,
)
from duetime.stores.backends.dynamodb.item_writes import ItemWrite
from duetime.stores.backends.dynamodb.items import Item
from duetime.stores.backends.dynamodb.places import Range
from duetime.stores.backends.dynamodb.side_by_side import Workers

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

BATCH_STATEMENTS = 25
BATCH_KEYS = 100
MOST_IN_TRANSACTION = 100
DEFAULT_PARALLEL = 8
_TRIES = 8
_BACK_OFF_SECONDS = 0.025
_MAX_BACK_OFF_SECONDS = 0.5

T = TypeVar("T")
UNAVAILABLE = Written(WriteStatus.UNAVAILABLE)


class Driver:
    """Thread-safe, as low-level clients are. ``max_parallel`` requests at once of all operations together.

    ``batch_statements`` False sends single conditional writes instead of BatchExecuteStatement: the same effects at
    up to 25 times the requests, for emulators without PartiQL.
    """

    def __init__(self, client: DynamoDBClient, *, batch_statements: bool, max_parallel: int) -> None:
        self.client = client
        self.workers = Workers(max_parallel)
        self._batch_statements = batch_statements

    def close(self) -> None:
        self.workers.close()
        self.client.close()

    def service_time(self, table: str, key: Item) -> datetime | None:
        """Return what the service's ``Date`` header says, in whole seconds; None from an emulator that sends none."""
        answer = self.call("get_item", TableName=table, Key=key)
        date = answer.get("ResponseMetadata", {}).get("HTTPHeaders", {}).get("date")
        return None if date is None else parsedate_to_datetime(date).astimezone(UTC)

    # -- reads -----------------------------------------------------------------------------------------------

    def get_one(self, table: str, key: Item, **parameters: Any) -> Item | None:
        found: Item | None = self.call("get_item", TableName=table, Key=key, ConsistentRead=True, **parameters).get(
            "Item"
        )
        return found

    def get(self, table: str, keys: Sequence[Item]) -> dict[str, Item]:
        """Items by ``identity``, strongly consistent."""
        found, unread = self.get_readable(table, keys)
        if unread:
            raise unprocessed()
        return found

    def get_readable(self, table: str, keys: Sequence[Item], **parameters: Any) -> tuple[dict[str, Item], set[str]]:
        """Items by ``identity``, strongly consistent; and the keys left unread, whose partition is throttled.

        Raises ``StoreUnavailable`` where that is so of every key.
        """
        found: dict[str, Item] = {}
        unread: set[str] = set()
        if len(keys) == 1:
            item = self.get_one(table, keys[0], **parameters)
            return {} if item is None else {identity(keys[0], keys[0]): item}, unread
        is_answered = False
        for chunk in chunks(keys, BATCH_KEYS):
            pending = list({identity(key, key): key for key in chunk}.values())
            for back_off in back_offs(_TRIES):
                request = {table: {"Keys": pending, "ConsistentRead": True, **parameters}}
                try:
                    answer = self.call("batch_get_item", RequestItems=request)
                except StoreUnavailable:  # so it says it where nothing of a request can be read
                    if not is_answered:
                        raise
                    break
                is_answered = True
                found.update((identity(item, chunk[0]), item) for item in answer["Responses"].get(table, []))
                pending = answer.get("UnprocessedKeys", {}).get(table, {}).get("Keys", [])
                if not pending:
                    break
                time.sleep(back_off)
            unread.update(identity(key, key) for key in pending)
        if unread and not found and len(unread) == len({identity(key, key) for key in keys}):
            raise unprocessed()
        return found, unread

    def pages(self, table: str, each: Range, **parameters: Any) -> Iterator[list[Item]]:
        """Return what a range of a table holds, a request at a time; strongly consistent."""
        parameters |= {"TableName": table, "ConsistentRead": True, **each.parameters()}
        while True:
            page = self.call("query", **parameters)
            yield page["Items"]
            if "LastEvaluatedKey" not in page:
                return
            parameters["ExclusiveStartKey"] = page["LastEvaluatedKey"]

    # -- writes ----------------------------------------------------------------------------------------------

    def write(self, writes: Sequence[ItemWrite]) -> list[Written]:
        """Make each or fail alone. Raises ``StoreUnavailable`` only if none was made, as far as is known.

        What a client waits for, new items, is tried again where it is throttled. Nothing else is: others are not its
        to delay.
        """
        put_off: dict[str, StoreUnavailable] = {}
        results: dict[int, Written] = {}
        if self._batch_statements and len(writes) > 1:
            together = [at for at, write in enumerate(writes) if write.is_statement]
            for chunk in chunks(together, BATCH_STATEMENTS):
                try:
                    results |= zip(chunk, self._execute([writes[at] for at in chunk], put_off), strict=True)
                except StoreUnavailable:
                    if not any(written.is_written for written in results.values()):
                        raise
                    results |= dict.fromkeys(chunk, UNAVAILABLE)
            for at in together:
                if results[at] is UNAVAILABLE and writes[at].is_insert:
                    results[at] = self._if_let(writes[at], put_off)
        apart = [at for at in range(len(writes)) if at not in results]
        results |= zip(apart, self._one_by_one([writes[at] for at in apart], put_off), strict=True)
        return raise_if_none([results[at] for at in range(len(writes))], put_off.values())

    def _execute(self, writes: Sequence[ItemWrite], put_off: dict[str, StoreUnavailable]) -> list[Written]:
        """Send one request of statements. Those of a request that is refused as a whole are sent again one by one,
        which tells the one at fault."""
        try:
            answer = self.call("batch_execute_statement", Statements=[write.statement() for write in writes])
        except (StoreNotReady, StoreUnavailable):
            raise
        except StoreError:
            return self._one_by_one(writes, put_off)
        is_repeated = _is_repeated(answer)
        results = []
        unsure: list[int] = []
        for at, (write, response) in enumerate(zip(writes, answer["Responses"], strict=True)):
            error = response.get("Error")
            if error is None:
                results.append(WRITTEN)
            elif error["Code"] in ("ConditionalCheckFailed", "DuplicateItem"):
                results.append(NOT_WRITTEN)
                if is_repeated and write.is_update and write.is_reflected_in(error.get("Item")):
                    results[-1] = WRITTEN
                elif is_repeated and write.is_insert:
                    unsure.append(at)
            elif error["Code"] in TRANSIENT_STATEMENT_CODES:
                results.append(UNAVAILABLE)
                put_off.setdefault("", throttled())
            else:
                results.append(refused(statement_refused(error)))
        if unsure:  # an insert is not told what is in its way
            found, _ = self.get_readable(writes[0].table, [writes[at].key for at in unsure])
            for at in unsure:
                if writes[at].is_reflected_in(found.get(identity(writes[at].key, writes[at].key))):
                    results[at] = WRITTEN
        return results

    def _one_by_one(self, writes: Sequence[ItemWrite], put_off: dict[str, StoreUnavailable]) -> list[Written]:
        """Of a partition for whose throttling the driver waited in vain, the rest is put off."""
        return self.workers.map(lambda write: self._if_let(write, put_off), writes)

    def _if_let(self, write: ItemWrite, put_off: dict[str, StoreUnavailable]) -> Written:
        partition = str(next(iter(write.key.values())))
        if partition not in put_off:
            try:
                return self._alone(write)
            except StoreUnavailable as error:
                put_off[partition] = error
        return UNAVAILABLE

    def _alone(self, write: ItemWrite) -> Written:
        try:
            self.call(write.operation, **write.parameters())
        except ConditionFailed as failure:
            is_own = failure.is_repeated and write.is_reflected_in(failure.item)
            return WRITTEN if is_own else NOT_WRITTEN
        except (StoreUnavailable, StoreNotReady):
            raise
        except StoreError as error:
            return refused(error)
        return WRITTEN

    def transact(self, groups: Sequence[Sequence[ItemWrite]]) -> list[Written]:
        """All of a group is written or nothing (at most 100 items, 4 MB); the groups alone, side by side."""
        put_off: dict[str, StoreUnavailable] = {}

        def run(group: Sequence[ItemWrite]) -> Written:
            partitions = {str(next(iter(write.key.values()))) for write in group}
            if not partitions & put_off.keys():  # else it would wait in vain, and keep others waiting
                try:
                    return self._transact(group)
                except StoreUnavailable as error:
                    put_off.update(dict.fromkeys(partitions, error))
                except StoreNotReady:
                    raise
                except StoreError as error:
                    return refused(error)
            return UNAVAILABLE

        return raise_if_none(self.workers.map(run, groups), put_off.values())

    def _transact(self, group: Sequence[ItemWrite]) -> Written:
        """Write a group. A request whose answer is lost is sent again by the driver under the same token, so it
        counts once. Another transaction on the same items, and throttling, are waited for; then ``StoreUnavailable``.
        """
        if len(group) > MOST_IN_TRANSACTION:
            raise StoreError(f"a transaction of {len(group)} items is beyond the {MOST_IN_TRANSACTION} of DynamoDB")
        items: list[Any] = [write.in_transaction() for write in group]
        is_repeated = False
        for back_off in back_offs(_TRIES):
            try:
                # A transaction that was cancelled wrote nothing: the next try is a new one, with a token of its own.
                self.client.transact_write_items(TransactItems=items, ClientRequestToken=uuid4().hex)
            except (ClientError, BotoCoreError, ResponseParserError) as error:
                answer: Any = error.response if isinstance(error, ClientError) else {}
                if answer.get("Error", {}).get("Code") != "TransactionCanceledException":
                    raise translate(error) from error
                is_repeated |= _is_repeated(answer)
                reasons = answer.get("CancellationReasons", [])
                failed = [at for at, each in enumerate(reasons) if each.get("Code") == "ConditionalCheckFailed"]
                if failed:
                    is_own = is_repeated and 0 in failed and group[0].is_reflected_in(reasons[0].get("Item"))
                    return WRITTEN if is_own else NOT_WRITTEN
                codes = {each.get("Code") for each in reasons} - {None, "None"}
                if not codes <= TRANSIENT_STATEMENT_CODES:
                    raise cancelled_for_good(reasons) from error
            else:
                return WRITTEN
            time.sleep(back_off)
        raise StoreUnavailable(
            "DynamoDB cancelled a transaction again and again", retry_after_seconds=RETRY_AFTER_SECONDS
        )

    def call(self, operation: str, **parameters: Any) -> dict[str, Any]:
        try:
            answer: dict[str, Any] = getattr(self.client, operation)(**parameters)
        except (ClientError, BotoCoreError, ResponseParserError) as error:
            raise translate(error) from error
        return answer


def identity(item: Item, key: Item) -> str:
    """Tells the items of a table apart. ``key`` has the names."""
    return "\n".join([str(item[name]) for name in key])


def refused(error: StoreError) -> Written:
    return Written(WriteStatus.REFUSED, error)


def raise_if_none(results: list[Written], errors: Iterable[StoreUnavailable]) -> list[Written]:
    """Return the results; where none is but that the database was unavailable, the first of the errors is raised."""
    if results and all(written is UNAVAILABLE for written in results):
        raise next(iter(errors))
    return results


def _is_repeated(answer: dict[str, Any]) -> bool:
    return bool(answer.get("ResponseMetadata", {}).get("RetryAttempts", 0))


def chunks(values: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    for start in range(0, len(values), size):
        yield values[start : start + size]


def back_offs(tries: int) -> Iterable[float]:
    """Return seconds to wait after each try: exponential up to half a second, with full jitter."""
    limits = (min(_BACK_OFF_SECONDS * 2**attempt, _MAX_BACK_OFF_SECONDS) for attempt in range(tries))
    return (random.random() * limit for limit in limits)
