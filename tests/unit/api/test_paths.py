from __future__ import annotations

from urllib.parse import unquote

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from duetime.api.http.router import read_id, routable
from duetime.domain.errors import InvalidInput
from duetime.domain.ids import item_path

IDS = st.text(
    alphabet=st.characters(exclude_categories=["Cs", "Cc"], exclude_characters="/"), min_size=1, max_size=40
)


@given(IDS)
@example("a?b")
@example("100%")
@example("%2541")
@example("base64url:abc")
@example("..")
@example("a+b")
@example("🙂 #1")
def test_the_path_of_a_timer_leads_back_to_it(timer_id: str) -> None:
    path = item_path("orders", "timers", timer_id)
    prefix, _, segment = path.rpartition("/")
    assert prefix == "/v1/namespaces/orders/timers"
    assert segment.isascii()
    assert segment not in (".", "..")
    assert read_id(unquote(segment)) == timer_id


@given(IDS)
def test_the_path_survives_a_gateway_that_decodes_twice_and_cuts_at_a_question_mark(timer_id: str) -> None:
    segment = item_path("orders", "timers", timer_id).rpartition("/")[2]
    assert read_id(unquote(unquote(segment).partition("?")[0])) == timer_id


@given(IDS)
def test_every_id_is_one_segment_of_a_routable_path(timer_id: str) -> None:
    path = routable(f"/v1/namespaces/orders/timers/{timer_id}")
    assert path.count("/") == 5
    assert unquote(path.rpartition("/")[2]) == timer_id


def test_a_slash_after_timers_is_part_of_the_id() -> None:
    assert routable("/v1/namespaces/orders/timers/a/b") == "/v1/namespaces/orders/timers/a%2Fb"
    assert routable("/v1/namespaces/orders/timers/a/attempts/b") == "/v1/namespaces/orders/timers/a%2Fattempts%2Fb"
    assert routable("/v1/namespaces/orders/schedules/a/b/pause") == "/v1/namespaces/orders/schedules/a%2Fb/pause"
    assert routable("/v1/namespaces/or ders") == "/v1/namespaces/or%20ders"
    assert routable("/v1/namespaces/orders/timers/") == "/v1/namespaces/orders/timers/"


@given(IDS, st.sampled_from(["attempts", "fire", "redrive"]))
@example("attempts", "attempts")
def test_what_a_timer_has_is_a_segment_of_its_own(timer_id: str, name: str) -> None:
    prefix, _, last = routable(f"/v1/namespaces/orders/timers/{timer_id}/{name}").rpartition("/")
    assert last == name
    assert prefix == routable(f"/v1/namespaces/orders/timers/{timer_id}")


@pytest.mark.parametrize("segment", ["base64url:####", "base64url:_w", "base64url:é", "base64url:a"])
def test_a_broken_safe_spelling_is_refused(segment: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        read_id(segment)
    assert caught.value.field == "id"
