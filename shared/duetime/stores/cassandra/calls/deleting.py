"""Removing calls: the call and its executions at once, then what led to it. Events stay until they are published."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from duetime.domain.call_events import CallEvent
from duetime.domain.errors import StoreUnavailable
from duetime.domain.service_calls import CallStatus
from duetime.stores.cassandra.calls.attempts import Attempts
from duetime.stores.cassandra.calls.index import Entry, Index
from duetime.stores.cassandra.calls.keys import Keys
from duetime.stores.cassandra.calls.partition import Partitions, Stored
from duetime.stores.cassandra.calls.places import outbox_place
from duetime.stores.cassandra.requests import Unsettled
from duetime.stores.port.calls import CallRef, DeleteStatus

_TRIES: Final = 6


class Deleting:
    _partitions: Partitions
    _index: Index
    _keys: Keys
    _attempts: Attempts

    def delete_call(
        self,
        tenant_id: str,
        call_id: str,
        *,
        now: datetime,
        if_revision: int | None = None,
        event: CallEvent | None = None,
    ) -> DeleteStatus:
        ref = CallRef(tenant_id, call_id)
        is_unsettled = False
        for _ in range(_TRIES):
            stored = self._partitions.read_state(ref, is_serial=True)
            if stored.revision is None and is_unsettled:
                return DeleteStatus.DELETED
            if not stored.is_there(now):
                return DeleteStatus.NOT_FOUND
            if if_revision not in (None, stored.revision):
                return DeleteStatus.REVISION_MISMATCH
            if stored.row.get("status") == CallStatus.RUNNING.value:
                return DeleteStatus.RUNNING
            try:
                if self.remove(stored, event):
                    return DeleteStatus.DELETED
            except Unsettled:
                is_unsettled = True
        raise StoreUnavailable("the service call is being changed too often")

    def remove(self, stored: Stored, event: CallEvent | None = None) -> bool:
        """Whether the call was still as it was read. Raises ``Unsettled``."""
        assert stored.revision is not None
        ref = stored.ref
        attempt = self._attempts.next(above=stored.barred)
        if event is not None:
            place = outbox_place(ref.tenant_id)
            self._index.put([Entry(place, ref.tenant_id, ref.call_id, stored.revision + 1, attempt)])
        if not self._partitions.remove(ref, revision=stored.revision, attempt=attempt, event=event):
            return False
        try:
            self._index.remove_until(
                stored.places, tenant_id=ref.tenant_id, call_id=ref.call_id, revision=stored.revision
            )
            if stored.idempotency_key is not None:
                self._keys.release(ref, stored.idempotency_key)
        except StoreUnavailable:
            return True  # readers find out
        return True
