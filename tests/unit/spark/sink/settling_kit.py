"""Brokers, tasks and drivers of writes that are there once, as a model: any of them may stop at any moment, and any answer may be lost.

A step of the model is one call that reaches the brokers, or the death of a driver.  Which comes next is drawn.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Collection, Sequence
from typing import TypeVar

from replog.errors import InvalidTxnStateError, ProducerFencedError, ReplogError, RequestTimedOutError
from replog.spark.sink.once.decisions import Decision, Prepared, WriterStanding
from replog.spark.sink.once.names import AttemptName, Version, new_run
from replog.spark.sink.once.settling import Ended, Settled, abort_version, commit_version, end_writer

T = TypeVar("T")

WRITER = "app:model"

ANSWERED, LOST_ON_THE_WAY, LOST_ON_THE_WAY_BACK = range(3)


class Transaction:
    """One attempt's: its rows are those of a task of its version."""

    def __init__(self, name: AttemptName, task: int) -> None:
        self.name = name
        self.task = task
        self.status = "begun"
        self.is_forgotten = False


class World:
    """What brokers keep, and the calls that wait to reach them."""

    def __init__(self) -> None:
        self.log: list[Decision] = []
        self.given_up: tuple[tuple[int, str], ...] = ()
        self.driver_epoch = 0
        self.transactions: dict[str, Transaction] = {}
        self.turns = itertools.count()
        self.woken = asyncio.Event()
        self.held_up: list[asyncio.Task[Prepared | None]] = []
        self.waiting: list[asyncio.Future[int]] = []
        self._numbers = itertools.count()

    async def call(self, do: Callable[[], T]) -> T:
        """Does one call when it is its turn, with what becomes of it."""
        turn: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self.waiting.append(turn)
        try:
            fate = await turn
        finally:
            if turn in self.waiting:
                self.waiting.remove(turn)
        if fate == LOST_ON_THE_WAY:
            raise RequestTimedOutError("lost on the way")
        result = do()
        if fate == LOST_ON_THE_WAY_BACK:
            raise RequestTimedOutError("the answer was lost")
        return result

    def standing(self) -> WriterStanding:
        """Where the writer stands."""
        return WriterStanding(self.log[-1] if self.log else None, self.given_up)

    def begin(self, version: Version, run: str, task: int) -> Transaction:
        """Writes the rows of a task, in a transaction of an attempt of its own."""
        name = AttemptName(version, run, next(self._numbers))
        transaction = self.transactions[name.transactional_id] = Transaction(name, task)
        return transaction

    def prepare(self, transaction: Transaction) -> Prepared:
        """Prepares the transaction of an attempt, unless somebody has ended it."""
        if transaction.status != "begun":
            raise ProducerFencedError(f"{transaction.name.transactional_id} is {transaction.status}")
        transaction.status = "open"
        return Prepared(transaction.name.number, transaction.name.number, 0)

    def committed(self, number: int) -> list[int]:
        """The tasks whose rows of a version are there."""
        found = [each for each in self.transactions.values() if each.name.version.number == number]
        return sorted(each.task for each in found if each.status == "committed")


class ModelLedger:
    """One driver's way to the model; see `Ledger`."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._epoch = 0

    async def take_over(self) -> None:
        def do() -> None:
            self._world.driver_epoch += 1
            self._epoch = self._world.driver_epoch

        await self._world.call(do)

    async def read(self) -> WriterStanding:
        return await self._world.call(self._world.standing)

    async def write(self, decision: Decision) -> None:
        def do() -> None:
            if self._epoch != self._world.driver_epoch:
                raise ProducerFencedError("another driver has come")
            self._world.log.append(decision)

        await self._world.call(do)

    async def give_up(self, runs: Collection[tuple[int, str]]) -> None:
        def do() -> None:
            if self._epoch != self._world.driver_epoch:
                raise ProducerFencedError("another driver has come")
            self._world.given_up = tuple(runs)

        await self._world.call(do)

    async def commit(self, name: AttemptName, attempt: Prepared) -> None:
        def do() -> None:
            transaction = self._world.transactions[name.transactional_id]
            if transaction.status == "aborted" or transaction.is_forgotten:
                raise InvalidTxnStateError(f"{name.transactional_id} is {transaction.status}")
            transaction.status = "committed"

        await self._world.call(do)

    async def abort(self, name: AttemptName) -> None:
        def do() -> None:
            transaction = self._world.transactions[name.transactional_id]
            if transaction.status in {"begun", "open"}:
                transaction.status = "aborted"

        await self._world.call(do)

    async def open_attempts(self) -> Sequence[AttemptName]:
        return await self._world.call(
            lambda: [each.name for each in self._world.transactions.values() if each.status in {"begun", "open"}]
        )

    async def forget(self, names: Collection[AttemptName]) -> None:
        def do() -> None:
            for name in names:
                self._world.transactions[name.transactional_id].is_forgotten = True

        await self._world.call(do)


async def run_task(world: World, version: Version, run: str, task: int) -> Prepared | None:
    """Runs an attempt of a task as `write_once` does; where it does not come to prepare, it aborts, or its time-out does."""
    transaction = await world.call(lambda: world.begin(version, run, task))
    try:
        standing = await world.call(world.standing)
        if standing.is_decided(version) or standing.is_given_up(version, run):
            return None
        return await world.call(lambda: world.prepare(transaction))
    finally:
        if transaction.status == "begun":
            transaction.status = "aborted"


async def run_held_up(world: World, version: Version, run: str, task: int) -> Prepared | None:
    """Runs an attempt of a task that nobody hears of, at once or when everybody else has gone."""
    if next(world.turns) % 2:
        await world.woken.wait()
    return await run_task(world, version, run, task)


async def operate(world: World) -> Ended:
    """Ends what the writer has open, as an operator does who believes its driver dead."""
    ledger = ModelLedger(world)
    await ledger.take_over()
    return await end_writer(ledger)


async def drive(world: World, number: int, tasks_count: int, losers: Sequence[int], *, fails: bool) -> Settled | None:
    """Runs a version as Spark does: tasks, then the end; None: it was aborted.

    Args:
        world: The brokers.
        number: The number of the version.
        tasks_count: The tasks that write rows.
        losers: Tasks that also have an attempt that nobody hears of, which ends whenever it likes.
        fails: Whether a task fails.
    """
    version, run = Version(WRITER, number), new_run()
    prepared: list[Prepared] = []
    for task in range(tasks_count):
        for _ in range(losers.count(task)):
            world.held_up.append(asyncio.create_task(run_held_up(world, version, run, task)))
        written = await run_task(world, version, run, task)
        prepared += [] if written is None else [written]
    ledger = ModelLedger(world)
    await ledger.take_over()
    if fails:
        return await abort_version(ledger, version, run)
    try:
        return await commit_version(ledger, version, run, prepared)
    except ReplogError:  # Spark aborts what could not be committed
        await ledger.take_over()
        return await abort_version(ledger, version, run)


async def settle_down() -> None:
    """Lets all that can go on without an answer do so."""
    for _ in range(20):
        await asyncio.sleep(0)
