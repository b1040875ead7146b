"""Writes docs/configuration.md from the settings models: ``python -m scripts.write_configuration``."""

from __future__ import annotations

from pathlib import Path

from pydantic.fields import FieldInfo

from duetime.cli.options import has_no_default, shown_default
from duetime.runtime.settings import (
    ClientSettings,
    DirectSettings,
    LocalSettings,
    OutboxSettings,
    PollerSettings,
    ServiceCallsApiSettings,
    TimersApiSettings,
    WorkerSettings,
    variable,
)
from duetime.runtime.tuning import LocalKeySettings, Settings, StoreSettings

TARGET = Path(__file__).parent.parent / "docs" / "configuration.md"

HEAD = """\
# Configuration

Made from the settings models by `python -m scripts.write_configuration`; a test compares it with them.

Every setting is an environment variable and, for the `duetime` command, an option: `DUETIME_LEASE_SECONDS` is
`--lease-seconds`. An option overrides the variable, the variable overrides the file `duetime.toml`, and that the
default. An empty variable counts as absent. A switch alone (`--auth`) means `true`. An invalid value ends the command
with exit code 2 and one line that names the variable or option, never the value. A variable that begins with
`DUETIME_` and that nothing reads causes a warning. Durations are numbers of seconds. On AWS most settings of the
functions are [parameters of the template](deploy-aws.md#parameters): `LeaseSeconds` is `DUETIME_LEASE_SECONDS`.

`duetime.toml` in the working directory has settings under the names of their options, with `_`:

```toml
store = "postgresql://duetime@db.example/duetime"
auth = true
lease_seconds = 15
```

All commands that use a store read it, and no command that calls a server: its API key must not go where a file of
somebody else's directory says. What is no setting is an error.

Store URLs:

- `sqlite:///data/duetime.db` (relative to the working directory), `sqlite:////var/lib/duetime.db` (absolute),
  `sqlite://` (in memory: gone when the process ends, and for one process only)
- `dynamodb://<table>`, with `?region=...` and, for an emulator, `endpoint_url=http://...`. Credentials come from
  the AWS SDK's usual places.
- Others, and how far each store is tested: [stores](stores.md).
"""

SECTIONS: tuple[tuple[str, type[Settings]], ...] = (
    ("`duetime serve`", LocalSettings),
    ("`duetime worker`", WorkerSettings),
    ("`duetime init` and `export`", StoreSettings),
    ("`duetime import`", LocalKeySettings),
    ("Commands that call a server", ClientSettings),
    ("The same commands with `--store`", DirectSettings),
    ("Timers API on Lambda", TimersApiSettings),
    ("API of service calls on Lambda", ServiceCallsApiSettings),
    ("Poller on Lambda", PollerSettings),
    ("Outbox on Lambda", OutboxSettings),
)


def render() -> str:
    return HEAD + "".join(_section(readers, rows) for readers, rows in _grouped().items())


def _grouped() -> dict[tuple[str, ...], list[str]]:
    """Return the rows of the table by the entry points that read them. A setting whose default differs has several
    rows."""
    readers: dict[str, list[str]] = {}
    for title, model in SECTIONS:
        for name, field in model.model_fields.items():
            row = f"| `{variable(name)}` | {_default(field)} | {field.description} |"
            readers.setdefault(row, []).append(title)
    grouped: dict[tuple[str, ...], list[str]] = {}
    for row, titles in readers.items():
        grouped.setdefault(tuple(titles), []).append(row)
    return grouped


def _section(readers: tuple[str, ...], rows: list[str]) -> str:
    names = "everything" if len(readers) == len(SECTIONS) else "; ".join(readers)
    return "\n".join([f"\nRead by {names}:\n", "| variable | default | meaning |", "| --- | --- | --- |", *rows, ""])


def _default(field: FieldInfo) -> str:
    return shown_default(field) if has_no_default(field) else f"`{shown_default(field)}`"


if __name__ == "__main__":
    TARGET.write_text(render(), encoding="utf-8")
