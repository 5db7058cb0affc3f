"""Where the CPU time of a broker scenario goes: ``python -m bench profile NAME``.

One warm-up, one measurement with samplers in all three brokers and in the client, and two tables for each side: the
lines that ran, and the functions that were on the stack.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console

from bench import harness
from bench.meter import Meter, Timing
from bench.model import Measured, Scenario
from bench.sampler import Sampler, thread_cpu_s
from bench.systems.replog_brokers import ReplogBrokers
from bench.systems.replog_cluster import ReplogCluster
from replog.cluster import LocalCluster, NodeSpec

STATS_FILE = "samples.json"
WRITTEN_WITHIN_S = 10.0


class ProfiledCluster(LocalCluster):
    """Brokers that run under `bench.profiled_broker`."""

    def _spawn(self, spec: NodeSpec, *, accept_empty: bool) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "bench.profiled_broker", str(spec.directory / STATS_FILE)]
        command += ["--config", str(spec.config_file), "--parent-pid", str(os.getpid())]
        command += ["--accept-empty"] if accept_empty else []
        with spec.log_file.open("ab") as output:
            return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output)


@dataclass(slots=True)
class Side:
    """The client, or all brokers together."""

    main_thread_s: float = 0.0
    other_threads_s: float = 0.0
    lines: Counter[str] = field(default_factory=Counter)
    functions: Counter[str] = field(default_factory=Counter)

    def add_threads(self, process_id: int, before: Mapping[int, float], after: Mapping[int, float]) -> None:
        spent = {thread: seconds - before.get(thread, 0.0) for thread, seconds in after.items()}
        self.main_thread_s += spent.pop(process_id, 0.0)
        self.other_threads_s += sum(spent.values())


class ProfilingMeter(Meter):
    """Samples brokers and client in the timed block."""

    def __init__(self, system: ReplogCluster, sampler: Sampler) -> None:
        super().__init__(system.process_ids())
        self._nodes = list(system.cluster.nodes.values())
        self._sampler = sampler
        self.client = Side()
        self.brokers = Side()

    @contextmanager
    def timed(self) -> Iterator[Timing]:
        pids = [spec.process.pid for spec in self._nodes if spec.process is not None]
        before = {pid: thread_cpu_s(pid) for pid in (*pids, os.getpid())}
        for pid in pids:
            os.kill(pid, signal.SIGUSR1)
        self._sampler.start()
        with super().timed() as timing:
            yield timing
        self._sampler.stop()
        for pid in pids:
            os.kill(pid, signal.SIGUSR2)
            self.brokers.add_threads(pid, before[pid], thread_cpu_s(pid))
        self.client.add_threads(os.getpid(), before[os.getpid()], thread_cpu_s(os.getpid()))
        self.client.lines, self.client.functions = self._sampler.lines, self._sampler.functions
        for spec in self._nodes:
            samples = _read_when_written(spec.directory / STATS_FILE)
            self.brokers.lines.update(samples["lines"])
            self.brokers.functions.update(samples["functions"])


def run(scenario_class: type[Scenario[Any]], *, case: int, top: int) -> None:
    """Profiles case number `case` of a scenario that takes `systems`, and prints."""
    system = ReplogCluster(ReplogBrokers(ProfiledCluster))
    scenario = scenario_class(systems=[system])  # type: ignore[call-arg]  # all broker scenarios have it
    params = scenario.cases()[case]
    sampler = Sampler()
    with harness.started([system], Path(tempfile.gettempdir())):
        scenario.measure(system, params, Meter(system.process_ids()))
        meter = ProfilingMeter(system, sampler)
        measured = scenario.measure(system, params, meter)
    console = Console(highlight=False, markup=False, width=150)
    console.print(f"{scenario.name} {harness.show_params(params)}: {_show(measured)}")
    for name, side in (("client", meter.client), ("brokers", meter.brokers)):
        console.print(
            f"\n{name}: {side.main_thread_s:.2f} CPU s in the main thread, {side.other_threads_s:.2f} in other threads"
        )
        _print_top(console, "lines", side.lines, side.lines.total(), top)
        _print_top(console, "functions and what they call", side.functions, side.lines.total(), top)


def _print_top(console: Console, title: str, counts: Counter[str], total: int, top: int) -> None:
    console.print(f"  {title}")
    for name, count in counts.most_common(top):
        console.print(f"    {count / max(1, total):6.1%}  {name}")


def _show(measured: Measured) -> str:
    return ", ".join(f"{metric.name} {value:,.1f}" for metric, value in measured.items())


def _read_when_written(file: Path) -> Mapping[str, Mapping[str, int]]:
    deadline = time.monotonic() + WRITTEN_WITHIN_S
    while not file.exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    samples: Mapping[str, Mapping[str, int]] = json.loads(file.read_text(encoding="utf-8"))
    file.unlink()
    return samples
