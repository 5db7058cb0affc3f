"""How long does an acknowledgement by all replicas take, at a rate that is offered whatever happens?"""

from __future__ import annotations

import math
from collections.abc import Sequence

from bench.data import values
from bench.meter import Meter
from bench.model import Measured, Metric, Params, Scenario, WrongResultError
from bench.scenarios.produce import PARTITIONS, Warmth, check_topic
from bench.systems.broker_systems import beside_kafka
from bench.systems.brokers import BrokerSystem, Digest, Sending
from bench.systems.kafka.client_process import BULK_LINGER_MS

DURATION_S = 5.0
RECORD_BYTES = 1024
SINGLE_RATE_MAX_PER_S = 2_000
ACK_P50_MS = Metric("ack_p50_ms", "ms")
ACK_P99_MS = Metric("ack_p99_ms", "ms")
ACK_MAX_MS = Metric("ack_max_ms", "ms")
CPU_US_PER_RECORD = Metric("cpu_us_per_record", "µs")


class AckLatencyScenario(Scenario[BrokerSystem]):
    """One idempotent producer sends single records at a fixed rate (open loop).

    A record's latency begins when it is due, so that a stall counts for every record that it holds up.  CPU time is
    that of all processes over the whole time, idle work included.  Kafka's clients send at once as long as that is faster: at high rates a request for each record makes a
    queue, and they linger as they do for bulk.

    Args:
        duration_s: how long one repetition sends.
        rates_per_s: which rates to try.
        systems: by default all there are.
        warm_up_share: how much of what makes a system warm is sent; less for a test.
    """

    name = "ack-latency"
    question = "How long does an acknowledgement by all replicas take, at a fixed offered rate?"

    def __init__(
        self,
        duration_s: float = DURATION_S,
        rates_per_s: Sequence[int] = (100, 1_000, 10_000),
        systems: Sequence[BrokerSystem] | None = None,
        *,
        warm_up_share: float = 1.0,
    ) -> None:
        self._duration_s = duration_s
        self._rates_per_s = rates_per_s
        self._systems = [each for each in beside_kafka() if each.name != "replog-send"] if systems is None else systems
        self._warmth = Warmth(warm_up_share)

    def systems(self) -> Sequence[BrokerSystem]:
        return self._systems

    def cases(self) -> Sequence[Params]:
        return [
            {
                "record_bytes": RECORD_BYTES,
                "rate_per_s": rate,
                "partitions": PARTITIONS,
                "kafka_linger_ms": BULK_LINGER_MS if rate > SINGLE_RATE_MAX_PER_S else 0,
            }
            for rate in self._rates_per_s
        ]

    def warm_up(self, system: BrokerSystem, params: Params, meter: Meter) -> None:
        self._warmth.give(system)
        self.measure(system, params, meter)

    def measure(self, system: BrokerSystem, params: Params, meter: Meter) -> Measured:
        (value,) = values(1, int(params["record_bytes"]))
        rate_per_s = int(params["rate_per_s"])
        count = max(1, round(self._duration_s * rate_per_s))
        topic = system.create_topic(int(params["partitions"]))
        sending: Sending = "bulk" if rate_per_s > SINGLE_RATE_MAX_PER_S else "single"
        with system.producer(topic, sending) as producer, meter.timed() as timing:
            latencies_s = sorted(producer.send_at_rate(value, rate_per_s, count))
        if len(latencies_s) != count:
            raise WrongResultError(f"{system.name} acknowledged {len(latencies_s)} records of {count}")
        check_topic(system, topic, Digest.of([value], count))
        system.delete_topic(topic)
        return {
            ACK_P50_MS: percentile(latencies_s, 50) * 1000,
            ACK_P99_MS: percentile(latencies_s, 99) * 1000,
            ACK_MAX_MS: latencies_s[-1] * 1000,
            CPU_US_PER_RECORD: timing.cpu_s / count * 1e6,
        }


def percentile(ordered: Sequence[float], percent: float) -> float:
    """The smallest of `ordered` that at least `percent` of them do not pass (nearest rank)."""
    return ordered[max(0, math.ceil(len(ordered) * percent / 100) - 1)]


SCENARIO = AckLatencyScenario()
