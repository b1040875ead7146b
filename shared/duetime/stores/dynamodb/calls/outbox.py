"""The outbox: which events are not published yet, and marking them.

The index of unpublished events lags behind the table. So it only says which calls have some; their events are then
read from the table, strongly consistent and in order, so that none of them is overtaken by a later one.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from itertools import zip_longest
from typing import Any, Final

from duetime.domain.call_events import CallEventType
from duetime.domain.errors import StoreUnavailable
from duetime.domain.times import format_instant, read_instant
from duetime.stores.dynamodb.calls import keys
from duetime.stores.dynamodb.calls.event_items import ROW_TYPE, published_text, published_times
from duetime.stores.dynamodb.calls.reading import Reading, readable_events
from duetime.stores.dynamodb.changes import Change, Item, text, whole
from duetime.stores.dynamodb.cursors import read_cursor, write_cursor
from duetime.stores.dynamodb.items import time_to_live
from duetime.stores.dynamodb.table import back_offs, chunks
from duetime.stores.port.calls import CallRef
from duetime.stores.port.outbox import OutboxEvent
from duetime.stores.side_by_side import Workers

_INDEX_PAGE = 500
"""Of each partition, some 75 KB of keys: 10 read units while so many wait."""
_CALLS_AT_ONCE = 16
_RACE_TRIES = 10
_MAY_TELL_OF_STAR: Final = frozenset({CallEventType.UPDATED, CallEventType.DELETED})
"""Events behind which a call may have a star that it had not before, or none any more."""


class Outbox(Reading):
    _workers: Workers
    _event_retention: timedelta

    def unpublished_events(self, *, limit: int, skip: frozenset[CallRef] = frozenset()) -> list[OutboxEvent]:
        by_tenant: dict[str, list[OutboxEvent]] = {}
        number = 0
        for together in chunks(self._calls_with_unpublished(limit, skip), _CALLS_AT_ONCE):
            if number >= limit:
                break
            for found in self._workers.map(lambda ref: self.unpublished_of(ref, limit=limit), together):
                number += len(found)
                for each in found:
                    by_tenant.setdefault(each.event.tenant_id, []).append(each)
        # In turns, so that a page is not one tenant's alone. What is of one call stays in its order.
        turns = zip_longest(*by_tenant.values())
        return [each for turn in turns for each in turn if each is not None][:limit]

    def unpublished_of(self, ref: CallRef, *, limit: int) -> list[OutboxEvent]:
        events: list[OutboxEvent] = []
        for item, together in readable_events(self._event_items(ref, after=0, limit=limit, only_unpublished=True)):
            done = published_times(item)
            position = write_cursor(together[0].sequence, together[-1].sequence)
            events += [OutboxEvent(event, position) for event in together if event.sequence not in done]
        return events[:limit]

    def mark_published(self, events: Sequence[OutboxEvent], *, now: datetime) -> None:
        by_item: defaultdict[tuple[CallRef, str], set[int]] = defaultdict(set)
        star_told_at: dict[CallRef, int] = {}
        for each in events:
            ref = CallRef(each.event.tenant_id, each.event.aggregate_id)
            by_item[ref, each.position].add(each.event.sequence)
            if each.event.type in _MAY_TELL_OF_STAR:
                star_told_at[ref] = max(each.event.sequence, star_told_at.get(ref, 0))
        starred = self._starred({ref for ref, _ in by_item})
        # Before the marks: if this is cut short, the events are published once more, and this is done once more.
        for ref, sequence in star_told_at.items():
            self._follow_star(ref, sequence, is_starred=ref in starred, now=now)
        whole_items: list[Change] = []
        for (ref, position), sequences in by_item.items():
            first, last = read_cursor(position, int, int)
            key = keys.key(ref.tenant_id, keys.event_sort_key(ref.call_id, last))
            if len(sequences) == last - first + 1:
                whole_items.append(self._change_to_published(key, now, is_kept=ref in starred))
            else:
                self._mark_some(key, range(first, last + 1), sequences, now, is_kept=ref in starred)
        # One whose condition fails was marked before, or is gone.
        for written in self._calls.apply(whole_items):
            if written.failure is not None:
                raise written.failure

    # -- finding ---------------------------------------------------------------------------------------------

    def _calls_with_unpublished(self, limit: int, skip: frozenset[CallRef]) -> list[CallRef]:
        """At most ``limit``: of each tenant in turn the one with the oldest entry, of those that were looked at.

        A tenant with more events than a page of the index has delays others by no more than that page.
        """
        found = self._workers.map(
            lambda partition: self._entries(partition, limit, skip), range(keys.OUTBOX_PARTITIONS)
        )
        oldest: dict[CallRef, str] = {}
        for entries in found:
            for ref, outbox_key in entries:
                oldest[ref] = min(outbox_key, oldest.get(ref, outbox_key))
        by_tenant: dict[str, list[CallRef]] = {}
        for ref in sorted(oldest, key=lambda ref: (oldest[ref], ref.tenant_id)):
            by_tenant.setdefault(ref.tenant_id, []).append(ref)
        turns = zip_longest(*by_tenant.values())
        return [ref for turn in turns for ref in turn if ref is not None][:limit]

    def _entries(self, partition: int, limit: int, skip: frozenset[CallRef]) -> list[tuple[CallRef, str]]:
        """Of one partition of the index: the calls of a page, or of as many as have ``limit`` of them, and when their
        events were written."""
        entries: dict[CallRef, str] = {}
        parameters: dict[str, Any] = {"Limit": _INDEX_PAGE}
        while True:  # past whatever is to be skipped
            page = self._calls.query(
                "outbox_partition = :partition",
                {":partition": whole(partition)},
                IndexName=keys.OUTBOX_INDEX,
                **parameters,
            )
            for item in page.items:
                ref = CallRef(item["tenant_id"]["S"], keys.call_id_of_event(item["sort_key"]["S"]))
                if ref not in skip:
                    entries.setdefault(ref, item["outbox_key"]["S"])
            if page.last_key is None or len(entries) >= limit:
                return list(entries.items())
            parameters["ExclusiveStartKey"] = page.last_key

    # -- marking ---------------------------------------------------------------------------------------------

    def _starred(self, refs: Iterable[CallRef]) -> set[CallRef]:
        asked = list(refs)
        call_keys = [keys.call_key(ref.tenant_id, ref.call_id) for ref in asked]
        items = self._calls.get_many(call_keys, consistent=True)
        return {ref for ref, item in zip(asked, items, strict=True) if item is not None and "starred_key" in item}

    def _follow_star(self, ref: CallRef, sequence: int, *, is_starred: bool, now: datetime) -> None:
        """Published events up to ``sequence``: a star takes the TTL from them, and without it they have one again."""
        changes = []
        for item in self._event_items(ref, after=0, limit=sequence):
            if "published_at" not in item or ("expires_at" in item) is not is_starred:
                continue
            # Not in the past: TTL leaves alone what it should have removed five years ago.
            end = max(read_instant(item["published_at"]["S"]) + self._event_retention, now)
            changes.append(
                Change(
                    key=keys.key_of(item),
                    sets={} if is_starred else {"expires_at": time_to_live(end)},
                    removes=("expires_at",) if is_starred else (),
                    unchanged={"published_at": item["published_at"]},
                )
            )
        for written in self._calls.apply(changes):
            if written.failure is not None:
                raise written.failure

    def _change_to_published(
        self, key: Item, now: datetime, *, is_kept: bool, unchanged: Item | None = None
    ) -> Change:
        """All events of the item: it leaves the index, and TTL removes it after the retention, unless ``is_kept``."""
        end = {} if is_kept else {"expires_at": time_to_live(now + self._event_retention)}
        return Change(
            key=key,
            sets={"published_at": text(format_instant(now)), **end},
            removes=("outbox_partition", "outbox_key", "published"),
            unchanged={"row_type": text(ROW_TYPE), "published_at": None, **(unchanged or {})},
        )

    def _mark_some(self, key: Item, all_of_item: range, sequences: set[int], now: datetime, *, is_kept: bool) -> None:
        for back_off in back_offs(_RACE_TRIES):
            item = self._calls.get(key, consistent=True)
            if item is None or "published_at" in item:
                return
            times = published_times(item)
            marked = dict.fromkeys(sequences, now) | times
            if marked == times:
                return
            seen = {"published": item.get("published")}
            if len(marked) == len(all_of_item):
                change = self._change_to_published(key, now, is_kept=is_kept, unchanged=seen)
            else:
                change = Change(
                    key=key,
                    sets={"published": text(published_text(marked))},
                    unchanged={"row_type": text(ROW_TYPE), "published_at": None, **seen},
                )
            if self._calls.apply_one(change).is_applied:
                return
            time.sleep(back_off)
        raise StoreUnavailable("events are being marked too often")
