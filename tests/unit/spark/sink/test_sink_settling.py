"""A version is there once: whatever dies, whatever is lost, whoever else writes it at the same time."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("pyspark", reason="the extra replog[spark] is not installed")

from replog.errors import InvalidTxnStateError, ReplogError, RequestTimedOutError
from replog.spark.sink.once.decisions import Decision, Prepared, WriterStanding
from replog.spark.sink.once.names import AttemptName, Version
from replog.spark.sink.once.settling import Settled, abort_version, commit_version, end_writer
from tests.random_examples import examples
from tests.unit.spark.sink.settling_kit import (
    ANSWERED,
    LOST_ON_THE_WAY,
    LOST_ON_THE_WAY_BACK,
    WRITER,
    ModelLedger,
    World,
    drive,
    operate,
    settle_down,
)

FATES = st.sampled_from([ANSWERED] * 8 + [LOST_ON_THE_WAY, LOST_ON_THE_WAY_BACK])


async def alone(world: World, number: int, tasks_count: int) -> Settled | None:
    """Runs a version with nobody else, and nothing lost."""
    driver = asyncio.create_task(drive(world, number, tasks_count, (), fails=False))
    while not driver.done():
        await settle_down()
        if world.waiting:
            world.waiting.pop(0).set_result(ANSWERED)
    return await driver


async def wake(world: World) -> None:
    """Lets attempts that were held up go on behind the last version, with nobody to look for them."""
    world.woken.set()
    await settle_down()
    while world.waiting:
        world.waiting.pop(0).set_result(ANSWERED)
        await settle_down()
    await asyncio.gather(*world.held_up, return_exceptions=True)


def check(world: World, last: int, tasks_count: int) -> None:
    """Each version up to the last one is there once, and nothing is open that nobody will ever end."""
    for number in range(last + 1):
        assert world.committed(number) == list(range(tasks_count))
    for each in world.transactions.values():
        assert each.status != "open", f"{each.name.transactional_id} holds readers back"
    assert [each.version.number for each in world.log] == sorted(each.version.number for each in world.log)


@settings(max_examples=examples(50), deadline=None)
@given(st.data())
def test_each_version_is_there_once(data: st.DataObject) -> None:
    """Goal: two drivers and an operator at a time, attempts that are held up, lost answers, deaths; then one run of each version left."""

    async def run() -> None:
        world, tasks_count = World(), data.draw(st.integers(1, 3))
        for number in range(2):
            await disturb(data, world, number, tasks_count)
            settled = await alone(world, number, tasks_count)
            assert settled in {Settled.WRITTEN, Settled.WAS_WRITTEN}
        await alone(world, 2, tasks_count)
        await wake(world)
        check(world, 2, tasks_count)

    asyncio.run(run())


async def disturb(data: st.DataObject, world: World, number: int, tasks_count: int) -> None:
    """Lets some drivers write a version, at the same time, and kills those that are not done at the end."""
    drivers: list[asyncio.Task[Any]] = [
        asyncio.create_task(
            drive(
                world,
                number,
                tasks_count,
                data.draw(st.lists(st.integers(0, tasks_count - 1), max_size=2)),
                fails=data.draw(st.booleans()),
            )
        )
        for _ in range(data.draw(st.integers(1, 2)))
    ]
    drivers += [asyncio.create_task(operate(world)) for _ in range(data.draw(st.integers(0, 1)))]
    for _ in range(data.draw(st.integers(0, 60))):
        await settle_down()
        if not world.waiting:
            break
        turn = world.waiting.pop(data.draw(st.integers(0, len(world.waiting) - 1)))
        turn.set_result(data.draw(FATES))
    for driver in drivers:
        driver.cancel()
    results = await asyncio.gather(*drivers, return_exceptions=True)
    assert not [each for each in results if isinstance(each, InvalidTxnStateError)], "what was decided had been aborted"


async def test_a_driver_may_die_behind_each_call_of_a_commit() -> None:
    for deaths_at in range(30):
        world = World()
        driver = asyncio.create_task(drive(world, 0, 2, (0,), fails=False))
        for _ in range(deaths_at):
            await settle_down()
            if world.waiting:
                world.waiting.pop(0).set_result(ANSWERED)
        await settle_down()
        was_done = driver.done()
        driver.cancel()
        await asyncio.gather(driver, return_exceptions=True)
        assert await alone(world, 0, 2) in {Settled.WRITTEN, Settled.WAS_WRITTEN}
        await wake(world)
        check(world, 0, 2)
        if was_done:
            return
    pytest.fail("a commit has more calls than were tried")


class ScriptedLedger:
    """Answers at once, notes what it is asked, and fails where it is told to."""

    def __init__(self, decision: Decision | None, open_attempts: Sequence[AttemptName], fails_at: str = "") -> None:
        self.standing, self.attempts, self._fails_at = WriterStanding(decision), list(open_attempts), fails_at
        self.calls: list[str] = []

    async def read(self) -> WriterStanding:
        self._note("read")
        return self.standing

    async def give_up(self, runs: Collection[tuple[int, str]]) -> None:
        self._note("give up " + " ".join(f"{version}/{run[0]}" for version, run in runs))

    async def write(self, decision: Decision) -> None:
        self._note(f"write {decision.version.number}{' done' if decision.is_done else ''}")

    async def commit(self, name: AttemptName, attempt: object) -> None:
        self._note(f"commit {name.version.number}/{name.number}")

    async def abort(self, name: AttemptName) -> None:
        self._note(f"abort {name.version.number}/{name.number}")

    async def open_attempts(self) -> Sequence[AttemptName]:
        self._note("list")
        return self.attempts

    async def forget(self, names: Sequence[AttemptName]) -> None:
        self._note(f"forget {len(names)}")

    def _note(self, what: str) -> None:
        self.calls.append(what)
        if what == self._fails_at:
            raise RequestTimedOutError(f"{what} takes too long")


RUN, OTHER = "a" * 32, "b" * 32


def name(number: int, attempt: int, run: str = OTHER) -> AttemptName:
    return AttemptName(Version(WRITER, number), run, attempt)


async def test_a_failed_write_leaves_alone_what_another_driver_may_be_about_to_decide_for() -> None:
    ledger = ScriptedLedger(None, [name(3, 1), name(3, 2, RUN), name(2, 3, RUN)])
    assert await abort_version(ledger, Version(WRITER, 3), RUN) is None
    assert ledger.calls == ["read", "give up 3/a", "list", "abort 3/2", "forget 1"]


async def test_a_version_that_is_there_is_not_written_again_and_its_attempts_are_aborted() -> None:
    ledger = ScriptedLedger(Decision(Version(WRITER, 3), OTHER, None), [name(3, 1, RUN), name(4, 2)])
    assert await commit_version(ledger, Version(WRITER, 3), RUN, ()) is Settled.WAS_WRITTEN
    assert ledger.calls == ["read", "list", "abort 3/1", "forget 1"]


async def test_a_version_without_rows_costs_one_look() -> None:
    ledger = ScriptedLedger(None, [])
    assert await commit_version(ledger, Version(WRITER, 3), RUN, ()) is Settled.EMPTY
    assert ledger.calls == ["read"]


async def test_a_run_that_was_given_up_is_not_decided_for() -> None:
    ledger = ScriptedLedger(None, [])
    ledger.standing = WriterStanding(None, ((3, RUN),))
    with pytest.raises(ReplogError, match="was given up while it was being written"):
        await commit_version(ledger, Version(WRITER, 3), RUN, [Prepared(7, 1, 0)])
    assert await commit_version(ledger, Version(WRITER, 3), OTHER, [Prepared(8, 1, 0)]) is Settled.WRITTEN
    assert ledger.calls[:3] == ["read", "read", "write 3"]


async def test_who_ends_a_writer_commits_what_is_decided_and_gives_the_rest_up_first() -> None:
    decided = Decision(Version(WRITER, 3), RUN, (Prepared(7, 1, 0),))
    ledger = ScriptedLedger(decided, [name(4, 1), name(4, 2, RUN)])
    ended = await end_writer(ledger)
    assert (ended.finished, ended.aborted) == (Version(WRITER, 3), (name(4, 1), name(4, 2, RUN)))
    assert ledger.calls == ["read", "commit 3/7", "list", "write 3 done", "forget 1", "list", "give up 4/a 4/b", "abort 4/1", "abort 4/2", "forget 2"]  # fmt: skip


async def test_where_giving_up_fails_nothing_is_aborted() -> None:
    ledger = ScriptedLedger(None, [name(4, 1)], "give up 4/b")
    with pytest.raises(RequestTimedOutError):
        await end_writer(ledger)
    assert ledger.calls == ["read", "list", "give up 4/b"]


@pytest.mark.parametrize("fails_at", ["list", "abort 2/1", "forget 1"])
async def test_what_was_not_needed_fails_no_write(fails_at: str) -> None:
    ledger = ScriptedLedger(None, [name(2, 1)], fails_at)
    assert await commit_version(ledger, Version(WRITER, 3), RUN, [Prepared(7, 1, 0)]) is Settled.WRITTEN
    assert ledger.calls[:3] == ["read", "write 3", "commit 3/7"]
    assert "write 3 done" in ledger.calls


async def test_a_model_that_forgets_the_fence_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """A check of the model itself: of two drivers that both believe to be the last one, both decide."""
    world = World()
    ledgers = [ModelLedger(world), ModelLedger(world)]
    for ledger in ledgers:
        taking = asyncio.create_task(ledger.take_over())
        await settle_down()
        world.waiting.pop().set_result(ANSWERED)
        await taking
    version = Version(WRITER, 0)
    writing = [asyncio.create_task(ledger.write(Decision(version, RUN, ()))) for ledger in ledgers]
    await settle_down()
    for turn in tuple(world.waiting):
        turn.set_result(ANSWERED)
    first, second = await asyncio.gather(*writing, return_exceptions=True)
    assert type(first).__name__ == "ProducerFencedError"
    assert second is None
