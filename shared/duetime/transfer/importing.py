"""Loads a file into a store, and compares the two."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from itertools import groupby
from typing import Any, TypeVar

from duetime.domain.api_keys import ApiKey
from duetime.domain.call_steps import Transition
from duetime.domain.errors import CallUnreadable, DuetimeError, InvalidInput, StoreError, StoreUnavailable
from duetime.domain.executions import Execution
from duetime.domain.ids import schedule_timer_id
from duetime.domain.namespaces import EncryptedSecret, Namespace
from duetime.domain.occurrences import PastOccurrence
from duetime.domain.service_calls import ServiceCall
from duetime.domain.timers import Timer
from duetime.stores.core.store import Store
from duetime.stores.port.calls import ApplyStatus, CallRef
from duetime.stores.port.transfer import LoadStatus
from duetime.stores.refusals import alone, apart
from duetime.transfer.errors import BadExport, TransferRefused
from duetime.transfer.exporting import Progress, unseen
from duetime.transfer.reading import ExportReader
from duetime.transfer.records import CATALOGUE_KINDS, CatalogueSecret, Kind, Record, Unreadable, name_of
from duetime.transfer.scan import StoreScan, read_all
from duetime.transfer.totals import Totals, differences, full_hour_after

T = TypeVar("T")

_Result = LoadStatus | DuetimeError
"""The result for a record. An error: the target refuses it for good."""

CheckSecret = Callable[[Namespace, EncryptedSecret], None]
"""Raises if the processes that will serve the target could not decrypt the secret."""

_MAX_SHOWN = 100
_MARK_BYTES = 9
"""The first bytes of an encrypted secret tell which key encrypted it (``runtime.ciphertexts``)."""


@dataclass(slots=True)
class Loaded:
    """Counts the results of a file's records. ``conflicts`` and ``refusals`` describe the first of each."""

    statuses: Counter[LoadStatus] = field(default_factory=Counter)
    num_expired: int = 0
    num_unreadable: int = 0
    num_refused: int = 0
    conflicts: list[str] = field(default_factory=list)
    refusals: list[str] = field(default_factory=list)


class Importer:
    """Loads a file. ``now``: what has expired by then is left out. ``is_rehearsal``: nothing is written.

    Raises ``BadExport`` for a bad file and ``TransferRefused`` for a target that holds something else; nothing is
    overwritten. What was loaded until then stays: the same file can be loaded again. A record that the target refuses
    for good is reported with its dependants; the rest is loaded.
    """

    def __init__(
        self,
        store: Store,
        *,
        now: datetime,
        is_rehearsal: bool = False,
        check_secret: CheckSecret | None = None,
        progress: Progress = unseen,
    ) -> None:
        self._store = store
        self._now = now
        self._is_rehearsal = is_rehearsal
        self._check_secret = check_secret
        self._progress = progress
        self._namespaces: dict[str, Namespace] = {}
        self._left_out: set[CallRef] = set()
        self._refused_namespaces: set[str] = set()
        self.loaded = Loaded()

    def run(self, reader: ExportReader) -> Loaded:
        catalogue: list[Record] | None = []
        for page in reader.pages():
            records = page
            if catalogue is not None:
                catalogue += filter(_is_of_catalogue, page)
                records = [record for record in page if not _is_of_catalogue(record)]
                if not records:
                    continue
                self._settle(catalogue)
                catalogue = None
            self._load_page(records)
            self._progress(reader.totals)
        if catalogue is not None:
            self._settle(catalogue)
        self._progress(reader.totals)
        return self.loaded

    # -- the catalogue ---------------------------------------------------------------------------------------

    def _settle(self, catalogue: Sequence[Record]) -> None:
        """Check the whole catalogue, then load it. It is held in memory, so that a wrong target is found at once."""
        catalogue, unreadable = _parted(catalogue)
        self.loaded.num_unreadable += unreadable
        _refuse_other_contents(self._store, catalogue)
        self._check_keys(catalogue)
        for record in catalogue:
            if not self._is_rehearsal:
                self._count(record, self._loaded_into_catalogue(record.value))
            elif isinstance(record.value, Namespace):
                self._namespaces[record.value.name] = record.value

    def _check_keys(self, catalogue: Sequence[Record]) -> None:
        """Check one secret of each encryption key."""
        checked: set[bytes] = set()
        for record in catalogue:
            if self._check_secret is None or not isinstance(record.value, Namespace):
                continue
            for secret in record.value.secrets:
                if secret.is_valid(self._now) and secret.ciphertext[:_MARK_BYTES] not in checked:
                    checked.add(secret.ciphertext[:_MARK_BYTES])
                    self._check_secret(record.value, secret)

    def _loaded_into_catalogue(self, value: object) -> _Result:
        def refused(error: DuetimeError) -> _Result:
            if isinstance(value, Namespace):
                self._refused_namespaces.add(value.name)
            return error

        try:
            return alone(lambda: self._load_into_catalogue(value), refused)
        except InvalidInput as error:  # no shards are left
            return refused(error)

    def _load_into_catalogue(self, value: object) -> _Result:
        store = self._store
        if isinstance(value, Namespace):
            self._namespaces[value.name], status = store.transfer.load_namespace(value)
            return status
        if isinstance(value, CatalogueSecret):
            is_there = value.name in store.transfer.secrets()
            is_same = store.catalogue.secret(value.name, value.value) == value.value
            return (LoadStatus.PRESENT if is_there else LoadStatus.LOADED) if is_same else LoadStatus.CONFLICT
        assert isinstance(value, ApiKey)
        if store.catalogue.create_api_key(value):
            return LoadStatus.LOADED
        return LoadStatus.PRESENT if store.catalogue.get_api_key(value.key_id) == value else LoadStatus.CONFLICT

    # -- timers, calls, events -------------------------------------------------------------------------------

    def _load_page(self, records: Sequence[Record]) -> None:
        self._left_out.clear()  # a page has calls together with their executions
        for kind, group in groupby(records, key=lambda record: record.kind):
            together = list(group)
            if kind in CATALOGUE_KINDS:
                raise BadExport(f"the {name_of(together[0].value)} comes after records that are not of the catalogue")
            if kind is Kind.UNREADABLE:
                self.loaded.num_unreadable += len(together)
                continue
            wanted = [record for record in together if not self._is_left_out(record)]
            values: list[Any] = [self._rehomed(record.value) for record in wanted]
            if self._is_rehearsal or not values:
                continue
            for record, result in zip(wanted, apart(partial(self._load, kind), values, _as_result), strict=True):
                self._count(record, result)

    def _is_left_out(self, record: Record) -> bool:
        """Tell whether a record is expired, in a refused namespace, or an execution of a call that was not loaded."""
        value = record.value
        if isinstance(value, Timer | PastOccurrence | ServiceCall) and value.namespace in self._refused_namespaces:
            self._count(record, StoreError("its namespace was refused"))
            return True
        if record.expires_at is not None and record.expires_at <= self._now:
            self.loaded.num_expired += 1
            if isinstance(value, ServiceCall):
                self._left_out.add(CallRef(value.tenant_id, value.call_id))
            return True
        return isinstance(value, Execution) and CallRef(value.tenant_id, value.call_id) in self._left_out

    def _rehomed(self, value: object) -> object:
        """Return a timer or a call with the shard that it has in the target."""
        if isinstance(value, Timer):
            return replace(value, shard_id=self._home(value.namespace).shard_of(value.timer_id))
        if isinstance(value, PastOccurrence):
            timer_id = schedule_timer_id(value.schedule_id)
            return replace(value, shard_id=self._home(value.namespace).shard_of(timer_id))
        if isinstance(value, ServiceCall):
            return replace(value, shard_id=self._home(value.namespace).shard_of(value.call_id))
        return value

    def _home(self, name: str) -> Namespace:
        try:
            return self._namespaces[name]
        except KeyError:
            raise BadExport(f"the file has timers or calls of namespace {name!r}, but not the namespace") from None

    def _load(self, kind: Kind, values: Sequence[Any]) -> list[_Result]:
        store = self._store
        if kind is Kind.TIMER:
            return [*store.transfer.load_timers(values, now=self._now)]
        if kind is Kind.OCCURRENCE:
            return [*store.transfer.load_occurrences(values)]
        if kind is Kind.SERVICE_CALL:
            return self._load_calls(values)
        if kind is Kind.EXECUTION:
            return [*store.transfer.load_executions(values)]
        return [*store.transfer.load_events(values, now=self._now)]

    def _load_calls(self, calls: Sequence[ServiceCall]) -> list[_Result]:
        applied = self._store.calls.apply([Transition(before=None, after=call) for call in calls], now=self._now)
        if ApplyStatus.UNAVAILABLE in applied:
            raise StoreUnavailable("some service calls cannot be written at the moment")
        return [
            LoadStatus.LOADED if status is ApplyStatus.APPLIED else self._status_of_known(call)
            for call, status in zip(calls, applied, strict=True)
        ]

    def _status_of_known(self, call: ServiceCall) -> LoadStatus:
        """Return the status of a call whose id or idempotency key is taken."""
        try:
            (stored,) = self._store.calls.get([CallRef(call.tenant_id, call.call_id)], now=self._now)
        except CallUnreadable:
            return LoadStatus.CONFLICT
        return LoadStatus.PRESENT if stored == call else LoadStatus.CONFLICT

    def _count(self, record: Record, result: _Result) -> None:
        loaded, name = self.loaded, name_of(record.value)
        if isinstance(result, DuetimeError):
            loaded.num_refused += 1
            _note(loaded.refusals, f"{name}: {result.message}")
        else:
            loaded.statuses[result] += 1
            if result is LoadStatus.CONFLICT:
                _note(loaded.conflicts, name)
        value, is_there = record.value, result in (LoadStatus.LOADED, LoadStatus.PRESENT)
        if isinstance(value, ServiceCall) and not is_there:
            self._left_out.add(CallRef(value.tenant_id, value.call_id))


def _as_result(error: StoreError) -> _Result:
    return error


def _note(names: list[str], name: str) -> None:
    if len(names) < _MAX_SHOWN:
        names.append(name)


def _is_of_catalogue(record: Record) -> bool:
    value = record.value
    return (value.of if isinstance(value, Unreadable) else record.kind) in CATALOGUE_KINDS


def _parted(catalogue: Sequence[Record]) -> tuple[list[Record], int]:
    """Return the records that can be loaded, and the number of those that the source could not read."""
    known = [record for record in catalogue if record.kind is not Kind.UNREADABLE]
    return known, len(catalogue) - len(known)


def verify(store: Store, file: Totals, *, now: datetime, progress: Progress = unseen) -> list[str]:
    """Read all of ``store`` and describe how it differs from the file whose totals are ``file``.

    What expires within the next hour or two is left out on both sides, since it may go during the comparison.
    """
    there = Totals()
    for page in StoreScan(store, now=now).pages():
        for record in page.records:
            there.add(record)
        progress(there)
    return differences(file, there, beyond=full_hour_after(now))


def _refuse_other_contents(store: Store, catalogue: Sequence[Record]) -> None:
    """Raise ``TransferRefused`` unless the target's catalogue is a subset of the file's."""
    given = {(record.kind, _key(record.value)): record.value for record in catalogue}
    for kind, value in _catalogue_of(store):
        wanted = given.get((kind, _key(value)))
        if wanted is None:
            raise TransferRefused(
                f"the target holds other contents: {name_of(value)} is not in the file. "
                "Import into a store that has only been initialised, by `duetime init`"
            )
        if isinstance(value, Namespace):
            value = replace(value, first_shard=0)
            wanted = replace(wanted, first_shard=0) if isinstance(wanted, Namespace) else wanted
        if wanted != value:
            raise TransferRefused(
                f"the target holds other contents: its {name_of(value)} differs from the file's. "
                "Import into a store that has only been initialised, by `duetime init`"
            )


def _catalogue_of(store: Store) -> Iterable[tuple[Kind, Namespace | ApiKey | CatalogueSecret]]:
    for namespace in read_all(store.transfer.all_namespaces):
        yield Kind.NAMESPACE, namespace
    for key in read_all(store.transfer.all_api_keys):
        yield Kind.API_KEY, key
    for name, value in store.transfer.secrets().items():
        yield Kind.SECRET, CatalogueSecret(name, value or b"")  # nothing in a file equals an unreadable one


def _key(value: object) -> str:
    if isinstance(value, ApiKey):
        return value.key_id
    assert isinstance(value, Namespace | CatalogueSecret)
    return value.name
