from __future__ import annotations

import pytest

from duetime.api.http.preconditions import EntityTags, etag, if_match, if_none_match
from duetime.api.http.request import Request
from duetime.domain.errors import InvalidInput


def tags(value: str) -> EntityTags:
    found = if_match(Request("GET", "/", "", {"if-match": value}, "r1", "", False))
    assert found is not None
    return found


def test_no_header_is_no_condition() -> None:
    request = Request("GET", "/", "", {}, "r1", "", False)
    assert if_match(request) is None
    assert if_none_match(request) is None


def test_the_tag_of_a_revision_matches_it() -> None:
    found = tags(etag(7))
    assert found.match_strongly(7)
    assert not found.match_strongly(77)
    assert found.single_revision() == 7


def test_a_list_matches_each_of_its_tags() -> None:
    found = tags('"1" , "2","x,y"')
    assert [revision for revision in range(5) if found.match_strongly(revision)] == [1, 2]
    assert found.single_revision() is None


def test_a_star_matches_everything() -> None:
    assert tags(" * ").match_strongly(9)
    assert tags("*").single_revision() is None


def test_a_weak_tag_matches_weakly_only() -> None:
    found = tags('W/"3"')
    assert found.match_weakly(3)
    assert not found.match_strongly(3)
    assert found.single_revision() is None


@pytest.mark.parametrize("value", ['"03"', '"0"', '"abc"', '""', '"1' + "0" * 30 + '"'])
def test_a_tag_that_is_no_revision_matches_none(value: str) -> None:
    assert tags(value).single_revision() is None
    assert not any(tags(value).match_weakly(revision) for revision in range(1, 20))


@pytest.mark.parametrize("value", ["", "3", '"3', '3"', '"3""4"', '"3",', ',"3"', 'w/"3"', '"3" x', '*, "3"', '"\n"'])
def test_anything_else_is_malformed(value: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        tags(value)
    assert caught.value.field == "If-Match"
