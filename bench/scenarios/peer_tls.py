"""What does TLS between nodes cost?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from bench.scenarios.produce import ROUND_BYTES, ProduceScenario
from bench.systems.brokers import BrokerSystem
from bench.systems.replog_brokers import ReplogBrokers
from bench.systems.replog_cluster import ReplogCluster
from bench.systems.secure_peers import SecurePeers

TRANSPORTS = ("grpc", "tcp")
"""What nodes meet over (`inter.broker.transport`)."""


class PeerTlsScenario(ProduceScenario):
    """The same as `produce`, of nodes that meet over gRPC or TCP: each record goes to two followers, in plain text or over TLS.

    Clients speak plain text in all, so that the difference of the brokers' CPU is that of two gigabytes for each one produced.

    Args:
        round_bytes: How much one repetition sends.
        record_sizes: The sizes to try, bytes.
        transports: What nodes meet over; each is two systems, named as it is, and with ``-tls`` behind.
        warm_up_share: The share of what makes a system warm that is sent; less for a test.
    """

    name = "peer-tls"
    question = "What does TLS between nodes cost?"

    def __init__(
        self,
        round_bytes: int = ROUND_BYTES,
        record_sizes: Sequence[int] = (1024, 10_240),
        transports: Sequence[str] = TRANSPORTS,
        *,
        warm_up_share: float = 1.0,
    ) -> None:
        systems = [system for transport in transports for system in _systems_over(transport)]
        super().__init__(round_bytes, record_sizes, systems, warm_up_share=warm_up_share)


def _systems_over(transport: str) -> Iterator[BrokerSystem]:
    yield ReplogCluster(ReplogBrokers(config={"inter.broker.transport": transport}), name=transport)
    yield ReplogCluster(SecurePeers(transport), name=f"{transport}-tls")


SCENARIO = PeerTlsScenario()
