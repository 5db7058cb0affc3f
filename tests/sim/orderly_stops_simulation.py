"""Deterministic simulation of clusters that are stopped in order, all of their nodes, one after another.

Two stories, drawn from the seed like the cluster's shape, min.insync.replicas, the flush policy and every order:

======== =============================================================================================================
quiet    the clients end, then all nodes stop; the copy of the last leader is changed: a bit flips, its folder is gone or empty,
         or a repair gives up what is behind the damage or was in the folder; all start, and every record that was acknowledged
         is read, without an unclean election
busy     the clients go on while all nodes stop; the first one to stop runs alone for a while, then all start; no record that
         was acknowledged is missing, and the partition takes more
======== =============================================================================================================

Repeat one (from the root of the repository)::

    PYTHONPATH=timeline:quorum:checkpoints python -m tests.sim.orderly_stops_simulation --seed 4711
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import random
import sys
from collections import Counter
from collections.abc import Iterable
from typing import Any

from replog.controller.requests import ConfigEntry, CreateTopics, NewTopic
from replog.errors import ReplogError
from replog.log.repair.repair import repair_log
from replog.log.segments.index_cache import INDEX_CACHE
from replog.metadata.records import ElectionType
from replog.testing.history import History
from replog.testing.simulated_cluster import SimulatedCluster
from replog.testing.simulated_filesystem import SimulatedFileSystem
from replog.testing.virtual_loop import VirtualLoop
from tests.sim.campaign import VIRTUAL
from tests.sim.data_topics import Load, newest_image

TOPIC = "flights"
SHAPES = (((1, 2, 3), (1, 2, 3)), ((1, 2, 3), (1, 2)), ((1, 2, 3), (4, 5)), ((1, 2, 3), (4, 5, 6)), ((1,), (2, 3)))
"""(controllers, brokers): together, where the last ones stop without a quorum, and apart."""

SETTINGS = {
    "controller.quorum.election.timeout.ms": 300,
    "controller.quorum.fetch.timeout.ms": 800,
    "controller.quorum.request.timeout.ms": 800,
    "broker.heartbeat.interval.ms": 200,
    "broker.session.timeout.ms": 1_000,
    "replica.lag.time.max.ms": 1_500,
    "log.dir.reserve.bytes": 0,
}
READ_WITHIN_S = 60.0
CHANGES = (
    "a bit flips",
    "the folder is gone",
    "the folder is empty",
    "a repair gives records up",
    "a repair gives a folder up",
)
"""What happens to the copy of the last leader while nothing runs."""


class OrderlyStops:
    """One run.

    Attributes:
        damaged: the broker whose copy is changed; None in a busy run.
        seen: which story was told, of which kind of cluster.
    """

    def __init__(self, seed: int) -> None:
        rng = self._rng = random.Random(seed)
        controllers, self._brokers = rng.choice(SHAPES)
        self._policy, self._min_isr = rng.choice(("auto", "always")), rng.choice((1, 1, 2))
        self._is_quiet = rng.random() < 0.6
        self._change = CHANGES[seed % len(CHANGES)]
        self._loop = VirtualLoop(random.Random(seed + 1), steps_max=20_000_000)
        settings: dict[str, Any] = {**SETTINGS, "min.insync.replicas": self._min_isr, "flush.policy": self._policy}
        self.cluster = SimulatedCluster(
            self._loop, random.Random(seed + 2), controllers=controllers, brokers=self._brokers, settings=settings
        )
        self.history = History()
        self.damaged: int | None = None
        story = "quiet" if self._is_quiet else "busy"
        roles = "together" if set(controllers) >= set(self._brokers) else "apart"
        self.seen = Counter((f"{story}, flush {self._policy}", f"{story}, roles {roles}"))

    def run(self) -> None:
        """Raises if a record is missing, or none can be read.

        Raises:
            TimeoutError: the partition has no leader, or takes no records.
            AnomaliesFoundError: a record is missing, or read twice.
        """
        try:
            self._loop.run(self._main())
        finally:
            INDEX_CACHE._copies.clear()
            INDEX_CACHE._maps.clear()
        self.history.check_or_raise()
        self.seen[VIRTUAL] += int(self._loop.time())

    async def _main(self) -> None:
        cluster = self.cluster
        for node_id in cluster.nodes:
            cluster.start(node_id)
        await cluster.wait_until(cluster.is_settled)
        topic = NewTopic(TOPIC, 1, len(self._brokers), configs=(ConfigEntry("flush.policy", self._policy),))
        await cluster.client("admin").ask(1, CreateTopics((topic,)))
        load = Load(cluster, self.history)
        tasks = [asyncio.create_task(load.produce()), asyncio.create_task(load.consume())]
        await asyncio.sleep(self._rng.uniform(0.5, 3))
        if self._is_quiet:
            await self._end(load, tasks)
        stopped = await self._stop_all()
        if self._is_quiet:
            self._change_copy(stopped)
        else:
            cluster.start(stopped[0])
            await asyncio.sleep(self._rng.uniform(0.1, 4))
        for node_id in self._rng.sample(sorted(cluster.nodes), len(cluster.nodes)):
            if cluster.nodes[node_id].node is None:
                cluster.start(node_id)
            await asyncio.sleep(self._rng.choice((0.0, 0.3, 2.0)))
        await cluster.wait_until(cluster.is_settled)
        if not self._is_quiet:
            before = self.history.acknowledged_count
            await cluster.wait_until(lambda: self.history.acknowledged_count > before + 10)
            await self._end(load, tasks)
        await self._read_all(load)
        assert not newest_elections(cluster)[ElectionType.UNCLEAN]

    async def _end(self, load: Load, tasks: list[asyncio.Task[None]]) -> None:
        load.stop()
        await asyncio.gather(*tasks)

    async def _stop_all(self) -> list[int]:
        """Brokers, then controllers; returns the order of the brokers."""
        await asyncio.sleep(self._rng.choice((0.0, 0.05, 1.0)))
        order = self._rng.sample(self._brokers, len(self._brokers))
        others = [node_id for node_id in self.cluster.nodes if node_id not in order]
        for node_id in (*order, *others):
            await self.cluster.stop(node_id)
            await asyncio.sleep(self._rng.choice((0.0, 0.5, 3.0)))
        return order

    def _change_copy(self, stopped: list[int]) -> None:
        node_id = self.damaged = stopped[-1]
        self.seen[f"quiet, {self._change}"] += 1
        fs = self.cluster.nodes[node_id].fs
        folder = f"{self.cluster.nodes[node_id].config.log_dirs[0]}/{TOPIC}-0"
        match self._change:
            case "a bit flips":
                self._flip_bit(fs)
            case "the folder is gone":
                fs.remove_tree(folder)
            case "the folder is empty":
                for name in fs.list_dir(folder):
                    fs.remove(f"{folder}/{name}")
            case "a repair gives records up":
                self._flip_bit(fs)
                self._repair(fs, folder)
            case _:
                fs.remove_tree(folder)
                self._repair(fs, folder)

    def _repair(self, fs: SimulatedFileSystem, folder: str) -> None:
        report = repair_log(fs, folder, accept_loss=True, now_ms=int(self._loop.time() * 1000))
        assert report.offsets_given_up

    def _flip_bit(self, fs: SimulatedFileSystem) -> None:
        """Flips a bit of a value: what a checksum covers, unlike the offset of a batch."""
        ((path, content),) = [
            (path, content) for path, content in fs.image().items() if f"/{TOPIC}-0/" in path and path.endswith(".log")
        ]
        number = self._rng.randrange(self.history.acknowledged_count)
        fs.flip_bit(path, content.index(b"v%d" % number), self._rng.randrange(8))

    async def _read_all(self, load: Load) -> None:
        """Damage is told to who reads it first; another replica has it whole."""
        async with asyncio.timeout(READ_WITHIN_S):
            while True:
                try:
                    await load.read_all()
                except ReplogError:
                    await asyncio.sleep(0.2)
                else:
                    return


def newest_elections(cluster: SimulatedCluster) -> dict[ElectionType, int]:
    """How often somebody was elected in which way, as the active controller has counted."""
    leader = cluster.leader()
    assert leader is not None
    controller = leader.parts.metadata.controller
    assert controller is not None
    assert newest_image(cluster).topics_by_name[TOPIC].partitions[0].leader >= 0
    return controller.status().elections


def run_seeds(seeds: Iterable[int]) -> Counter[str]:
    """Runs many seeds; returns how often what was seen.

    Raises:
        TimeoutError, AnomaliesFoundError: of the first seed that fails; a note says how to repeat it.
    """
    seen: Counter[str] = Counter()
    for seed in seeds:
        simulation = OrderlyStops(seed)
        try:
            simulation.run()
        except Exception as error:
            error.add_note(f"[seed {seed}; repeat with python -m tests.sim.orderly_stops_simulation --seed {seed}]")
            raise
        seen.update(simulation.seen)
    return seen


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=20, help="how many, from --first")
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seed", type=int, help="just this one")
    options = parser.parse_args()
    logging.disable(logging.CRITICAL)
    seeds = range(options.first, options.first + options.seeds) if options.seed is None else (options.seed,)
    for name, count in sorted(run_seeds(seeds).items()):
        print(f"{count:9d}  {name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
