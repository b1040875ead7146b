from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from duetime.api.http.raw_json import RawObject, Shape, decode_unique, has_lone_surrogate, read_object
from tests.support.json_text import json_texts

SHAPE = Shape(opaque=frozenset({"payload", "headers"}), items="timers")


def read(text: str) -> RawObject:
    return read_object(text, SHAPE)


@given(json_texts(), st.text(alphabet=" \t\r\n", max_size=3))
def test_an_opaque_value_is_cut_out_as_it_was(text: str, space: str) -> None:
    found = read(f'{{{space}"a":1,{space}"payload"{space}:{space}{text}{space},"z":[]{space}}}{space}')
    assert found.members == {"a": 1, "payload": None if text == "null" else text, "z": []}


@given(json_texts().filter(lambda text: "9" * 400 not in text))
def test_a_plain_value_is_decoded(text: str) -> None:
    found = read(f'{{"a":{text},"b" : {text} }}')
    assert found.members == {"a": json.loads(text), "b": json.loads(text)}


@given(st.lists(json_texts(), max_size=4))
def test_every_item_of_a_batch_keeps_its_own(texts: list[str]) -> None:
    found = read('{"timers": [' + " , ".join(f'{{"payload":{text}}}' for text in texts) + "]}")
    kept = [item.members["payload"] for item in found.members["timers"]]
    assert ["null" if payload is None else payload for payload in kept] == texts


@given(json_texts(), st.data())
@example('{"a":1}', None)
def test_what_is_not_json_is_refused_and_what_is_json_is_taken(text: str, data: st.DataObject | None) -> None:
    body = f'{{"payload":{text}}}'
    if data is not None:
        where = data.draw(st.integers(0, len(body) - 1))
        body = (
            body[:where]
            + data.draw(st.sampled_from(["", ",", "}", '"', "\\", "0", "\x01", "N", ":"]))
            + body[where + 1 :]
        )
    try:
        expected = json.loads(body, parse_int=str, parse_constant=_refuse)
    except ValueError:
        expected = None
    if isinstance(expected, dict):
        assert set(read(body).members) == set(expected)
    else:
        with pytest.raises(ValueError, match=r"."):
            read(body)


def _refuse(name: str) -> Any:
    raise ValueError(name)


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "{",
        "{}{}",
        "[]",
        "null",
        "3",
        '{"payload":}',
        '{"payload":1,}',
        '{"payload" 1}',
        "{payload:1}",
        "{'payload':1}",
        '{"payload":NaN}',
        '{"payload":[Infinity]}',
        '{"payload":{"a":-Infinity}}',
        '{"a":NaN}',
        '{"headers":{"a":NaN}}',
        '{"payload":"\x01"}',
        '{"payload":"\\x"}',
        '{"payload":01}',
        '{"payload":1.}',
        '{"payload":+1}',
        '{"payload":1]',
        '{"timers":[1,]}',
        '{"timers":[1}',
        '\ufeff{"payload":1}',
        '{"payload":' + "[" * 100_000 + "]" * 100_000 + "}",
        '{"a":' + "[" * 100_000 + "]" * 100_000 + "}",
    ],
)
def test_broken_json_is_a_value_error(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        read(text)


@pytest.mark.parametrize("digits", ["9" * 5000, "-" + "1" * 4301])
def test_a_plain_integer_of_absurd_length_is_a_number_still(digits: str) -> None:
    assert isinstance(read(f'{{"a":{digits}}}').members["a"], float)


def test_null_is_none_whatever_the_member() -> None:
    assert read('{"payload":null,"headers": null ,"timers":null,"a":null}').members == dict.fromkeys(
        ["payload", "headers", "timers", "a"]
    )
    for text in ('{"payload":nullx}', '{"payload":null1}', '{"payload":nul}', '{"headers":null"a":1}'):
        with pytest.raises(ValueError, match=r"."):
            read(text)


def test_names_may_be_escaped() -> None:
    assert read('{"pay\\u006coad": 1.0}').members == {"payload": "1.0"}


def test_an_object_with_a_name_twice_can_be_told() -> None:
    assert decode_unique('{ "a" : {"a": 1.50} }') == {"a": {"a": 1.5}}
    with pytest.raises(ValueError, match="has the name 'b' twice"):
        decode_unique('{"a":{"c":0,"b":1,"b":2}}')


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ('{"a":1,"a":1}', "a"),
        ('{"payload":1,"pay\\u006coad":1}', "payload"),
        ('{"a":"\\ud800"}', "a"),
        ('{"payload":["\\udc00\\ud800"]}', "payload"),
        ('{"headers":{"x":"\\uD800"}}', "headers"),
        ('{"\\ud800":1}', "\\ud800"),
    ],
)
def test_json_that_cannot_be_taken_is_a_fault_of_its_member(text: str, name: str) -> None:
    assert [fault[0] for fault in read(text).faults] == [name]


def test_a_fault_in_one_item_leaves_the_others_alone() -> None:
    items = read('{"timers":[{"a":"\\ud800"},{"a":"\\ud83d\\ude00"},7]}').members["timers"]
    assert [len(item.faults) for item in items[:2]] == [1, 0]
    assert items[2] == 7


def test_an_object_of_its_own_shape_is_read_by_it() -> None:
    shape = Shape(objects={"request": Shape(opaque=frozenset({"body"}))})
    inner = read_object('{"a":1,"request": {"url":"x","body": [1.0, {}]}, "body": 1.5}', shape)
    assert inner.members == {
        "a": 1,
        "request": RawObject({"url": "x", "body": "[1.0, {}]"}, []),
        "body": 1.5,
    }
    assert read_object('{"request": "no object"}', shape).members == {"request": "no object"}


def test_the_faults_of_an_object_inside_are_its_own() -> None:
    shape = Shape(objects={"request": Shape(opaque=frozenset({"body"}))})
    found = read_object('{"request":{"url":1,"url":2,"body":"\\ud800"}}', shape)
    assert found.faults == []
    assert [name for name, _ in found.members["request"].faults] == ["url", "body"]
    text = read_object('{"request":"\\ud800"}', shape)
    assert [name for name, _ in text.faults] == ["request"]


@given(st.lists(st.sampled_from(["\\ud83d", "\\uDE00", "\\\\", "\\n", "a", "ud83d", "é", "\\u0041"]), max_size=8))
def test_lone_surrogates_are_what_has_no_utf8(parts: list[str]) -> None:
    text = f'"{"".join(parts)}"'
    try:
        json.loads(text).encode()
    except UnicodeEncodeError:
        assert has_lone_surrogate(text)
    else:
        assert not has_lone_surrogate(text)
