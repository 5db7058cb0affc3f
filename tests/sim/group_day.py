"""A day of virtual time with groups that come and go: nothing may pile up.

One broker, three groups of our consumers with members that join, leave, are killed and come back all the time, and one that only
keeps offsets.  At every twelfth of the time everything that could pile up is counted; what the second half of the time sees may
not be more than what the first half has seen, but for `SLACK`::

    PYTHONPATH=timeline:quorum:checkpoints python -m tests.sim.group_day --hours 24    # about ten minutes
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import logging
import sys
from collections.abc import Iterator
from random import Random
from typing import cast
from unittest import mock

from replog.broker.coordinator.internal_topic import InternalTopic
from replog.broker.coordinator.shards import Shards
from replog.client import Admin, Consumer, Producer
from replog.metadata.topic_names import OFFSETS_TOPIC
from replog.testing.simulated_cluster import SimulatedCluster
from replog.testing.simulated_process import PROCESS, SimulatedProcess
from replog.testing.virtual_loop import VirtualLoop, VirtualTask
from tests.sim.group_simulation import with_small_segments
from tests.sim.metadata_cluster_checks import Violation

TOPIC, PARTITIONS = "orders", 4
GROUPS, MEMBERS = 3, 3
SAMPLES = 12
SLACK = 1.25
"""How much more the second half may have than the first one: members come and go at random."""

HOUR_S = 3_600.0
STEPS_AN_HOUR = 5_000_000
SEGMENT_BYTES = 32_768
SWINGS = {"log of groups": SEGMENT_BYTES}
"""How much more there may be by the moment of the sample: the active segment of a log is not cleaned.  Of anything else: 2."""

SETTINGS = {
    "log.dir.reserve.bytes": 0,
    "offsets.topic.num.partitions": 1,
    "log.cleaner.backoff.ms": 15_000,
    "log.cleaner.delete.retention.ms": 60_000,
    "offsets.retention.check.interval.ms": 60_000,
}


class GroupDay:
    """One run.

    Args:
        seed: decides everything.
        hours: of virtual time.

    Attributes:
        samples: what was counted, one after the other.
    """

    def __init__(self, seed: int, hours: float) -> None:
        self.samples: list[dict[str, int]] = []
        self.handled = 0
        self.lives = 0
        self._rng = Random(seed)
        self._duration_s = hours * HOUR_S
        self._loop = VirtualLoop(Random(seed + 1), steps_max=int(STEPS_AN_HOUR * max(hours, 1)))
        self._cluster = SimulatedCluster(
            self._loop,
            Random(seed + 2),
            controllers=(1,),
            brokers=(1,),
            settings=SETTINGS,
            small={"log_segment_bytes": SEGMENT_BYTES},
            client_seed=seed,
        )
        self._consumers: dict[str, Consumer] = {}

    def run(self) -> None:
        """Runs it.  Raises: Violation: something piles up."""
        with mock.patch.object(InternalTopic, "_wanted", with_small_segments):
            self._loop.run(self._run())
        self.check()

    async def _run(self) -> None:
        cluster = self._cluster
        cluster.start(1)
        await cluster.wait_until(cluster.is_settled)
        async with Admin(cluster.bootstrap_servers, transport=cluster.transport("admin")) as admin:
            await admin.create_topic(TOPIC, PARTITIONS, 1)
        work = [asyncio.create_task(self._produce())]
        work += [asyncio.create_task(self._come_and_go(number)) for number in range(GROUPS * MEMBERS)]
        for _ in range(SAMPLES):
            await asyncio.sleep(self._duration_s / SAMPLES)
            for task in work:
                if task.done():
                    task.result()
            gc.collect()
            self.samples.append(dict(self._counts()))
        for task in work:
            task.cancel()

    async def _produce(self) -> None:
        cluster = self._cluster
        async with Producer(cluster.bootstrap_servers, transport=cluster.transport("producer")) as producer:
            number = 0
            while True:
                await (await producer.send(TOPIC, b"%d" % number, partition=number % PARTITIONS))
                number += 1
                await asyncio.sleep(5)

    # ---- members ---------------------------------------------------------------------------------------------------------

    async def _come_and_go(self, number: int) -> None:
        name, group_id = f"member-{number}", f"group-{number % GROUPS}"
        rng, host = Random(f"{name}"), self._cluster.internet.host(name)
        while True:
            self.lives += 1
            stopping = asyncio.Event()
            process = self._loop.new_process(f"{name}.{self.lives}")
            process.on_kill.append(host.tcp.lose_process)
            task = process.create_task(self._read(name, group_id, stopping))
            await asyncio.sleep(rng.uniform(60, 1_200))
            if rng.random() < 0.5:
                stopping.set()
                await task
            self._end(name, process)
            await asyncio.sleep(rng.uniform(1, 120))

    def _end(self, name: str, process: SimulatedProcess) -> None:
        self._consumers.pop(name, None)
        process.kill()

    async def _read(self, name: str, group_id: str, stopping: asyncio.Event) -> None:
        cluster = self._cluster
        async with Consumer(
            cluster.bootstrap_servers,
            group_id=group_id,
            group_instance_id=name if group_id.endswith("0") else None,
            auto_offset_reset="earliest",
            fetch_max_wait_ms=10_000,
            transport=cluster.transport(name),
        ) as consumer:
            self._consumers[name] = consumer
            if group_id.endswith("1"):
                await consumer.subscribe(pattern=f"{TOPIC}.*")
            else:
                await consumer.subscribe([TOPIC])
            while not stopping.is_set():
                records = await consumer.poll(timeout_ms=10_000)
                self.handled += len(records)

    # ---- what could pile up ----------------------------------------------------------------------------------------------

    def _counts(self) -> Iterator[tuple[str, int]]:
        (node,) = self._cluster.running
        shards: Shards = node.parts.requests.coordinators.shards
        yield "tasks", sum(_is_alive(each) for each in asyncio.all_tasks(self._loop))
        yield "timers of the loop", len(self._loop._scheduled)
        yield "requests that wait", shards.open_requests
        for host in shards.hosts.values():
            status = host.shard.status()
            machine = host.shard._machine
            yield "timers of the coordinator", status.timers
            yield "timers of it that failed", status.timer_failures
            yield "answers that wait", status.parked_answers
            yield "members", sum(len(group.members) for group in _groups(machine))
            yield "places of members", sum(len(group.current) + len(group.targets) for group in _groups(machine))
            yield "instances", sum(len(group.instances) for group in _groups(machine))
            yield "offsets", sum(len(machine._offsets.of_group(each)) for each in machine._offsets.group_ids())
            yield "log of groups", _log_bytes(node.parts.replicas.stepper.replicas.values())
        yield "listeners of clients", max((len(each._view._listeners) for each in self._consumers.values()), default=0)
        yield "objects of coordinators", sum(_is_kept_by_coordinators(each) for each in gc.get_objects())

    def check(self) -> None:
        """Raises Violation: something has piled up."""
        half = SAMPLES // 2
        for name in self.samples[0]:
            early = max(sample[name] for sample in self.samples[:half])
            late = max(sample[name] for sample in self.samples[half:])
            if late > early * SLACK + SWINGS.get(name, 2):
                raise Violation(f"{name} pile up: {[sample[name] for sample in self.samples]}")


def _is_alive(task: asyncio.Task[object]) -> bool:
    """Whether it has not ended, by itself or with the process that it belonged to."""
    process = cast("VirtualTask[object]", task).context.get(PROCESS)
    return not task.done() and (process is None or not process.is_dead)


def _is_kept_by_coordinators(thing: object) -> bool:
    """Whether it is of a class of theirs; what members have asked is kept with the tasks of those that were killed, too."""
    module = str(type(thing).__module__)
    return ".coordinator." in module and not module.endswith("requests")


def _groups(machine: object) -> Iterator[object]:
    consumers = machine._groups.consumers
    return (consumers.find(each) for each in consumers.group_ids())


def _log_bytes(replicas: object) -> int:
    logs = (each.log for each in replicas if each.topic == OFFSETS_TOPIC)
    return sum(segment.size_bytes for log in logs for segment in log._state.segments)


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hours", type=float, default=24.0)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    logging.disable(logging.CRITICAL)
    day = GroupDay(options.seed, options.hours)
    try:
        day.run()
    finally:
        for name in day.samples[0] if day.samples else ():
            print(f"{name:<28} {' '.join(f'{sample[name]:7d}' for sample in day.samples)}")
        print(f"{int(day._loop.time()):9d}  virtual seconds")
        print(f"{day.lives} lives of members, {day.handled} records handled, {day._loop.steps} steps")
    return 0


if __name__ == "__main__":
    sys.exit(main())
