from __future__ import annotations

from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from duetime.api.http.validation_messages import message_of


class Inner(BaseModel):
    value: int = 1


class Model(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    needed: int = 1
    number: float = 1.0
    text: str = ""
    flag: bool = False
    items: Annotated[list[str], Field(max_length=2)] = []
    inner: Inner | None = None
    choice: Literal["a", "b"] = "a"
    short: Annotated[str, Field(min_length=1, max_length=3)] = "ab"
    lenient: Annotated[int, Field(strict=False)] = 1


class Needs(BaseModel):
    needed: int


@pytest.mark.parametrize(
    ("model", "given", "message"),
    [
        (Needs, {}, "is required"),
        (Model, {"other": 1}, "is not a known field"),
        (Model, {"needed": 1.5}, "must be a whole number"),
        (Model, {"needed": "x"}, "must be a whole number"),
        (Needs, {"needed": "x"}, "must be a whole number"),
        (Needs, {"needed": 1.5}, "must be a whole number"),
        (Model, {"number": "x"}, "must be a number"),
        (Model, {"text": None}, "must be a string"),
        (Model, {"flag": 1}, "must be true or false"),
        (Model, {"items": "a"}, "must be an array"),
        (Model, {"items": ["a", "b", "c"]}, "must have at most 2 items"),
        (Model, {"inner": 5}, "must be an object"),
        (Model, {"choice": "c"}, "must be 'a' or 'b'"),
        (Model, {"short": ""}, "must not be empty"),
        (Model, {"short": "abcd"}, "must have at most 3 characters"),
        (Model, {"lenient": "9" * 5000}, "must be a whole number"),
    ],
)
def test_messages_speak_of_json(model: type[BaseModel], given: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError) as caught:
        model.model_validate(given)
    (detail,) = caught.value.errors()
    assert message_of(detail) == message
