"""The mistakes that ``make mutate`` makes: one at a time, each against the tests that ought to notice it."""

from __future__ import annotations

from dataclasses import dataclass

_PACKAGE = "shared/duetime/"


@dataclass(frozen=True, slots=True)
class Mutant:
    """``old``, which stands in ``path`` once, becomes ``new``. ``tests``: for pytest. ``harm``: what it would do."""

    path: str
    old: str
    new: str
    tests: tuple[str, ...]
    harm: str

    def applied(self, text: str) -> str:
        """``text`` with the mistake. Raises ``ValueError`` when ``old`` is not there, or not once."""
        if text.count(self.old) != 1:
            raise ValueError(f"{self.path} has {text.count(self.old)} times: {self.old}")
        return text.replace(self.old, self.new)


def _of(path: str, tests: str, *mistakes: tuple[str, str, str]) -> list[Mutant]:
    """Mutants of one file: what stands there, what stands there instead, the harm."""
    return [Mutant(_PACKAGE + path, old, new, tuple(tests.split()), harm) for old, new, harm in mistakes]


MUTANTS = (
    *_of(
        "engine/flow/queues.py",
        "tests/unit/engine/test_breaker.py",
        ("self._threshold or is_short:", "self._threshold:", "one bad moment of a gateway opens a breaker"),
        ("self._failures = self._reopenings = 0", "self._failures = 0", "pauses never become short again"),
        ("elif started < self._open_until:", "elif False:", "what was sent before the pause prolongs it"),
        (
            "min(self._pause_seconds * 2.0**self._reopenings, self._max_pause_seconds)",
            "self._pause_seconds * 2.0**self._reopenings",
            "pauses grow without a bound",
        ),
    ),
    *_of(
        "engine/flow/queues.py",
        "tests/unit/engine/test_limits.py",
        ("max(1, self.size // 2)", "self.size // 2", "a window closes for ever"),
        ("if self.size < limit:", "if True:", "a window grows beyond the limit"),
        (
            "return max(1.0, self.per_second)",
            "return self.per_second",
            "a rate below 1/s never lets anything through",
        ),
    ),
    *_of(
        "engine/flow/control.py",
        "tests/unit/engine/test_flow.py tests/unit/engine/test_flow_pauses.py tests/unit/engine/test_flow_waiting.py "
        "tests/integration/engine/test_flow_control.py",
        ("queue.slow -= attempt.is_slow", "queue.slow -= 0", "a queue that was slow once stays slow for ever"),
        ("        queue.host.in_flight -= 1\n", "", "a host's room is never given back"),
        ("queue.namespace.bucket.take()", "pass", "a namespace's rate limit limits nothing"),
        (
            "while queue.waiting and queue.waiting[0].read_at < read_before:",
            "while False:",
            "what waits too long is not read again",
        ),
        (
            "        self._place(queue)\n        return changed",
            "        return changed",
            "a queue is full for ever",
        ),
        (" and (self._ready or self._readmit_for_hosts())", " and self._ready", "room at a host is used by nobody"),
    ),
    *_of(
        "engine/batching.py",
        "tests/unit/engine/test_batching.py tests/integration/engine/test_recording.py",
        ("if len(piece) == 1:", "if True:", "one refused item takes its batch with it"),
        ("except (StoreUnavailable, StoreNotReady) as", "except StoreNotReady as", "an outage loses outcomes"),
        (
            "return [piece[middle:], piece[:middle]]",
            "return [piece[:middle]]",
            "half of a refused batch is forgotten",
        ),
        ("if self._is_worth_waiting():", "if False:", "each outcome is a write of its own"),
    ),
    *_of(
        "engine/in_flight.py",
        "tests/unit/engine/test_payloads.py",
        ("            self.bytes -= size\n", "", "memory once used counts for ever"),
        ("if self.bytes + self._reserved + size > 2 * self._max_bytes:", "if False:", "large payloads have no bound"),
    ),
    *_of(
        "engine/response/decide.py",
        "tests/unit/engine/test_decide.py",
        (
            "at=at, fired_at=fired_at, firing_id=new_firing_id",
            "at=at, fired_at=fired_at, firing_id=timer.firing_id",
            "a rescheduled timer looks like a repeat",
        ),
        (
            "at = max(classification.next_execute_at, earliest)",
            "at = classification.next_execute_at",
            "a receiver keeps the poller busy with itself",
        ),
        (
            "until = round_up(fired_at + timedelta(seconds=deadline))",
            "until = fired_at",
            "a parked timer is fired again while its callback runs",
        ),
        ("        attempts=0,\n", "        attempts=timer.attempts + 1,\n", "a rescheduled timer has fewer attempts"),
        (
            "max(first_started_at, timer.rearmed_at or first_started_at)",
            "timer.armed_at",
            "an outage of ours costs retries",
        ),
    ),
    *_of(
        "engine/in_flight.py",
        "tests/unit/engine/test_in_flight.py tests/integration/engine/test_poller.py "
        "tests/integration/engine/test_hand_over.py",
        ("if attempt.shard.is_polling:", "if False:", "a page read meanwhile fires a recorded attempt again"),
        ("return attempt is not None and attempt.shard is shard", "return False", "a timer is fired beside itself"),
        (
            "        attempt.timer, attempt.state = parked, AttemptState.PARKED\n        self._let_go(attempt)\n",
            "        attempt.timer, attempt.state = parked, AttemptState.PARKED\n",
            "a parked attempt keeps its shard from being released",
        ),
    ),
    *_of(
        "engine/shards/shard.py",
        "tests/integration/engine/test_outages.py",
        ("return monotonic < self.trusted_until", "return True", "a shard is fired from after its lease"),
    ),
    *_of(
        "engine/shards/reading.py",
        "tests/unit/engine/test_reading.py tests/unit/engine/test_left_queues.py "
        "tests/integration/engine/test_poller.py",
        ("left.begin < self._position)", "True)", "the page where a queue was left passes over it"),
        ("left.begin >= page.begin", "True", "a queue's timers lose their order"),
        (
            "min(left.begin, page.begin), max(left.end, page.end)",
            "page.begin, page.end",
            "what a queue left earlier is forgotten",
        ),
        ("self.left[key] = self.left.pop(key)", "pass", "a queue without room keeps the others from their turn"),
    ),
    *_of(
        "engine/flow/queues.py",
        "tests/unit/engine/test_host_health.py",
        (
            "frozenset({502, 503, 504})",
            "frozenset({500, 502, 503, 504})",
            "errors of one timer close the host for all",
        ),
    ),
    *_of(
        "engine/response/classify.py",
        "tests/unit/engine/test_classify.py",
        ("frozenset({408, 425, 429})", "frozenset({408, 425})", "a receiver that is busy loses its timers"),
        ('document.get("ok") is not False', "True", '"ok": false counts as success'),
        ("if 400 <= status < 500 and", "if 400 <= status < 600 and", "a receiver that is down loses its timers"),
        (
            "return min(max(seconds, MIN_RETRY_AFTER_SECONDS), MAX_RETRY_AFTER_SECONDS)",
            "return max(seconds, MIN_RETRY_AFTER_SECONDS)",
            "Retry-After puts a timer off for years",
        ),
    ),
    *_of(
        "delivery/signing.py",
        "tests/unit/delivery/test_signing.py",
        ("mac = keyed.copy()", "mac = keyed", "the second signature is wrong"),
    ),
    *_of(
        "delivery/egress.py",
        "tests/unit/delivery/test_egress.py",
        ("if not 1 <= port <= 65_535:", "if not 0 <= port <= 65_535:", "port 0 is accepted"),
        (
            "if any(address in network for network in self.allow_cidrs):",
            "if self.allow_cidrs:",
            "one allowed block allows every address",
        ),
        ("if self.https_only and", "if False and", "callbacks go out in clear"),
    ),
    *_of(
        "delivery/guard.py",
        "tests/unit/delivery/test_guard.py",
        ("self.approved = newest | self._newest", "self.approved = newest", "a transfer that waited cannot connect"),
        ("return address in target.approved and (", "return (", "libcurl may connect where nobody looked"),
        ("elif refused is not None:", "elif False:", "a name may lead to an inner address"),
    ),
    *_of(
        "delivery/transfer.py",
        "tests/integration/delivery/test_one_request.py tests/integration/delivery/test_exchange.py",
        (
            "        if self._is_sent:\n            self._is_cut_off = True\n            return _ABORT\n",
            "",
            "one attempt is sent several times",
        ),
        ("if self._is_large:", "if False:", "large bodies are kept by idle handles"),
    ),
    *_of(
        "domain/retry.py",
        "tests/unit/domain/test_retry.py",
        ("if attempts >= self.max_attempts:", "if attempts > self.max_attempts:", "one attempt too many"),
        ("return min(interval, self.max_interval_seconds)", "return interval", "intervals grow without a bound"),
    ),
    *_of(
        "domain/timers.py",
        "tests/unit/domain/test_timers.py tests/contract",
        ("self.expires_at <= now", "self.expires_at < now", "an expired timer is still there"),
        ("stored.digest == new.digest and not stored.is_unreadable", "False", "a repeated PUT fires again"),
    ),
    *_of(
        "stores/backends/sql/statements.py",
        "tests/contract",
        (
            'return column == given(self._give(f"old_',
            'return column >= given(self._give(f"old_',
            "an outcome ends another firing",
        ),
    ),
    *_of(
        "stores/backends/sql/mapping.py",
        "tests/unit/sql/test_pruning.py",
        ("if has_end else []", "if False else []", "pruning removes a timer that was put again"),
    ),
    *_of(
        "stores/backends/sql/backend.py",
        "tests/contract",
        (
            "return {guard for guard in distinct if not guard.holds(",
            "return {guard for guard in () if not guard.holds(",
            "a lost lease still records",
        ),
    ),
    *_of(
        "stores/backends/sql/reads.py",
        "tests/contract",
        ("else column > place)", "else column >= place)", "a page begins with the last timer again"),
    ),
    *_of(
        "stores/backends/dynamodb/item_writes.py",
        "tests/unit/dynamodb",
        (
            "            name in item for name in self.removes\n",
            "            False for name in self.removes\n",
            "another's write passes for one's own",
        ),
        ("is_missing in expected]", "is_missing in ()]", "a conditional statement has no condition"),
    ),
)
