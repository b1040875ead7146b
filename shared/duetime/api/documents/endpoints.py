"""The OpenAPI document and the page that shows it. Both are made when first asked for: they cost no cold start."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import cache

from duetime.api.context import Services
from duetime.api.http.request import JSON, Reply, Request
from duetime.api.http.route import PUBLIC, Route

AllRoutes = Callable[[], Sequence[Route]]
_PAGE_POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; frame-ancestors 'none'"


@cache
def _openapi_json(routes: AllRoutes) -> str:
    from duetime.api.documents.openapi import openapi_document

    return json.dumps(openapi_document(routes()), ensure_ascii=False, separators=(",", ":"))


@cache
def _docs_page(routes: AllRoutes) -> str:
    from duetime.api.documents.openapi import openapi_document
    from duetime.api.documents.page import render

    return render(openapi_document(routes()))


def document_routes(all_routes: AllRoutes) -> tuple[Route, ...]:
    """Return the routes of the document about ``all_routes``, whichever of them the handler answers."""

    @Route("GET", "/v1/openapi.json", PUBLIC, summary="This document", responses={200: None}, media_types={200: JSON})
    def get_open_api(services: Services, request: Request) -> Reply:  # noqa: ARG001
        return Reply(status=200, body=_openapi_json(all_routes))

    @Route(
        "GET",
        "/docs",
        PUBLIC,
        summary="This document as a page",
        responses={200: None},
        media_types={200: "text/html"},
    )
    def get_docs(services: Services, request: Request) -> Reply:  # noqa: ARG001
        headers = {"content-security-policy": _PAGE_POLICY, "x-content-type-options": "nosniff"}
        return Reply(
            status=200, body=_docs_page(all_routes), content_type="text/html; charset=utf-8", headers=headers
        )

    return get_open_api, get_docs
