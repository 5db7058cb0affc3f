"""What does TLS between nodes cost?"""

from __future__ import annotations

from collections.abc import Sequence

from bench.scenarios.produce import ROUND_BYTES, ProduceScenario
from bench.systems.brokers import BrokerSystem
from bench.systems.replog_brokers import ReplogBrokers
from bench.systems.replog_cluster import ReplogCluster
from bench.systems.secure_peers import SecurePeers


class PeerTlsScenario(ProduceScenario):
    """The same as `produce`, of nodes that meet over TCP: each record goes to two followers, in plain text or over TLS.

    Clients speak plain text in both, so that the difference of the brokers' CPU is that of two gigabytes for each one produced.
    """

    name = "peer-tls"
    question = "What does TLS between nodes cost?"

    def __init__(
        self,
        round_bytes: int = ROUND_BYTES,
        record_sizes: Sequence[int] = (1024, 10_240),
        systems: Sequence[BrokerSystem] | None = None,
        *,
        warm_up_share: float = 1.0,
    ) -> None:
        if systems is None:
            plain = ReplogBrokers(config={"inter.broker.transport": "tcp"})
            systems = [ReplogCluster(plain, name="plain"), ReplogCluster(SecurePeers(), name="tls")]
        super().__init__(round_bytes, record_sizes, systems, warm_up_share=warm_up_share)


SCENARIO = PeerTlsScenario()
