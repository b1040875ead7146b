from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duetime.api.http.cursors import Cursors
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


def cursors(secrets: Secrets | None = None) -> Cursors:
    return Cursors(secrets or Secrets())  # type: ignore[arg-type]


def token(cursor: str = "orders|t1") -> tuple[Cursors, str]:
    made = cursors()
    encoded = made.of(None, *QUERY).encode(cursor)
    assert encoded is not None
    return made, encoded


@given(ANY_TEXT)
def test_a_token_leads_back_to_its_cursor(cursor: str) -> None:
    made, encoded = token(cursor)
    assert made.of(None, *QUERY).decode(encoded) == cursor
    assert encoded.replace("-", "").replace("_", "").isalnum()


def test_no_cursor_is_no_token() -> None:
    assert cursors().of(None, *QUERY).encode(None) is None
    assert cursors().of(None, *QUERY).decode(None) is None


def test_processes_share_the_key_and_ask_for_it_once() -> None:
    secrets = Secrets()
    one, other = cursors(secrets), cursors(secrets)
    for number in range(3):
        assert other.of(None, *QUERY).decode(one.of(None, *QUERY).encode(str(number))) == str(number)
    assert secrets.calls == 2


@pytest.mark.parametrize("query", [("timers", "orders", "Fired"), ("timers", "other", None), ("shards",), ()])
def test_another_query_is_refused(query: tuple[object, ...]) -> None:
    made, encoded = token()
    with pytest.raises(InvalidCursor):
        made.of(None, *query).decode(encoded)


@pytest.mark.parametrize(
    "principal", [None, Principal("globex", Role.ADMIN, "k2"), Principal("acme.", Role.READER, "k")]
)
def test_another_tenant_is_refused(principal: Principal | None) -> None:
    made = cursors()
    encoded = made.of(ACME, *QUERY).encode("orders|t1")

    with pytest.raises(InvalidCursor):
        made.of(principal, *QUERY).decode(encoded)
    assert made.of(Principal("acme", Role.READER, "another key"), *QUERY).decode(encoded) == "orders|t1"


def test_another_store_is_refused() -> None:
    _, encoded = token()
    with pytest.raises(InvalidCursor):
        cursors().of(None, *QUERY).decode(encoded)


@pytest.mark.parametrize("cursor", ["orders|t1", "orders|t12", "orders|t123"])
def test_any_change_is_refused(cursor: str) -> None:
    made, encoded = token(cursor)
    for index, character in enumerate(encoded):
        changed = encoded[:index] + ("A" if character != "A" else "B") + encoded[index + 1 :]
        with pytest.raises(InvalidCursor):
            made.of(None, *QUERY).decode(changed)
    with pytest.raises(InvalidCursor):
        made.of(None, *QUERY).decode(encoded + "=" * (-len(encoded) % 4 or 4))


@given(ANY_TEXT)
def test_nonsense_is_refused(text: str) -> None:
    with pytest.raises(InvalidCursor):
        cursors().of(None, *QUERY).decode(text)
