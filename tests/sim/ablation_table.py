"""Safeguards that are taken out one at a time: how many seeds a simulation needs to notice, as a table of `docs/SAFEGUARDS.md`.

Here is the table, and the command that makes it anew or looks for one; which safeguards there are, what stands in for each
and which simulation looks is said by `quorum_ablations` and `replication_ablations`.
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import multiprocessing
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, Protocol, TypeAlias, TypeVar
from unittest import mock

PAGE = Path(__file__).parents[2] / "docs" / "SAFEGUARDS.md"
SAYS_MAX = 100
MORE_SEEDS = 5
"""How many times the seeds that it took until now are looked at before a safeguard counts as not missed."""

HEAD = "| without | seeds to find | found as |\n|---|---|---|\n"

Patches: TypeAlias = tuple[tuple[Any, str, Any], ...]
"""(owner, attribute, substitute)."""

Found: TypeAlias = tuple[int, str] | None
"""The first seed at which a safeguard is missed, and what the violation says."""


TellStale: TypeAlias = Callable[[str], object]
"""Is told which seed does not show any more what it has shown, and what to do about it."""


class Ablation(Protocol):
    """One safeguard taken out.

    Attributes:
        safeguard: what is missing.
        unfound_because: why a search found nothing; empty: it is found.
    """

    @property
    def safeguard(self) -> str: ...

    @property
    def unfound_because(self) -> str: ...


A = TypeVar("A", bound=Ablation)


@contextlib.contextmanager
def taken_out(patches: Patches) -> Iterator[None]:
    """The substitutes stand in for what they replace meanwhile."""
    with contextlib.ExitStack() as stack:
        for owner, name, substitute in patches:
            stack.enter_context(mock.patch.object(owner, name, substitute))
        yield


def row(ablation: Ablation, found: Found) -> str:
    """Its line of the table, without the end of the line."""
    seeds, says = "not found", ablation.unfound_because or "-"
    if found is not None:
        seeds = str(found[0] + 1)
        says = re.sub(r"\s+", " ", re.split(r",? \[(?:seed|Q)", found[1])[0])[:SAYS_MAX]
    return f"| {ablation.safeguard} | {seeds} | {says} |"


@dataclass(frozen=True)
class AblationTable(Generic[A]):
    """A table between two marks of `docs/SAFEGUARDS.md`.

    Attributes:
        name: in the marks, and in the name of the command.
        ablations: its rows.
        find: (ablation, first seed, how many) -> what was found.
        seeds_max: how many are looked at for a row.
    """

    name: str
    ablations: Sequence[A]
    find: Callable[[A, int, int], Found]
    seeds_max: int

    @property
    def _marks(self) -> tuple[str, str]:
        return f"<!-- {self.name} ablations: begin -->\n", f"<!-- {self.name} ablations: end -->\n"

    def known_seed(self, safeguard: str) -> int:
        """The seed that is known to show that it is missing: as the table has it.

        Raises:
            LookupError: the table has none.
        """
        begin, end = self._marks
        rows = PAGE.read_text(encoding="utf-8").split(begin)[1].split(end)[0]
        found = re.search(rf"^\| {re.escape(safeguard)} \| (\d+) \|", rows, re.MULTILINE)
        if found is None:
            raise LookupError(f"{safeguard}: no seed is known. Run {self._command}")
        return int(found[1]) - 1

    def find_again(self, ablation: A, tell_stale: TellStale) -> Found:
        """Looks at the seed that is known to show that it is missing, then, where the product has changed, at others.

        Args:
            ablation: The safeguard that is taken out.
            tell_stale: Told when the known seed does not show it any more.
        """
        seed = self.known_seed(ablation.safeguard)
        found = self.find(ablation, seed, 1)
        if found is None:
            tell_stale(
                f"seed {seed} does not show it any more: {ablation.safeguard}. Make its row anew: {self._command} --stale"
            )
            found = self.find(ablation, 0, MORE_SEEDS * (seed + MORE_SEEDS))
        return found

    @property
    def _command(self) -> str:
        return f"python -m tests.sim.{self.name}_ablations --write"

    def make(self, chosen: Sequence[A], processes: int) -> dict[str, str]:
        """Looks for the chosen safeguards, and says on stderr how far it is.

        Returns:
            The row of each, by the name of the safeguard.
        """
        rows: dict[str, str] = {}
        fork = multiprocessing.get_context("fork")  # substitutes cannot be sent to a process, only be there already
        with fork.Pool(processes, initializer=_begin_worker, initargs=(self,)) as pool:
            numbers = [self.ablations.index(ablation) for ablation in chosen]
            for ablation, found in zip(chosen, pool.imap(_find_row, numbers), strict=True):
                print(ablation.safeguard, found, file=sys.stderr, flush=True)
                rows[ablation.safeguard] = row(ablation, found) + "\n"
        return rows

    def write(self, rows: dict[str, str]) -> None:
        """Puts rows into the page; those of other safeguards stay, those of no safeguard go.

        Raises:
            LookupError: a safeguard has a row neither here nor in the page.
        """
        begin, end = self._marks
        before, rest = PAGE.read_text(encoding="utf-8").split(begin)
        old, after = rest.split(end)
        table = {line.split(" | ")[0].removeprefix("| "): line for line in old.splitlines(keepends=True)} | rows
        if missing := [ablation.safeguard for ablation in self.ablations if ablation.safeguard not in table]:
            raise LookupError(f"no row for {missing[0]!r}. Run {self._command} without --only and --stale")
        body = "".join(table[ablation.safeguard] for ablation in self.ablations)
        PAGE.write_text(before + begin + HEAD + body + end + after, encoding="utf-8")

    def _is_stale(self, ablation: A) -> bool:
        """Whether the seed that the page names for it does not show it any more."""
        if ablation.unfound_because:
            return False
        try:
            seed = self.known_seed(ablation.safeguard)
        except LookupError:
            return True
        return self.find(ablation, seed, 1) is None

    def main(self, description: str | None) -> int:
        """The command line; returns the exit code."""
        parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
        parser.add_argument("--write", action="store_true", help="put the rows into docs/SAFEGUARDS.md")
        parser.add_argument("--processes", type=int, default=2, help="for more than one row")
        parser.add_argument("--only", default="", help="just the safeguards whose name contains this")
        parser.add_argument("--stale", action="store_true", help="just those that their seed does not show any more")
        parser.add_argument("--first", type=int, default=0, help="seed to begin with, without --write")
        parser.add_argument("--seeds", type=int, help="how many, without --write")
        options = parser.parse_args()
        logging.disable(logging.CRITICAL)
        chosen = [ablation for ablation in self.ablations if options.only in ablation.safeguard]
        if options.stale:
            chosen = [ablation for ablation in chosen if self._is_stale(ablation)]
        if options.write:
            self.write(self.make(chosen, options.processes))
        else:
            for ablation in chosen:
                found = self.find(ablation, options.first, options.seeds or self.seeds_max)
                print(ablation.safeguard, found, flush=True)
        return 0


_table: AblationTable[Any]
"""In a process of the pool: what it looks for."""


def _begin_worker(table: AblationTable[Any]) -> None:
    global _table  # noqa: PLW0603 -- set once, when the process begins
    _table = table
    logging.disable(logging.CRITICAL)


def _find_row(number: int) -> Found:
    ablation = _table.ablations[number]
    return None if ablation.unfound_because else _table.find(ablation, 0, _table.seeds_max)
