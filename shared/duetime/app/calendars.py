"""The use cases of calendars: put, get, list, delete, and finding one by its name.

All calendars of a tenant are settings of one internal namespace (``domain.calendars``), made with the first of them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from functools import cache

from duetime.app.namespaces import NamespaceAccess, readable, with_settings
from duetime.app.revisions import Revisions
from duetime.domain.calendars import Calendar, checked, days_namespace, is_name
from duetime.domain.errors import CalendarNotFound, RevisionMismatch
from duetime.domain.namespaces import Namespace
from duetime.recurrence.stored import FindCalendar
from duetime.stores.core.store import Store


@dataclass(frozen=True, slots=True)
class Calendars:
    """Those of one tenant."""

    store: Store
    tenant_id: str

    def list(self) -> tuple[Calendar, ...]:
        """Return all of them, in order of name. Raises ``NamespaceUnreadable``."""
        namespace = self.store.catalogue.get_namespace(days_namespace(self.tenant_id))
        return () if namespace is None else readable(namespace).settings.calendars

    def get(self, name: str) -> Calendar:
        """Return a calendar. Raises ``CalendarNotFound``."""
        for each in self.list():
            if each.name == name:
                return each
        raise CalendarNotFound(name)

    def put(self, asked: Calendar, *, now: datetime, wanted: Revisions | None = None) -> tuple[Calendar, bool]:
        """Create a calendar or make the stored one what is ``asked``; return it and whether it is new.

        The same changes nothing. Raises ``InvalidInput`` and ``RevisionMismatch``.
        """
        stored, is_new = asked, True

        def change(namespace: Namespace) -> Namespace:
            nonlocal stored, is_new
            known, others = _parted(namespace, asked.name)
            _check(known, wanted)
            stored, is_new = replace(asked, revision=1 if known is None else known.revision), known is None
            if known == stored:
                return namespace
            if known is not None:
                stored = replace(stored, revision=known.revision + 1)
            return _with(namespace, *others, checked(stored, others))

        checked(asked, ())
        name = days_namespace(self.tenant_id)
        if self.store.catalogue.get_namespace(name) is None:
            _check(None, wanted)
            self.store.catalogue.create_namespace(
                name, num_shards=1, dedicated=False, now=now, tenant_id=self.tenant_id
            )
        NamespaceAccess(self.store, None, now, is_internal=True).change(name, change)
        return stored, is_new

    def delete(self, name: str, *, now: datetime, wanted: Revisions | None = None) -> None:
        """Remove a calendar. Schedules that name it wait until there is one with its name again.

        Raises ``CalendarNotFound`` and ``RevisionMismatch``.
        """

        def change(namespace: Namespace) -> Namespace:
            known, others = _parted(namespace, name)
            _check(known, wanted)
            if known is None:
                raise CalendarNotFound(name)
            return _with(namespace, *others)

        if not is_name(name):  # before If-Match is looked at: no calendar has such a name
            raise CalendarNotFound(name)
        if self.store.catalogue.get_namespace(days_namespace(self.tenant_id)) is None:
            _check(None, wanted)
            raise CalendarNotFound(name)
        access = NamespaceAccess(self.store, None, now, is_internal=True)
        access.change(days_namespace(self.tenant_id), change)


def finder(store: Store, tenant_id: str) -> FindCalendar:
    """Return what finds a tenant's calendars. They are read once, when the first is asked for."""

    @cache
    def by_name() -> dict[str, Calendar]:
        return {each.name: each for each in Calendars(store, tenant_id).list()}

    return lambda name: by_name().get(name)


def _parted(namespace: Namespace, name: str) -> tuple[Calendar | None, list[Calendar]]:
    """Return the calendar of a name, and the others."""
    calendars = namespace.settings.calendars
    known = next((each for each in calendars if each.name == name), None)
    return known, [each for each in calendars if each.name != name]


def _with(namespace: Namespace, *calendars: Calendar) -> Namespace:
    return with_settings(namespace, calendars=tuple(sorted(calendars, key=lambda each: each.name)))


def _check(known: Calendar | None, wanted: Revisions | None) -> None:
    if wanted is not None and (known is None or not wanted.match_strongly(known.revision)):
        raise RevisionMismatch("the calendar does not exist in a revision that If-Match names")
