"""Certificates of a local cluster whose nodes and clients prove to one another who they are; made with the cluster.

certs/ca.pem, ca.key    an authority of the cluster's own
certs/node-ID.pem       what each node proves itself by, to clients and to other nodes
certs/client.pem        what clients do, with client.toml for `replog --client-config`
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from replog.client import Security
    from replog.cluster.node_spec import ConfigValue

FOLDER: Final = "certs"
"""The folder of the certificates, in that of the cluster."""

LISTENER: Final = "SSL"
"""The name of the listener by which clients come."""


class ClusterCertificates:
    """The folder of the certificates, whether it is there or not: a cluster without it is a plain one.

    Args:
        folder: The folder.

    Attributes:
        client_config: The file for `replog --client-config`.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.client_config = folder / "client.toml"

    @property
    def exist(self) -> bool:
        """Whether they have been made."""
        return self.client_config.exists()

    @property
    def security(self) -> Security | None:
        """What clients are given as `security=`; None: there are no certificates, and they need nothing."""
        if not self.exist:
            return None
        from replog.client import Security

        return Security.tls(ca=str(self._folder / "ca.pem"), cert=str(self._folder / "client.pem"))

    def create(self, cluster_id: str, node_ids: Iterable[int], hosts: Iterable[str] = ()) -> None:
        """Makes an authority, and certificates of nodes and of one client, in a folder that its owner alone can open.

        Args:
            cluster_id: The id of the cluster.
            node_ids: The ids of the nodes.
            hosts: The addresses of the nodes, beside this machine's.

        Raises:
            ConfigError: There are some already, or the extra `security` is not installed.
            OSError: The folder cannot be written to.
        """
        from replog.certs.cluster_certificates import create_cluster_certificates

        create_cluster_certificates(self._folder, cluster_id, node_ids, hosts=tuple(dict.fromkeys(hosts)))

    def add_node(self, cluster_id: str, node_id: int, host: str) -> None:
        """Makes the certificate of one more node, unless it has one; errors as of `create`."""
        from replog.certs.cluster_certificates import issue_node, node_file

        if not (self._folder / node_file(node_id)).exists():
            issue_node(self._folder, cluster_id, node_id, [host])

    def node_keys(self, node_id: int, folder: str = "") -> Mapping[str, ConfigValue]:
        """Returns the keys by which a node takes nobody who does not prove who they are; none where there are no certificates.

        Args:
            node_id: The id of the node.
            folder: The folder as the node's file names it; "": as it is named here.
        """
        if not self.exist:
            return {}
        return {
            "security.inter.broker.protocol": "SSL",
            "ssl.client.auth": "required",
            "ssl.keystore.location": f"{folder or self._folder}/node-{node_id}.pem",
            "ssl.truststore.location": f"{folder or self._folder}/ca.pem",
        }
