"""The OpenAPI document and the page that shows it. Both are made when first asked for: they cost no cold start."""

from __future__ import annotations

from functools import cache

from duetime.api.context import Services
from duetime.api.http import Reply, Request

_PAGE_POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; frame-ancestors 'none'"


def get_openapi(services: Services, request: Request) -> Reply:  # noqa: ARG001
    return Reply(status=200, body=_openapi_json())


def get_docs(services: Services, request: Request) -> Reply:  # noqa: ARG001
    headers = {"content-security-policy": _PAGE_POLICY, "x-content-type-options": "nosniff"}
    return Reply(status=200, body=_docs_page(), content_type="text/html; charset=utf-8", headers=headers)


@cache
def _openapi_json() -> str:
    from duetime.api.encoding import encode
    from duetime.api.openapi import openapi_document

    return encode(openapi_document())


@cache
def _docs_page() -> str:
    from duetime.api.docs_page import render
    from duetime.api.openapi import openapi_document

    return render(openapi_document())
