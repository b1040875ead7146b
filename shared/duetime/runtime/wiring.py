"""The one wiring: what the Lambda functions, the local server and the command line are put together from.

Imports are local to the functions that need them: the timers API on Lambda must load neither the HTTP client nor
the SQL store, since what is imported is cold start.
"""

from __future__ import annotations

import json
import logging
import os
import random
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from duetime.domain.errors import StoreEmpty
from duetime.domain.timers import Timer
from duetime.runtime import garbage, process_limits
from duetime.runtime.clock import SystemClock
from duetime.runtime.ids import new_id, new_worker_id, worker_metadata
from duetime.runtime.logs import configure_logging
from duetime.runtime.process_life import has_died
from duetime.runtime.settings import LocalSettings, PollerSettings, WakingSettings, WorkerSettings, load_settings
from duetime.runtime.tuning import EngineTuning, KeySettings, LocalEvents, LocalKeySettings, Settings
from duetime.runtime.waking import FanOutFailed, Invoke, Waker
from duetime.stores.core.store import Store
from duetime.stores.kinds import BY_SCHEME, SupportLevel
from duetime.stores.store_clock import StoreClock

if TYPE_CHECKING:
    from duetime.app.announcing import Publish
    from duetime.app.tzdata_release import Kinds, TzdataRelease
    from duetime.calls.executor import CallExecutor
    from duetime.delivery.encryption import SecretBox
    from duetime.delivery.port import Sender
    from duetime.engine.poller import Poller
    from duetime.engine.response.failure_events import FailureEvents
    from duetime.engine.settings import EngineSettings
    from duetime.engine.waiting import Offload
    from duetime.runtime.hook import HookEvents
    from duetime.runtime.poller_function import PollerFunction
    from duetime.stores.core.calls import CallStore

Handler = Callable[[dict[str, Any], Any], dict[str, Any]]

logger = logging.getLogger(__name__)

SQLITE = "sqlite:"
_INVOKE_CONFIG: dict[str, Any] = {"connect_timeout": 3, "read_timeout": 10, "retries": {"total_max_attempts": 2}}
"""Seconds: an asynchronous invocation is accepted at once, or the next minute's poller is the retry."""
# A server answers in milliseconds what SQLite answers in microseconds: several calls have to run at once.
_SERVER_ENGINE = {"poll_concurrency": 4, "record_concurrency": 4}
_TARGET_CONNECTIONS = 64
"""To services of AWS, which answer within milliseconds or throttle."""
_FILE_ENGINE = {"quick_read_seconds": 0.002}
"""A read of SQLite waits for no writer. In memory it does: threads take turns on one connection."""


# -- stores ------------------------------------------------------------------------------------------------------


def is_in_memory(url: str) -> bool:
    return url.partition("?")[0] in ("sqlite:", "sqlite://", "sqlite:///", "sqlite:///:memory:")


@contextmanager
def opened_store(url: str) -> Iterator[Store]:
    """Yield the store of ``url``, closed at the end. Raises ``InvalidSettings`` for a URL that names none."""
    from duetime.stores.open import open_store

    store = open_store(url)
    try:
        yield store
    finally:
        store.close()


@contextmanager
def chosen_store(url: str) -> Iterator[Store]:
    """Yield the store as ``opened_store`` does; log how far it is proved, if it is not a supported one."""
    with opened_store(url) as store:
        kind = BY_SCHEME[url.partition(":")[0]]
        if kind.level is not SupportLevel.SUPPORTED:
            logger.warning(
                "the store for %s is %s: its tests run on %s (docs/stores.md)",
                kind.name,
                kind.level.value,
                kind.ran_on,
                extra={"action": "store.unproved", "support": kind.level.value},
            )
        yield store


def make_ready(store: Store, url: str) -> None:
    """Create or migrate an SQLite file, which is this process's own. Initialise any other store when it is empty;
    else it must be of this program's version already, since others may be using it.

    Raises ``StoreError``.
    """
    if url.startswith(SQLITE):
        store.initialise()
        return
    try:
        store.check()
    except StoreEmpty:
        logger.info("the store is empty: its tables are made", extra={"action": "store.initialised"})
        store.initialise()


def store_clock(store: Store) -> StoreClock:
    """Return the store's time, for all of a process. Somebody has to measure it, again and again."""
    return StoreClock(store, SystemClock())


def measured_clock(store: Store) -> StoreClock:
    """Return the store's time for a command, which needs it measured once. Raises ``StoreError``."""
    clock = store_clock(store)
    clock.measure()
    return clock


# -- keys --------------------------------------------------------------------------------------------------------

KEY_FILE_NAME = "duetime.key"


def make_secret_box(settings: KeySettings) -> SecretBox | None:
    """Make the cipher of signing secrets: KMS, else a key file, by default beside an SQLite file.

    None: there is no key. A store in memory has a key in memory: one box serves the whole process.
    Raises ``InvalidSettings`` for a key file that cannot be used.
    """
    if settings.kms_key_id:
        from duetime.runtime.kms import KmsSecretBox

        return KmsSecretBox(settings.kms_key_id)
    given = settings.key_file if isinstance(settings, LocalKeySettings) else ""
    if not given and not settings.store.startswith(SQLITE):
        return None
    from duetime.runtime.local_key import KeyFile, LocalSecretBox, ProcessKey

    if not given and is_in_memory(settings.store):
        return LocalSecretBox(ProcessKey())
    path = settings.store.partition("?")[0].removeprefix(SQLITE).removeprefix("///")
    beside = Path(path).parent / KEY_FILE_NAME
    return LocalSecretBox(KeyFile(Path(given) if given else beside))


# -- the poller --------------------------------------------------------------------------------------------------


def make_poller(
    store: Store,
    settings: EngineTuning,
    clock: StoreClock,
    *,
    events: FailureEvents | None = None,
    secret_box: SecretBox | None = None,
) -> Poller:
    """Return a poller and what it sends by. The caller closes it."""
    more: Mapping[str, object] = {} if is_in_memory(settings.store) else _FILE_ENGINE
    if not settings.store.startswith(SQLITE):
        more = _SERVER_ENGINE
    engine_settings = settings.engine_settings(**more)
    sender = make_sender(settings, engine_settings)
    return poller_with(sender, store, settings, clock, engine_settings, events=events, secret_box=secret_box)


def make_sender(settings: EngineTuning, engine_settings: EngineSettings) -> Sender:
    """Make the sender of callbacks."""
    from duetime.delivery.curl import CurlSender
    from duetime.delivery.egress import ANYWHERE
    from duetime.delivery.settings import SenderSettings
    from duetime.delivery.target_sender import TargetSender
    from duetime.delivery.trust import find_ca_file
    from duetime.runtime.aws_targets import SignedByBotocore

    connections = engine_settings.max_connections
    egress = settings.egress_policy()
    process_limits.allow(connections + (_TARGET_CONNECTIONS if egress.allow_targets else 0))
    http = SenderSettings(
        max_connections=connections, max_connections_per_host=connections, egress=egress, ca_file=find_ca_file()
    )
    # Where AWS is, the operator says, and not a client: it may be a private address.
    aws = replace(
        http, max_connections=_TARGET_CONNECTIONS, max_connections_per_host=_TARGET_CONNECTIONS, egress=ANYWHERE
    )
    return TargetSender(
        CurlSender(http), egress=egress, make_sender=lambda: CurlSender(aws), make_aws=SignedByBotocore
    )


def poller_with(
    sender: Sender,
    store: Store,
    settings: EngineTuning,
    clock: StoreClock,
    engine_settings: EngineSettings,
    *,
    events: FailureEvents | None,
    secret_box: SecretBox | None,
    new_id: Callable[[], str] = new_id,
    random: Callable[[], float] = random.random,
    make_offload: Callable[[int, str], Offload] | None = None,
) -> Poller:
    """Return a poller that fires by ``sender``; the other arguments as for ``make_poller`` and ``Poller``.

    ``make_offload`` None: threads.
    """
    from duetime.calls.occurrences import OccurrenceCalls
    from duetime.calls.submission import CallNamespaces, Submitter
    from duetime.calls.webhook_delivery import WebhookOrdering
    from duetime.engine.poller import Poller
    from duetime.engine.waiting import ThreadOffload

    calls = store.calls
    submitter = Submitter(
        calls,
        CallNamespaces(store.catalogue, num_shards=settings.default_num_shards),
        new_id=new_id,
        on_stored=lambda timers: poller.notify(timers),
    )
    ordering = WebhookOrdering(
        store, clock=clock, secret_box=secret_box, on_stored=lambda timers: poller.notify(timers)
    )
    poller = Poller(
        store,
        sender,
        clock=clock,
        settings=engine_settings,
        worker_id=new_worker_id(),
        metadata=worker_metadata(),
        has_died=has_died,
        new_id=new_id,
        random=random,
        make_offload=make_offload or ThreadOffload,
        events=events,
        secret_box=secret_box,
        handler=make_executor(calls, settings, new_id=new_id, random=random),
        ordering=ordering,
        submission=OccurrenceCalls(calls, submitter),
    )
    return poller


def make_executor(
    calls: CallStore,
    settings: EngineTuning,
    *,
    new_id: Callable[[], str] = new_id,
    random: Callable[[], float] = random.random,
) -> CallExecutor:
    """Make the executor of ``calls``."""
    from duetime.calls.executor import CallExecutor

    return CallExecutor(
        calls,
        rules=settings.call_rules(),
        log_rules=settings.log_rules(),
        new_id=new_id,
        random=random,
    )


def tzdata_release(
    store: Store,
    clock: StoreClock,
    *,
    on_stored: Callable[[Sequence[Timer]], None],
    publish: Publish | None,
) -> TzdataRelease:
    """Make what computes again after a new release of tzdata. ``publish`` None: nobody is told."""
    from duetime.app.tzdata_release import TzdataRelease

    def kinds() -> Kinds:
        from duetime.app.local_timers import LocalTimers
        from duetime.app.schedule_lists import ScheduleLists
        from duetime.app.schedules import Schedules

        announce = publish or (lambda _: None)
        schedules = ScheduleLists(Schedules(store, on_stored, announce))
        timers = LocalTimers(store, on_stored, announce)
        return schedules.recompute_page, timers.recompute_page

    return TzdataRelease(store, clock, owner_id=new_worker_id(), has_died=has_died, kinds=kinds)


@contextmanager
def opened_poller(
    store: Store,
    settings: LocalSettings | WorkerSettings,
    clock: StoreClock,
    *,
    secret_box: SecretBox | None,
    hook: HookEvents | None = None,
) -> Iterator[Poller]:
    """Yield a poller, closed at the end, when ``Poller.run`` has drained it. ``hook`` is closed before it is."""
    poller = make_poller(store, settings, clock, events=hook, secret_box=secret_box)
    try:
        yield poller
    finally:
        if hook is not None:
            hook.close()
        poller.close()


def chosen_hook(settings: LocalEvents) -> HookEvents | None:
    """Make the hook of the settings, if there is one."""
    return make_hook(settings.failed_hook_url) if settings.failed_hook_url else None


def make_hook(url: str) -> HookEvents:
    """Make what sends events to the operator's URL, wherever that is: the egress policy is for clients' URLs."""
    from duetime.delivery.curl import CurlSender
    from duetime.delivery.egress import ANYWHERE
    from duetime.delivery.sender_thread import SenderThread
    from duetime.delivery.settings import SenderSettings
    from duetime.delivery.trust import find_ca_file
    from duetime.runtime.hook import MAX_CONNECTIONS, HookEvents

    settings = SenderSettings(
        max_connections=MAX_CONNECTIONS,
        max_connections_per_host=MAX_CONNECTIONS,
        egress=ANYWHERE,
        ca_file=find_ca_file(),
    )
    return HookEvents(url, lambda: SenderThread(CurlSender(settings)))


# -- Lambda functions --------------------------------------------------------------------------------------------


def poller_function() -> PollerFunction:
    """Return the poller on Lambda, settings from the environment."""
    from duetime.engine.waiting import ThreadOffload
    from duetime.runtime.emf import EmfReporter
    from duetime.runtime.eventbridge import EventBridgeEvents
    from duetime.runtime.poller_function import PollerFunction
    from duetime.stores.open import open_store

    settings = load_settings(PollerSettings)
    log_to_lambda(settings)
    store = open_store(settings.store)
    clock = store_clock(store)
    events = EventBridgeEvents(settings.event_bus, clock=clock)
    poller = make_poller(store, settings, clock, events=events, secret_box=make_secret_box(settings))
    function = os.environ.get("AWS_LAMBDA_FUNCTION_NAME", "poller")
    reporter = EmfReporter(write_line, clock=clock, stage=settings.stage, function=function)
    garbage.begin_to_serve()
    return PollerFunction(
        poller,
        store,
        clock=clock,
        settings=settings,
        invoke=_lambda_invoke(),
        reporter=reporter,
        owner_id=new_worker_id(),
        offload=ThreadOffload(1, "duetime-tend"),
        background=tzdata_release(store, clock, on_stored=poller.notify, publish=events.publish),
        background_offload=ThreadOffload(1, "duetime-tzdata"),
    )


def write_line(line: str) -> None:
    """Write in one piece: other threads log to the same stream."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def log_to_lambda(settings: Settings) -> None:
    """Log to standard output, of which Lambda takes each line for an event."""
    configure_logging(settings.log_format, settings.log_level, sys.stdout)


def make_waker(store: Store, clock: StoreClock, settings: WakingSettings) -> Callable[[Sequence[Timer]], None]:
    """Make what is to be told of timers that a function has stored."""
    if not settings.poller_function:
        return lambda _: None
    return Waker(store.leases, clock=clock, invoke=_lambda_invoke(), function=settings.poller_function)


def _lambda_invoke() -> Invoke:
    """Return what invokes a function asynchronously through AWS's API; the client is made when it is first used."""
    client: Any = None

    def invoke(function_arn: str, event: dict[str, Any]) -> None:
        nonlocal client
        import boto3
        from botocore.config import Config
        from botocore.exceptions import BotoCoreError, ClientError

        client = client or boto3.client("lambda", config=Config(**_INVOKE_CONFIG))
        try:
            client.invoke(FunctionName=function_arn, InvocationType="Event", Payload=json.dumps(event))
        except (BotoCoreError, ClientError) as error:
            raise FanOutFailed(str(error)) from error

    return invoke
