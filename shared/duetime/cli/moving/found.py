"""What a file of another scheduler holds, in the terms of the API."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import quote

NO_URL: Final = "give --callback-url"
_NOT_IN_SLUGS: Final = re.compile(r"[^A-Za-z0-9._-]+")
_MAX_SLUG = 40


@dataclass(frozen=True, slots=True)
class Found:
    """What stands at ``line``. ``schedule``: a body of the API with its id; None: it is not carried over.

    ``notes`` say why it is not, or what will differ. Without ``is_schedule`` it is none in its own format either.
    """

    line: int
    schedule: Mapping[str, Any] | None = field(default=None, repr=False)
    notes: tuple[str, ...] = ()
    is_schedule: bool = True


def target(url: str, schedule_id: str) -> str:
    """Return the URL of a template, whose ``{id}`` stands for the id of the schedule."""
    return url.replace("{id}", quote(schedule_id, safe=""))


def id_of(name: str, *parts: Any) -> str:
    """Return an id that begins with ``name`` and is the same for the same ``parts``."""
    mark = hashlib.blake2b(json.dumps(parts).encode(), digest_size=4).hexdigest()
    slug = _NOT_IN_SLUGS.sub("-", name).strip("-.")[:_MAX_SLUG]
    return f"{slug}-{mark}" if slug else mark
