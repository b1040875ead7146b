"""The outbox on Lambda: started by the stream of the table of service calls, and every minute to look for what that
has lost. See ``duetime.runtime.outbox_function``.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from duetime.runtime.outbox_function import LambdaContext, OutboxFunction
from duetime.runtime.outbox_wiring import outbox_function

# Made by the first invocation, whose log then says what is wrong with the settings, if anything.
_function = cache(outbox_function)


def lambda_handler(event: dict[str, Any], context: LambdaContext) -> dict[str, Any]:
    function: OutboxFunction = _function()
    return function(event, context)
