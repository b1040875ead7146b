"""The poller on Lambda: started by a schedule, and by itself. See ``duetime.runtime.poller_function``."""

from __future__ import annotations

from functools import cache
from typing import Any

from duetime.runtime.poller_function import LambdaContext, PollerFunction
from duetime.runtime.wiring import poller_function

# Made by the first invocation, whose log then says what is wrong with the settings, if anything.
_function = cache(poller_function)


def lambda_handler(event: dict[str, Any], context: LambdaContext) -> dict[str, Any]:
    function: PollerFunction = _function()
    return function(event, context)
