from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duetime.api.http.cursors import CursorCodec
from duetime.domain.errors import InvalidCursor
from duetime.domain.principals import Principal, Role

QUERY = ("timers", "orders", None)
ACME = Principal("acme", Role.WRITER, "k1")
ANY_TEXT = st.text(alphabet=st.characters(exclude_categories=["Cs"]))


class Secrets:
    """The one operation of a store that cursors need."""

    def __init__(self) -> None:
        self.kept: dict[str, bytes] = {}
        self.calls = 0

    def secret(self, name: str, candidate: bytes) -> bytes:
        self.calls += 1
        return self.kept.setdefault(name, candidate)


def codec(secrets: Secrets | None = None) -> CursorCodec:
    return CursorCodec(secrets or Secrets())  # type: ignore[arg-type]


def token(cursor: str = "orders|t1") -> tuple[CursorCodec, str]:
    made = codec()
    encoded = made.encode(cursor, QUERY, None)
    assert encoded is not None
    return made, encoded


@given(ANY_TEXT)
def test_a_token_leads_back_to_its_cursor(cursor: str) -> None:
    made, encoded = token(cursor)
    assert made.decode(encoded, QUERY, None) == cursor
    assert encoded.replace("-", "").replace("_", "").isalnum()


def test_no_cursor_is_no_token() -> None:
    assert codec().encode(None, QUERY, None) is None
    assert codec().decode(None, QUERY, None) is None


def test_processes_share_the_key_and_ask_for_it_once() -> None:
    secrets = Secrets()
    one, other = codec(secrets), codec(secrets)
    for number in range(3):
        assert other.decode(one.encode(str(number), QUERY, None), QUERY, None) == str(number)
    assert secrets.calls == 2


@pytest.mark.parametrize("query", [("timers", "orders", "Fired"), ("timers", "other", None), ("shards",), ()])
def test_another_query_is_refused(query: tuple[object, ...]) -> None:
    made, encoded = token()
    with pytest.raises(InvalidCursor):
        made.decode(encoded, query, None)


@pytest.mark.parametrize(
    "principal", [None, Principal("globex", Role.ADMIN, "k2"), Principal("acme.", Role.READER, "k")]
)
def test_another_tenant_is_refused(principal: Principal | None) -> None:
    made = codec()
    encoded = made.encode("orders|t1", QUERY, ACME)

    with pytest.raises(InvalidCursor):
        made.decode(encoded, QUERY, principal)
    assert made.decode(encoded, QUERY, Principal("acme", Role.READER, "another key")) == "orders|t1"


def test_another_store_is_refused() -> None:
    _, encoded = token()
    with pytest.raises(InvalidCursor):
        codec().decode(encoded, QUERY, None)


@pytest.mark.parametrize("cursor", ["orders|t1", "orders|t12", "orders|t123"])
def test_any_change_is_refused(cursor: str) -> None:
    made, encoded = token(cursor)
    for index, character in enumerate(encoded):
        changed = encoded[:index] + ("A" if character != "A" else "B") + encoded[index + 1 :]
        with pytest.raises(InvalidCursor):
            made.decode(changed, QUERY, None)
    with pytest.raises(InvalidCursor):
        made.decode(encoded + "=" * (-len(encoded) % 4 or 4), QUERY, None)


@given(ANY_TEXT)
def test_nonsense_is_refused(text: str) -> None:
    with pytest.raises(InvalidCursor):
        codec().decode(text, QUERY, None)
