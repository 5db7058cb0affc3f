"""What the nodes and the clients of one cluster are believed by, in a folder: all of it at once.

DIR/ca.pem, ca.key     the authority
DIR/node-ID.pem        of each node: it serves clients, and proves to other nodes which node of which cluster it is
DIR/NAME.pem           of each client
DIR/client.toml        for `replog --client-config`, of the first client
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from replog.certs.authority import CERTIFICATE_DAYS, create_authority, issue
from replog.tcp.node_names import NodeName

CLIENT_FILE: Final = "client.toml"
CLIENT: Final = "client"
"""The name of a client where none is given."""


def node_file(node_id: int) -> str:
    """Returns the name of the file of a node."""
    return f"node-{node_id}.pem"


def issue_node(
    folder: Path, cluster_id: str, node_id: int, hosts: Sequence[str] = (), days: int = CERTIFICATE_DAYS
) -> Path:
    """Makes the certificate of one node; arguments, result and errors as of `replog.certs.authority.issue`."""
    name = node_file(node_id).removesuffix(".pem")
    return issue(folder, name, "node", hosts, days, NodeName(cluster_id, node_id))


def create_cluster_certificates(
    folder: Path,
    cluster_id: str,
    node_ids: Iterable[int],
    clients: Sequence[str] = (CLIENT,),
    hosts: Sequence[str] = (),
    days: int = CERTIFICATE_DAYS,
) -> None:
    """Makes an authority where there is none, and certificates of nodes and clients.

    Args:
        folder: The folder, which is made with mode 0700 where there is none.
        cluster_id: The id of the cluster.
        node_ids: The ids of the nodes.
        clients: The names of the clients.
        hosts: The names and addresses of the nodes, beside this machine's.
        days: How long the certificates are valid.

    Raises:
        ConfigError: One of them is there already, an argument is out of range, or the extra is not installed.
        OSError: The folder cannot be written to.
    """
    if not (folder / "ca.pem").exists():
        create_authority(folder)
    for node_id in node_ids:
        issue_node(folder, cluster_id, node_id, hosts, days)
    for name in clients:
        issue(folder, name, "client", days=days)
    if clients and not (folder / CLIENT_FILE).exists():
        lines = {
            "security.protocol": "SSL",
            "ssl.ca.location": "ca.pem",
            "ssl.certificate.location": f"{clients[0]}.pem",
        }
        text = "".join(f"{name} = {json.dumps(value)}\n" for name, value in lines.items())
        (folder / CLIENT_FILE).write_text(text, encoding="utf-8")
