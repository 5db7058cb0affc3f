"""The runs that the pictures of docs/concepts show, each of one seed: what happened, as data for tools/pictures.py.

A run returns what a page says of it as facts, which hold whatever the timing is: `test_concept_runs.py` runs them again.
When one changes, `python -m tests.sim.concept_runs` (PYTHONPATH=timeline:quorum:checkpoints) writes docs/pictures anew;
then see that the pages still say what the pictures show.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

from replog.broker.replicas.replica import Replica
from replog.client import Admin, Consumer, Producer
from replog.log.file_names import LOG_SUFFIX, file_path
from replog.records import decode_records, scan
from replog.replication.leader import Leader
from replog.testing import SimulatedCluster, simulate
from tests.sim.ablation_table import taken_out
from tests.sim.replication_ablations import ABLATIONS

PICTURES = Path(__file__).parents[2] / "docs" / "pictures"
TOPIC, PARTITION = "orders", 0
SEED = 1
LOOK_S = 0.02
EVERY_S = 0.05
"""How often an application sends."""


def replica_on(cluster: SimulatedCluster, node_id: int) -> Replica | None:
    node = cluster.nodes[node_id].node
    replicas = () if node is None else node.parts.replicas.stepper.replicas.values()
    return next((replica for replica in replicas if replica.topic == TOPIC), None)


async def with_topic(cluster: SimulatedCluster, partitions: int = 1, first: int | None = None) -> None:
    """Returns when every broker has its replicas; `first` leads."""
    order = sorted(cluster.brokers, key=lambda node_id: (node_id != first, node_id))
    async with Admin(cluster.bootstrap_servers, transport=cluster.transport("admin")) as admin:
        await admin.create_topic(TOPIC, assignments=[order] * partitions)
        await admin.wait_until_in_sync(TOPIC)
    await cluster.wait_until(lambda: all(replica_on(cluster, node_id) for node_id in cluster.brokers))


class Watch:
    """Looks at a cluster again and again, and keeps what has changed with the time, in seconds since it began."""

    def __init__(self, look: Callable[[], dict[str, Any]]) -> None:
        self.changes: list[tuple[float, dict[str, Any]]] = []
        self._look = look
        self._began_s = asyncio.get_running_loop().time()
        self._task = asyncio.create_task(self._watch())

    @property
    def now_s(self) -> float:
        return round(asyncio.get_running_loop().time() - self._began_s, 3)

    async def _watch(self) -> None:
        while True:
            if not self.changes or self.changes[-1][1] != self._look():
                self.changes.append((self.now_s, self._look()))
            await asyncio.sleep(LOOK_S)

    async def end(self) -> list[tuple[float, dict[str, Any]]]:
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task
        return [*self.changes, (self.now_s, self._look())]

    def distinct(self, name: str) -> list[Any]:
        """The values of one thing, in order."""
        values = [look[name] for _, look in self.changes]
        return [value for number, value in enumerate(values) if number == 0 or value != values[number - 1]]


class Sender:
    """An application that sends a record each `EVERY_S`, and counts what is acknowledged."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        self.acknowledged = 0
        self._cluster = cluster
        self._task = asyncio.create_task(self._send())

    async def _send(self) -> None:
        transport = self._cluster.transport("app")
        async with (
            Producer(self._cluster.bootstrap_servers, transport=transport) as producer,
            asyncio.TaskGroup() as waiting,
        ):
            while True:
                waiting.create_task(self._acknowledge(await producer.send(TOPIC, b"order", partition=PARTITION)))
                await asyncio.sleep(EVERY_S)

    async def _acknowledge(self, delivery: Any) -> None:
        await delivery
        self.acknowledged += 1

    async def end(self) -> None:
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task


# ---- the high watermark and the ISR ------------------------------------------------------------------------------------


async def slow_follower(cluster: SimulatedCluster) -> dict[str, Any]:
    """A follower stands still for five seconds (SIGSTOP): records wait for it until it is out of the ISR."""
    await with_topic(cluster)
    leader_id = cluster.leader_of(TOPIC)
    follower_id = next(node_id for node_id in cluster.brokers if node_id != leader_id)
    ends: dict[str, int] = {}

    def look() -> dict[str, Any]:
        for node_id in cluster.brokers:
            replica = replica_on(cluster, node_id)
            assert replica is not None
            ends[str(node_id)] = replica.log.log_end_offset
        led = replica_on(cluster, leader_id)
        assert led is not None
        assert isinstance(led.role, Leader)
        return {"ends": {**ends}, "high_watermark": led.high_watermark, "isr": sorted(led.role.status().isr)}

    watch, sender = Watch(look), Sender(cluster)
    await asyncio.sleep(1)
    cluster.pause(follower_id)
    paused_s = watch.now_s
    await asyncio.sleep(5)
    cluster.resume(follower_id)
    resumed_s = watch.now_s
    await cluster.wait_until(lambda: len(look()["isr"]) == len(cluster.brokers))
    await asyncio.sleep(1)
    await sender.end()
    changes = await watch.end()
    stood_s = max(after - before for before, after in pairwise(at for at, _ in moves(changes, "high_watermark")))
    return {
        "leader": leader_id,
        "marks": [[paused_s, f"{follower_id} stands still"], [resumed_s, f"{follower_id} goes on"]],
        "changes": changes,
        "facts": {
            "isr": [len(isr) for isr in watch.distinct("isr")],
            "high watermark is above no member of the ISR": all(
                seen["high_watermark"] <= min(seen["ends"][str(member)] for member in seen["isr"])
                for _, seen in changes
            ),
            "it stood still for seconds": round(stood_s),
        },
    }


def moves(changes: Iterable[tuple[float, dict[str, Any]]], name: str) -> list[tuple[float, Any]]:
    """When one thing has changed, and to what."""
    found: list[tuple[float, Any]] = []
    for at_s, look in changes:
        if not found or found[-1][1] != look[name]:
            found.append((at_s, look[name]))
    return found


# ---- a rebalance ---------------------------------------------------------------------------------------------------------


async def rebalance(cluster: SimulatedCluster) -> dict[str, Any]:
    """Three members join, one leaves, one is cut off."""
    await with_topic(cluster, partitions=6)
    members: dict[str, Consumer[bytes, bytes]] = {}
    tasks: dict[str, asyncio.Task[None]] = {}

    async def read(name: str) -> None:
        consumer = members[name]
        async with consumer:
            await consumer.subscribe([TOPIC])
            while True:
                await consumer.poll()

    def join(name: str) -> None:
        members[name] = Consumer(
            cluster.bootstrap_servers,
            group_id="billing",
            auto_offset_reset="earliest",
            transport=cluster.transport(name),
        )
        tasks[name] = asyncio.create_task(read(name))

    async def leave(name: str) -> None:
        tasks[name].cancel()
        with suppress(asyncio.CancelledError):
            await tasks[name]
        del members[name]

    def shares() -> dict[str, list[int]]:
        return {name: sorted(one.partition for one in member.assignment()) for name, member in members.items()}

    def shared_by(count: int) -> bool:
        owned = [partition for partitions in shares().values() for partition in partitions]
        return len(members) == count and sorted(owned) == list(range(6)) and all(shares().values())

    marks: list[list[Any]] = []
    watch = Watch(lambda: {"shares": shares()})
    for name in ("a", "b", "c"):
        join(name)
        marks.append([watch.now_s, f"{name} joins"])
        await cluster.wait_until(lambda: shared_by(len(members)))
        await asyncio.sleep(1.5)
    marks.append([watch.now_s, "b leaves"])
    await leave("b")
    await cluster.wait_until(lambda: shared_by(2))
    await asyncio.sleep(1.5)
    marks.append([watch.now_s, "c is cut off"])
    for node_id in cluster.nodes:
        cluster.cut_client("c", node_id)
    await cluster.wait_until(lambda: len(shares()["a"]) == 6)
    taken_s = watch.now_s
    await asyncio.sleep(1.5)
    changes = await watch.end()
    cluster.mend_all()
    for name in tuple(members):
        await leave(name)
    return {
        "partitions": 6,
        "marks": marks,
        "changes": changes,
        "facts": {
            "partitions in the end": {name: len(share) for name, share in watch.distinct("shares")[-1].items()},
            "two members never have the same partition before one is cut off": all(
                len({*owned}) == len(owned)
                for at_s, look in changes
                if at_s <= marks[-1][0]
                for owned in [[partition for share in look["shares"].values() for partition in share]]
            ),
            "it took seconds until the partitions of the one that was cut off were read": round(taken_s - marks[-1][0]),
        },
    }


# ---- elections -----------------------------------------------------------------------------------------------------------


async def elections(cluster: SimulatedCluster) -> dict[str, Any]:
    """A node that leads the partition and the metadata quorum is cut off from all others, and comes back."""
    victim = cluster.leader()
    assert victim is not None
    victim_id = victim.config.node_id
    await with_topic(cluster, first=victim_id)
    sender = Sender(cluster)
    cut_off: set[int] = set()

    def look() -> dict[str, Any]:
        nodes = [node for node in cluster.running if node.config.node_id not in cut_off]
        status = max((node.quorum_status for node in nodes), key=lambda status: status.epoch)
        image = max((node.image for node in nodes), key=lambda image: image.end_offset)
        partition = image.topics_by_name[TOPIC].partitions[PARTITION]
        return {
            "controller": status.leader_id,
            "controller_epoch": status.epoch,
            "leader": partition.leader,
            "leader_epoch": partition.leader_epoch,
            "isr": sorted(partition.isr),
            "acknowledged": sender.acknowledged,
        }

    watch = Watch(look)
    await asyncio.sleep(2)
    marks: list[list[Any]] = [[watch.now_s, f"{victim_id} is cut off"]]
    cluster.isolate(victim_id)
    cluster.cut_client("app", victim_id)
    cut_off.add(victim_id)
    await cluster.wait_until(lambda: look()["leader"] not in {victim_id, -1})
    await asyncio.sleep(3)
    marks.append([watch.now_s, f"{victim_id} is back"])
    cluster.mend_all()
    cut_off.clear()
    await cluster.wait_until(lambda: len(look()["isr"]) == len(cluster.brokers))
    await asyncio.sleep(1)
    changes = await watch.end()
    await sender.end()
    return {
        "marks": marks,
        "changes": changes,
        "facts": {
            "leaders of the partition": len({look["leader"] for _, look in changes} - {-1}),
            "epochs rise": all(
                before["leader_epoch"] <= after["leader_epoch"]
                and before["controller_epoch"] <= after["controller_epoch"]
                for (_, before), (_, after) in pairwise(changes)
            ),
            "isr": [len(isr) for isr in watch.distinct("isr")],
        },
    }


# ---- what leader epochs are for ------------------------------------------------------------------------------------------

KIP_101 = next(each for each in ABLATIONS if each.safeguard.startswith("truncation by epoch"))


def log_on(cluster: SimulatedCluster, node_id: int) -> list[tuple[str, int]]:
    """The records that a disk holds of the partition, each with the leader epoch of its batch."""
    path = file_path(f"/data/{TOPIC}-{PARTITION}", 0, LOG_SUFFIX)
    written = bytes(cluster.nodes[node_id].fs._file_node(path).written)
    return [
        (bytes(record.value or b"").decode(), header.partition_leader_epoch)
        for header in scan(written)
        for record in decode_records(written, start_offset=header.base_offset, end_offset=header.next_offset)
    ]


async def two_leaders_fail(cluster: SimulatedCluster) -> dict[str, Any]:
    """The leader is killed, then the next one; the third has been cut off from the second meanwhile, and leads at last."""
    moments: list[dict[str, Any]] = []

    def keep(text: str) -> None:
        brokers = {}
        for node_id in cluster.brokers:
            replica = replica_on(cluster, node_id)
            role = "down" if replica is None else "leads" if isinstance(replica.role, Leader) else "follows"
            end = None if replica is None else replica.high_watermark
            brokers[str(node_id)] = {"role": role, "log": log_on(cluster, node_id), "high_watermark": end}
        moments.append({"text": text, "brokers": brokers})

    async def send(value: str) -> None:
        async with Producer(cluster.bootstrap_servers, transport=cluster.transport(value)) as producer:
            await producer.send_and_wait(TOPIC, value.encode(), partition=PARTITION)

    def new_leader(*gone: int) -> bool:
        return cluster.leader_of(TOPIC) not in {None, *gone}

    await with_topic(cluster)
    first = cluster.leader_of(TOPIC)
    await send("m0")
    await asyncio.sleep(2)
    await send("m1")
    await asyncio.sleep(0.2)  # the leader has written down that 2 is its high watermark, the others know of 1
    keep("m0 and m1 are acknowledged")
    one, other = (node_id for node_id in cluster.brokers if node_id != first)
    cluster.cut(one, other)
    cluster.cut(other, one)
    cluster.crash(first, power_cut=False)
    await cluster.wait_until(lambda: new_leader(first))
    second = cluster.leader_of(TOPIC)
    await asyncio.sleep(0.3)
    keep(f"{first} is killed, {second} leads")
    cluster.crash(second, power_cut=False)
    await cluster.wait_until(lambda: new_leader(first, second))
    third = cluster.leader_of(TOPIC)
    cluster.mend_all()
    await send("m2")
    keep(f"{second} is killed, {third} leads and takes m2")
    cluster.start(first)
    cluster.start(second)
    await cluster.wait_until(cluster.is_settled)
    await cluster.wait_until(
        lambda: all(
            (replica := replica_on(cluster, node)) and len(replica.registration.isr) == 3 for node in cluster.brokers
        )
    )
    await asyncio.sleep(2)
    keep("all are back and in sync")
    logs = [tuple(log_on(cluster, node_id)) for node_id in cluster.brokers]
    return {
        "moments": moments,
        "facts": {
            "m1, which was acknowledged, is in the leader's log": "m1" in dict(log_on(cluster, third)),
            "all replicas are the same": len({*logs}) == 1,
        },
    }


def leader_epochs() -> dict[str, Any]:
    """The same run with the safeguard and without it."""
    runs = {}
    for name, patches in (("with", ()), ("without", KIP_101.patches)):
        with taken_out(patches):
            runs[name] = simulate(
                two_leaders_fail,
                seed=SEED,
                controllers=(4, 5, 6),
                settings={
                    "min.insync.replicas": 1,
                    "flush.policy": "os",
                    "replica.high.watermark.checkpoint.interval.ms": 100,
                },
            )
    return {**runs, "facts": {name: run.pop("facts") for name, run in runs.items()}}


RUNS: dict[str, Callable[[], dict[str, Any]]] = {
    "high-watermark": lambda: simulate(
        slow_follower, seed=SEED, settings={"replica.lag.time.max.ms": 2_000, "min.insync.replicas": 2}
    ),
    "rebalance": lambda: simulate(
        rebalance,
        seed=SEED,
        settings={"group.consumer.session.timeout.ms": 3_000, "group.consumer.heartbeat.interval.ms": 500},
    ),
    "elections": lambda: simulate(elections, seed=SEED, settings={"min.insync.replicas": 2}),
    "leader-epochs": leader_epochs,
}


def main() -> int:
    """Writes the data of all runs, or of those named, and draws them."""
    for name in sys.argv[1:] or RUNS:
        (PICTURES / f"{name}.json").write_text(json.dumps(RUNS[name](), separators=(",", ":")) + "\n", encoding="utf-8")
    return subprocess.run([sys.executable, "tools/pictures.py"], cwd=PICTURES.parents[1], check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
