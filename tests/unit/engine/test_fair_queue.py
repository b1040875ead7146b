from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from duetime.engine.fair_queue import FairQueue
from tests.support.engine import make_shard, make_timer


def test_namespaces_take_turns_and_keep_their_order() -> None:
    queue, shard = FairQueue(), make_shard()
    for number in range(3):
        queue.add(shard, make_timer(f"a{number}", namespace="noisy"))
    queue.add(shard, make_timer("b0", namespace="quiet"))

    taken = [queue.take()[1].timer_id for _ in range(4)]

    assert taken == ["a0", "b0", "a1", "a2"]
    assert len(queue) == 0


def test_removing_leaves_the_others_in_order() -> None:
    queue, mine, other = FairQueue(), make_shard(0), make_shard(1)
    for number in range(4):
        queue.add(mine if number % 2 else other, make_timer(f"t{number}"))

    removed = [timer.timer_id for _, timer in queue.remove(lambda waiting: waiting[0] is mine)]

    assert removed == ["t1", "t3"]
    assert [queue.take()[1].timer_id for _ in range(len(queue))] == ["t0", "t2"]


@given(st.lists(st.sampled_from("abcd"), max_size=60))
def test_nothing_is_lost_and_no_namespace_waits_longer_than_one_round(namespaces: list[str]) -> None:
    queue, shard = FairQueue(), make_shard()
    for number, namespace in enumerate(namespaces):
        queue.add(shard, make_timer(str(number), namespace=namespace))
    waiting = {namespace: namespaces.count(namespace) for namespace in namespaces}
    taken: list[str] = []
    while len(queue):
        round_size = sum(1 for count in waiting.values() if count)
        turn = [queue.take()[1].namespace for _ in range(round_size)]
        assert len(set(turn)) == round_size
        for namespace in turn:
            waiting[namespace] -= 1
        taken += turn
    assert sorted(taken) == sorted(namespaces)
