"""The routes of service calls, and all routes together: what one process serves, and the document has."""

from __future__ import annotations

from duetime.api.routes import ROUTES
from duetime.api.service_calls import endpoints, lists

CALL_ROUTES = (*endpoints.ROUTES, *lists.ROUTES)
ALL_ROUTES = (*ROUTES, *CALL_ROUTES)
