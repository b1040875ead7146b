from __future__ import annotations

from duetime.domain.call_events import CallEventType
from scripts.write_events import ABOUT, PAGE, SAMPLE, examples, render_page, render_sample


def test_the_page_shows_what_the_code_makes() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert page == render_page(page), "run: python -m scripts.write_events"


def test_the_sample_is_what_the_code_makes() -> None:
    assert SAMPLE.read_text(encoding="utf-8") == render_sample(), "run: python -m scripts.write_events"


def test_every_type_is_shown() -> None:
    assert examples().keys() == ABOUT.keys() == set(CallEventType)


def test_no_example_has_the_query_of_a_url() -> None:
    assert "secret" not in "".join(event.to_json() for event in examples().values())
