"""replog's nodes with TLS between them, and clients in plain text: what is more than before is the price of the former."""

from __future__ import annotations

import json
from pathlib import Path

from bench.systems.replog_brokers import ReplogBrokers
from replog.certs.cluster_certificates import create_cluster_certificates
from replog.cluster import LocalCluster


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
        await cluster.kill_all()  # an orderly stop of the last ones would wait for a quorum; nothing is stored yet
        for node_id, spec in cluster.nodes.items():
            keys = {
                "security.inter.broker.protocol": "SSL",
                "listener.name.inter.broker.ssl.keystore.location": f"../between-nodes/node-{node_id}.pem",
                "listener.name.inter.broker.ssl.truststore.location": "../between-nodes/ca.pem",
            }
            with spec.config_file.open("a", encoding="utf-8") as file:
                file.writelines(f"{json.dumps(key)} = {json.dumps(value)}\n" for key, value in keys.items())
            cluster.start_node(node_id)
        await cluster.wait_until_ready()
        return cluster
