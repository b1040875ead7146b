from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from duetime.engine.shards.sharing import fair_share


@given(st.integers(0, 5000), st.sets(st.text(min_size=1), min_size=1, max_size=20))
def test_shares_sum_to_the_total_and_differ_by_at_most_one(total: int, workers: set[str]) -> None:
    shares = [fair_share(total, sorted(workers), worker) for worker in workers]
    assert sum(shares) == total
    assert max(shares) - min(shares) <= 1


def test_a_worker_that_is_not_announced_yet_counts_itself() -> None:
    assert fair_share(16, ["other"], "me") == 8
