"""One DynamoDB table: its requests, with partial answers completed and errors translated."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, cast

from botocore.exceptions import BotoCoreError, ClientError
from botocore.parsers import ResponseParserError

from duetime.domain.errors import StoreError, StoreNotReady, StoreUnavailable
from duetime.stores.backends.dynamodb.errors import (
    RETRY_AFTER_SECONDS,
    TRANSIENT_STATEMENT_CODES,
    ConditionFailed,
    statement_refused,
    translate,
)
from duetime.stores.dynamodb.changes import Change, Item, as_insert_statement, as_update, as_update_statement
from duetime.stores.refusals import alone, log_refusal

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

_log = logging.getLogger(__name__)

BATCH_STATEMENTS = 25
BATCH_KEYS = 100
BATCH_WRITES = 25
TIMER_KEYS = ("shard_id", "sortKey")
"""Names of the hash key and of the range key of the timers table."""
_UNPROCESSED_TRIES = 6
_BACK_OFF_SECONDS = 0.025
_MAX_BACK_OFF_SECONDS = 0.5

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Written:
    """The result of a conditional write: applied, its condition failed, or (``failure``) refused for good, or for now
    where that is ``StoreUnavailable``: its partition is throttled.

    ``item``: the stored item that a refused write met (None when there is none), or what the write was asked to
    return. ``is_repeated``: the driver sent the request more than once.
    """

    is_applied: bool
    item: Item | None = None
    is_repeated: bool = False
    failure: StoreError | None = None

    @property
    def is_put_off(self) -> bool:
        """Not carried out for now."""
        return isinstance(self.failure, StoreUnavailable)

    def is_own_work(self, change: Change) -> bool:
        """Refused by ``change`` itself: the driver sent it twice, since the first answer was lost."""
        return self.is_repeated and self.item is not None and change.is_reflected_in(self.item)


class Unread(Enum):
    UNREAD = "unread"


UNREAD = Unread.UNREAD


@dataclass(frozen=True, slots=True)
class QueryPage:
    items: list[Item]
    last_key: Item | None


class Table:
    """Thread-safe, as low-level clients are.

    ``batch_statements`` False sends single conditional writes instead of BatchExecuteStatement: the same effects at
    up to 25 times the requests, for emulators without PartiQL.
    """

    def __init__(
        self,
        client: DynamoDBClient,
        name: str,
        *,
        key_names: tuple[str, str] = TIMER_KEYS,
        batch_statements: bool = True,
    ) -> None:
        self.client = client
        self.name = name
        self._key_names = key_names
        self._batch_statements = batch_statements

    def service_time(self) -> datetime | None:
        """What the service's ``Date`` header says, in whole seconds; None from an emulator that sends none."""
        key = {self._key_names[0]: {"N": "0"}, self._key_names[1]: {"S": "?"}}
        answer = self._call("get_item", TableName=self.name, Key=key)
        date = answer.get("ResponseMetadata", {}).get("HTTPHeaders", {}).get("date")
        return None if date is None else parsedate_to_datetime(date).astimezone(UTC)

    # -- reads -----------------------------------------------------------------------------------------------

    def get(self, key: Item, *, consistent: bool) -> Item | None:
        answer = self._call("get_item", TableName=self.name, Key=key, ConsistentRead=consistent)
        return answer.get("Item")

    def get_many(self, keys: Sequence[Item], *, consistent: bool) -> list[Item | None]:
        """One per key, in order. Keys that the service leaves unprocessed are asked for again, with back-off."""
        found = self.get_each(keys, consistent=consistent)
        if UNREAD in found:
            raise _unprocessed()
        return cast("list[Item | None]", found)

    def get_each(self, keys: Sequence[Item], *, consistent: bool) -> list[Item | Unread | None]:
        """``get_many``, but UNREAD stands for what is left unprocessed all the time: its partition is throttled.

        Raises ``StoreUnavailable`` where that is so of every key.
        """
        found: dict[str, Item | Unread | None] = {}
        is_answered = False
        for chunk in chunks(keys, BATCH_KEYS):
            pending = list({self._identity(key): key for key in chunk}.values())
            for back_off in back_offs(_UNPROCESSED_TRIES):
                request = {self.name: {"Keys": pending, "ConsistentRead": consistent}}
                try:
                    answer = self._call("batch_get_item", RequestItems=request)
                except StoreUnavailable:  # so it says it where nothing of a request can be read
                    if not is_answered:
                        raise
                    break
                is_answered = True
                found.update((self._identity(item), item) for item in answer["Responses"].get(self.name, []))
                pending = answer.get("UnprocessedKeys", {}).get(self.name, {}).get("Keys", [])
                if not pending:
                    break
                time.sleep(back_off)
            found.update((self._identity(key), UNREAD) for key in pending)
        items = [found.get(self._identity(key)) for key in keys]
        if items and all(item is UNREAD for item in items):
            raise _unprocessed()
        return items

    def query(self, condition: str, values: Item, **parameters: Any) -> QueryPage:
        """One Query request; ``parameters`` are those of the API."""
        answer = self._call(
            "query",
            TableName=self.name,
            KeyConditionExpression=condition,
            ExpressionAttributeValues=values,
            **parameters,
        )
        return QueryPage(answer["Items"], answer.get("LastEvaluatedKey"))

    # -- single writes ---------------------------------------------------------------------------------------

    def put(self, item: Item, **parameters: Any) -> Written:
        return self._write("put_item", Item=item, **parameters)

    def update(self, **parameters: Any) -> Written:
        return self._write("update_item", **parameters)

    def delete(self, key: Item, **parameters: Any) -> Written:
        return self._write("delete_item", Key=key, ReturnValues="ALL_OLD", **parameters)

    def transact(self, items: Sequence[dict[str, Any]]) -> bool:
        """All of the writes, or none when a condition failed or another transaction was in the way."""
        try:
            self._call("transact_write_items", TransactItems=items)
        except ConditionFailed:
            return False
        return True

    # -- many writes -----------------------------------------------------------------------------------------

    def apply_one(self, change: Change, *, return_old: bool = False) -> Written:
        """``Written.item`` of an applied change is the item as it was, when asked for."""
        parameters = {"ReturnValues": "ALL_OLD"} if return_old else {}
        return self.update(**as_update(change), **parameters)

    def apply_alone(self, change: Change, *, return_old: bool = False) -> Written:
        """``apply_one``, whose failure is a result too."""
        return _alone(lambda: self.apply_one(change, return_old=return_old))

    def apply(self, changes: Sequence[Change], *, is_patient: bool = True) -> list[Written]:
        """Each change applies or fails alone; one result per change, in order.

        ``is_patient`` False: what is throttled is put off at once. So nobody waits for a partition that is not
        theirs, and whoever asked tries again.
        """
        if not self._batch_statements or (len(changes) == 1 and is_patient):
            return self._one_by_one(changes, self.apply_one, lambda change: change.key)
        return self._execute(
            changes,
            lambda change: as_update_statement(self.name, change),
            self.apply_one,
            lambda change: change.key,
            refusal_code="ConditionalCheckFailed",
            is_patient=is_patient,
        )

    def insert(self, items: Sequence[Item], *, is_patient: bool = True) -> list[Written]:
        """Store items whose keys are free, each alone. ``Written.item`` of one whose key is taken is known only after
        a single write. ``is_patient`` as in ``apply``."""
        if len(items) == 1 or not self._batch_statements:
            return self._one_by_one(items, self._insert_one, lambda item: item)
        return self._execute(
            items,
            lambda item: as_insert_statement(self.name, item),
            self._insert_one,
            lambda item: item,
            refusal_code="DuplicateItem",
            is_patient=is_patient,
        )

    def delete_many(self, keys: Sequence[Item]) -> None:
        """Remove whatever is there, in requests of 25. What the service leaves unprocessed is sent again."""
        for chunk in chunks(keys, BATCH_WRITES):
            pending: list[Any] = [{"DeleteRequest": {"Key": key}} for key in chunk]
            for back_off in back_offs(_UNPROCESSED_TRIES):
                answer = self._call("batch_write_item", RequestItems={self.name: pending})
                pending = answer.get("UnprocessedItems", {}).get(self.name, [])
                if not pending:
                    break
                time.sleep(back_off)
            else:
                raise StoreUnavailable("DynamoDB left writes unprocessed", retry_after_seconds=RETRY_AFTER_SECONDS)

    def _insert_one(self, item: Item) -> Written:
        return self.put(item, ConditionExpression=f"attribute_not_exists({self._key_names[1]})")

    def _execute(
        self,
        inputs: Sequence[T],
        statement: Callable[[T], dict[str, Any]],
        write_one: Callable[[T], Written],
        key_of: Callable[[T], Item],
        *,
        refusal_code: str,
        is_patient: bool,
    ) -> list[Written]:
        """A result per input. Statements that were throttled (if ``is_patient``), and those of a request that was
        refused as a whole, are sent again one by one: there the driver backs off, and there it is told which of them
        is at fault. Raises ``StoreUnavailable`` only if nothing was written, as far as is known."""
        results: dict[int, Written] = {}
        again: list[int] = []
        for chunk in chunks(range(len(inputs)), BATCH_STATEMENTS):
            request = [statement(inputs[at]) for at in chunk]
            try:
                answer = self._call("batch_execute_statement", Statements=request)
            except StoreNotReady:
                raise
            except StoreUnavailable as error:
                if not results:
                    raise
                results |= {at: failed(error) for at in range(len(inputs)) if at not in results and at not in again}
                break
            except StoreError:
                again += chunk
                continue
            is_repeated = answer.get("ResponseMetadata", {}).get("RetryAttempts", 0) > 0
            for at, response in zip(chunk, answer["Responses"], strict=True):
                error_of_one = response.get("Error")
                if error_of_one is None:
                    results[at] = Written(is_applied=True)
                elif error_of_one["Code"] == refusal_code:
                    results[at] = Written(is_applied=False, item=error_of_one.get("Item"), is_repeated=is_repeated)
                elif error_of_one["Code"] not in TRANSIENT_STATEMENT_CODES:
                    log_refusal(refusal := statement_refused(error_of_one))
                    results[at] = failed(refusal)
                elif is_patient:
                    again.append(at)
                else:
                    results[at] = failed(_throttled(error_of_one["Code"]))
        if again:
            _log.warning(
                "statements are repeated", extra={"action": "store.statements_repeated", "count": len(again)}
            )
        written = self._one_by_one([inputs[at] for at in again], write_one, key_of)
        results |= zip(again, written, strict=True)
        return [results[at] for at in range(len(inputs))]

    def _one_by_one(
        self, inputs: Sequence[T], write_one: Callable[[T], Written], key_of: Callable[[T], Item]
    ) -> list[Written]:
        """A result per input. Of a partition for whose throttling the driver waited in vain, the rest is put off."""
        put_off: dict[str, Written] = {}
        results = []
        for each in inputs:
            partition = str(key_of(each)[self._key_names[0]])
            written = put_off.get(partition) or _alone(partial(write_one, each))
            if written.is_put_off:
                put_off[partition] = written
            results.append(written)
        return results

    def _write(self, operation: str, **parameters: Any) -> Written:
        if "ConditionExpression" in parameters:
            parameters["ReturnValuesOnConditionCheckFailure"] = "ALL_OLD"
        try:
            answer = self._call(operation, TableName=self.name, **parameters)
        except ConditionFailed as refusal:
            return Written(is_applied=False, item=refusal.item, is_repeated=refusal.is_repeated)
        is_repeated = answer.get("ResponseMetadata", {}).get("RetryAttempts", 0) > 0
        return Written(is_applied=True, item=answer.get("Attributes"), is_repeated=is_repeated)

    def _identity(self, item: Item) -> str:
        return str([item[name] for name in self._key_names])

    def _call(self, operation: str, **parameters: Any) -> dict[str, Any]:
        try:
            answer: dict[str, Any] = getattr(self.client, operation)(**parameters)
        except (ClientError, BotoCoreError, ResponseParserError) as error:
            raise translate(error) from error
        return answer


def failed(error: StoreError) -> Written:
    return Written(is_applied=False, failure=error)


def raise_put_off(written: Iterable[Written]) -> None:
    """Raise ``StoreUnavailable`` if one of ``written`` was put off: for those who have no result for that."""
    for each in written:
        if each.failure is not None and each.is_put_off:
            raise each.failure


def _alone(write: Callable[[], Written]) -> Written:
    try:
        return alone(write, failed)
    except StoreUnavailable as error:
        return failed(error)


def _unprocessed() -> StoreUnavailable:
    return StoreUnavailable("DynamoDB left keys unprocessed", retry_after_seconds=RETRY_AFTER_SECONDS)


def _throttled(code: str) -> StoreUnavailable:
    return StoreUnavailable(f"DynamoDB answered a statement: {code}", retry_after_seconds=RETRY_AFTER_SECONDS)


def chunks(values: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    for start in range(0, len(values), size):
        yield values[start : start + size]


def back_offs(tries: int) -> Iterable[float]:
    """Seconds to wait after each try: exponential up to half a second, with full jitter."""
    limits = (min(_BACK_OFF_SECONDS * 2**attempt, _MAX_BACK_OFF_SECONDS) for attempt in range(tries))
    return (random.random() * limit for limit in limits)
