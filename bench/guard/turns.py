"""Has two trees measured in turns, each sample in a process of its own.

Why processes and not repetitions in one: where objects and code happen to lie in memory, and the seed of hashes, are the
same for all repetitions of a process and differ by a few per cent from one to the next.  A difference between two
processes says nothing; one between a dozen does.

Why A B, then B A: whatever slowly gets worse or better (heat, a disk that fills) meets both alike, also within a round.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.guard.lines import LINES
from bench.guard.trees import Tree
from bench.systems.child_processes import run_whole

TIMEOUT_S = 600.0
"""After how long a process is taken for one that hangs; it takes half a minute."""

REASON_LENGTH_MAX = 300

ELSEWHERE = frozenset({"PYTHONPATH", "PYTHONHOME"})
"""What would lead an interpreter to modules that are not its tree's."""


@dataclass(slots=True)
class Samples:
    """What one line found.

    Attributes:
        figure: The samples of the rate or time: for each tree one a round.
        cpu: Those of the CPU a unit.
        units: The units of both.
        failures: Why a tree cannot run it, by the tree's name.
    """

    figure: tuple[list[float], list[float]] = field(default_factory=lambda: ([], []))
    cpu: tuple[list[float], list[float]] = field(default_factory=lambda: ([], []))
    units: tuple[str, str] = ("", "")
    failures: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Plan:
    """What to measure, and how.

    Attributes:
        names: The names of the lines.
        rounds: The number of samples of each tree.
        scale: The share of the usual sizes.
        directory: Where the measured systems write.
    """

    names: Sequence[str]
    rounds: int
    scale: float
    directory: Path

    def groups(self) -> list[list[str]]:
        """Returns the lines that share a process: those on brokers; all others have their own."""
        on_brokers = [name for name in self.names if LINES[name].on_brokers]
        others = [[name] for name in self.names if not LINES[name].on_brokers]
        return [*others, on_brokers] if on_brokers else others

    def steps_count(self) -> int:
        """Returns how many processes there will be, at most."""
        return 2 * self.rounds * len(self.groups())


def run(plan: Plan, base: Tree, candidate: Tree, on_step: Callable[[str], None]) -> dict[str, Samples]:
    """Measures all lines in both trees.

    Args:
        plan: What to measure.
        base: The tree to compare with.
        candidate: The tree that is judged.
        on_step: The function that is told of each process before it starts.
    """
    found = {name: Samples() for name in plan.names}
    for group in plan.groups():
        for order in _orders(plan.rounds):
            for number in order:
                names = [name for name in group if not found[name].failures]
                tree = (base, candidate)[number]
                on_step(f"{tree.name} {group[0] if len(group) == 1 else 'brokers'}")
                if names:
                    _sample(plan, tree, number, names, found)
    return found


def _orders(rounds: int) -> Iterator[tuple[int, int]]:
    """Yields who is first and who is second: 0 is the base, 1 the candidate."""
    for number in range(rounds):
        yield (0, 1) if number % 2 == 0 else (1, 0)


def _sample(plan: Plan, tree: Tree, number: int, names: Sequence[str], found: dict[str, Samples]) -> None:
    """Takes one sample of each line."""
    told, ended = _measure(plan, tree, names)
    for name in names:
        values = told.get(name, {"error": ended})
        samples = found[name]
        if "error" in values:
            samples.failures[tree.name] = str(values["error"])[:REASON_LENGTH_MAX]
            continue
        (figure, figure_unit), (cpu, cpu_unit) = values["values"]["figure"], values["values"]["cpu"]
        samples.figure[number].append(figure)
        samples.cpu[number].append(cpu)
        samples.units = (figure_unit, cpu_unit)


def _measure(plan: Plan, tree: Tree, names: Sequence[str]) -> tuple[dict[str, Any], str]:
    """Returns what a process of a tree told of each line, and how it ended for those of which it told nothing."""
    env = {name: value for name, value in os.environ.items() if name not in ELSEWHERE}
    with tempfile.TemporaryDirectory(prefix="turn-", dir=plan.directory) as folder:
        output = Path(folder) / "found.jsonl"
        options = ["--output", str(output), "--directory", folder, "--scale", str(plan.scale)]
        command = [str(tree.python), "-m", "bench.guard.worker", *names, *options]
        try:
            done = run_whole(*command, cwd=tree.folder, env=env, timeout_s=TIMEOUT_S)
            last = done.stderr.strip().splitlines()[-1:]
            ended = ": ".join([f"the process ended with exit code {done.returncode}", *last])
        except subprocess.TimeoutExpired:
            ended = f"the process had not ended after {TIMEOUT_S:g} s"
        told = {}
        with suppress(FileNotFoundError):
            for line in output.read_text(encoding="utf-8").splitlines():
                values = json.loads(line)
                told[values.pop("line")] = values
    return told, ended
