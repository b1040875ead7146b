"""The routes of timers and of all that is no service call's. ``all_routes`` has those of service calls too.

The first route that matches counts: the words after /timers/ are ids for every method but POST.
"""

from __future__ import annotations

from duetime.api.documents import console
from duetime.api.documents import endpoints as documents
from duetime.api.keys import endpoints as keys
from duetime.api.namespaces import endpoints as namespaces
from duetime.api.namespaces import secrets
from duetime.api.timers import attempts, batches, lists, redrives
from duetime.api.timers import endpoints as timers
from duetime.api.webhooks import endpoints as webhooks

ROUTES = (
    *namespaces.ROUTES,
    *secrets.ROUTES,
    *batches.ROUTES,
    *timers.ROUTES,
    *lists.ROUTES,
    *redrives.ROUTES,
    *attempts.ROUTES,
    *keys.ROUTES,
    *webhooks.ROUTES,
    *documents.ROUTES,
    *console.ROUTES,
)
