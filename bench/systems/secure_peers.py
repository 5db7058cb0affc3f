"""replog's nodes with TLS between them, and clients in plain text: what is more than before is the price of the former."""

from __future__ import annotations

import json
from pathlib import Path

from bench.systems.replog_brokers import ReplogBrokers
from replog.certs.cluster_certificates import create_cluster_certificates
from replog.cluster import LocalCluster


class SecurePeers(ReplogBrokers):
    """Three nodes that meet over TLS.  Their certificates name the cluster, so that they are made when it has its id."""

    def __init__(self) -> None:
        super().__init__(config={"inter.broker.transport": "tcp"})

    async def _start_cluster(self, directory: Path) -> LocalCluster:
        cluster = await super()._start_cluster(directory)
        create_cluster_certificates(directory / "between-nodes", cluster.cluster_id, cluster.nodes)
        for node_id, spec in cluster.nodes.items():
            await cluster.stop(node_id)
            keys = {
                "security.inter.broker.protocol": "SSL",
                "listener.name.inter.broker.ssl.keystore.location": f"../between-nodes/node-{node_id}.pem",
                "listener.name.inter.broker.ssl.truststore.location": "../between-nodes/ca.pem",
            }
            with spec.config_file.open("a", encoding="utf-8") as file:
                file.writelines(f"{json.dumps(key)} = {json.dumps(value)}\n" for key, value in keys.items())
        for node_id in cluster.nodes:
            cluster.start_node(node_id)
        await cluster.wait_until_ready()
        return cluster
