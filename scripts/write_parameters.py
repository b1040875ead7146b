"""Writes the settings of the Lambda functions as parameters of template.yaml, and their table in docs/deploy-aws.md:
``python -m scripts.write_parameters``. A test compares both with the settings models.

The setting ``lease_seconds`` is the variable ``DUETIME_LEASE_SECONDS`` and the parameter ``LeaseSeconds``.
"""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

from pydantic.fields import FieldInfo

from duetime.cli.options import has_no_default, shown_default
from duetime.runtime.metrics import camel_case
from duetime.runtime.settings import (
    OutboxSettings,
    PollerSettings,
    ServiceCallsApiSettings,
    TimersApiSettings,
)
from duetime.runtime.tuning import Settings

ROOT = Path(__file__).resolve().parent.parent
TEMPLATE = ROOT / "template.yaml"
DOCS = ROOT / "docs" / "deploy-aws.md"

FUNCTIONS: dict[str, type[Settings]] = {
    "TimersApi": TimersApiSettings,
    "ServiceCallsApi": ServiceCallsApiSettings,
    "Poller": PollerSettings,
    "Outbox": OutboxSettings,
}
BY_HAND = {
    "allowed_targets",
    "default_num_shards",
    "egress_allow_cidrs",
    "egress_allow_hosts",
    "egress_https_only",
    "event_bus",
    "event_publishers",
    "log_level",
    "shards_per_poller",
    "sleep",
    "stage",
}
"""Parameters with words of their own in the template."""
NO_PARAMETERS = {
    "store": "made of the tables",
    "kms_key_id": "the stack's key",
    "poller_function": "the stack's own, if Sleep is auto",
    "public_url": "the API's own, unless PublicUrl has another",
    "log_format": "JSON, which Logs Insights reads",
    "egress_allow_loopback": "nobody listens beside a function",
    "deadline_margin_seconds": "belongs to the end of a life that Lambda allows",
    "sweep_after_seconds": "belongs to the schedule's minute",
}
"""Settings that the template decides, and why."""


def parameter(field: str) -> str:
    """Name the parameter of a setting: ``lease_seconds`` -> ``LeaseSeconds``."""
    return camel_case(field)


def written() -> dict[str, FieldInfo]:
    """Return the settings that become parameters here, in the order of their models."""
    fields = {name: field for model in FUNCTIONS.values() for name, field in model.model_fields.items()}
    poller_first = {**PollerSettings.model_fields, **fields}
    return {name: poller_first[name] for name in poller_first if name not in BY_HAND and name not in NO_PARAMETERS}


def properties(field: FieldInfo) -> dict[str, Any]:
    """Return the parameter of a setting. Numbers have their bounds; what has no default, or a long one, may stay
    empty."""
    kinds = set(get_args(field.annotation)) or {field.annotation}
    if bool in kinds:
        found: dict[str, Any] = {
            "Type": "String",
            "Default": shown_default(field),
            "AllowedValues": ["true", "false"],
        }
    elif str in kinds:
        found = {"Type": "String", "Default": ""}
    elif has_no_default(field):
        found = {"Type": "String", "Default": "", "AllowedPattern": "(|[0-9]+)"}
    else:
        found = {"Type": "Number", "Default": _number(field.default)}
        for bound, name in (("ge", "MinValue"), ("le", "MaxValue")):
            limits = [value for each in field.metadata if (value := getattr(each, bound, None)) is not None]
            found |= {name: _number(limits[0])} if limits else {}
    assert field.description is not None
    return found | {"Description": field.description}


def _number(value: float) -> float | int:
    return int(value) if float(value).is_integer() else value


def template_lines() -> str:
    return "".join(line for name, field in written().items() for line in _yaml(parameter(name), properties(field)))


def _yaml(name: str, found: dict[str, Any]) -> Iterator[str]:
    yield f"  {name}:\n"
    for key, value in found.items():
        if key == "Description":
            yield "    Description: >-\n"
            yield textwrap.indent(textwrap.fill(value, 114, break_on_hyphens=False), "      ") + "\n"
        else:
            yield f"    {key}: {value if key == 'Type' else json.dumps(value)}\n"


def docs_lines() -> str:
    rows = [f"| `{parameter(name)}` | {_shown(field)} | {field.description} |\n" for name, field in written().items()]
    return "\n| parameter | default | meaning |\n|---|---|---|\n" + "".join(rows) + "\n"


def _shown(field: FieldInfo) -> str:
    return "none" if has_no_default(field) else f"`{shown_default(field)}`"


MARKS = {
    TEMPLATE: ("  # -- settings: made by `python -m scripts.write_parameters`\n", "  # -- end of the settings\n"),
    DOCS: ("<!-- made by `python -m scripts.write_parameters` -->\n", "<!-- end -->\n"),
}


def render(path: Path) -> str:
    """Render the text of ``path`` with the part between its marks made anew."""
    begin, end = MARKS[path]
    before, _, rest = path.read_text(encoding="utf-8").partition(begin)
    _, _, after = rest.partition(end)
    return before + begin + (template_lines() if path == TEMPLATE else docs_lines()) + end + after


if __name__ == "__main__":
    for target in MARKS:
        target.write_text(render(target), encoding="utf-8")
