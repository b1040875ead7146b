"""One reusable libcurl handle: how a callback becomes a transfer, and a finished transfer a result."""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from functools import lru_cache
from io import BytesIO
from math import ceil
from typing import Any, Final

import pycurl

from duetime.delivery.connections import Connections
from duetime.delivery.guard import Guard, Target
from duetime.delivery.port import MAX_HEAD_BYTES, MAX_RESPONSE_BYTES, Callback, CallbackResult, TransportError
from duetime.delivery.settings import SenderSettings
from duetime.domain.service_calls import Method

_MAX_KEPT_BODY_BYTES = 16 * 1024
_MAX_MESSAGE_CHARACTERS = 200
_LINE_OVERHEAD = 64
"""What a short line costs besides its bytes, so that many empty ones are bounded as well."""
_SCHEMES = ("http://", "https://")
_PIN_SECONDS = 1000
"""Longer than any callback may wait for a connection; with each callback its host's addresses are pinned anew."""
_RETRY_AFTER = b"retry-after:"
_POST = (Method.POST, True, False)
"""Method, whether there is a body, and whether it has a connection of its own: of almost all callbacks."""
_PROCEED: Final = int(pycurl.PREREQFUNC_OK)
_ABORT: Final = int(pycurl.PREREQFUNC_ABORT)
_NO_EXPECT = "Expect:"
"""Without it libcurl asks before it sends a large body, and waits a second for receivers that never answer that."""

_ERRORS: Final = {
    pycurl.E_URL_MALFORMAT: TransportError.REFUSED_URL,
    pycurl.E_COULDNT_RESOLVE_HOST: TransportError.RESOLVE,
    pycurl.E_COULDNT_CONNECT: TransportError.CONNECT,
    pycurl.E_INTERFACE_FAILED: TransportError.CONNECT,
    pycurl.E_OPERATION_TIMEDOUT: TransportError.TIMEOUT,
    pycurl.E_SSL_CONNECT_ERROR: TransportError.TLS,
    pycurl.E_SSL_ENGINE_NOTFOUND: TransportError.TLS,
    pycurl.E_SSL_ENGINE_SETFAILED: TransportError.TLS,
    pycurl.E_SSL_CERTPROBLEM: TransportError.TLS,
    pycurl.E_SSL_CIPHER: TransportError.TLS,
    pycurl.E_PEER_FAILED_VERIFICATION: TransportError.TLS,
    pycurl.E_SSL_ENGINE_INITFAILED: TransportError.TLS,
    pycurl.E_SSL_CACERT_BADFILE: TransportError.TLS,
    pycurl.E_SSL_SHUTDOWN_FAILED: TransportError.TLS,
    pycurl.E_SSL_CRL_BADFILE: TransportError.TLS,
    pycurl.E_SSL_ISSUER_ERROR: TransportError.TLS,
    pycurl.E_SSL_PINNEDPUBKEYNOTMATCH: TransportError.TLS,
    pycurl.E_SSL_INVALIDCERTSTATUS: TransportError.TLS,
    pycurl.E_ABORTED_BY_CALLBACK: TransportError.ABORTED,
}
"""Every other libcurl error means that a connection was made and what went over it was no HTTP exchange."""


class Unsendable(ValueError):
    """A callback that libcurl cannot be given, now or later. The message names no part of it."""


class _Handed(socket.socket):
    """A socket for libcurl. pycurl takes a duplicate of the descriptor and drops this object at once."""

    def __del__(self) -> None:
        self.close()


class Transfer:
    """A handle whose unchanging options are set once; ``prepare`` sets what differs from callback to callback.

    It has its handle and is none: pycurl takes a microsecond for each attribute of a class that is derived from its.
    """

    __slots__ = (
        *("_chunks", "_connections", "_getinfo", "_guard", "_has_own_connection", "_head", "_is_cut_off"),
        *("_is_large", "_is_refused", "_is_sent", "_kind", "_opened", "_room", "_setopt", "_target"),
        *("_timeout_ms", "_truncated", "_waited_seconds", "handle", "is_stale", "key"),
    )
    _target: Target

    def __init__(self, settings: SenderSettings, guard: Guard, connections: Connections) -> None:
        self.handle = pycurl.Curl()
        self._setopt, self._getinfo = self.handle.setopt, self.handle.getinfo
        self.key = 0
        self.is_stale = False
        self._guard = guard
        self._connections = connections
        self._opened: list[int] = []
        self._is_refused = False
        self._is_sent = False
        self._is_cut_off = False
        self._waited_seconds = 0.0
        self._chunks: list[bytes] = []
        self._room = MAX_RESPONSE_BYTES
        self._head = BytesIO()
        self._truncated = False
        self._timeout_ms = 0
        self._is_large = False
        # No environment, no files and no state may have a say in where a callback goes and what it carries.
        self._setopt(pycurl.PROTOCOLS, pycurl.PROTO_HTTP | pycurl.PROTO_HTTPS)
        self._setopt(pycurl.PROXY, "")
        self._setopt(pycurl.NETRC, pycurl.NETRC_IGNORED)
        self._setopt(pycurl.FOLLOWLOCATION, 0)
        self._setopt(pycurl.HTTP_CONTENT_DECODING, 0)
        self._setopt(pycurl.HTTP_VERSION, pycurl.CURL_HTTP_VERSION_1_1)
        self._setopt(pycurl.NOSIGNAL, 1)
        self._kind: tuple[Method, bool, bool] | None = _POST
        """None: that of no callback."""
        self._has_own_connection = False
        self._setopt(pycurl.POST, 1)
        self._setopt(pycurl.TCP_KEEPALIVE, 1)
        self._setopt(pycurl.CONNECTTIMEOUT_MS, max(1, ceil(settings.connect_timeout_seconds * 1000)))
        self._setopt(pycurl.DNS_CACHE_TIMEOUT, _PIN_SECONDS)
        self._setopt(pycurl.OPENSOCKETFUNCTION, self._open_socket)
        self._setopt(pycurl.SOCKOPTFUNCTION, self._note_socket)
        self._setopt(pycurl.PREREQFUNCTION, self._may_send)
        self._setopt(pycurl.SSL_VERIFYPEER, 1)
        self._setopt(pycurl.SSL_VERIFYHOST, 2)
        if settings.ca_file is not None:
            self._setopt(pycurl.CAINFO, settings.ca_file)
        self._setopt(pycurl.WRITEFUNCTION, self._receive)
        self._setopt(pycurl.HEADERFUNCTION, self._head.write)  # libcurl takes no more than 300 KB

    def prepare(self, callback: Callback, target: Target, waited_seconds: float = 0.0) -> None:
        """Set what this callback needs. Raises ``Unsendable``.

        ``waited_seconds`` of its deadline went into looking its host's name up.
        """
        if not callback.url[:8].lower().startswith(_SCHEMES):
            raise Unsendable("the URL must begin with http:// or https://")
        try:
            self._address(callback)
        except (TypeError, ValueError):  # NUL, a lone surrogate, or a header that is not Latin-1
            raise Unsendable("the URL or a header has a character that cannot be sent") from None
        if target.pins:
            # On every callback, since it costs next to nothing: so no order of events can leave libcurl without the
            # addresses, or with others. A list that was set for another host is not applied again by itself.
            self._setopt(pycurl.RESOLVE, target.pins)
        self._target = target
        self._is_refused = self._is_sent = self._is_cut_off = False
        self._waited_seconds = waited_seconds
        body = callback.body
        kind = callback.method, body is not None, callback.has_own_connection
        if kind != self._kind:
            self._change_kind(*kind)
        if body is not None:
            self._setopt(pycurl.POSTFIELDS, body)
            self._is_large = len(body) > _MAX_KEPT_BODY_BYTES
        timeout_ms = max(1, ceil((callback.timeout_seconds - waited_seconds) * 1000))  # 0 would mean no deadline
        if timeout_ms != self._timeout_ms:
            self._setopt(pycurl.TIMEOUT_MS, timeout_ms)
            self._timeout_ms = timeout_ms
        self._opened.clear()
        self.key = callback.key

    def start_afresh(self) -> None:
        """Prepare what was ``is_stale`` for a new connection, within what is left of its deadline."""
        self.is_stale = False
        self._waited_seconds = self._seconds()
        self._timeout_ms = max(1, self._timeout_ms - int(self._getinfo(pycurl.TOTAL_TIME) * 1000))
        self._setopt(pycurl.TIMEOUT_MS, self._timeout_ms)
        self._setopt(pycurl.FRESH_CONNECT, 1)
        self._kind = None

    def _change_kind(self, method: Method, has_body: bool, has_own_connection: bool) -> None:
        """Set what is not as it was for the callback before, or must not be as it was for this one."""
        self._kind = (method, has_body, has_own_connection)
        self._has_own_connection = has_own_connection
        self._setopt(pycurl.POST if has_body else pycurl.HTTPGET, 1)
        # With its own word for the method, libcurl does not take the body of a POST to be of one.
        self._setopt(pycurl.CUSTOMREQUEST, str(method))
        self._setopt(pycurl.FRESH_CONNECT, has_own_connection)
        self._setopt(pycurl.FORBID_REUSE, has_own_connection)

    def _address(self, callback: Callback) -> None:
        headers = (*callback.headers, _NO_EXPECT)
        try:
            self._setopt(pycurl.URL, callback.url)
            self._setopt(pycurl.HTTPHEADER, headers)
        except UnicodeEncodeError:  # pycurl takes text in ASCII alone
            self._setopt(pycurl.URL, callback.url.encode())
            self._setopt(pycurl.HTTPHEADER, [header.encode("latin-1") for header in headers])

    def succeeded(self) -> CallbackResult:
        """Return the result of a transfer that ended well."""
        return self._answer(self._getinfo(pycurl.RESPONSE_CODE))

    def failed(self, code: int, message: str) -> CallbackResult:
        """Return the result of a transfer that libcurl gave up with error ``code``."""
        if code == pycurl.E_WRITE_ERROR and self._truncated:
            return self._answer(self._getinfo(pycurl.RESPONSE_CODE))  # it was us who would not read on
        if self._is_refused:
            message = "the connection would have led to an address that may not be called"
            return error_result(self.key, TransportError.REFUSED_ADDRESS, message, self._seconds())
        if self._is_cut_off:
            message = "the connection, kept from an earlier request, was closed before a response came"
            return error_result(self.key, TransportError.PROTOCOL, message, self._seconds())
        error = _ERRORS.get(code, TransportError.PROTOCOL)
        if code == pycurl.E_UNSUPPORTED_PROTOCOL and not self._getinfo(pycurl.REQUEST_SIZE):
            error = TransportError.REFUSED_URL  # after a request it means a response that is not HTTP/1
        # libcurl says nothing of a line that is too long for it, for example.
        message = message or f"the response cannot be read as HTTP (libcurl's error {code})"
        return error_result(self.key, error, message, self._seconds())

    def release(self) -> None:
        """Forget the response, and a large body, before the handle waits for its next callback."""
        self._head.seek(0)
        self._head.truncate()
        if self._chunks:
            self._chunks.clear()
            self._room = MAX_RESPONSE_BYTES
            self._truncated = False
        if self._is_large:
            self._setopt(pycurl.POSTFIELDS, b"")
            self._is_large = False

    def close(self) -> None:
        self.handle.close()

    def _answer(self, status: int) -> CallbackResult:
        chunks = self._chunks
        head = _final_head(self._head.getvalue())
        retry_after = _retry_after(head) if chunks or not 200 <= status < 300 else None
        return CallbackResult(
            self.key,
            status,
            b"".join(chunks),
            retry_after,
            None,
            "",
            self._seconds(),
            self._truncated,
            head,
        )

    def _seconds(self) -> float:
        return float(self._getinfo(pycurl.TOTAL_TIME)) + self._waited_seconds

    def _open_socket(self, _purpose: int, address: Any) -> socket.socket | int:
        """Serve libcurl's wish to connect: once per connection and address, before anything is sent."""
        if self._is_sent:  # it wants to send the request again: see _may_send
            self._is_cut_off = True
            return int(pycurl.SOCKET_BAD)
        if self._guard.may_connect(self._target, address.family, address.addr[0]):
            return _Handed(address.family, address.socktype, address.protocol)
        self._is_refused = True
        return int(pycurl.SOCKET_BAD)

    def _note_socket(self, descriptor: int, _purpose: int) -> int:
        """Serve libcurl's callback with a socket that it will connect: a duplicate of the one that was opened for
        it."""
        os.set_inheritable(descriptor, False)  # a duplicate has lost that
        self._opened.append(descriptor)
        return 0  # CURL_SOCKOPT_OK

    def _may_send(self, *connection: Any) -> int:
        """Serve libcurl's pre-request callback: a connection is there, and the request would be written next.

        When a reused connection ends before any byte of a response, libcurl would send the request again, over up to
        five more connections. The receiver may have read it: so one attempt is one request, and this one has failed.
        A connection that is found closed here is none of these: nothing was sent, and ``start_afresh`` follows.
        """
        if self._is_sent:
            self._is_cut_off = True
            return _ABORT
        if self._opened:
            if not self._has_own_connection:
                self._connections.made(connection, self._opened)
        elif self._connections.is_ended(connection):
            self.is_stale = True
            return _ABORT
        self._is_sent = True
        return _PROCEED

    def _receive(self, data: bytes) -> int | None:
        """Serve libcurl's write callback: None takes all; fewer bytes than given abort the transfer."""
        if len(data) <= self._room:
            self._chunks.append(data)
            self._room -= len(data)
            return None
        self._chunks.append(data[: self._room])
        self._room = 0
        self._truncated = True
        return 0


@lru_cache(maxsize=64)
def _final_head(received: bytes) -> tuple[bytes, ...]:
    """Return the lines of the last head: it replaces informational ones (1xx). Within a second many are the same."""
    head: list[bytes] = []
    room = 0
    for line in received.split(b"\n")[:-1]:
        if line.startswith(b"HTTP/"):
            head.clear()
            room = MAX_HEAD_BYTES
        elif line in (b"\r", b""):
            room = 0  # trailers are no part of the head
        if len(line) < room:
            room -= len(line) + 1 + _LINE_OVERHEAD
            head.append(line + b"\n")
    return tuple(head)


def _retry_after(head: Sequence[bytes]) -> str | None:
    """Return the header's value as it came. libcurl reads it too, but takes nonsense for a number."""
    for line in head:
        if line[: len(_RETRY_AFTER)].lower() == _RETRY_AFTER:
            return line[len(_RETRY_AFTER) :].strip().decode("latin-1")
    return None


def error_result(key: int, error: TransportError, message: str, duration_seconds: float = 0.0) -> CallbackResult:
    """Return a result without a response. ``message`` may quote what the other side sent, so it is made harmless."""
    shown = "".join(character if character.isprintable() else "?" for character in message[:_MAX_MESSAGE_CHARACTERS])
    return CallbackResult(key, None, b"", None, error, shown, duration_seconds)
