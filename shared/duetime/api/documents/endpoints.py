"""The OpenAPI document and the page that shows it. Both are made when first asked for: they cost no cold start."""

from __future__ import annotations

from functools import cache

from duetime.api.context import Services
from duetime.api.http.request import Reply, Request
from duetime.api.http.route import PUBLIC, Route

_PAGE_POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; frame-ancestors 'none'"


def get_open_api(services: Services, request: Request) -> Reply:  # noqa: ARG001
    return Reply(status=200, body=_openapi_json())


def get_docs(services: Services, request: Request) -> Reply:  # noqa: ARG001
    headers = {"content-security-policy": _PAGE_POLICY, "x-content-type-options": "nosniff"}
    return Reply(status=200, body=_docs_page(), content_type="text/html; charset=utf-8", headers=headers)


@cache
def _openapi_json() -> str:
    from duetime.api.documents.openapi import openapi_document
    from duetime.api.encoding import encode

    return encode(openapi_document())


@cache
def _docs_page() -> str:
    from duetime.api.documents.openapi import openapi_document
    from duetime.api.documents.page import render

    return render(openapi_document())


ROUTES = (
    Route(
        "GET",
        "/v1/openapi.json",
        get_open_api,
        PUBLIC,
        summary="This document",
        tag="service",
        responses={200: None},
        media_types={200: "application/json"},
    ),
    Route(
        "GET",
        "/docs",
        get_docs,
        PUBLIC,
        summary="This document as a page",
        tag="service",
        responses={200: None},
        media_types={200: "text/html"},
    ),
)
