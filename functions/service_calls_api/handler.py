"""The API of service calls on Lambda. Built while the function initialises, when it has a whole processor."""

from __future__ import annotations

from duetime.runtime.api_wiring import service_calls_api_function

lambda_handler = service_calls_api_function()
