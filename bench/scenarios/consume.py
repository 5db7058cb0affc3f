"""How fast does one consumer read a topic from the beginning?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from bench.meter import Meter
from bench.model import Measured, Params, Scenario, WrongResultError, throughput
from bench.scenarios.produce import PARTITIONS, check_topic, pool_for
from bench.systems.broker_systems import beside_kafka
from bench.systems.brokers import BrokerSystem, Digest, ReadAs

TOPIC_BYTES = 512 * 1024 * 1024
READ_AS: tuple[ReadAs, ...] = ("records", "batches")


class ConsumeScenario(Scenario[BrokerSystem]):
    """One consumer reads all partitions, from the page cache of their leaders, as objects or as undecoded batches.

    The topic is written once for each size of record, and its content compared by digest.

    Args:
        topic_bytes: how much is read.
        record_sizes: which sizes to try, bytes.
        systems: by default all there are.
        warm_up_share: how much of what makes a system warm is read; less for a test.
    """

    name = "consume"
    question = "How fast does one consumer read a topic of three brokers?"

    def __init__(
        self,
        topic_bytes: int = TOPIC_BYTES,
        record_sizes: Sequence[int] = (100, 1024),
        systems: Sequence[BrokerSystem] | None = None,
        *,
        warm_up_share: float = 1.0,
    ) -> None:
        self._topic_bytes = topic_bytes
        self._record_sizes = record_sizes
        self._systems = (
            [each for each in beside_kafka() if each.name not in {"replog-send", "replog-tcp"}]
            if systems is None
            else systems
        )
        self._warm_up_share = warm_up_share
        self._read_count: Counter[str] = Counter()
        self._topics: dict[tuple[str, int], tuple[str, int]] = {}

    def systems(self) -> Sequence[BrokerSystem]:
        return self._systems

    def cases(self) -> Sequence[Params]:
        return [
            {"as": read_as, "record_bytes": size, "partitions": PARTITIONS}
            for read_as in READ_AS
            for size in self._record_sizes
        ]

    def warm_up(self, system: BrokerSystem, params: Params, meter: Meter) -> None:
        self.measure(system, params, meter)
        while self._read_count[system.name] < system.warm_up_records * self._warm_up_share:
            self.measure(system, params, meter)

    def measure(self, system: BrokerSystem, params: Params, meter: Meter) -> Measured:
        record_bytes = int(params["record_bytes"])
        topic, count = self._filled(system, record_bytes)
        read_as = next(name for name in READ_AS if name == params["as"])
        with system.consumer(topic) as consumer, meter.timed() as timing:
            found = consumer.read(count, read_as)
        if found != count:
            raise WrongResultError(f"{system.name} gave {found} records of {count}")
        self._read_count[system.name] += found
        return throughput(timing, records=count, data_bytes=count * record_bytes)

    def _filled(self, system: BrokerSystem, record_bytes: int) -> tuple[str, int]:
        """A topic with records of that size, made the first time; and how many there are."""
        key = (system.name, record_bytes)
        if key not in self._topics:
            pool, rounds = pool_for(record_bytes, self._topic_bytes)
            topic = system.create_topic(PARTITIONS)
            with system.producer(topic) as producer:
                producer.send_all(pool, rounds)
            check_topic(system, topic, Digest.of(pool, rounds))
            self._topics[key] = topic, len(pool) * rounds
        return self._topics[key]


SCENARIO = ConsumeScenario()
