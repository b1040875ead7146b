"""Test doubles for users of Duetime: a service in memory, a clock that is set, a receiver that is scripted.

See docs/testing.md. ``pip install 'duetime[testing]'`` brings what it needs and the pytest fixture ``duetime``.
"""

from duetime.api.http.errors import AdvanceUnfinished
from duetime.testing.memory import Clock, InMemoryDuetime, in_memory
from duetime.testing.receiver import Received, Receiver, Response, hang, refuse, respond, take

__all__ = [
    "AdvanceUnfinished",
    "Clock",
    "InMemoryDuetime",
    "Received",
    "Receiver",
    "Response",
    "hang",
    "in_memory",
    "refuse",
    "respond",
    "take",
]
