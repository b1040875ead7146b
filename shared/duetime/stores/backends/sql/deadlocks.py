"""Operations are tried again when the database ends their transaction to resolve a deadlock.

InnoDB locks rows by one index after the other, so even transactions of a single row can deadlock, whatever the order
of the statements. Databases then end one of them, which has stored nothing, and ask for it again.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

from duetime.stores.backends.sql.errors import TransactionAborted

MAX_TRIES = 10
"""With each try another transaction has ended, so only a crowd on the same rows needs several."""

P = ParamSpec("P")
R = TypeVar("R")


def retry_on_deadlock(operation: Callable[P, R]) -> Callable[P, R]:
    """Try ``operation`` again when its transaction was ended. Raises ``TransactionAborted`` after ``MAX_TRIES``."""

    @wraps(operation)
    def retried(*args: P.args, **kwargs: P.kwargs) -> R:
        for _ in range(MAX_TRIES - 1):
            try:
                return operation(*args, **kwargs)
            except TransactionAborted:
                continue
        return operation(*args, **kwargs)

    return retried
