"""The schemas of the document: those of the models, in the form that tools make good types of."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec
from pydantic.json_schema import models_json_schema

from duetime.api.documents.glossary import GLOSSARY
from duetime.api.http.request_models import COMPONENT, RequestModel
from duetime.api.http.responses import ResponseModel

Json = dict[str, Any]
References = dict[str, Json]
"""References into the components, by the name of the model."""

REFERENCE: Final = "#/components/schemas/{name}"
_PYTHON_TYPES: Final[dict[str, tuple[type, ...]]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "array": (list,),
    "object": (dict,),
}


def schemas_of(
    requests: Sequence[type[RequestModel]], responses: Sequence[type[ResponseModel]]
) -> tuple[References, Json]:
    """Return references to the models, and the definitions of them and of all that they refer to."""
    of_requests, whole = models_json_schema(
        [(model, "validation") for model in requests],
        by_alias=True,
        ref_template=REFERENCE.format(name="{model}"),
    )
    of_responses, components = msgspec.json.schema_components(responses, ref_template=REFERENCE)
    components |= whole["$defs"]
    for name in list(components):
        has_own = "examples" in components[name]
        for member, schema in components[name].get("properties", {}).items():
            _finish(member, schema, components, has_examples=not has_own)
    references = {model.__name__: of_requests[model, "validation"] for model in requests}
    return references | {
        model.__name__: reference for model, reference in zip(responses, of_responses, strict=True)
    }, components


def parameter_schema(name: str, schema: Json, definitions: Json) -> Json:
    """Return the schema of a parameter, which is never null, without references."""
    alternatives = [one for one in schema.get("anyOf", []) if one != {"type": "null"}]
    if len(alternatives) == 1:
        rest = {key: value for key, value in schema.items() if key not in ("anyOf", "default")}
        schema = rest | alternatives[0]
    reference = schema.pop("$ref", None)
    if reference is not None:
        inlined = definitions[reference.rpartition("/")[2]]
        schema |= {key: value for key, value in inlined.items() if key not in ("title", "description")}
    schema.pop("title", None)
    _explain(name, schema)
    return schema


def _finish(member: str, schema: Json, components: Json, *, has_examples: bool) -> None:
    """Give the schema of a member its words, and take from it what tools misread.

    A default would make the member a required one in generated types, so it is said in words.
    """
    schema.pop("title", None)
    default = schema.pop("default", None)
    _explain(member, schema, has_examples=has_examples)
    if default is not None:
        schema["description"] += f"; {json.dumps(default)} when it is omitted"
    for inner in _inline(schema):
        name = inner.pop(COMPONENT, None)
        if name is None:
            continue
        definition = dict(inner)
        inner.clear()
        inner["$ref"] = REFERENCE.format(name=name)
        if name not in components:
            components[name] = definition
            for each, of_each in definition["properties"].items():
                _finish(each, of_each, components, has_examples=True)


def _inline(schema: Any) -> Iterator[Json]:
    if isinstance(schema, dict):
        yield schema
        for value in list(schema.values()):
            yield from _inline(value)
    elif isinstance(schema, list):
        for value in schema:
            yield from _inline(value)


def _explain(name: str, schema: Json, *, has_examples: bool = True) -> None:
    description, example = GLOSSARY.get(name, ("", None))
    if not schema.get("description"):
        schema["description"] = description
    if has_examples and example is not None and not _has_examples(schema) and _fits(example, schema):
        schema["examples"] = [example]


def _has_examples(schema: Json) -> bool:
    return "examples" in schema or any("examples" in one for one in schema.get("anyOf", ()))


def _fits(example: Any, schema: Json) -> bool:
    """Tell whether ``example`` is a value of ``schema``, as far as schemas of members go."""
    for one in schema.get("anyOf", [schema]):
        if "enum" in one or "const" in one or "$ref" in one:
            continue
        kinds = one.get("type", list(_PYTHON_TYPES))
        if any(
            isinstance(example, _PYTHON_TYPES.get(kind, ()))
            for kind in ([kinds] if isinstance(kinds, str) else kinds)
        ):
            return re.search(one.get("pattern", ""), str(example)) is not None
    return False
