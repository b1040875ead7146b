"""The timers API on Lambda. Built while the function initialises, when it has a whole processor."""

from __future__ import annotations

from duetime.runtime.api_wiring import timers_api_function

lambda_handler = timers_api_function()
