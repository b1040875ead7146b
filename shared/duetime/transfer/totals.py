"""Counts records and sums up their digests by kind, in any order."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from datetime import datetime, timedelta
from hashlib import sha256

from duetime.domain.times import MIN_INSTANT
from duetime.transfer.records import TRANSFERRED_KINDS, Kind, Record

_MODULUS = 1 << 256
_HOUR = timedelta(hours=1)
_DIGITS = 64


class Totals:
    """Counts and digests by kind. A digest is the sum of the SHA-256 of the records' lines, modulo 2**256.

    What will expire is also counted by the hour in which it does, so that totals of different times can be
    compared. The number of these entries does not grow with the records.
    """

    def __init__(self) -> None:
        self.counts: dict[Kind, int] = defaultdict(int)
        self._sums: dict[Kind, int] = defaultdict(int)
        self._expiring: dict[tuple[Kind, int], list[int]] = {}

    def add(self, record: Record) -> None:
        number = int.from_bytes(sha256(record.line).digest())
        self.counts[record.kind] += 1
        self._sums[record.kind] = (self._sums[record.kind] + number) % _MODULUS
        if record.expires_at is not None:
            entry = self._expiring.setdefault((record.kind, _hour(record.expires_at)), [0, 0])
            entry[0] += 1
            entry[1] = (entry[1] + number) % _MODULUS

    @property
    def total(self) -> int:
        return sum(self.counts.values())

    def shown_counts(self) -> dict[str, int]:
        return {kind.value: self.counts[kind] for kind in Kind if self.counts[kind]}

    def shown_digests(self) -> dict[str, str]:
        return {kind.value: f"{self._sums[kind]:0{_DIGITS}x}" for kind in Kind if self.counts[kind]}

    def restore(self, counts: Mapping[str, int], digests: Mapping[str, str]) -> None:
        """Set what ``shown_counts`` and ``shown_digests`` gave. Raises ``ValueError`` for anything else."""
        for name, count in counts.items():
            kind = Kind(name)
            self.counts[kind] = count
            self._sums[kind] = int(digests[name], 16)

    def lasting(self, kind: Kind, beyond: datetime) -> tuple[int, int]:
        """Return count and digest of what does not expire before ``beyond``, a full hour."""
        count, number = self.counts[kind], self._sums[kind]
        for (expiring, hour), (entries, part) in self._expiring.items():
            if expiring is kind and hour < _hour(beyond):
                count, number = count - entries, number - part
        return count, number % _MODULUS


def full_hour_after(now: datetime) -> datetime:
    """Return the first full hour that is more than an hour after ``now``."""
    return MIN_INSTANT + (_hour(now) + 2) * _HOUR


def differences(file: Totals, store: Totals, *, beyond: datetime) -> list[str]:
    """Describe the differences by kind, of what does not expire before ``beyond``."""
    found = []
    for kind in TRANSFERRED_KINDS:
        (wanted, digest), (there, other) = file.lasting(kind, beyond), store.lasting(kind, beyond)
        if wanted != there:
            found.append(f"{kind.value}: {wanted} in the file, {there} in the store")
        elif digest != other:
            found.append(f"{kind.value}: {wanted} in both, but not the same")
    return found


def _hour(instant: datetime) -> int:
    return (instant - MIN_INSTANT) // _HOUR
