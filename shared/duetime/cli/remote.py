"""Connects commands to the API of a server over HTTP, or to a store with ``--store``."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import wraps
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar

import click

from duetime.cli.options import LOGS, load, settings_options
from duetime.domain.errors import DuetimeError, InvalidSettings
from duetime.domain.times import format_instant
from duetime.runtime.settings import ClientSettings, DirectSettings

if TYPE_CHECKING:
    from duetime_client import Duetime
    from duetime_client.requests import Answer

F = TypeVar("F", bound=Callable[..., Any])

PAGE_ITEMS = 100
_HERE = "-"
"""``--store`` without a URL."""

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON of the API.")
limit_option = click.option(
    "--limit", default=50, show_default=True, type=click.IntRange(1, 1_000_000), help="Items to print at most."
)
if_revision_option = click.option(
    "--if-revision", type=click.IntRange(1), help="Fail unless the stored revision is this one."
)


class CommandFailed(DuetimeError):
    """The API refused the request or could not be reached. The message says why."""

    code = "command_failed"


@dataclass(frozen=True, slots=True)
class Remote:
    """Sends requests to one API. ``client`` is for operations of several requests."""

    client: Duetime

    def call(
        self,
        method: str,
        path: str,
        *,
        body: Mapping[str, Any] | None = None,
        query: Mapping[str, Any] | None = None,
        if_revision: int | None = None,
        has: str = "id",
    ) -> Answer:
        """Send one request. Its response must have the member ``has``.

        Members and parameters that are None are left out; a member CLEARED becomes null.
        """
        headers = {} if if_revision is None else {"if-match": f'"{if_revision}"'}
        if method == "PATCH":
            headers["content-type"] = "application/merge-patch+json"
        more = {} if body is None else {"body": given(body)}
        return checked(self.client.request(method, path, query=pairs(query or {}), headers=headers, **more), has)

    def namespaces(self, name: str | None) -> list[str]:
        """Return ``name``, or all namespaces."""
        return [each["name"] for each in self.items("/v1/namespaces")] if name is None else [name]

    def items(self, path: str, query: Mapping[str, Any] | None = None, *, limit: int | None = None) -> Iterator[Any]:
        """Yield the items at ``path``, page by page: at most one more than ``limit``, to tell whether there are
        more."""
        if limit is None:
            return self._items(path, query or {})
        return islice(self._items(path, {**(query or {}), "limit": min(limit + 1, PAGE_ITEMS)}), limit + 1)

    def _items(self, path: str, query: Mapping[str, Any]) -> Iterator[Any]:
        cursor: str | None = None
        while True:
            page = json.loads(self.call("GET", path, query={**query, "cursor": cursor}, has="items").content)
            yield from page["items"]
            cursor = page.get("nextCursor")
            if cursor is None:
                return


def checked(response: Answer, has: str) -> Answer:
    """Raise ``UnexpectedAnswer`` unless this is an object of the API: any server can return 200."""
    from duetime_client import UnexpectedAnswer

    found = response.json()
    if not isinstance(found, dict) or has not in found:
        raise UnexpectedAnswer(f"{has} is missing", status=response.status)
    return response


CLEARED = object()
"""Stands for null in a body."""


def given(members: Mapping[str, Any]) -> dict[str, Any]:
    """Return a body: the values that were given. Options may have their names in Python's spelling."""
    from duetime_client.values import camel

    return {
        camel(name): None if value is CLEARED else value
        for name, value in members.items()
        if value not in (None, (), {})
    }


def pairs(query: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the parameters of a query, named as in a body. A tuple is one parameter per item."""
    from duetime_client.values import camel

    return [
        (camel(name), _as_text(item))
        for name, value in query.items()
        if value is not None
        for item in (value if isinstance(value, tuple) else (value,))
    ]


def _as_text(value: Any) -> str:
    if isinstance(value, datetime):
        return format_instant(value)
    return json.dumps(value) if isinstance(value, bool) else str(value)


def path(template: str, *segments: str) -> str:
    """Fill encoded ``segments`` into the ``{}`` of ``template``."""
    from duetime_client.requests import segment

    return template.replace("{tenant}", "{{tenant}}").format(*(segment("a name or an id", each) for each in segments))


def item_path(namespace: str, items: str, item_id: str, action: str = "") -> str:
    """Return the path of one of ``items``, timers or schedules, whose id may have any characters."""
    from duetime_client.requests import id_segment

    return path("/v1/namespaces/{}/", namespace) + f"{items}/{id_segment('the id', item_id)}{action}"


def on_server(*operations: str, tenant: bool = False) -> Callable[[F], F]:
    """Make a command that gets a ``remote``. ``operations``: the OpenAPI operations that it performs.

    ``tenant``: the command has the option ``--tenant``, since its objects belong to no namespace.
    """
    names = ("url", "tenant") if tenant else ("url",)

    def decorate(command: F) -> F:
        @wraps(command)
        def run(*, store: str | None, **options: Any) -> Any:
            settings = {name: options.pop(name) for name in (*names, *LOGS)}
            with _connected(settings, store) as remote:
                return command(remote=remote, **options)

        run.operations = operations  # type: ignore[attr-defined]
        with_store = click.option(
            "--store",
            metavar="[URL]",
            is_flag=False,
            flag_value=_HERE,
            help="Use this store directly, without a server and without an API key (for operators). As the last"
            " argument and without a URL: the store of DUETIME_STORE.",
        )(run)
        return settings_options(ClientSettings, *names, *LOGS)(with_store)  # type: ignore[return-value]

    return decorate


@contextmanager
def _connected(options: dict[str, Any], store: str | None) -> Iterator[Remote]:
    """Connect, and translate the errors of the client."""
    from duetime_client import ApiError, InvalidArgument, Unauthenticated, Unreachable
    from duetime_client import DuetimeError as ClientError

    settings = load(ClientSettings, options)
    try:
        with _over_http(settings) if store is None else _on_store(store, settings) as client:
            yield Remote(client)
    except InvalidArgument as error:
        names = {"url": "--url", "api_key": "DUETIME_API_KEY"}
        name, colon, rest = str(error).partition(":")
        raise InvalidSettings(f"{names.get(name, name)}{colon}{rest}") from None
    except Unauthenticated as error:
        hint = "" if settings.api_key else "; set DUETIME_API_KEY"
        raise CommandFailed(f"{error}{hint}") from None
    except Unreachable as error:
        raise CommandFailed(f"{error}; is `duetime serve` running there?") from None
    except ApiError as error:
        raise CommandFailed(str(error)) from None
    except ClientError as error:
        raise CommandFailed(f"{settings.url}: the server there is not Duetime's API: {error}") from None


@contextmanager
def _over_http(settings: ClientSettings) -> Iterator[Duetime]:
    from duetime_client import Duetime

    with Duetime(settings.url, api_key=settings.api_key.strip() or None, tenant=settings.tenant or None) as client:
        yield client


@contextmanager
def _on_store(url: str, settings: ClientSettings) -> Iterator[Duetime]:
    """Run the API of ``duetime serve`` in this process."""
    import httpx

    from duetime.cli.direct import HandlerTransport
    from duetime.runtime.api_wiring import api_context, whole_api
    from duetime.runtime.settings import load_settings
    from duetime.runtime.wiring import make_secret_box, measured_clock, opened_store
    from duetime_client import NO_RETRIES, Duetime

    direct = load_settings(DirectSettings, {"store": None if url == _HERE else url})
    with opened_store(direct.store) as store:
        store.check()
        clock = measured_clock(store)
        context = api_context(store, direct, clock, secret_box=make_secret_box(direct), authenticate=None)
        handler = whole_api(context, direct)
        with (
            httpx.Client(transport=HandlerTransport(handler, clock)) as http,
            Duetime(
                "http://store", api_key="", tenant=settings.tenant or None, retries=NO_RETRIES, http_client=http
            ) as client,
        ):
            yield client
