"""What the driver of a write does when its tasks have ended; see `replog.spark.sink.once` for why it may die at any step.

Whoever does it has taken over the transactional id of the writer: what another driver had begun to decide is then decided or
will never be, and that driver decides nothing more.

What may be aborted, since nobody will decide for it: attempts of versions up to one that is decided, and attempts of a run that was
given up, by a record that every driver reads before it decides.  Not those of another run of a version that is open: its driver may be
about to decide for them.

An attempt that was held up looks whether its version is decided, or its run given up, after its transaction has begun and before it
prepares it.  So either it sees the decision and aborts its transaction, or whoever has decided sees the transaction and aborts it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Sequence
from enum import Enum
from typing import Final, Protocol, TypeVar

from msgspec import Struct

from replog.errors import ReplogError
from replog.spark.sink.once.decisions import Decision, Prepared, WriterStanding
from replog.spark.sink.once.names import AttemptName, Version

CALLS_MAX: Final = 16
"""Calls to coordinators that are open at a time."""

T = TypeVar("T")

_log = logging.getLogger(__name__)


class Ledger(Protocol):
    """The decisions of one writer, whose transactional id was taken over, and the transactions of its attempts."""

    async def read(self) -> WriterStanding:
        """Returns where the writer stands."""
        ...

    async def write(self, decision: Decision) -> None:
        """Writes a decision.  Raises: ProducerFencedError: Another driver has come; nothing was written."""
        ...

    async def give_up(self, runs: Collection[tuple[int, str]]) -> None:
        """Writes which versions and runs nobody will decide for.  Raises: As `write`."""
        ...

    async def commit(self, name: AttemptName, attempt: Prepared) -> None:
        """Commits a transaction; does nothing where that has been done.  Raises: ReplogError: It was aborted."""
        ...

    async def abort(self, name: AttemptName) -> None:
        """Aborts the transaction of an attempt, whose producer is fenced; does nothing where there is none."""
        ...

    async def open_attempts(self) -> Sequence[AttemptName]:
        """Returns the attempts of the writer that have a transaction."""
        ...

    async def forget(self, names: Collection[AttemptName]) -> None:
        """Lets coordinators forget transactional ids whose transaction has ended."""
        ...


class Settled(Enum):
    """What became of a version."""

    WRITTEN = "was written"
    """It is there, by the attempts of this run."""
    WAS_WRITTEN = "had been written before"
    """It is there, by attempts of another one."""
    EMPTY = "has no rows"
    """No task has written anything."""


class Ended(Struct, frozen=True):
    """What was ended in the place of a driver that is gone.

    Attributes:
        finished: The version that had been decided for, and whose transactions are committed now; None: there was none.
        aborted: The attempts whose transactions were open, and are aborted.
    """

    finished: Version | None
    aborted: tuple[AttemptName, ...]


async def commit_version(ledger: Ledger, version: Version, run: str, attempts: Sequence[Prepared]) -> Settled:
    """Ends a write all of whose tasks have prepared, or have had no rows: a version is there once afterwards.

    Raises:
        ProducerFencedError: Another driver of the writer has come.
        ReplogError: A step has failed; the version may be decided, and may be not.  Or its run was given up: it is not.
    """
    standing = await finish_last(ledger)
    if standing.last is not None and standing.is_decided(version):
        await _sweep(ledger, standing.last, ())
        return Settled.WAS_WRITTEN
    if standing.is_given_up(version, run):
        raise ReplogError(
            f"{version} was given up while it was being written, by `replog transactions abort --query` or since Spark took it for failed: "
            "nothing of it is there. Write it again; a query does so when it is started again"
        )
    if not attempts:
        return Settled.EMPTY
    decision = Decision(version, run, tuple(attempts))
    await ledger.write(decision)
    await _finish(ledger, decision)
    return Settled.WRITTEN


async def abort_version(ledger: Ledger, version: Version, run: str) -> Settled | None:
    """Ends a write that has failed: what its tasks have written is aborted, unless it was decided all the same.

    Returns:
        How the version is there; None: it is not.
    """
    standing = await finish_last(ledger)
    last = standing.last
    if last is not None and standing.is_decided(version):
        is_ours = last.version == version and last.run == run
        await _sweep(ledger, last, ())
        return Settled.WRITTEN if is_ours else Settled.WAS_WRITTEN
    await ledger.give_up(standing.giving_up([(version.number, run)]))
    open_now = await ledger.open_attempts()
    await _abort(ledger, [each for each in open_now if each.version == version and each.run == run])
    return None


async def end_writer(ledger: Ledger) -> Ended:
    """Ends what a writer has open, in the place of a driver that is gone: what was decided is committed, all else is given up.

    A driver that is at work all the same fails, and has nothing written: of what is given up it knows before it decides.
    """
    standing = await finish_last(ledger)
    finished = None if standing.last is None or standing.last.is_done else standing.last.version
    open_now = await ledger.open_attempts()
    if open_now:
        await ledger.give_up(standing.giving_up({(each.version.number, each.run) for each in open_now}))
        await _abort(ledger, open_now)
    return Ended(finished, tuple(open_now))


async def finish_last(ledger: Ledger) -> WriterStanding:
    """Carries out the last decision of the writer; returns where that stands."""
    standing = await ledger.read()
    if standing.last is not None and not standing.last.is_done:
        await _finish(ledger, standing.last)
    return standing


async def _finish(ledger: Ledger, decision: Decision) -> None:
    """Carries out a decision; may be repeated."""
    attempts = decision.attempts or ()
    await _each(attempts, lambda each: ledger.commit(decision.name_of(each), each))
    winners = [decision.name_of(each) for each in attempts]
    await _sweep(ledger, decision, winners)
    await ledger.write(decision.done())
    await _forget(ledger, winners)


async def _sweep(ledger: Ledger, decision: Decision, winners: Collection[AttemptName]) -> None:
    """Aborts what nobody will decide for any more.

    What is missed, since a broker cannot be asked or a task was held up until now, is found at the next decision of the writer.
    """
    kept = set(winners)
    try:
        found = await ledger.open_attempts()
        await _abort(
            ledger, [each for each in found if each.version.number <= decision.version.number and each not in kept]
        )
    except ReplogError as error:
        _log.warning(
            "transactions of attempts that were not needed for %s may still be open, and hold readers of committed records back until "
            "the next write of it: %s",
            decision.version,
            error,
        )


async def _abort(ledger: Ledger, names: Sequence[AttemptName]) -> None:
    await _each(names, ledger.abort)
    await _forget(ledger, names)


async def _forget(ledger: Ledger, names: Collection[AttemptName]) -> None:
    if not names:
        return
    try:
        await ledger.forget(names)
    except ReplogError as error:  # they expire by themselves
        _log.info("%d transactional ids that are not needed any more are kept until they expire: %s", len(names), error)


async def _each(items: Sequence[T], do: Callable[[T], Awaitable[None]]) -> None:
    """Calls a function with each, a few at a time; the first error ends it when those under way have ended."""
    for first in range(0, len(items), CALLS_MAX):
        results = await asyncio.gather(*map(do, items[first : first + CALLS_MAX]), return_exceptions=True)
        error = next((each for each in results if isinstance(each, BaseException)), None)
        if error is not None:
            raise error
