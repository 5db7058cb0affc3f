"""How fast do three brokers take records that all replicas must have?"""

from __future__ import annotations

import time
from collections.abc import Sequence

from bench.data import values
from bench.meter import Meter
from bench.model import BROKERS_CPU_S_PER_GB, Measured, Params, Scenario, WrongResultError, throughput
from bench.systems.broker_systems import beside_kafka
from bench.systems.brokers import BrokerSystem, Digest

ROUND_BYTES = 128 * 1024 * 1024
POOL_BYTES = 1024 * 1024
PARTITIONS = 3
WARM_UP_RECORD_BYTES = 100
VISIBLE_WITHIN_S = 10.0
POLL_S = 0.05


class ProduceScenario(Scenario[BrokerSystem]):
    """One idempotent producer sends records without keys in bulk, acknowledged by all in-sync replicas.

    Every record is read back afterwards and compared by digest.

    Args:
        round_bytes: how much one repetition sends.
        record_sizes: which sizes to try, bytes.
        systems: by default all there are.
        warm_up_share: how much of what makes a system warm is sent; less for a test.
    """

    name = "produce"
    question = "How fast do three brokers take records that all replicas must have?"

    def __init__(
        self,
        round_bytes: int = ROUND_BYTES,
        record_sizes: Sequence[int] = (100, 1024, 10_240),
        systems: Sequence[BrokerSystem] | None = None,
        *,
        warm_up_share: float = 1.0,
    ) -> None:
        self._round_bytes = round_bytes
        self._record_sizes = record_sizes
        self._systems = beside_kafka() if systems is None else systems
        self._warmth = Warmth(warm_up_share)

    def systems(self) -> Sequence[BrokerSystem]:
        return self._systems

    def cases(self) -> Sequence[Params]:
        return [{"record_bytes": size, "partitions": PARTITIONS} for size in self._record_sizes]

    def warm_up(self, system: BrokerSystem, params: Params, meter: Meter) -> None:
        if not self._warmth.give(system):
            self.measure(system, params, meter)

    def measure(self, system: BrokerSystem, params: Params, meter: Meter) -> Measured:
        record_bytes = int(params["record_bytes"])
        pool, rounds = pool_for(record_bytes, self._round_bytes)
        count = len(pool) * rounds
        topic = system.create_topic(int(params["partitions"]))
        with system.producer(topic) as producer, meter.timed() as timing:
            producer.send_all(pool, rounds)
        check_topic(system, topic, Digest.of(pool, rounds))
        system.delete_topic(topic)
        data_bytes = count * record_bytes
        brokers_cpu = {BROKERS_CPU_S_PER_GB: timing.brokers_cpu_s / data_bytes * 1e9}
        return throughput(timing, records=count, data_bytes=data_bytes) | brokers_cpu


class Warmth:
    """Has every system send so many records, once, that a JVM has compiled what they run through.

    Args:
        share: of what a system says that it needs.
    """

    def __init__(self, share: float) -> None:
        self._share = share
        self._warm: set[str] = set()

    def give(self, system: BrokerSystem) -> bool:
        """Whether there was something to do."""
        if system.name in self._warm:
            return False
        self._warm.add(system.name)
        warm_bytes = int(system.warm_up_records * self._share) * WARM_UP_RECORD_BYTES
        topic = system.create_topic(PARTITIONS)
        with system.producer(topic) as producer:
            producer.send_all(*pool_for(WARM_UP_RECORD_BYTES, warm_bytes))
        system.delete_topic(topic)
        return True


def pool_for(record_bytes: int, round_bytes: int) -> tuple[Sequence[bytes], int]:
    """Values to send, and how often to send them to come to about `round_bytes`."""
    pool_bytes = min(POOL_BYTES, round_bytes)
    pool = values(max(1, pool_bytes // record_bytes), record_bytes)
    return pool, max(1, round_bytes // pool_bytes)


def check_topic(system: BrokerSystem, topic: str, expected: Digest) -> None:
    """Raises WrongResultError when a topic holds anything but what was sent.

    With acks=1 a record is acknowledged before consumers may see it, so the records that are not there yet are waited for.
    """
    until = time.monotonic() + VISIBLE_WITHIN_S
    with system.consumer(topic) as consumer:
        found = consumer.digest(expected.count)
        while found.count < expected.count and time.monotonic() < until:
            time.sleep(POLL_S)
            found = consumer.digest(expected.count)
    if found != expected:
        raise WrongResultError(
            f"{system.name} acknowledged {expected.count} records and holds {found.count}"
            if found.count != expected.count
            else f"{system.name} holds other records than the {expected.count} that it acknowledged"
        )


SCENARIO = ProduceScenario()
