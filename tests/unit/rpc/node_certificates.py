"""Certificates of nodes for tests: of one cluster, of another one, of clients, of another authority, of the past."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from unittest import mock

from replog.certs import authority
from replog.certs.authority import create_authority, issue
from replog.rpc.node_tls import NodeTls
from replog.tcp.node_names import NodeName
from replog.tcp.tls_settings import TlsSettings

CLUSTER = "c"
ISSUED = dt.datetime(2020, 1, 1, tzinfo=dt.UTC)


class NodeCertificates:
    """A folder with an authority, and what it signs.

    Args:
        folder: The folder, which is made.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.authority = create_authority(folder)

    def node(self, node_id: int, cluster_id: str = CLUSTER) -> Path:
        """Returns the file of a node, which is made the first time."""
        path = self.folder / f"{cluster_id}-{node_id}.pem"
        if not path.exists():
            issue(self.folder, path.stem, "node", node=NodeName(cluster_id, node_id))
        return path

    def client(self) -> Path:
        """Returns the file of a client of the same authority."""
        path = self.folder / "client.pem"
        return path if path.exists() else issue(self.folder, "client", "client")

    def expired(self, node_id: int) -> Path:
        """Returns the file of a node whose certificate has expired years ago."""
        path = self.folder / f"expired-{node_id}.pem"
        if path.exists():
            return path
        with mock.patch.object(authority, "_now", return_value=ISSUED):
            return issue(self.folder, f"expired-{node_id}", "node", days=1, node=NodeName(CLUSTER, node_id))

    def tls(self, node_id: int, *, dials: bool = True, accepts_plain: bool = False, own: Path | None = None) -> NodeTls:
        """Returns what a node of the cluster proves itself by."""
        settings = TlsSettings(str(own or self.node(node_id)), str(self.authority))
        return NodeTls(
            NodeName(CLUSTER, node_id), settings, dials=dials, accepts_plain=accepts_plain, is_over_grpc=True
        )
