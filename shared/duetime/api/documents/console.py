"""The web console's files, which lie in ``duetime.console``.

They are read when the first of them is asked for: they cost no cold start. What is served is looked up among them, so
no path leads anywhere else. The page asks for an API key where one is needed; its files need none.

The page names its files below a version, a digest of them all, and they name each other beside themselves. So a
browser asks for them once and keeps them, modules of two versions never meet, and a page costs one request.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from hashlib import sha256
from importlib.resources import files

from duetime.api.context import Services
from duetime.api.http.errors import RouteNotFound
from duetime.api.http.preconditions import IF_NONE_MATCH, if_none_match
from duetime.api.http.request import Reply, Request
from duetime.api.http.route import PUBLIC, Route

PAGE = "index.html"
CONTENT_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}

_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:;"
    " base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_REVALIDATED = "no-cache"
_IMMUTABLE = "public, max-age=31536000, immutable"
_HEADERS = {
    "content-security-policy": _POLICY,
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}


@dataclass(frozen=True, slots=True)
class ConsoleFile:
    content_type: str
    text: str
    tag: str
    """What stands in its ETag: a digest of the text."""


@cache
def console_files() -> dict[str, ConsoleFile]:
    """Return what is served, by name."""
    found = {}
    for entry in files("duetime.console").iterdir():
        content_type = CONTENT_TYPES.get(f".{entry.name.rpartition('.')[2]}")
        if content_type is not None:
            text = entry.read_text(encoding="utf-8")
            found[entry.name] = ConsoleFile(content_type, text, sha256(text.encode()).hexdigest()[:32])
    return found


@cache
def files_version() -> str:
    """Return the directory of the files in URLs: another one when any of them has changed."""
    return sha256("".join(file.tag for _, file in sorted(console_files().items())).encode()).hexdigest()[:16]


@cache
def _page() -> ConsoleFile:
    """Return the page, with its links below the version."""
    page = console_files()[PAGE]
    text = page.text.replace('="console/', f'="console/{files_version()}/')
    return replace(page, text=text, tag=sha256(text.encode()).hexdigest()[:32])


@Route("GET", "/", PUBLIC, summary="Leads to the console", responses={307: None})
def get_root(services: Services, request: Request) -> Reply:  # noqa: ARG001
    """Redirect to the console."""
    return Reply(status=307, headers={"location": "console"})


@Route(
    "GET",
    "/console",
    PUBLIC,
    summary="The web console",
    responses={200: None, 304: None},
    media_types={200: "text/html"},
    conditions=(IF_NONE_MATCH,),
)
def get_console(services: Services, request: Request) -> Reply:  # noqa: ARG001
    """Return the page of the console."""
    return _file_reply(request, _page(), _REVALIDATED)


@Route(
    "GET",
    "/console/<version>/<file_name>",
    PUBLIC,
    summary="A file of the web console",
    responses={200: None, 304: None},
    media_types={200: "*/*"},
    conditions=(IF_NONE_MATCH,),
)
def get_console_file(services: Services, request: Request, *, version: str, file_name: str) -> Reply:  # noqa: ARG001
    """Return a file of the console.

    The page itself is at ``/console`` alone, since its links are relative to that. A page of another version, which
    asks while a deployment is going on, gets what there is now, and must not keep it.
    """
    found = console_files().get(file_name)
    if found is None or file_name == PAGE:
        raise RouteNotFound("there is nothing at this path")
    return _file_reply(request, found, _IMMUTABLE if version == files_version() else _REVALIDATED)


def _file_reply(request: Request, found: ConsoleFile, cache_control: str) -> Reply:
    """Return the file; 304 when ``If-None-Match`` names what it is now."""
    headers = {**_HEADERS, "cache-control": cache_control, "etag": f'"{found.tag}"'}
    known = if_none_match(request)
    if known is not None and known.match_text(found.tag):
        return Reply(status=304, headers=headers)
    return Reply(status=200, body=found.text, content_type=found.content_type, headers=headers)
