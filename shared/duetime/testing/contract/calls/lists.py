"""CallStore.list and list_executions: every condition and every combination of them, page by page."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from itertools import product

import pytest

from duetime.domain.errors import InvalidCursor
from duetime.domain.service_calls import CallStatus, ServiceCall
from duetime.stores.core.calls import CallStore
from duetime.stores.port.calls import CallFilter, CallOrder
from duetime.stores.port.pages import Page
from duetime.testing.contract import call_builders as make
from duetime.testing.contract import call_steps as steps
from duetime.testing.contract.builders import NOW, seconds
from duetime.testing.contract.steps import read_all

EVERYTHING = CallFilter()
HOUR = timedelta(hours=1)


def listed(
    calls: CallStore, call_filter: CallFilter = EVERYTHING, *, limit: int = 3, tenant_id: str = make.TENANT
) -> list[ServiceCall]:
    """Return all pages of a list, each no longer than its limit."""

    def read_page(cursor: str | None) -> Page[ServiceCall]:
        page = calls.list(tenant_id, call_filter, cursor=cursor, limit=limit, now=NOW)
        assert len(page.items) <= limit
        return page

    return read_all(read_page)


def without_body(call: ServiceCall) -> ServiceCall:
    return replace(call, request=call.request.without_body())


def newest_first(found: list[ServiceCall]) -> list[ServiceCall]:
    return sorted(map(without_body, found), key=lambda call: call.call_id, reverse=True)


@pytest.fixture
def various(calls: CallStore) -> list[ServiceCall]:
    """Store calls that differ in all that can be filtered by, an hour apart, beside those of another tenant."""
    stored = []
    names = ["report", "report/daily", "rep", "other"]
    for number in range(24):
        at = NOW - number * HOUR
        call = steps.submit(
            calls,
            now=at,
            name=names[number % 4],
            due_at=NOW + number % 5 * HOUR,
            tags=tuple(tag for tag, every in (("a", 2), ("b", 3), ("ü", 5)) if number % every == 0),
            correlation_id=f"c{number % 3}",
        )
        if number % 6 == 1:
            call = steps.begin(calls, call)
        elif number % 6 in (2, 3):
            call = steps.run(calls, call, is_ok=number % 2 == 0)
        if number % 4 == 1:
            call = steps.applied(calls, make.amended(call, starred=True))
        stored.append(call)
    steps.applied(calls, *(make.submitted(tenant_id="other", tags=("a", "b"), correlation_id="c0") for _ in range(5)))
    return stored


def test_all_calls_once_the_newest_first(calls: CallStore, various: list[ServiceCall]) -> None:
    for limit in (1, 5, 23, 24, 100):
        assert listed(calls, limit=limit) == newest_first(various), limit


def test_nothing_in_an_empty_tenant(calls: CallStore, various: list[ServiceCall]) -> None:
    assert various
    assert listed(calls, tenant_id="empty") == []


def test_a_list_leaves_out_bodies_and_tells_their_length(calls: CallStore) -> None:
    call = steps.submit(calls, body_json='"' + "ü" * 50_000 + '"')

    (found,) = listed(calls)

    assert found.request.body_json is None
    assert found.request.body_bytes == call.request.body_bytes == 100_002


def expected(various: list[ServiceCall], wanted: CallFilter) -> list[ServiceCall]:
    """Return what the filter's words say."""
    found = [
        call
        for call in various
        if (wanted.status is None or call.status is wanted.status)
        and set(wanted.tags) <= set(call.tags)
        and (wanted.submitted_from is None or call.submitted_at >= wanted.submitted_from)
        and (wanted.submitted_to is None or call.submitted_at < wanted.submitted_to)
        and (wanted.due_to is None or call.due_at <= wanted.due_to)
        and (wanted.name_prefix is None or call.name.startswith(wanted.name_prefix))
        and (wanted.starred is None or call.starred is wanted.starred)
        and (wanted.correlation_id is None or call.correlation_id == wanted.correlation_id)
    ]
    ordered = newest_first(found)
    if wanted.order is CallOrder.DUE:
        return sorted(ordered, key=lambda call: (call.due_at, call.call_id))
    return ordered if wanted.name_prefix is None else sorted(ordered, key=lambda call: call.name)


FILTERS = [
    *(CallFilter(status=status) for status in CallStatus),
    CallFilter(tags=("a",)),
    CallFilter(tags=("b", "a")),
    CallFilter(tags=("a", "b", "ü")),
    CallFilter(tags=("none",)),
    CallFilter(starred=True),
    CallFilter(starred=False),
    CallFilter(correlation_id="c1"),
    CallFilter(correlation_id="c"),
    CallFilter(due_to=NOW + 2 * HOUR),
    CallFilter(name_prefix="rep"),
    CallFilter(name_prefix="report"),
    CallFilter(name_prefix="report/"),
    CallFilter(name_prefix="x"),
    CallFilter(name_prefix="%"),
    CallFilter(submitted_from=NOW - 5 * HOUR),
    CallFilter(submitted_to=NOW - 5 * HOUR),
    CallFilter(submitted_from=NOW - 9 * HOUR, submitted_to=NOW - 2 * HOUR),
    CallFilter(submitted_from=NOW - 5 * HOUR + seconds(0.001), submitted_to=NOW - 5 * HOUR),
    CallFilter(status=CallStatus.SCHEDULED, order=CallOrder.DUE),
    CallFilter(status=CallStatus.SCHEDULED, order=CallOrder.DUE, due_to=NOW + HOUR),
    CallFilter(status=CallStatus.SCHEDULED, order=CallOrder.DUE, name_prefix="rep", tags=("a",)),
    CallFilter(status=CallStatus.SCHEDULED, order=CallOrder.DUE, name_prefix="rep"),
]


def test_each_condition(calls: CallStore, various: list[ServiceCall]) -> None:
    """In one test, since to make the calls takes a server far longer than to list them."""
    for call_filter in FILTERS:
        assert listed(calls, call_filter) == expected(various, call_filter), call_filter


COMBINATIONS = [
    CallFilter(status=status, tags=tags, starred=starred, correlation_id=correlation_id, submitted_from=since)
    for status, tags, starred, correlation_id, since in product(
        (None, CallStatus.SCHEDULED), ((), ("a",)), (None, True), (None, "c0"), (None, NOW - 13 * HOUR)
    )
]


def test_conditions_together(calls: CallStore, various: list[ServiceCall]) -> None:
    by_name = [replace(each, name_prefix="report") for each in COMBINATIONS]
    by_due = [
        replace(each, status=CallStatus.SCHEDULED, order=CallOrder.DUE, due_to=due_to)
        for each in [*COMBINATIONS, *by_name]
        for due_to in (None, NOW + HOUR)
        if each.status is None
    ]
    for call_filter in [*COMBINATIONS, *by_name, *by_due]:
        assert listed(calls, call_filter, limit=10) == expected(various, call_filter), call_filter


def test_calls_of_one_instant_are_all_listed_by_due_time(calls: CallStore) -> None:
    stored = [steps.submit(calls, due_at=NOW) for _ in range(7)]

    found = listed(calls, CallFilter(status=CallStatus.SCHEDULED, order=CallOrder.DUE), limit=2)

    assert found == [without_body(call) for call in stored]


def test_calls_of_one_name_are_all_listed(calls: CallStore) -> None:
    stored = [steps.submit(calls, name=name) for name in ("b", "a", "a", "b", "a", "ab", "c")]

    found = listed(calls, CallFilter(name_prefix=""), limit=2)

    assert found == sorted(newest_first(stored), key=lambda call: call.name)


def test_names_are_compared_as_they_are_written(calls: CallStore) -> None:
    names = ["Report", "report", "repört", "rep_rt", "rep%", "rep\U0010ffff!", "REPORT"]
    for name in names:
        steps.submit(calls, name=name)

    for prefix in ("rep", "Rep", "rep_", "rep%", "repö", "rep\U0010ffff"):
        found = [call.name for call in listed(calls, CallFilter(name_prefix=prefix))]
        assert found == sorted(name for name in names if name.startswith(prefix))


def test_what_changes_moves_to_its_new_list(calls: CallStore) -> None:
    call = steps.submit(calls, tags=("a", "b"), name="old", due_at=NOW + HOUR)
    changed = steps.applied(
        calls, make.amended(call, tags=("b", "c"), name="new", starred=True, due_at=NOW + 2 * HOUR)
    )

    def finds(**conditions: object) -> bool:
        found = listed(calls, CallFilter(**conditions))  # type: ignore[arg-type]
        assert found in ([], [without_body(changed)])
        return bool(found)

    assert [finds(tags=(tag,)) for tag in "abc"] == [False, True, True]
    assert [finds(name_prefix=name) for name in ("old", "new")] == [False, True]
    assert [finds(starred=starred) for starred in (False, True)] == [False, True]
    by_due = {"status": CallStatus.SCHEDULED, "order": CallOrder.DUE}
    assert [finds(**by_due, due_to=NOW + hours * HOUR) for hours in (1, 2)] == [False, True]

    steps.applied(calls, make.amended(changed, starred=False, tags=()))
    for conditions in (CallFilter(starred=True), CallFilter(tags=("b",))):
        assert listed(calls, conditions) == []


def test_writes_between_pages_of_calls_do_not_disturb_the_rest(calls: CallStore) -> None:
    stored = [steps.submit(calls) for _ in range(10)]
    page = calls.list(make.TENANT, EVERYTHING, cursor=None, limit=4, now=NOW)
    steps.submit(calls)
    calls.delete(make.TENANT, stored[6].call_id, now=NOW)  # the last of the page
    calls.delete(make.TENANT, stored[3].call_id, now=NOW)
    steps.run(calls, stored[2])

    rest = read_all(
        lambda cursor: calls.list(make.TENANT, EVERYTHING, cursor=cursor or page.next_cursor, limit=4, now=NOW)
    )

    seen = [call.call_id for call in [*page.items, *rest]]
    assert seen == [stored[index].call_id for index in (9, 8, 7, 6, 5, 4, 2, 1, 0)]


def test_an_expired_call_is_in_no_list(calls: CallStore) -> None:
    ended = [steps.run(calls, steps.submit(calls, name="n", tags=("a",))) for _ in range(5)]
    kept = steps.applied(calls, make.amended(ended[2], starred=True))

    for call_filter in (EVERYTHING, CallFilter(tags=("a",)), CallFilter(name_prefix="n"), CallFilter(starred=True)):
        found = read_all(
            lambda cursor, wanted=call_filter: calls.list(  # type: ignore[misc]
                make.TENANT, wanted, cursor=cursor, limit=2, now=NOW + make.RETENTION
            )
        )
        assert found == [without_body(kept)]


CURSOR_FILTERS = [
    EVERYTHING,
    CallFilter(tags=("a",)),
    CallFilter(name_prefix="rep"),
    CallFilter(status=CallStatus.SCHEDULED, order=CallOrder.DUE),
]


def test_a_cursor_belongs_to_its_query(calls: CallStore, various: list[ServiceCall]) -> None:
    assert various
    for call_filter in CURSOR_FILTERS:
        cursor = calls.list(make.TENANT, call_filter, cursor=None, limit=2, now=NOW).next_cursor
        assert cursor is not None

        others = [("other", call_filter), *((make.TENANT, each) for each in CURSOR_FILTERS if each != call_filter)]
        for tenant_id, other in others:
            with pytest.raises(InvalidCursor):
                calls.list(tenant_id, other, cursor=cursor, limit=2, now=NOW)
        for broken in ("", "x", cursor[:-1], cursor[1:], cursor + "x", "[]", "ü"):
            with pytest.raises(InvalidCursor):
                calls.list(make.TENANT, call_filter, cursor=broken, limit=2, now=NOW)


# -- executions ---------------------------------------------------------------------------------------------------


def test_executions_are_listed_the_newest_first(calls: CallStore) -> None:
    call = steps.submit(calls, retry_policy_json=make.RETRIED)
    ended = []
    for attempt in range(3):
        call = steps.begin(calls, call, now=NOW + attempt * HOUR)
        execution_id = call.execution_id
        call = steps.conclude(calls, call, is_ok=False, now=NOW + attempt * HOUR)
        ended.append(calls.get_execution(make.TENANT, call.call_id, execution_id or ""))
    assert call.status is CallStatus.FAILED

    for limit in (1, 2, 3, 10):
        found = read_all(
            lambda cursor, limit=limit: calls.list_executions(  # type: ignore[misc]
                make.TENANT, call.call_id, cursor=cursor, limit=limit
            )
        )
        assert found == list(reversed(ended))
    assert calls.list_executions(make.TENANT, make.id_at(NOW), cursor=None, limit=5) == Page([])


def test_executions_are_listed_without_their_bodies(calls: CallStore) -> None:
    call = steps.submit(calls, retry_policy_json=make.RETRIED)
    steps.begin(calls, steps.run(calls, call, is_ok=False), now=NOW + HOUR)
    whole = calls.list_executions(make.TENANT, call.call_id, cursor=None, limit=5).items
    assert [(each.request.body, each.response and each.response.body) for each in whole] == [
        (make.SENT.body, None),
        (make.SENT.body, make.ANSWER.body),
    ]

    bare = calls.list_executions(make.TENANT, call.call_id, cursor=None, limit=5, with_bodies=False).items

    assert bare == [
        replace(
            each,
            request=replace(each.request, body=None),
            response=each.response and replace(each.response, body=None),
        )
        for each in whole
    ]


def test_a_cursor_of_executions_belongs_to_its_call(calls: CallStore) -> None:
    first, second = (steps.submit(calls, retry_policy_json=make.RETRIED) for _ in range(2))
    for call in (first, second):
        once = steps.run(calls, call, is_ok=False)
        steps.run(calls, once, is_ok=False, now=NOW + HOUR)
    cursor = calls.list_executions(make.TENANT, first.call_id, cursor=None, limit=1).next_cursor
    assert cursor is not None

    for tenant_id, call_id in ((make.TENANT, second.call_id), ("other", first.call_id)):
        with pytest.raises(InvalidCursor):
            calls.list_executions(tenant_id, call_id, cursor=cursor, limit=1)


def test_names_that_differ_by_blanks_at_the_end_differ(calls: CallStore) -> None:
    bare = steps.submit(calls, name="n", tags=("t", "t "), correlation_id="c")
    blank = steps.submit(calls, name="n ", tags=("t ",), correlation_id="c ")

    assert listed(calls, CallFilter(tags=("t",))) == [without_body(bare)]
    assert listed(calls, CallFilter(tags=("t ",))) == newest_first([bare, blank])
    assert listed(calls, CallFilter(correlation_id="c ")) == [without_body(blank)]
    assert listed(calls, CallFilter(name_prefix="n ")) == [without_body(blank)]
