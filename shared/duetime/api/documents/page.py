"""The OpenAPI document as one page of HTML: no script, nothing to fetch, readable without a network."""

from __future__ import annotations

import json
from html import escape
from typing import Any

Json = dict[str, Any]

_STYLE = """
:root { color-scheme: light dark; }
body { font: 16px/1.5 system-ui, sans-serif; margin: 0 auto; max-width: 60rem; padding: 1rem; }
code, pre { font: 14px/1.4 ui-monospace, monospace; }
pre { overflow-x: auto; padding: .75rem; background: #8881; border-radius: .4rem; }
details { border: 1px solid #8886; border-radius: .4rem; margin: .5rem 0; padding: .5rem .75rem; }
summary { cursor: pointer; }
summary b { display: inline-block; min-width: 4.5rem; }
table { border-collapse: collapse; width: 100%; }
td, th { border-bottom: 1px solid #8884; padding: .25rem .5rem; text-align: left; vertical-align: top; }
"""


def render(document: Json) -> str:
    info = document["info"]
    title = f"{info['title']} {info['version']}"
    operations = "".join(_tag(document, tag["name"]) for tag in document["tags"])
    schemas = "".join(_schema(name, schema) for name, schema in document["components"]["schemas"].items())
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<style>{_STYLE}</style></head><body><h1>{escape(title)}</h1><p>{escape(info['description'])} "
        f'<a href="v1/openapi.json">OpenAPI document</a></p>{operations}<h2>schemas</h2>{schemas}</body></html>'
    )


def _tag(document: Json, tag: str) -> str:
    shown = [
        _operation(method, path, operation)
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
        if tag in operation["tags"]
    ]
    return f"<h2>{escape(tag)}</h2>{''.join(shown)}"


def _operation(method: str, path: str, operation: Json) -> str:
    parameters = "".join(
        f"<tr><td><code>{escape(one['name'])}</code></td><td>{one['in']}</td><td>{_type(one['schema'])}</td>"
        f"<td>{escape(one.get('description', ''))}</td></tr>"
        for one in operation["parameters"]
    )
    rows = "".join(
        f"<tr><td>{escape(status)}</td><td>{escape(answer['description'])}</td><td>{_content(answer)}</td></tr>"
        for status, answer in operation["responses"].items()
    )
    body = f"<p>Body: {_content(operation['requestBody'])}</p>" if "requestBody" in operation else ""
    table = f"<table>{parameters}</table>" if parameters else ""
    role = f"<p>Role: {escape(operation['x-duetime-role'])}</p>" if "x-duetime-role" in operation else ""
    return (
        f'<details id="{escape(operation["operationId"])}"><summary><b>{method.upper()}</b> '
        f"<code>{escape(path)}</code> {escape(operation['summary'])}</summary>{role}{table}{body}"
        f"<table>{rows}</table></details>"
    )


def _content(holder: Json) -> str:
    return ", ".join(
        f"<code>{escape(media)}</code> {_type(about.get('schema', {}))}"
        for media, about in holder.get("content", {}).items()
    )


def _type(schema: Json) -> str:
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f'<a href="#schema-{escape(name)}">{escape(name)}</a>'
    return f"<code>{escape(json.dumps(schema, ensure_ascii=False))}</code>" if schema else ""


def _schema(name: str, schema: Json) -> str:
    text = escape(json.dumps(schema, indent=2, ensure_ascii=False))
    summary = f"<summary><code>{escape(name)}</code></summary>"
    return f'<details id="schema-{escape(name)}">{summary}<pre>{text}</pre></details>'
