"""How fast do brokers take the records of Kafka's own clients?"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from bench.meter import Meter
from bench.model import MB_PER_S, RECORDS_PER_S, Measured, Metric, Params, Scenario, WrongResultError
from bench.systems.client_ports import ClientPort, KafkaPort, ReplogPort
from bench.systems.maven import jars, program

BROKERS_CPU_S_PER_GB = Metric("brokers_cpu_s_per_gb", "s/GB")

ROUND_BYTES = 512 * 1024 * 1024
RECORDS_MAX = 2_000_000
RECORD_SIZES = (100, 1024, 10_240)
CLIENTS = ("librdkafka", "java")
RUN_TIMEOUT_S = 600
ROOT = Path(__file__).resolve().parents[2]

_RATE = re.compile(r"([0-9.]+) records/sec")


class KafkaClientsScenario(Scenario[ClientPort]):
    """A producer of librdkafka's or of Java sends records without keys, each in a process of its own.

    The rate is what the client says itself, without its start; the CPU time is that of the brokers alone.  The records of each
    topic are counted afterwards by their offsets.

    Args:
        acks: The acknowledgements that the producer waits for; with "all" it is idempotent.
        nodes_count: The number of brokers.
        round_bytes: The bytes of one repetition.
        record_sizes: The sizes to try, in bytes.
        systems: The systems to compare; by default all there are.
    """

    question = "How fast do brokers take the records of Kafka's own clients?"

    def __init__(
        self,
        acks: str,
        nodes_count: int,
        round_bytes: int = ROUND_BYTES,
        record_sizes: Sequence[int] = RECORD_SIZES,
        systems: Sequence[ClientPort] | None = None,
    ) -> None:
        self.name = "kafka-clients" if nodes_count > 1 else "kafka-clients-one-node"
        self._acks = acks
        self._nodes_count = nodes_count
        self._round_bytes = round_bytes
        self._record_sizes = record_sizes
        self._systems = [ReplogPort(nodes_count), KafkaPort(nodes_count)] if systems is None else systems

    def systems(self) -> Sequence[ClientPort]:
        return self._systems

    def cases(self) -> Sequence[Params]:
        return [
            {"client": client, "record_bytes": size, "acks": self._acks, "nodes": self._nodes_count}
            for client in CLIENTS
            for size in self._record_sizes
        ]

    def measure(self, system: ClientPort, params: Params, meter: Meter) -> Measured:
        record_bytes = int(params["record_bytes"])
        count = max(1, min(RECORDS_MAX, self._round_bytes // record_bytes))
        topic = system.create_topic()
        with meter.timed() as timing:
            told = _run(str(params["client"]), system.bootstrap_servers, topic, self._acks, record_bytes, count)
        if (found := system.records_in(topic)) != count:
            raise WrongResultError(f"{system.name} acknowledged {count} records and holds {found}")
        system.delete_topic(topic)
        return {
            RECORDS_PER_S: told,
            MB_PER_S: told * record_bytes / 1e6,
            BROKERS_CPU_S_PER_GB: timing.cpu_s / (count * record_bytes) * 1e9,
        }


def _run(client: str, servers: str, topic: str, acks: str, record_bytes: int, count: int) -> float:
    """Returns how many records a second a producer got through, by its own account."""
    command = _librdkafka if client == "librdkafka" else _java
    done = subprocess.run(
        command(servers, topic, acks, record_bytes, count),
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=RUN_TIMEOUT_S,
    )
    rates = _RATE.findall(done.stdout)
    if done.returncode or not rates:
        raise WrongResultError(f"the producer of {client} failed: {(done.stderr or done.stdout)[-500:]}")
    return float(rates[-1])


def _librdkafka(servers: str, topic: str, acks: str, record_bytes: int, count: int) -> list[str]:
    return [
        sys.executable,
        "-m",
        "bench.systems.librdkafka_producer",
        servers,
        topic,
        acks,
        str(record_bytes),
        str(count),
    ]


def _java(servers: str, topic: str, acks: str, record_bytes: int, count: int) -> list[str]:
    properties = [
        f"bootstrap.servers={servers}",
        f"acks={acks}",
        f"enable.idempotence={'true' if acks == 'all' else 'false'}",
        "linger.ms=5",
        "batch.size=1000000",
        "buffer.memory=268435456",
    ]
    return [
        *(program("java"), "-Xmx1g", "-cp", os.pathsep.join(map(str, jars("kafka")))),
        *("org.apache.kafka.tools.ProducerPerformance", "--topic", topic, "--num-records", str(count)),
        *("--record-size", str(record_bytes), "--throughput", "-1", "--producer-props", *properties),
    ]


SCENARIO = KafkaClientsScenario("all", 3)
