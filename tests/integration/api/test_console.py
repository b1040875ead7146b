"""The console's files as the API serves them, and that they are all there. ``tests/console`` runs the page itself."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import duetime.console
from duetime.api.documents.console import CONTENT_TYPES, PAGE, console_files, files_version
from tests.support.api import World
from tests.support.http import Answer, Api
from tests.support.stores import memory_store
from tests.support.tenants import make_tenant_world

DIRECTORY = Path(duetime.console.__file__).parent
MODULES = sorted(path.name for path in DIRECTORY.glob("*.js"))
FILES = f"/console/{files_version()}"
APP = f"{FILES}/app.js"
OTHERS = sorted(name for name in console_files() if name != PAGE)

# A string, or the text between what is put in, that names another file of the directory.
_IMPORT = re.compile(r'^(?:import|export) [^"]*"\./([^"]+)";$', re.MULTILINE)
_REFERENCE = re.compile(r'(?:src|href)="([^"]+)"')


def text_of(name: str) -> str:
    return (DIRECTORY / name).read_text(encoding="utf-8")


def is_guarded(answer: Answer) -> bool:
    policy = answer.headers["content-security-policy"]
    return (
        "default-src 'none'" in policy
        and "unsafe" not in policy
        and answer.headers["x-content-type-options"] == "nosniff"
        and answer.headers["referrer-policy"] == "no-referrer"
    )


def is_kept(answer: Answer) -> bool:
    """Whether a browser keeps it without asking again."""
    kept = {"public, max-age=31536000, immutable": True, "no-cache": False}
    return kept[answer.headers["cache-control"]]


def test_the_root_leads_to_the_page(api: Api) -> None:
    answer = api.get("/")
    assert (answer.status, answer.headers["location"], answer.text) == (307, "console", "")


def test_the_page(api: Api) -> None:
    answer = api.get("/console")
    assert (answer.status, answer.headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert answer.text == text_of(PAGE).replace('"console/', f'"{FILES[1:]}/')
    assert not is_kept(answer)
    assert answer.headers["content-security-policy"] == (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:;"
        " base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    assert is_guarded(answer)


def test_what_the_page_names_is_served_and_kept(api: Api) -> None:
    named = _REFERENCE.findall(api.get("/console").text)
    assert len(named) == len(OTHERS)
    for path in named:  # relative to the page, which has no directory
        answer = api.get(f"/{path}")
        assert answer.status == 200
        assert is_kept(answer)


@pytest.mark.parametrize("name", OTHERS)
def test_a_file(api: Api, name: str) -> None:
    answer = api.get(f"{FILES}/{name}")
    assert (answer.status, answer.text) == (200, text_of(name))
    assert answer.headers["content-type"] == CONTENT_TYPES[Path(name).suffix]
    assert is_guarded(answer)
    assert is_kept(answer)


def test_a_page_of_another_version_gets_what_there_is_and_does_not_keep_it(api: Api) -> None:
    answer = api.get("/console/0123456789abcdef/app.js")
    assert (answer.status, answer.text) == (200, text_of("app.js"))
    assert not is_kept(answer)


@pytest.mark.parametrize("path", ["/console", APP])
def test_a_file_that_is_known_is_not_sent_again(api: Api, path: str) -> None:
    tag = api.get(path).headers["etag"]
    assert re.fullmatch(r'"[0-9a-f]{32}"', tag)
    for known in (tag, f"W/{tag}", f'"other", {tag}', "*"):
        answer = api.get(path, headers={"if-none-match": known})
        assert (answer.status, answer.text, answer.headers["etag"]) == (304, "", tag)
        assert is_guarded(answer)
    assert api.get(path, headers={"if-none-match": '"other"'}).status == 200


def test_files_have_tags_of_their_own() -> None:
    assert len({file.tag for file in console_files().values()}) == len(console_files())


def test_head_is_get_without_the_body(api: Api) -> None:
    got, head = (api.call(method, APP) for method in ("GET", "HEAD"))
    assert (head.status, head.text) == (200, "")
    assert {name: value for name, value in head.headers.items() if name != "x-request-id"} == {
        name: value for name, value in got.headers.items() if name != "x-request-id"
    }


@pytest.mark.parametrize(
    "path",
    [
        "/console/",
        "/console/app.js",
        FILES,
        f"{FILES}/",
        f"{FILES}/index.html",
        f"{FILES}/nothing.js",
        f"{FILES}/__init__.py",
        f"{FILES}/APP.JS",
        f"{FILES}/app.js/",
        f"{FILES}/..",
        f"{FILES}/../console.py",
        f"{FILES}/%2e%2e/console.py",
        f"{FILES}/..%2fconsole.py",
        f"{FILES}/..%5cconsole.py",
        f"{FILES}/%2fetc%2fpasswd",
        f"{FILES}//app.js",
        f"{FILES}/app.js%00",
        f"{FILES}/app.js%20",
    ],
)
def test_nothing_else_is_served(api: Api, path: str) -> None:
    answer = api.get(path)
    assert (answer.status, answer.code) == (404, "route_not_found")


def test_only_reading(api: Api) -> None:
    answer = api.call("POST", "/console")
    assert (answer.status, answer.headers["allow"]) == (405, "GET, HEAD, OPTIONS")


def test_the_files_need_no_key() -> None:
    with memory_store() as store:
        handler = make_tenant_world(store).handler
        api = Api(handler)
        assert [api.get(path).status for path in ("/", "/console", APP, "/v1/namespaces")] == [
            307,
            200,
            200,
            401,
        ]


def test_nothing_is_read_from_the_store(world: World) -> None:
    world.store.close()
    assert world.api.get("/console").status == 200


# -- what is in the files -------------------------------------------------------------------------------------


def test_every_file_of_the_directory_is_served() -> None:
    kept = {path.name for path in DIRECTORY.iterdir() if path.name not in ("__init__.py", "__pycache__")}
    assert kept == set(console_files())


def test_every_module_that_another_imports_is_there_and_every_module_is_imported() -> None:
    imported = {name: _IMPORT.findall(text_of(name)) for name in MODULES}
    # What the pattern above would not see.
    assert not [name for name in MODULES if re.search(r"\bimport\s*\(|\bfrom '", text_of(name))]
    assert all(text_of(name).count(' from "') == len(found) for name, found in imported.items())
    assert {other for found in imported.values() for other in found} | {"app.js"} == set(MODULES)


def test_what_a_module_imports_from_another_is_exported_by_it() -> None:
    for name in MODULES:
        for names, other in re.findall(r'^import \{([^}]*)\} from "\./([^"]+)";$', text_of(name), re.MULTILINE):
            for wanted in filter(None, (each.strip() for each in names.split(","))):
                declared = rf"^export (?:async )?(?:function|const|class) {wanted}\b"
                assert re.search(declared, text_of(other), re.MULTILINE), (name, other, wanted)
                assert len(re.findall(rf"\b{wanted}\b", text_of(name))) > 1, f"{name} does not use {wanted}"


def test_the_page_names_what_there_is_and_all_modules_at_once() -> None:
    named = _REFERENCE.findall(text_of(PAGE))
    assert {name.removeprefix("console/") for name in named} == set(OTHERS)
    assert all(name.startswith("console/") for name in named)
    assert len(named) == len(set(named))


@pytest.mark.parametrize("name", MODULES)
def test_text_reaches_the_page_as_text_alone(name: str) -> None:
    forbidden = (
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|DOMParser|\beval\b|new Function|srcdoc|\.style\b"
    )
    assert not re.search(forbidden, text_of(name))


def test_nothing_is_fetched_from_elsewhere_and_nothing_is_inline() -> None:
    page = text_of(PAGE)
    assert not re.search(r"<style|\sstyle=|\son\w+=|<script(?![^>]*\bsrc=)", page)
    for name in console_files():
        addresses = re.findall(r"https?://[\w.-]+", text_of(name))
        assert set(addresses) <= {"http://www.w3.org"}, name
        assert not re.search(r"@import|url\(", text_of(name)), name


def test_modules_are_of_a_size_to_be_read() -> None:
    assert [name for name in MODULES if text_of(name).count("\n") > 400] == []
