"""Deterministic simulation of a cluster of which one file was damaged while all of its nodes were stopped.

The cluster (`stopped_cluster`) is drawn from the seed, and so is what happens to a copy of its disks, again and again:

======== =========================================================================================================
flip     one bit of one byte of a file is another one
missing  a file is gone
half     of a file the second half is gone
emptied  of a file everything is
older    a file is as it was at an earlier moment of the same run
foreign  in a file stands what stands in the file of that name on another node, or in another partition's folder
swap     two such files of one node have changed places
folder-  the same of the whole folder of a partition: missing, emptied, older, foreign, swap
======== =========================================================================================================

Then all nodes start, in any order; one time in three they, or the damaged one alone, have been started and stopped in order
once before, a moment after each other: nothing may count as whole because of that stop.  Everything is read, then read again with the damaged node as leader where it can be, then
each partition takes records, which are read too.  What must hold:

- a partition with several replicas has every record that was acknowledged, in its place, and none that was not; it takes more;
- a partition with one replica has the same, or is not served, and the file is named;
- the group has what it has committed;
- a node that does not start names the file, and none stays away for a file of a partition other than the metadata log.

What nothing on a disk can tell is in `disk_damage_believed`, case by case, and must be so.

Repeat or extend it (from the root of the repository)::

    export PYTHONPATH=timeline:quorum:checkpoints
    python -m tests.sim.disk_damage_simulation --first 0 --seeds 20     # ten damages a seed, half a second of CPU each
    python -m tests.sim.disk_damage_simulation --seed 4711 --damage "flip 1 /data/meta.properties 7 3" --log
    python -m tests.sim.disk_damage_simulation --seed 4711 --exhaustive small --only meta.properties --go-on
    python -m tests.sim.disk_damage_simulation --seed 4711 --exhaustive kinds --go-on
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import random
import sys
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from replog.client.types import TopicPartition
from replog.controller.requests import AlterPartitionReassignments, ElectLeaders, NamedPartition, Reassignment
from replog.errors import CorruptRecordError, ReplogError
from replog.metadata.records import ElectionType
from replog.testing.simulated_node import ClusterObserver, SimulatedNode
from replog.testing.virtual_loop import VirtualLoop
from tests.sim.campaign import VIRTUAL
from tests.sim.disk_damage import Damage, draw_damage, every_damage
from tests.sim.disk_damage_believed import why_believed
from tests.sim.event_log import EventLog
from tests.sim.stopped_cluster import (
    COMPACTED,
    GROUP,
    NODES,
    REPLICATED,
    Clients,
    Partition,
    Records,
    Served,
    StoppedCluster,
    clean_caches,
    new_cluster,
    send,
    stopped_cluster,
)

DAMAGES_A_SEED = 10
STOPS_AGAIN = 1 / 3
STARTED_WITHIN_S = 30.0
SERVED_WITHIN_S = 20.0
LED_WITHIN_S = 5.0
AGAIN_S = 0.2
AFTER_MS = 5_000
MORE_RECORDS = 3
METADATA_FOLDER = "/__cluster_metadata-0/"


class WrongError(Exception):
    """Something is served that must not be, or is not, or nobody says why."""


class Failures(ClusterObserver):
    """Which nodes did not start, or stopped by themselves."""

    def __init__(self) -> None:
        self.errors: dict[int, BaseException] = {}

    def failed(self, node: SimulatedNode, error: BaseException) -> None:
        self.errors[node.node_id] = error


@dataclass(frozen=True, slots=True)
class Found:
    """What a client meets in one partition.

    Attributes:
        start_offset: where it begins.
        records: all of them; None: it is not served.
        error: why it is not.
    """

    start_offset: int = -1
    records: Records | None = None
    error: str = ""


class DamagedStart:
    """The start of a stopped cluster after some damage.

    Args:
        stopped: the cluster; its disks are copied.
        damage: what happens to them.

    Attributes:
        seen: what came of it.
    """

    def __init__(self, stopped: StoppedCluster, damage: Damage) -> None:
        self._stopped = stopped
        self._damage = damage
        self._rng = random.Random(f"start of {stopped.seed} {damage}")
        self._stops_again = random.Random(f"stop after {stopped.seed} {damage}").random() < STOPS_AGAIN
        self._loop = VirtualLoop(random.Random(stopped.seed + 11))
        self._failures = Failures()
        self._cluster = new_cluster(self._loop, stopped.seed + 12, self._failures)
        self._clients = Clients(self._cluster)
        acknowledged = stopped.acknowledged
        self._expected = Served(
            {partition: dict(records) for partition, records in acknowledged.records.items()},
            acknowledged.starts,
            acknowledged.committed,
        )
        self.events = EventLog(self._loop)
        self._unserved: dict[Partition, str] = {}
        self.seen: Counter[str] = Counter()

    def run(self) -> None:
        """Raises if anything is wrong.

        Raises:
            WrongError: it says what.
        """
        for node_id, node in self._cluster.nodes.items():
            node.fs = self._stopped.disks[node_id].copied()
            node.clock.jump_wall(self._stopped.ended_ms + AFTER_MS)
            node.fs._now_ms = node._wall_ms
        self._damage.apply(self._stopped, {node_id: node.fs for node_id, node in self._cluster.nodes.items()})
        with clean_caches():
            self._loop.run(self._main())
        self.seen[VIRTUAL] += int(self._loop.time())

    async def _main(self) -> None:
        try:
            await self._live()
        finally:
            for node_id in self._cluster.nodes:  # while there is a loop in which its tasks can end
                self._cluster.crash(node_id, power_cut=False)

    async def _live(self) -> None:
        await self._start()
        await self._look("after the start")
        await self._lead()
        await self._look("when the damaged node leads")
        await self._send()
        await self._look("after more records")
        self._check_names()
        kind = self._damage.kind
        self.seen[f"{kind}: node refused" if self._failures.errors else f"{kind}: all started"] += 1
        if self._unserved and not self._failures.errors:
            self.seen[f"{kind}: partition offline"] += 1

    # ---- what happens ------------------------------------------------------------------------------------------------

    async def _start(self) -> None:
        if self._stops_again:
            await self._start_for_a_moment()
        order = self._rng.choice((self._stopped.order, self._stopped.order[::-1], NODES))
        pause_s = self._rng.choice((0.0, 0.0, 0.5, 3.0))
        for node_id in order:
            self._cluster.start(node_id)
            await asyncio.sleep(pause_s)
        try:
            await self._cluster.wait_until(self._is_settled, STARTED_WITHIN_S)
        except TimeoutError:
            raise WrongError(f"the cluster does not settle; {self._describe_nodes()}") from None

    async def _start_for_a_moment(self) -> None:
        """Starts and stops nodes in order, the damaged one among them, while little or nothing is repaired."""
        rng = random.Random(f"moment of {self._stopped.seed} {self._damage}")
        nodes = rng.choice(((self._damage.node,), NODES))
        for node_id in nodes:
            self._cluster.start(node_id)
        await asyncio.sleep(rng.choice((0.02, 0.2, 0.5, 1.0, 3.0)))
        for node_id in rng.sample(nodes, len(nodes)):
            await self._cluster.stop(node_id)
            await asyncio.sleep(rng.choice((0.0, 0.5)))
        self._failures.errors.clear()
        self.seen["stopped again at once"] += 1

    def _is_settled(self) -> bool:
        """Whether every node runs or has refused, and those that run agree and are not fenced."""
        running = self._cluster.running
        if len(running) + len(self._failures.errors) < len(NODES) or self._cluster.leader() is None:
            return False
        image = running[0].image
        active = {b.broker_id: b.incarnation_id for b in image.brokers.values() if b.is_active}
        return all(
            node.image.end_offset == image.end_offset and active.get(node.config.node_id) == node.incarnation_id
            for node in running
        )

    async def _lead(self) -> None:
        """Makes the damaged node the leader of what has several replicas, where it can be."""
        node_id = self._damage.node
        if self._cluster.nodes[node_id].node is None:
            return
        names = [*((topic, n) for topic, count in REPLICATED.items() for n in range(count)), ("__consumer_offsets", 0)]
        replicas = (node_id, *(each for each in NODES if each != node_id))
        client = self._cluster.client("operator")
        try:
            await client.ask(
                node_id, AlterPartitionReassignments(tuple(Reassignment(*name, replicas) for name in names))
            )
            await client.ask(
                node_id, ElectLeaders(ElectionType.PREFERRED, tuple(NamedPartition(*name) for name in names))
            )
            await self._cluster.wait_until(
                lambda: all(self._cluster.leader_of(*name) == node_id for name in names), LED_WITHIN_S
            )
        except (ReplogError, TimeoutError):
            self.seen["damaged node does not lead"] += 1

    async def _send(self) -> None:
        """Sends some more to every partition that is served; with several replicas it must be taken."""
        first = max(len(records) for records in self._expected.records.values())
        numbers = range(first, first + MORE_RECORDS)
        async with self._clients.producer() as producer:
            for partition in self._expected.records:
                if partition in self._unserved:
                    continue
                try:
                    async with asyncio.timeout(SERVED_WITHIN_S):
                        await send(producer, self._expected, partition, numbers)
                except (ReplogError, TimeoutError) as error:
                    if partition[0] in REPLICATED or not self._is_named(repr(error)):
                        raise WrongError(f"{partition} takes no records: {error!r}") from error
                    self._unserved[partition] = repr(error)

    # ---- what must hold ----------------------------------------------------------------------------------------------

    async def _look(self, when: str) -> None:
        for partition, expected in self._expected.records.items():
            found = await self._read(partition)
            if found.records is None:
                self._unserved[partition] = found.error
                self._check_unserved(partition, found.error, when)
            elif reason := self._difference(partition, expected, found):
                raise WrongError(f"{partition} {when}: {reason}")
        await self._check_group(when)

    def _check_unserved(self, partition: Partition, error: str, when: str) -> None:
        if partition[0] in REPLICATED:
            raise WrongError(f"{partition} is not served {when}: {error}; {self._describe_nodes()}")
        node_id = NODES[partition[1]]
        if node_id in self._failures.errors:
            return
        if node_id != self._damage.node or not self._is_named(error):
            raise WrongError(f"{partition} is not served {when}, the file is not named: {error}; {self._reasons()}")

    def _difference(self, partition: Partition, expected: Records, found: Found) -> str:
        """In words, what is wrong with what was read; "" if nothing is."""
        records, start = found.records or {}, self._expected.starts.get(partition, 0)
        if found.start_offset != start:
            return f"it begins at {found.start_offset} instead of {start}"
        wanted = {offset: record for offset, record in expected.items() if offset >= start}
        strange = {offset: record for offset, record in records.items() if wanted.get(offset) != record}
        if strange:
            return f"it has what nobody has sent there: {strange}"
        if partition[0] in COMPACTED:
            newest = {record[0]: offset for offset, record in sorted(wanted.items())}
            wanted = {offset: wanted[offset] for offset in newest.values()}
        if missing := sorted(wanted.keys() - records.keys()):
            return f"acknowledged records are missing at {missing}"
        if list(records) != sorted(records):
            return "its records are out of order"
        return ""

    async def _check_group(self, when: str) -> None:
        async with self._clients.admin() as admin:
            try:
                found = await admin.group_offsets(GROUP, timeout_ms=int(SERVED_WITHIN_S * 1000))
            except ReplogError as error:
                raise WrongError(
                    f"the group's offsets are not told {when}: {error!r}; {self._describe_nodes()}"
                ) from error
        wanted = self._expected.committed
        if {(topic, number): offset for (topic, number), offset in found.items()} != wanted:
            raise WrongError(f"the group has committed {wanted}, {when} it has {found}")

    def _check_names(self) -> None:
        for node_id, error in self._failures.errors.items():
            is_alone = self._damage.is_of_directory or METADATA_FOLDER in str(self._damage)
            if node_id != self._damage.node or not is_alone or not self._is_named(str(error)):
                raise WrongError(f"node {node_id} does not go on, or names no file: {error!r}")

    def _is_named(self, text: str) -> bool:
        return any(path in all_text for path in self._damage.paths for all_text in (text, *self._reasons()))

    def _reasons(self) -> list[str]:
        """What the nodes say is offline, and why."""
        offline = [str(error) for node in self._cluster.running for error in node.logs.offline.values()]
        unusable = [
            each.reason
            for node in self._cluster.running
            for each in node.parts.replicas.stepper.trouble.offline.values()
        ]
        return [*map(str, self._failures.errors.values()), *offline, *unusable]

    def _describe_nodes(self) -> str:
        running = [node.config.node_id for node in self._cluster.running]
        return f"{running} run, {self._failures.errors}, offline: {self._reasons()}"

    # ---- clients -----------------------------------------------------------------------------------------------------

    async def _read(self, partition: Partition) -> Found:
        """Reads one partition from its start to its end, again and again until it can be."""
        deadline_s = self._loop.time() + (SERVED_WITHIN_S if self._should_serve(partition) else 2.0)
        error = ""
        while self._loop.time() < deadline_s:
            try:
                async with asyncio.timeout_at(deadline_s):
                    return await self._read_once(partition)
            except (ReplogError, TimeoutError) as problem:
                error = error if isinstance(problem, TimeoutError) and error else repr(problem)
                await asyncio.sleep(AGAIN_S)
        return Found(error=error)

    def _should_serve(self, partition: Partition) -> bool:
        if partition[0] in REPLICATED:
            return True
        return partition not in self._unserved and NODES[partition[1]] not in self._failures.errors

    async def _read_once(self, partition: Partition) -> Found:
        async with self._clients.consumer() as consumer:
            await consumer.assign([partition])
            start = consumer.position(partition)
            end = (await consumer.end_offsets([partition]))[TopicPartition(*partition)]
            records: Records = {}
            while consumer.position(partition) < end:
                try:
                    polled = await consumer.poll(timeout_ms=1_000)
                except CorruptRecordError:
                    # the leader looks at what it is asked for again
                    consumer.seek(partition, consumer.position(partition))
                    await asyncio.sleep(AGAIN_S)
                else:
                    records |= {record.offset: (record.key, record.value) for record in polled}
        return Found(start, records)


def check(stopped: StoppedCluster, damage: Damage, *, is_logged: bool = False) -> Counter[str]:
    """Starts a cluster with some damage; returns what was seen.

    Raises:
        WrongError: something must not be; it says how to repeat it.
    """
    reason = why_believed(stopped, damage)
    start = DamagedStart(stopped, damage)
    start.events.to = sys.stdout if is_logged else None
    try:
        with start.events.with_node_logs() if is_logged else contextlib.nullcontext():
            start.run()
    except WrongError as error:
        if reason is not None:
            return Counter([f"believed: {reason}"])
        error.add_note(
            f"[seed {stopped.seed}; repeat with python -m tests.sim.disk_damage_simulation --seed {stopped.seed}"
            f' --damage "{damage}"; the nodes had stopped {stopped.how}]'
        )
        raise
    return start.seen


def run_seeds(seeds: Iterable[int], *, goes_on: bool = False) -> Counter[str]:
    """Runs many seeds; returns how often what was seen.

    Args:
        seeds: the seeds.
        goes_on: whether what does harm is told and counted.

    Raises:
        WrongError: of the first damage that does harm; a note says how to repeat it.
    """
    seen: Counter[str] = Counter()
    for seed in seeds:
        stopped = stopped_cluster(seed)
        rng = random.Random(f"damage of {seed}")
        seen.update(check_all(stopped, (draw_damage(stopped, rng) for _ in range(DAMAGES_A_SEED)), goes_on=goes_on))
    return seen


def check_all(stopped: StoppedCluster, damages: Iterable[Damage], *, goes_on: bool) -> Counter[str]:
    """Starts a cluster with one damage after the other; see `run_seeds`."""
    seen: Counter[str] = Counter()
    for damage in damages:
        try:
            seen.update(check(stopped, damage))
        except WrongError as error:
            if not goes_on:
                raise
            seen["finds"] += 1
            print(error, *error.__notes__, sep="\n", flush=True)
    return seen


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=20, help="how many, from --first")
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seed", type=int, help="just this one")
    parser.add_argument("--damage", help="with --seed: just this damage")
    parser.add_argument(
        "--exhaustive",
        choices=("small", "kinds"),
        help="with --seed: every bit of each small file, or all that is no flip",
    )
    parser.add_argument("--only", default="", help="with --exhaustive: of damages whose text has this in it")
    parser.add_argument("--go-on", action="store_true", help="tell every find, not only the first")
    parser.add_argument("--log", action="store_true", help="with --damage: what the nodes log")
    options = parser.parse_args()
    if not options.log:
        logging.disable(logging.CRITICAL)
    if options.seed is None:
        seen = run_seeds(range(options.first, options.first + options.seeds), goes_on=options.go_on)
    elif options.damage is not None:
        seen = check(stopped_cluster(options.seed), Damage.parse(options.damage), is_logged=options.log)
    elif options.exhaustive is not None:
        stopped = stopped_cluster(options.seed)
        damages = (each for each in every_damage(stopped, options.exhaustive) if options.only in str(each))
        seen = check_all(stopped, damages, goes_on=options.go_on)
    else:
        seen = run_seeds((options.seed,), goes_on=options.go_on)
    for name, count in sorted(seen.items()):
        print(f"{count:9d}  {name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
