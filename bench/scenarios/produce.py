"""How fast do three brokers take records that all replicas must have?"""

from __future__ import annotations

from collections.abc import Sequence

from bench.data import values
from bench.meter import Meter
from bench.model import Measured, Params, Scenario, WrongResultError, throughput
from bench.systems.brokers import BrokerSystem, Digest
from bench.systems.replog_cluster import ReplogCluster

ROUND_BYTES = 128 * 1024 * 1024
POOL_BYTES = 1024 * 1024
PARTITIONS = 3


class ProduceScenario(Scenario[BrokerSystem]):
    """One idempotent producer sends records without keys in bulk, acknowledged by all in-sync replicas.

    Every record is read back afterwards and compared by digest.

    Args:
        round_bytes: how much one repetition sends.
        record_sizes: which sizes to try, bytes.
        systems: by default all there are.
    """

    name = "produce"
    question = "How fast do three brokers take records that all replicas must have?"

    def __init__(
        self,
        round_bytes: int = ROUND_BYTES,
        record_sizes: Sequence[int] = (100, 1024, 10_240),
        systems: Sequence[BrokerSystem] | None = None,
    ) -> None:
        self._round_bytes = round_bytes
        self._record_sizes = record_sizes
        self._systems = [ReplogCluster()] if systems is None else systems

    def systems(self) -> Sequence[BrokerSystem]:
        return self._systems

    def cases(self) -> Sequence[Params]:
        return [{"record_bytes": size, "partitions": PARTITIONS} for size in self._record_sizes]

    def measure(self, system: BrokerSystem, params: Params, meter: Meter) -> Measured:
        record_bytes = int(params["record_bytes"])
        pool, rounds = pool_for(record_bytes, self._round_bytes)
        count = len(pool) * rounds
        topic = system.create_topic(int(params["partitions"]))
        with system.producer(topic) as producer, meter.timed() as timing:
            producer.send_all(pool, rounds)
        check_topic(system, topic, Digest.of(pool, rounds))
        system.delete_topic(topic)
        return throughput(timing, records=count, data_bytes=count * record_bytes)


def pool_for(record_bytes: int, round_bytes: int) -> tuple[Sequence[bytes], int]:
    """Values to send, and how often to send them to come to about `round_bytes`."""
    pool_bytes = min(POOL_BYTES, round_bytes)
    pool = values(max(1, pool_bytes // record_bytes), record_bytes)
    return pool, max(1, round_bytes // pool_bytes)


def check_topic(system: BrokerSystem, topic: str, expected: Digest) -> None:
    """Raises WrongResultError when a topic holds anything but what was sent."""
    with system.consumer(topic) as consumer:
        found = consumer.digest(expected.count)
    if found != expected:
        raise WrongResultError(
            f"{system.name} acknowledged {expected.count} records and holds {found.count}"
            if found.count != expected.count
            else f"{system.name} holds other records than the {expected.count} that it acknowledged"
        )


SCENARIO = ProduceScenario()
