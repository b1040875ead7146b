"""What the engine knows of namespaces: their limits, their default retry policy, the keys that sign their callbacks.

Read in the threads that poll, looked up by the event loop. A change takes effect after ``NAMESPACE_SECONDS`` at most.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from duetime.delivery.encryption import SecretBox, SecretUnavailable
from duetime.delivery.firing_urls import FIRING_KEY, FiringUrls
from duetime.delivery.signing import Signer
from duetime.domain.calendars import Calendar, days_namespace
from duetime.domain.clock import Clock
from duetime.domain.errors import ScheduleUnreadable, StoreError, StoreUnavailable
from duetime.domain.namespaces import NAMESPACE_SECONDS, EncryptedSecret, Misfire, Namespace, NamespaceState
from duetime.domain.retry import DEFAULT_RETRY_POLICY, RetryPolicy
from duetime.domain.timers import Timer
from duetime.recurrence.stored import timing_of
from duetime.stores.core.catalogue import Catalogue
from duetime.stores.shared_keys import shared_key

log = logging.getLogger(__name__)

_RETRY_SECONDS = 2.0
_MAX_VIEWS = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class NamespaceView:
    """A namespace as the engine needs it. ``is_usable`` is False while it is paused or being deleted, its callbacks
    cannot be signed, or what is stored of it cannot be read (``is_readable``): its timers wait. ``resumed_at`` is set
    where those that came due in a pause are to expire.

    ``max_in_flight`` and ``rate_limit_per_second`` (attempts started) are for all pollers together.
    """

    shard_ids: Sequence[int] = ()
    retry_policy: RetryPolicy = DEFAULT_RETRY_POLICY
    max_in_flight: int | None = None
    rate_limit_per_second: float | None = None
    signer: Signer | None = None
    is_usable: bool = True
    is_readable: bool = True
    resumed_at: datetime | None = None

    @property
    def has_limits(self) -> bool:
        return self.max_in_flight is not None or self.rate_limit_per_second is not None

    def is_missed(self, timer: Timer) -> bool:
        """Tell whether ``timer`` came due in a pause, was not tried before, and is to expire."""
        return (
            self.resumed_at is not None
            and timer.attempts == 0
            and max(timer.armed_at, timer.updated_at) < self.resumed_at
        )


@dataclass(frozen=True, slots=True)
class _Entry:
    """``secrets``: those that the view signs with. They end by time as well."""

    view: NamespaceView
    stale_at: float
    namespace: Namespace | None
    secrets: tuple[EncryptedSecret, ...] = ()


class NamespaceCache:
    def __init__(
        self, catalogue: Catalogue, *, clock: Clock, secret_box: SecretBox | None, public_url: str = ""
    ) -> None:
        """``secret_box`` None: this process can decrypt nothing, so namespaces with secrets are not usable.

        ``public_url``: where receivers find the API; empty: nowhere.
        """
        self._catalogue = catalogue
        self._public_url = public_url
        self.firing_urls: FiringUrls | None = None
        """There once something was loaded, where receivers find the API."""
        self._clock = clock
        self._secret_box = secret_box
        self._entries: dict[str, _Entry] = {}

    def get(self, name: str) -> NamespaceView | None:
        """Return what is known of a namespace; None when it was never loaded."""
        entry = self._entries.get(name)
        return None if entry is None else entry.view

    def stored(self, name: str) -> Namespace | None:
        """Return the namespace as it was loaded; None also when there is none."""
        entry = self._entries.get(name)
        return None if entry is None else entry.namespace

    def calendar(self, namespace: str, name: str) -> Calendar | None:
        """Return the calendar of the namespace's tenant, as ``load_for`` has read it; None also when there is
        none."""
        owner = self.stored(namespace)
        days = None if owner is None else self.stored(days_namespace(owner.tenant_id))
        calendars = () if days is None else days.settings.calendars
        return next((each for each in calendars if each.name == name), None)

    def expire(self) -> None:
        """Let ``load`` read again what is known: it may have changed."""
        for name, entry in list(self._entries.items()):
            self._entries[name] = replace(entry, stale_at=float("-inf"))

    @property
    def unreadable(self) -> int:
        """How many namespaces whose timers were due of late cannot be read."""
        lately = self._clock.monotonic() - NAMESPACE_SECONDS
        entries = tuple(self._entries.values())
        return sum(not entry.view.is_readable and entry.stale_at > lately for entry in entries)

    def load_for(self, timers: Iterable[Timer], names: Collection[str]) -> None:
        """Load the namespaces of ``timers``, and ``names``; and the calendars of schedules that name one."""
        names = {timer.namespace for timer in timers} | set(names)
        self.load(names)
        schedules = [timer for timer in timers if timer.schedule is not None]
        owners = (self.stored(timer.namespace) for timer in schedules if _calendar_of(timer) is not None)
        days = {days_namespace(each.tenant_id) for each in owners if each is not None}
        if days:
            self.load(names | days)

    def load(self, names: Iterable[str]) -> None:
        """Read what is not known or may have changed. Blocks: call it beside the event loop.

        While the store does not answer, what was known stays in force; where nothing was, ``StoreUnavailable`` is
        raised. A namespace that the store cannot read is not usable, and is in no other's way.
        """
        if self._public_url and self.firing_urls is None:
            self.firing_urls = FiringUrls(self._public_url, shared_key(self._catalogue, FIRING_KEY))
        monotonic = self._clock.monotonic()
        names = set(names)
        for name in names:
            entry = self._entries.get(name)
            if entry is not None and monotonic < entry.stale_at:
                continue
            try:
                namespace = self._catalogue.get_namespace(name)
            except StoreUnavailable:
                if entry is None:
                    raise
                self._entries[name] = replace(entry, stale_at=monotonic + _RETRY_SECONDS)
                continue
            except StoreError as error:
                self._entries[name] = _unreadable(name, None, error.code, monotonic)
                continue
            self._entries.pop(name, None)  # so that what was read longest ago is first
            self._entries[name] = self._read(namespace, entry, monotonic)
        if len(self._entries) > _MAX_VIEWS:  # never those of the page at hand
            others = [name for name in self._entries if name not in names]
            for name in others[: len(self._entries) - _MAX_VIEWS]:
                self._entries.pop(name, None)

    def _read(self, namespace: Namespace | None, known: _Entry | None, monotonic: float) -> _Entry:
        if namespace is None:  # its timers are orphans: nothing says that they should not be fired
            return _Entry(NamespaceView(), monotonic + NAMESPACE_SECONDS, None)
        if namespace.unreadable is not None:
            return _unreadable(namespace.name, namespace, namespace.unreadable, monotonic)
        if namespace.state is not NamespaceState.ACTIVE:
            return _Entry(_view(namespace, None, is_usable=False), monotonic + NAMESPACE_SECONDS, namespace)
        valid = self._valid_secrets(namespace)
        if known is not None and known.view.is_usable and known.secrets == valid:
            signer = known.view.signer  # decryption may be a call to a key service: not without need
        else:
            try:
                signer = self._signer(namespace, valid)
            except SecretUnavailable as error:
                log.error(
                    "the namespace's secret cannot be decrypted; its timers wait",
                    extra={
                        "action": "namespace.secret_unavailable",
                        "namespace": namespace.name,
                        "error": str(error),
                    },
                )
                return _Entry(_view(namespace, None, is_usable=False), monotonic + _RETRY_SECONDS, namespace)
        return _Entry(_view(namespace, signer, is_usable=True), monotonic + NAMESPACE_SECONDS, namespace, valid)

    def _valid_secrets(self, namespace: Namespace) -> tuple[EncryptedSecret, ...]:
        now = self._clock.now()
        return tuple(secret for secret in namespace.secrets if secret.is_valid(now))

    def _signer(self, namespace: Namespace, secrets: Sequence[EncryptedSecret]) -> Signer | None:
        if not secrets:
            return None
        if self._secret_box is None:
            raise SecretUnavailable("no key is configured")
        box = self._secret_box
        return Signer(tuple(box.decrypt(secret.ciphertext, context=namespace.name) for secret in secrets))


def _calendar_of(timer: Timer) -> str | None:
    """Return the name of the calendar of a schedule."""
    if not timer.is_schedule or "calendar" not in (timer.content.timing_json or ""):
        return None
    try:
        return timing_of(timer).calendar
    except ScheduleUnreadable:
        return None


def _unreadable(name: str, namespace: Namespace | None, reason: str, monotonic: float) -> _Entry:
    log.error(
        "a namespace cannot be read; its timers wait",
        extra={"action": "namespace.unreadable", "namespace": name, "reason": reason},
    )
    shard_ids = () if namespace is None else namespace.shard_ids()
    view = NamespaceView(shard_ids=shard_ids, is_usable=False, is_readable=False)
    return _Entry(view, monotonic + NAMESPACE_SECONDS, namespace)


def _view(namespace: Namespace, signer: Signer | None, *, is_usable: bool) -> NamespaceView:
    settings = namespace.settings
    return NamespaceView(
        shard_ids=namespace.shard_ids(),
        retry_policy=settings.retry_policy,
        max_in_flight=settings.max_in_flight,
        rate_limit_per_second=settings.rate_limit_per_second,
        signer=signer,
        is_usable=is_usable,
        resumed_at=settings.resumed_at if settings.misfire is Misfire.EXPIRE else None,
    )
