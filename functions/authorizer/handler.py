"""The authorizer on Lambda. Built while the function initialises, when it has a whole processor."""

from __future__ import annotations

from duetime.runtime.api_wiring import authorizer_function

lambda_handler = authorizer_function()
