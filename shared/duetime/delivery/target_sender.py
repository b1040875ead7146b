"""Sends what goes to targets on AWS beside what goes to URLs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Protocol

from duetime.delivery.egress import EgressPolicy, RefusedUrl
from duetime.delivery.headers import header_line
from duetime.delivery.port import Callback, CallbackResult, Sender, TransportError
from duetime.delivery.targets import AwsRequest, read_result, target_request
from duetime.domain.targets import Service, Target, is_arn

OnResults = Callable[[list[CallbackResult]], None]


class Unsigned(Exception):
    """A request could not be signed. The message tells why and shows no secret."""


class Aws(Protocol):
    """Who speaks to AWS as what. Called in a thread; may block."""

    def endpoint(self, target: Target) -> str:
        """Return the URL of the service, without a path and without a slash at its end."""
        ...

    def sign(self, request: AwsRequest) -> Mapping[str, str]:
        """Return the headers to send, those of ``request`` among them. Raises ``Unsigned``."""
        ...


class TargetSender:
    """``delivery.port.Sender``: what goes to ARNs is signed and has a sender of its own, the rest has ``http``."""

    def __init__(
        self, http: Sender, *, egress: EgressPolicy, make_sender: Callable[[], Sender], make_aws: Callable[[], Aws]
    ) -> None:
        """``make_sender`` and ``make_aws`` are called when the first target is met."""
        self._http = http
        self._egress = egress
        self._make_sender = make_sender
        self._make_aws = make_aws
        self._on_results: OnResults | None = None
        self._targets: _Targets | None = None

    def start(self, on_results: OnResults) -> None:
        self._http.start(on_results)
        self._on_results = on_results

    def submit(self, callbacks: Sequence[Callback]) -> None:
        to_targets = [callback for callback in callbacks if is_arn(callback.url)]
        if not to_targets:
            self._http.submit(callbacks)
            return
        if len(to_targets) < len(callbacks):
            self._http.submit([callback for callback in callbacks if not is_arn(callback.url)])
        if self._targets is None:
            if self._on_results is None:
                raise RuntimeError("the sender is closed")
            self._targets = _Targets(self._egress, self._make_sender(), self._make_aws, self._on_results)
        self._targets.submit(to_targets)

    def close(self) -> None:
        self._http.close()
        targets, self._targets, self._on_results = self._targets, None, None
        if targets is not None:
            targets.close()


class _Targets:
    """From the first target to ``close``. One thread signs: finding credentials may take its time."""

    def __init__(
        self, egress: EgressPolicy, sender: Sender, make_aws: Callable[[], Aws], on_results: OnResults
    ) -> None:
        self._egress = egress
        self._sender = sender
        self._make_aws = make_aws
        self._on_results = on_results
        self._aws: Aws | None = None
        self._services: dict[int, Service] = {}
        """Of the requests that are under way, by their keys."""
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="duetime-signer")
        self._is_closed = False
        sender.start(self._take)

    def submit(self, callbacks: Sequence[Callback]) -> None:
        loop = asyncio.get_running_loop()
        signing = loop.run_in_executor(self._thread, partial(self._sign_all, callbacks))
        signing.add_done_callback(self._send)

    def close(self) -> None:
        self._is_closed = True
        self._sender.close()
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _sign_all(self, callbacks: Sequence[Callback]) -> list[tuple[Callback, Service] | CallbackResult]:
        """Sign all requests, in the thread of the signer."""
        return [self._sign(callback) for callback in callbacks]

    def _sign(self, callback: Callback) -> tuple[Callback, Service] | CallbackResult:
        try:
            target = self._egress.check_target(callback.url)
            if self._aws is None:
                self._aws = self._make_aws()
            request = target_request(target, callback, self._aws.endpoint(target))
            headers = tuple(header_line(*each) for each in self._aws.sign(request).items())
        except RefusedUrl as error:
            return _unsent(callback, TransportError.REFUSED_URL, f"the ARN {error}")
        except Unsigned as error:
            return _unsent(callback, TransportError.ABORTED, str(error))
        except Exception as error:  # what nobody foresaw about one must not cost the others theirs
            return _unsent(callback, TransportError.ABORTED, f"no request could be made: {type(error).__name__}")
        return replace(callback, url=request.url, headers=headers, body=request.body), target.service

    def _send(self, signing: asyncio.Future[list[tuple[Callback, Service] | CallbackResult]]) -> None:
        if self._is_closed or signing.cancelled():
            return
        made = signing.result()
        unsent = [each for each in made if isinstance(each, CallbackResult)]
        signed = [each for each in made if not isinstance(each, CallbackResult)]
        self._services |= {callback.key: service for callback, service in signed}
        if signed:
            self._sender.submit([callback for callback, _ in signed])
        if unsent:
            self._on_results(unsent)

    def _take(self, results: list[CallbackResult]) -> None:
        self._on_results([read_result(self._services.pop(result.key), result) for result in results])


def _unsent(callback: Callback, error: TransportError, message: str) -> CallbackResult:
    return CallbackResult(callback.key, None, b"", None, error, message, 0.0)
