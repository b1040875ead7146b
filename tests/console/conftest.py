"""The console in a real browser, before a real ``duetime serve``: ``make test-console``.

Tests wait for what the page shows, and share a server: each has a tenant and a namespace of its own.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from tests.support.no_tls import NO_TLS
from tests.support.processes import DuetimeServer, command_environment
from tests.support.receiver import Receiver

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Page

WAIT_MS = 30_000
"""Far more than anything takes, for machines that are busy."""
# Background networking would look for hosts of the browser's maker; there is no sandbox for root.
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
_PROGRAMS = ("chromium", "chromium-browser", "google-chrome")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent  # which has no folders: a parent of its own for each of all tests would cost seconds
    for item in items:
        if item.path.parent == here:
            item.add_marker(pytest.mark.console)


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """Skips where there is no Playwright or no Chromium; DUETIME_TEST_CHROMIUM names one."""
    api = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed: `make test-console` does")
    named = os.environ.get("DUETIME_TEST_CHROMIUM")
    program = named or next(filter(None, map(shutil.which, _PROGRAMS)), None)
    if program is None:
        pytest.skip("no Chromium: install the package chromium, or name one in DUETIME_TEST_CHROMIUM")
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def server(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[DuetimeServer]:
    with DuetimeServer(cwd=tmp_path_factory.mktemp("server")) as server:
        yield server


@pytest.fixture(scope="session")
def receiver() -> Iterator[Receiver]:
    with Receiver() as receiver:
        yield receiver


def wait_for(reached: Callable[[], bool]) -> None:
    """Until the server says so; the page would find out at its next refresh."""
    ends_at = time.monotonic() + WAIT_MS / 1000
    while not reached():
        assert time.monotonic() < ends_at
        time.sleep(0.02)


_numbers = count(1)


@dataclass
class Console:
    """The page, and the API behind it. ``tenant`` and ``namespace`` are the test's own."""

    page: Page
    url: str
    client: httpx.Client
    tenant: str
    namespace: str
    requests: list[str] = field(default_factory=list)
    """Paths of the API that the page has asked for."""

    def open(self, *segments: str, query: str = "") -> None:
        self.page.goto(f"{self.url}/console#/{'/'.join(segments)}{query}")

    def calls(self, *more: str, query: str = "") -> None:
        self.open("calls", self.tenant, *more, query=query)

    def timers(self, *more: str, query: str = "") -> None:
        self.open("timers", self.namespace, *more, query=query)

    def api(self, method: str, path: str, **more: Any) -> Any:
        answer = self.client.request(method, path, **more)
        assert answer.is_success, answer.text
        return answer.json() if answer.content else None

    def submit(self, name: str, url: str, **more: Any) -> str:
        request = {"method": "POST", "url": url, **more.pop("request", {})}
        body = {"name": name, "request": request, **more}
        call_id: str = self.api("POST", f"/v1/tenants/{self.tenant}/service-calls", json=body)["id"]
        return call_id

    def make_namespace(self) -> None:
        self.api("PUT", f"/v1/namespaces/{self.namespace}", json={"numShards": 1})

    def create(self, timer_id: str, url: str, **more: Any) -> None:
        body = {"id": timer_id, "callbackUrl": url, **({} if "executeAt" in more else {"delay": 0}), **more}
        self.api("POST", f"/v1/namespaces/{self.namespace}/timers", json=body)


def _watch(page: Page, console: Console) -> list[str]:
    """What goes wrong in the page. That a request was refused is no fault of it."""
    faults: list[str] = []
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.on(
        "console",
        lambda message: (
            faults.append(message.text)
            if message.type in ("error", "warning") and "Failed to load resource" not in message.text
            else None
        ),
    )
    page.on("request", lambda request: console.requests.append(request.url.removeprefix(console.url)))
    return faults


@pytest.fixture
def new_console(browser: Browser) -> Iterator[Callable[..., Console]]:
    """Makes pages, and finds at the end that nothing went wrong in them."""
    opened: list[tuple[BrowserContext, httpx.Client, list[str]]] = []

    def make(server: DuetimeServer, **options: Any) -> Console:
        viewport = {"width": 1280, "height": 900}
        context = browser.new_context(**{"viewport": viewport, "timezone_id": "Asia/Kolkata", **options})
        context.set_default_timeout(WAIT_MS)
        page = context.new_page()
        number = next(_numbers)
        client = httpx.Client(base_url=server.url, timeout=WAIT_MS / 1000, verify=NO_TLS)
        console = Console(page, server.url, client, f"tenant-{number}", f"space-{number}")
        opened.append((context, client, _watch(page, console)))
        return console

    yield make
    for context, client, faults in opened:
        context.close()
        client.close()
        assert faults == []


@pytest.fixture
def console(server: DuetimeServer, new_console: Callable[..., Console]) -> Console:
    return new_console(server)


@dataclass(frozen=True)
class GuardedServer:
    """A server that asks for keys, made by ``duetime keys``."""

    server: DuetimeServer
    cwd: Path

    def keys(self, *arguments: str) -> str:
        command = [sys.executable, "-m", "duetime.cli", "keys", *arguments, "--store"]
        done = subprocess.run(
            command, cwd=self.cwd, env=command_environment(), capture_output=True, text=True, timeout=300, check=True
        )
        return done.stdout.strip()

    def make_key(self, role: str, *, tenant: str = "acme") -> str:
        return self.keys("create", "--role", role, "--tenant", tenant)


@pytest.fixture(scope="session")
def guarded(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GuardedServer]:
    cwd = tmp_path_factory.mktemp("guarded")
    with DuetimeServer("--auth", cwd=cwd, DUETIME_AUTH_CACHE_SECONDS="0") as server:
        yield GuardedServer(server, cwd)
