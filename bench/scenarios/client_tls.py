"""What does TLS cost a client and its brokers?"""

from __future__ import annotations

from collections.abc import Sequence

from bench.scenarios.produce import ROUND_BYTES, ProduceScenario
from bench.systems.brokers import BrokerSystem
from bench.systems.kafka.brokers import KafkaBrokers
from bench.systems.kafka.clients import KafkaClientSystem
from bench.systems.replog_brokers import ReplogBrokers
from bench.systems.replog_cluster import ReplogCluster


class ClientTlsScenario(ProduceScenario):
    """The same as `produce`, by clients that come in plain text and over TLS to the same brokers, which meet in plain text.

    Args:
        round_bytes: How much one repetition sends.
        record_sizes: The sizes to try, bytes.
        systems: By default our client, and librdkafka at both kinds of brokers; each with ``-tls`` behind its name, too.
        warm_up_share: The share of what makes a system warm that is sent; less for a test.
    """

    name = "client-tls"
    question = "What does TLS cost a client and its brokers?"

    def __init__(
        self,
        round_bytes: int = ROUND_BYTES,
        record_sizes: Sequence[int] = (100, 1024),
        systems: Sequence[BrokerSystem] | None = None,
        *,
        warm_up_share: float = 1.0,
    ) -> None:
        chosen = plain_and_secure() if systems is None else systems
        super().__init__(round_bytes, record_sizes, chosen, warm_up_share=warm_up_share)


def plain_and_secure() -> list[BrokerSystem]:
    """Three brokers of each kind, and their clients by both doors."""
    ours, kafka = ReplogBrokers(over_tls=True), KafkaBrokers(over_tls=True)
    doors = (("", False), ("-tls", True))
    return [
        *(ReplogCluster(ours, name=f"replog{end}", over_tls=over_tls) for end, over_tls in doors),
        *(
            KafkaClientSystem(f"{brokers.name}-librdkafka{end}", brokers, "librdkafka", over_tls=over_tls)
            for brokers in (ours, kafka)
            for end, over_tls in doors
        ),
    ]


SCENARIO = ClientTlsScenario()
