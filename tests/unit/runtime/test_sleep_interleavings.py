"""All interleavings of those that store timers, that fall asleep and that wake: no timer is left without a poller.

Each actor runs the code of ``runtime.waking`` and ``runtime.sleeping``. What it asks of the store is a step, which
leads from one state of the world to the next. An actor is deterministic, so the answers that it got are its state: it
is run again with these to see what it asks next. Every state that can be reached is visited once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any

import pytest

from duetime.runtime import sleeping
from duetime.runtime.sleeping import IDLE_SECONDS, FallingAsleep, sleeps_on
from duetime.runtime.waking import TRUST_SECONDS, Waker, is_awake
from duetime.stores.port.timers import DuePage
from tests.support.clock import NOW
from tests.support.engine import make_timer

DUE = make_timer("due", execute_at=NOW)
IDLE = {"timers_read": 0, "in_flight": 0, "shards_owned": 1}
Step = tuple[Any, ...]


@dataclass(frozen=True)
class World:
    """``histories``: the answers that each actor got. ``owners``: by shard. ``trusting``: writers that have seen the
    pollers awake, or have woken them; ``awaited``: by poller, those of them that it waits for."""

    epoch: int
    owners: tuple[str | None, ...]
    histories: tuple[tuple[str, tuple[Any, ...]], ...]
    due: frozenset[int] = frozenset()
    trusting: frozenset[str] = frozenset()
    awaited: tuple[tuple[str, frozenset[str]], ...] = ()
    invocations: int = 0
    crashed: frozenset[str] = frozenset()

    def answered(self, actor: str, answer: Any) -> World:
        histories = dict(self.histories)
        histories[actor] = (*histories.get(actor, ()), answer)
        return replace(self, histories=tuple(sorted(histories.items())))


class Asked(BaseException):
    """Not an ``Exception``: no code under test may take it for an error of the store."""

    def __init__(self, step: Step) -> None:
        self.step = step


@dataclass
class Actor:
    """What an actor asks: each of its methods is a step, and some of the ports that the code uses."""

    answers: tuple[Any, ...]
    asked: int = 0
    seconds: float = 0.0

    def ask(self, *step: Any) -> Any:
        self.asked += 1
        if self.asked > len(self.answers):
            raise Asked(step)
        return self.answers[self.asked - 1]

    @property
    def leases(self) -> Actor:
        return self

    @property
    def timers(self) -> Actor:
        return self

    def now(self) -> datetime:
        return NOW + timedelta(seconds=self.seconds)

    def monotonic(self) -> float:
        return self.seconds

    def sleep_epoch(self) -> int:
        return int(self.ask("read epoch"))

    def advance_sleep_epoch(self, epoch: int) -> bool:
        return bool(self.ask("advance epoch", epoch))

    def due(self, shard_id: int, **_: Any) -> DuePage:
        return DuePage([DUE] if self.ask("read due", shard_id) else [])

    def invoke(self, *_: Any) -> None:
        self.ask("invoke")


_UNSEEN: tuple[Step, ...] = (("begin to wait",), ("end trust",))
Code = Callable[[Any], None]
SHARDS = 2


def writer(shard_id: int) -> Code:
    """It has stored another timer some time ago, after which it may trust; then it stores one that is due."""

    def act(actor: Actor) -> None:
        waker = Waker(actor, clock=actor, invoke=actor.invoke, function="poller")
        waker([DUE])
        actor.ask("store", shard_id)
        waker([DUE])
        actor.ask("end trust")

    return act


def poller(shard_id: int, *, shards: Sequence[int], is_first: bool) -> Code:
    """It has been idle for long."""

    def act(actor: Actor) -> None:
        drowsy = FallingAsleep(actor, actor, longest_drain_seconds=0)  # type: ignore[arg-type]  # what is used of it

        def is_time(stats: dict[str, int]) -> bool:
            return drowsy.is_time(stats, shards=1, all_shards=shards, is_first=is_first)

        is_time(IDLE)
        actor.seconds += IDLE_SECONDS + 1
        is_time(IDLE)
        actor.ask("begin to wait")
        has_read = actor.ask("read due", shard_id)  # its last poll
        actor.ask("wait")
        actor.seconds += TRUST_SECONDS + 10
        if not is_time(IDLE | {"timers_read": 1} if has_read else IDLE):
            return  # it polls on
        actor.ask("release", shard_id)
        if not drowsy.is_asleep([shard_id]):
            actor.invoke()

    return act


def invocation(shards: Sequence[int], *, is_woken: bool) -> Code:
    """By whoever wakes, or by the schedule."""

    def act(actor: Actor) -> None:
        if not sleeps_on(actor, shards, clock=actor, is_woken=is_woken):  # type: ignore[arg-type]  # what is used of it
            for shard_id in shards:
                if actor.ask("is free", shard_id):
                    actor.ask("claim", shard_id)

    return act


@dataclass
class Exploration:
    """``codes`` by actor. ``crashes``: how many actors may end at any step. ``waits`` False: pollers do not wait."""

    codes: dict[str, Code]
    shards: Sequence[int]
    crashes: int = 0
    waits: bool = True
    wake: Code | None = None
    states: set[World] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.next_step = lru_cache(None)(self._next_step)

    def _next_step(self, actor: str, answers: tuple[Any, ...]) -> Step | None:
        wake = self.wake or invocation(self.shards, is_woken=True)
        code = wake if actor.startswith("invocation") else self.codes[actor]
        try:
            code(Actor(answers))
        except Asked as asked:
            return asked.step
        return None

    def take(self, world: World, actor: str, step: Step) -> World | None:
        """The world after ``step``; None: it has to wait."""
        name, *given = step
        answer: Any = None
        if name == "read epoch":
            answer = world.epoch
            if actor.startswith("writer") and is_awake(world.epoch):
                world = replace(world, trusting=world.trusting | {actor})
        elif name == "advance epoch":
            answer = world.epoch == given[0]
            world = replace(world, epoch=world.epoch + answer)
        elif name == "read due":
            answer = given[0] in world.due
        elif name == "store":
            world = replace(world, due=world.due | {given[0]})
        elif name == "end trust":
            world = replace(world, trusting=world.trusting - {actor})
        elif name == "begin to wait":
            world = replace(world, awaited=(*world.awaited, (actor, world.trusting)))
        elif name == "wait":
            if self.waits and dict(world.awaited)[actor] & world.trusting:
                return None
        elif name == "invoke":
            world = replace(world, invocations=world.invocations + 1, trusting=world.trusting | {actor})
        else:
            answer, world = self._own(world, actor, name, given[0])
        return world.answered(actor, answer)

    @staticmethod
    def _own(world: World, actor: str, name: str, shard_id: int) -> tuple[bool, World]:
        owners = list(world.owners)
        is_free = owners[shard_id] is None
        if name == "release":
            owners[shard_id] = None
        elif name == "claim" and is_free:
            owners[shard_id] = actor
        return is_free, replace(world, owners=tuple(owners))

    def following(self, world: World) -> Iterator[World]:
        histories = dict(world.histories)
        for actor in self.actors(world, histories):
            step = self.next_step(actor, histories.get(actor, ()))
            if step is None or actor in world.crashed:
                continue
            after = self.take(world, actor, step)
            if after is not None:
                yield self.settled(after, actor)
            if len(world.crashed) < self.crashes:
                yield self.crash(world, actor)

    def actors(self, world: World, histories: Mapping[str, object]) -> Iterator[str]:
        """Those who may take the next step. Of invocations that have not begun one will do: they are alike."""
        yield from self.codes
        for number in range(world.invocations):
            yield f"invocation {number}"
            if f"invocation {number}" not in histories:
                break

    def settled(self, world: World, actor: str) -> World:
        """``world`` after the steps that nobody else sees."""
        while (step := self.next_step(actor, dict(world.histories)[actor])) is not None and step in _UNSEEN:
            after = self.take(world, actor, step)
            assert after is not None
            world = after
        return world

    @staticmethod
    def crash(world: World, actor: str) -> World:
        """It takes no step any more, and its leases end."""
        owners = tuple(None if owner == actor else owner for owner in world.owners)
        return replace(world, crashed=world.crashed | {actor}, trusting=world.trusting - {actor}, owners=owners)

    def ends(self, world: World) -> Iterator[World]:
        """Every world in which nobody takes a step any more."""
        waiting = [world]
        while waiting:
            world = waiting.pop()
            known = len(self.states)
            self.states.add(world)
            if len(self.states) == known:
                continue
            following = list(self.following(world))
            if not following:
                yield world
            waiting += following

    def tick(self, world: World) -> World:
        """The world after a start of the watchdog that nobody disturbs."""
        self.codes["last tick"] = invocation(self.shards, is_woken=False)
        answers: tuple[Any, ...] = ()
        while (step := self.next_step("last tick", answers)) is not None:
            after = self.take(world, "last tick", step)
            assert after is not None
            world, answers = after, dict(after.histories)["last tick"]
        return world


def unserved(world: World) -> set[int]:
    """The shards in which something is due and that nobody polls."""
    return {shard_id for shard_id in world.due if world.owners[shard_id] is None}


def explore(codes: dict[str, Code], *, parts: int = 1, **more: Any) -> tuple[Exploration, list[World]]:
    """From a world in which a poller owns each shard, or (``parts`` 0) in which they sleep."""
    shards = range(max(1, parts))
    codes = {
        **{f"poller {each}": poller(each, shards=shards, is_first=each == 0) for each in range(parts)},
        **codes,
    }
    owners = tuple(f"poller {each}" if each < parts else None for each in range(SHARDS))
    exploration = Exploration(codes, shards, **more)
    return exploration, list(exploration.ends(World(1 if parts else 0, owners, ())))


TICK = {"tick": invocation(range(1), is_woken=False)}
TWO_WRITERS = {"writer 0": writer(0), "writer 1": writer(0)}


@pytest.mark.parametrize(
    ("codes", "parts"),
    [
        (TWO_WRITERS, 1),
        ({"writer 0": writer(0), **TICK}, 1),
        (TWO_WRITERS, 0),
        ({"writer 0": writer(0)}, 2),
        ({"writer 0": writer(1)}, 2),
    ],
    ids=[
        "two writers",
        "a writer and a tick",
        "two writers, asleep",
        "two parts, the first",
        "two parts, the second",
    ],
)
def test_whoever_stores_a_timer_that_is_due_finds_a_poller_awake_or_wakes_one(
    codes: dict[str, Code], parts: int
) -> None:
    exploration, ends = explore(codes, parts=parts)

    assert ends
    assert not any(unserved(world) for world in ends)
    assert len(exploration.states) > 50


@pytest.mark.parametrize(
    ("codes", "parts"),
    [(TWO_WRITERS, 1), ({"writer 0": writer(0), **TICK}, 1), ({"writer 0": writer(1)}, 2), (TWO_WRITERS, 0)],
    ids=["two writers", "a tick", "two parts", "asleep"],
)
def test_whoever_crashes_at_whatever_step_the_next_start_of_the_watchdog_finds_what_is_due(
    codes: dict[str, Code], parts: int
) -> None:
    exploration, ends = explore(codes, parts=parts, crashes=1)

    assert any(unserved(world) for world in ends)  # a writer that has stored and not looked, say
    assert not any(unserved(exploration.tick(world)) for world in ends)


def test_they_do_fall_asleep() -> None:
    exploration, (end,) = explore({})

    assert (end.epoch, end.owners[0]) == (2, None)
    assert exploration.tick(end).owners[0] is None


# -- what is left out would lose a timer: the exploration finds it ------------------------------------------------


def test_pollers_have_to_wait_for_writers_that_trust() -> None:
    _, ends = explore(TWO_WRITERS, waits=False)

    assert any(unserved(world) for world in ends)


def test_pollers_have_to_look_once_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sleeping, "_is_quiet", lambda *_: True)
    _, ends = explore(TWO_WRITERS)

    assert any(unserved(world) for world in ends)


def test_pollers_have_to_see_that_they_were_woken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FallingAsleep, "is_asleep", lambda *_: True)
    _, ends = explore(TWO_WRITERS)

    assert any(unserved(world) for world in ends)


def test_whoever_wakes_has_to_say_so_before_it_looks_who_polls() -> None:
    def look_first(actor: Actor) -> None:
        is_free = actor.ask("is free", 0)
        sleeps_on(actor, [0], clock=actor, is_woken=True)  # type: ignore[arg-type]  # what is used of it
        if is_free:
            actor.ask("claim", 0)

    _, ends = explore(TWO_WRITERS, wake=look_first)

    assert any(unserved(world) for world in ends)
