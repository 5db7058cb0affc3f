"""replog's nodes with TLS between them, and clients in plain text: what is more than before is the price of the former."""

from __future__ import annotations

from pathlib import Path

from bench.systems.reconfigured import restart_with
from bench.systems.replog_brokers import ReplogBrokers
from replog.certs.cluster_certificates import create_cluster_certificates
from replog.cluster import LocalCluster
from replog.cluster.node_spec import ConfigValue, NodeSpec


class SecurePeers(ReplogBrokers):
    """Three nodes that meet over TLS.  Their certificates name the cluster, so that they are made when it has its id.

    Args:
        transport: What they meet over (`inter.broker.transport`).
    """

    def __init__(self, transport: str) -> None:
        super().__init__(config={"inter.broker.transport": transport})

    async def _start_cluster(self, directory: Path) -> LocalCluster:
        cluster = await super()._start_cluster(directory)
        create_cluster_certificates(directory / "between-nodes", cluster.cluster_id, cluster.nodes)
        await restart_with(cluster, _keys)
        return cluster


def _keys(spec: NodeSpec) -> dict[str, ConfigValue]:
    return {
        "security.inter.broker.protocol": "SSL",
        "listener.name.inter.broker.ssl.keystore.location": f"../between-nodes/node-{spec.node_id}.pem",
        "listener.name.inter.broker.ssl.truststore.location": "../between-nodes/ca.pem",
    }
