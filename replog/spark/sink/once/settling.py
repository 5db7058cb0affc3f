"""What the driver of a write does when its tasks have ended; see `replog.spark.sink.once` for why it may die at any step.

Whoever does it has taken over the transactional id of the writer: what another driver had begun to decide is then decided or
will never be, and that driver decides nothing more.

What may be aborted, since nobody will decide for it: attempts of versions up to one that is decided, and attempts of a run of one's
own that was not.  Not those of another run of a version that is open: its driver may be about to decide for them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Sequence
from enum import Enum
from typing import Final, Protocol, TypeVar

from replog.errors import ReplogError
from replog.spark.sink.once.decisions import Decision, Prepared
from replog.spark.sink.once.names import AttemptName, Version

CALLS_MAX: Final = 16
"""Calls to coordinators that are open at a time."""

T = TypeVar("T")

_log = logging.getLogger(__name__)


class Ledger(Protocol):
    """The decisions of one writer, whose transactional id was taken over, and the transactions of its attempts."""

    async def read(self) -> Decision | None:
        """Returns the last decision; None: there is none yet."""
        ...

    async def write(self, decision: Decision) -> None:
        """Writes a decision.  Raises: ProducerFencedError: Another driver has come; nothing was written."""
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


async def commit_version(ledger: Ledger, version: Version, run: str, attempts: Sequence[Prepared]) -> Settled:
    """Ends a write all of whose tasks have prepared, or have had no rows: a version is there once afterwards.

    Raises:
        ProducerFencedError: Another driver of the writer has come.
        ReplogError: A step has failed; the version may be decided, and may be not.
    """
    last = await _finished(ledger)
    if last is not None and version.number <= last.version.number:
        await _sweep(ledger, last, ())
        return Settled.WAS_WRITTEN
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
    last = await _finished(ledger)
    if last is not None and version.number <= last.version.number:
        is_ours = last.version == version and last.run == run
        await _sweep(ledger, last, ())
        return Settled.WRITTEN if is_ours else Settled.WAS_WRITTEN
    open_now = await ledger.open_attempts()
    await _abort(ledger, [each for each in open_now if each.version == version and each.run == run])
    return None


async def _finished(ledger: Ledger) -> Decision | None:
    """Returns the last decision, all of which has been carried out."""
    last = await ledger.read()
    if last is not None and not last.is_done:
        await _finish(ledger, last)
    return last


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
