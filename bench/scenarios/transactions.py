"""What do transactions cost: their commits, many small ones, and one a second beside none?"""

from __future__ import annotations

from collections.abc import Sequence

from bench.meter import Meter
from bench.model import RECORDS_PER_S, Measured, Metric, Params, Scenario
from bench.scenarios.ack_latency import percentile
from bench.systems.transactional_brokers import TransactionalSystem, transactional_systems

COMMITS = 200
SMALL = 300
SMALL_RECORDS = 100
BULK_RECORDS = 500_000
PARTITIONS = 3
EACH_S = 1.0

COMMIT_P50_MS = Metric("commit_p50_ms", "ms")
COMMIT_P99_MS = Metric("commit_p99_ms", "ms")
TRANSACTIONS_PER_S = Metric("transactions_per_s", "1/s")
CPU_US_PER_RECORD = Metric("cpu_us_per_record", "µs")


class TransactionsScenario(Scenario[TransactionalSystem]):
    """One producer of librdkafka for all brokers, whose records have 100 bytes.

    `commits`: a record to each partition, acknowledged before the time of the commit begins.  `small`: transactions of 100
    records, one after the other.  `plain` and `timed`: the same records as fast as they go, by an idempotent producer, and in
    transactions of a second.

    Args:
        share: The share of the work that one repetition does; less for a test.
        partitions: The numbers of partitions that commits are measured with.
        systems: The systems; None: all there are.
    """

    name = "transactions"
    question = "What do transactions cost: their commits, many small ones, and one a second beside none?"

    def __init__(
        self,
        share: float = 1.0,
        partitions: Sequence[int] = (1, 10, 100),
        systems: Sequence[TransactionalSystem] | None = None,
    ) -> None:
        self._share = share
        self._partitions = partitions
        self._systems = transactional_systems() if systems is None else systems

    def systems(self) -> Sequence[TransactionalSystem]:
        return self._systems

    def cases(self) -> Sequence[Params]:
        commits: list[Params] = [{"work": "commits", "partitions": count} for count in self._partitions]
        return [
            *commits,
            {"work": "small", "partitions": PARTITIONS, "records": SMALL_RECORDS},
            {"work": "plain", "partitions": PARTITIONS},
            {"work": "timed", "partitions": PARTITIONS, "each_s": EACH_S},
        ]

    def measure(self, system: TransactionalSystem, params: Params, meter: Meter) -> Measured:
        partitions = int(params["partitions"])
        topic = system.brokers.create_topic(partitions)
        work = {"commits": self._commits, "small": self._small, "plain": self._plain, "timed": self._timed}
        measured = work[str(params["work"])](system, topic, partitions, meter)
        system.brokers.delete_topic(topic)
        return measured

    def _commits(self, system: TransactionalSystem, topic: str, partitions: int, meter: Meter) -> Measured:
        client, count = system.client, self._count(COMMITS)
        with meter.timed():
            client.ask("commits", topic, system.new_id(), partitions, count, client.answer_file)
        took_s = sorted(client.read_seconds())
        return {COMMIT_P50_MS: percentile(took_s, 50) * 1000, COMMIT_P99_MS: percentile(took_s, 99) * 1000}

    def _small(self, system: TransactionalSystem, topic: str, partitions: int, meter: Meter) -> Measured:
        count = self._count(SMALL)
        with meter.timed() as timing:
            (took_s,) = system.client.ask("small", topic, system.new_id(), partitions, SMALL_RECORDS, count)
        cpu_s = timing.cpu_s / (count * SMALL_RECORDS)
        return {TRANSACTIONS_PER_S: count / float(took_s), CPU_US_PER_RECORD: cpu_s * 1e6}

    def _plain(self, system: TransactionalSystem, topic: str, partitions: int, meter: Meter) -> Measured:
        count = self._count(BULK_RECORDS)
        with meter.timed() as timing:
            (took_s,) = system.client.ask("plain", topic, partitions, count)
        return {RECORDS_PER_S: count / float(took_s), CPU_US_PER_RECORD: timing.cpu_s / count * 1e6}

    def _timed(self, system: TransactionalSystem, topic: str, partitions: int, meter: Meter) -> Measured:
        count = self._count(BULK_RECORDS)
        with meter.timed() as timing:
            took_s, transactions = system.client.ask("timed", topic, system.new_id(), partitions, count, EACH_S)
        return {
            RECORDS_PER_S: count / float(took_s),
            TRANSACTIONS_PER_S: int(transactions) / float(took_s),
            CPU_US_PER_RECORD: timing.cpu_s / count * 1e6,
        }

    def _count(self, count: int) -> int:
        return max(1, round(count * self._share))


SCENARIO = TransactionsScenario()
