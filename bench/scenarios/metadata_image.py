"""What does a broker pay for knowing a hundred thousand partitions?"""

from __future__ import annotations

import gc
import random
import sys
from collections.abc import Sequence
from functools import cache
from types import BuiltinFunctionType, FunctionType, ModuleType
from uuid import UUID

from bench.data import SEED
from bench.meter import Meter
from bench.model import Measured, Metric, Params, Scenario, WrongResultError
from bench.systems.images import CopiedDicts, ImageSystem, ReplogImage
from replog.metadata.records import PartitionChangeRecord, PartitionRecord, TopicRecord
from replog.rpc.metadata_records import encode_metadata_record

PARTITIONS = 100_000
BROKERS = 6
CHANGES = 500
BUILD_S = Metric("build_s", "s")
PUBLISH_MS = Metric("publish_ms", "ms")
PUBLISH_MAX_MS = Metric("publish_max_ms", "ms")
MEMORY_MIB = Metric("memory_mib", "MiB")


class MetadataImageScenario(Scenario[ImageSystem]):
    """Builds the image of a snapshot's record values, decoding included, then publishes single changes one by one.

    `memory_mib` is what the image holds on to, shared objects once.

    Args:
        partitions: in all; once as topics of one partition, once as a hundred large topics.
        changes: how many are published.
    """

    name = "metadata-image"
    question = "What does a broker pay for knowing 100,000 partitions: to start, for each change, in memory?"

    def __init__(self, partitions: int = PARTITIONS, changes: int = CHANGES) -> None:
        self._partitions = partitions
        self._changes = changes
        self._systems: list[ImageSystem] = [ReplogImage(), CopiedDicts()]

    def systems(self) -> Sequence[ImageSystem]:
        return self._systems

    def cases(self) -> Sequence[Params]:
        return [{"topics": topics, "partitions": self._partitions} for topics in (self._partitions, 100)]

    def measure(self, system: ImageSystem, params: Params, meter: Meter) -> Measured:
        topics = int(params["topics"])
        values = _snapshot_values(topics, self._partitions // topics)
        system.clear()
        with meter.timed() as building:
            system.build(values)
        changes = self._some_changes(topics)
        waits = []
        for change in changes:
            with meter.timed() as publishing:
                system.publish(change)
            waits.append(publishing.wall_s)
        self._check(system, changes)
        memory_bytes = reachable_bytes(system.picture)
        system.clear()
        return {
            BUILD_S: building.wall_s,
            PUBLISH_MS: sum(waits) / len(waits) * 1e3,
            PUBLISH_MAX_MS: max(waits) * 1e3,
            MEMORY_MIB: memory_bytes / 2**20,
        }

    def _some_changes(self, topics: int) -> list[PartitionChangeRecord]:
        source = random.Random(SEED)
        ids, per_topic = _topic_ids(topics), self._partitions // topics
        return [
            PartitionChangeRecord(source.randrange(per_topic), source.choice(ids), isr=(number % BROKERS,))
            for number in range(self._changes)
        ]

    @staticmethod
    def _check(system: ImageSystem, changes: Sequence[PartitionChangeRecord]) -> None:
        newest = {(change.topic_id, change.partition_id): change.isr for change in changes}
        for place, isr in newest.items():
            partition = system.partition(*place)
            if partition is None or partition.isr != isr:
                raise WrongResultError(f"{system.name} lost the change of {place}")


def reachable_bytes(root: object) -> int:
    """Size of `root` and of all that it refers to, each object once; code and classes are not counted."""
    seen: set[int] = set()
    waiting, size_bytes = [root], 0
    while waiting:
        found = waiting.pop()
        if id(found) in seen or isinstance(found, (type, ModuleType, FunctionType, BuiltinFunctionType)):
            continue
        seen.add(id(found))
        size_bytes += sys.getsizeof(found)
        waiting += gc.get_referents(found)
    return size_bytes


@cache
def _topic_ids(topics: int) -> list[UUID]:
    source = random.Random(SEED)
    return [UUID(int=source.getrandbits(128)) for _ in range(topics)]


@cache
def _snapshot_values(topics: int, partitions_per_topic: int) -> list[bytes]:
    values: list[bytes] = []
    for number, topic_id in enumerate(_topic_ids(topics)):
        values.append(encode_metadata_record(TopicRecord(f"topic-{number}", topic_id)))
        for partition_id in range(partitions_per_topic):
            replicas = tuple((partition_id + place) % BROKERS for place in range(3))
            record = PartitionRecord(partition_id, topic_id, replicas, replicas, replicas[0], 0, 0)
            values.append(encode_metadata_record(record))
    return values


SCENARIO = MetadataImageScenario()
