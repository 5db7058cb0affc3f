"""How long does a consumer group take to settle, and how fast are its offsets committed?"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

from bench.meter import Meter
from bench.model import Measured, Metric, Params, Scenario
from bench.scenarios.ack_latency import percentile
from bench.systems.group_brokers import Committer, Group, GroupBrokers, commits_at_rate, commits_in_flight
from bench.systems.kafka.brokers import KafkaBrokers
from bench.systems.replog_brokers import ReplogBrokers

PARTITIONS = 1_000
MEMBERS = 100
IDLE_MEMBERS = 1_000
HEARTBEAT_MS = 1_000
DEFAULT_HEARTBEAT_MS = 5_000
"""How often members speak that are told nothing else, here as in Kafka."""
GROUPS = 100
COMMITS = 40_000
RATE_PER_S = 1_000
RATED_S = 5.0
IDLE_S = 10.0
SETTLE_S = 10.0
"""How long brokers are busy with files of a topic that has just been made."""

STABLE_MS = Metric("stable_ms", "ms")
MOVED = Metric("moved_partitions", "")
COMMITS_PER_S = Metric("commits_per_s", "1/s")
OFFSETS_PER_S = Metric("offsets_per_s", "1/s")
CPU_US = Metric("brokers_cpu_us_per_commit", "µs")
P50_MS = Metric("p50_ms", "ms")
P99_MS = Metric("p99_ms", "ms")
IDLE_PERCENT = Metric("brokers_cpu_percent", "%")

CONFIG = {
    "group.consumer.heartbeat.interval.ms": HEARTBEAT_MS,
    "group.consumer.max.size": 10 * IDLE_MEMBERS,
    "log.segment.delete.delay.ms": 1_000,
}
"""What both have; the files of topics that are done with must not be removed while the next case is measured."""

KAFKA_CONFIG = {**CONFIG, "group.consumer.min.heartbeat.interval.ms": HEARTBEAT_MS}


class GroupsScenario(Scenario[GroupBrokers]):
    """Three brokers; members and commits are bare requests of Kafka's protocol, the same for all systems.

    A member hears of a change by its next heartbeat, one in a second here, except where it is said to speak less often.  `stable_ms` ends when every partition has one owner
    again and the shares of any two members differ by one at most.  What idle members cost is the difference to the case of none.

    Args:
        scale: The share of the members, partitions, commits and times; 1 for figures, less for a test of the scenario.
        systems: By default all there are.
    """

    name = "groups"
    question = "How long does a consumer group take to settle, and how fast are its offsets committed?"

    def __init__(self, scale: float = 1.0, systems: Sequence[GroupBrokers] | None = None) -> None:
        self._scale = scale
        self._systems = systems or [
            GroupBrokers(ReplogBrokers(config=CONFIG)),
            GroupBrokers(KafkaBrokers(config=KAFKA_CONFIG)),
        ]

    def systems(self) -> Sequence[GroupBrokers]:
        return self._systems

    def cases(self) -> Sequence[Params]:
        group = {"members": MEMBERS, "partitions": PARTITIONS, "heartbeat_ms": HEARTBEAT_MS}
        return [
            {"work": "all join", **group},
            {"work": "one more joins", **group},
            {"work": "one leaves", **group},
            {"work": "commits", "in_flight": 256, "groups": GROUPS, "offsets": 1},
            {"work": "commits", "in_flight": 256, "groups": GROUPS, "offsets": 10},
            {"work": "commits at a rate", "rate_per_s": RATE_PER_S, "groups": GROUPS},
            {"work": "idle members", **group, "members": 0},
            {"work": "idle members", **group, "members": IDLE_MEMBERS},
            {"work": "idle members", **group, "members": IDLE_MEMBERS, "heartbeat_ms": DEFAULT_HEARTBEAT_MS},
        ]

    def warm_up(self, system: GroupBrokers, params: Params, meter: Meter) -> None:
        if params["work"] != "idle members":
            self.measure(system, params, meter)

    def measure(self, system: GroupBrokers, params: Params, meter: Meter) -> Measured:
        topic = system.create_topic(self._scaled(int(params.get("partitions", params.get("offsets", 1)))))
        try:
            match params["work"]:
                case "commits":
                    return system.run(self._commits(system, topic, params, meter))
                case "commits at a rate":
                    return system.run(self._rated_commits(system, topic, params))
                case "idle members":
                    return system.run(self._idle(system, topic, params, meter))
                case _:
                    return system.run(self._settle(system, topic, params))
        finally:
            system.delete_topic(topic)

    def _scaled(self, count: int) -> int:
        return max(1, int(count * self._scale))

    async def _settle(self, system: GroupBrokers, topic: str, params: Params) -> Measured:
        group = Group(system, topic, self._scaled(int(params["partitions"])))
        try:
            start_s = time.perf_counter()
            await group.join(max(2, self._scaled(int(params["members"]))))
            await group.wait_stable()
            if params["work"] == "all join":
                return {STABLE_MS: (time.perf_counter() - start_s) * 1000}
            before = group.owners()
            start_s = time.perf_counter()
            if params["work"] == "one more joins":
                await group.join(1)
            else:
                await group.members.pop().leave()
            await group.wait_stable()
            took_s = time.perf_counter() - start_s
            moved = sum(before[partition] is not owner for partition, owner in group.owners().items())
            return {STABLE_MS: took_s * 1000, MOVED: moved}
        finally:
            await group.close()

    async def _commits(self, system: GroupBrokers, topic: str, params: Params, meter: Meter) -> Measured:
        offsets = self._scaled(int(params["offsets"]))
        committer = Committer(system, topic, self._scaled(int(params["groups"])), offsets)
        await committer.start()
        count = self._scaled(COMMITS)
        try:
            with meter.timed() as timing:
                await commits_in_flight(committer.commit, count, int(params["in_flight"]))
        finally:
            committer.close()
        return {
            COMMITS_PER_S: count / timing.wall_s,
            OFFSETS_PER_S: count * offsets / timing.wall_s,
            CPU_US: timing.brokers_cpu_s / count * 1e6,
        }

    async def _rated_commits(self, system: GroupBrokers, topic: str, params: Params) -> Measured:
        committer = Committer(system, topic, self._scaled(int(params["groups"])))
        await committer.start()
        rate_per_s = float(params["rate_per_s"])
        try:
            took_s = sorted(
                await commits_at_rate(committer.commit, self._scaled(int(rate_per_s * RATED_S)), rate_per_s)
            )
        finally:
            committer.close()
        return {P50_MS: percentile(took_s, 50) * 1000, P99_MS: percentile(took_s, 99) * 1000}

    async def _idle(self, system: GroupBrokers, topic: str, params: Params, meter: Meter) -> Measured:
        group = Group(system, topic, self._scaled(int(params["partitions"])), self._scaled(int(params["heartbeat_ms"])))
        try:
            if params["members"]:
                await group.join(max(2, self._scaled(int(params["members"]))))
                await group.wait_stable()
            await asyncio.sleep(SETTLE_S * min(1.0, self._scale))
            with meter.timed() as timing:
                await asyncio.sleep(IDLE_S * min(1.0, self._scale))
            return {IDLE_PERCENT: timing.brokers_cpu_s / timing.wall_s * 100}
        finally:
            await group.close()


SCENARIO = GroupsScenario()
