"""What does a TLS connection cost a broker that takes it in?"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from bench.meter import Meter
from bench.model import Measured, Metric, Params, Scenario
from bench.scenarios.idle_connections import OneNode, ask_once
from bench.systems.kafka.brokers import KafkaBrokers
from bench.systems.replog_brokers import ReplogBrokers
from bench.systems.tls_door import TlsDoor

HANDSHAKES = 1_000
TIMEOUT_S = 60.0

HANDSHAKES_PER_S = Metric("handshakes_per_s", "1/s")
BROKER_CPU_MS = Metric("broker_cpu_ms_per_handshake", "ms")


def connect(door: TlsDoor, context: ssl.SSLContext) -> None:
    """Connects, shakes hands, asks once, and closes the connection when the answer is there."""
    host, _, port = door.servers.partition(":")
    with socket.create_connection((host, int(port)), TIMEOUT_S) as plain:
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # or the question waits for a late ACK
        with context.wrap_socket(plain, server_hostname=host) as connection:
            ask_once(connection)


def context_for(door: TlsDoor) -> ssl.SSLContext:
    """Returns what believes the broker, by TLS 1.3; no session is taken up again."""
    context = ssl.create_default_context(cafile=door.authority)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    return context


class HandshakesScenario(Scenario[OneNode]):
    """Some clients connect one after the other, each by a whole handshake with a certificate of P-256, and ask once.

    Args:
        handshakes: How many there are in one repetition.
        at_once: How many connect at the same time, one number for each case.
        systems: By default a broker of ours and one of Kafka's.
    """

    name = "handshakes"
    question = "What does a TLS connection cost a broker that takes it in?"

    def __init__(
        self,
        handshakes: int = HANDSHAKES,
        at_once: Sequence[int] = (1, 8),
        systems: Sequence[OneNode] | None = None,
    ) -> None:
        self._handshakes = handshakes
        self._at_once = at_once
        self._systems = (
            [OneNode(ReplogBrokers(nodes_count=1, over_tls=True)), OneNode(KafkaBrokers(1, over_tls=True))]
            if systems is None
            else systems
        )

    def systems(self) -> Sequence[OneNode]:
        return self._systems

    def cases(self) -> Sequence[Params]:
        return [{"at_once": count} for count in self._at_once]

    def measure(self, system: OneNode, params: Params, meter: Meter) -> Measured:
        door, context = system.tls_door, context_for(system.tls_door)
        with ThreadPoolExecutor(int(params["at_once"])) as clients, meter.timed() as timing:
            list(clients.map(lambda _: connect(door, context), range(self._handshakes)))
        return {
            HANDSHAKES_PER_S: self._handshakes / timing.wall_s,
            BROKER_CPU_MS: timing.brokers_cpu_s / self._handshakes * 1e3,
        }


SCENARIO = HandshakesScenario()
