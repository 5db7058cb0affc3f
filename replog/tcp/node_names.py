"""The name by which a certificate makes its holder a node of a cluster.

It stands among the alternative names of the certificate's subject (RFC 5280, 4.2.1.6), as a URI, and there is one of this kind:

    replog://Jq0vPVd3RZmDxA3mVYbu2Q/node/3      node 3 of the cluster with that id

A certificate without it is that of a client, whatever its subject says.

gRPC compares what it dials with names of hosts alone.  So a node's certificate has two of these beside the URI, which no machine has:

    node-3.6331.replog.internal     node 3 of the cluster with the id "c1": its bytes as hexadecimal digits, as case counts in an id
    node.6331.replog.internal       some node of that cluster
"""

from __future__ import annotations

import re
from typing import Final

from msgspec import Struct

from replog.access.principal import ANONYMOUS, Principal
from replog.tcp.der import der_values, object_id, signed_fields
from replog.tcp.principals import subject_name

_NAME: Final = re.compile(r"replog://(?P<cluster>[A-Za-z0-9_-]{1,64})/node/(?P<node>0|[1-9][0-9]{0,9})")
_SCHEME: Final = "replog://"
_ALTERNATIVE_NAMES: Final = "2.5.29.17"
_EXTENSIONS, _URI, _DNS, _OCTETS = 0xA3, 0x86, 0x82, 0x04
_LABEL_CHARACTERS: Final = 62
"""Of a part of a host's name between dots, which has 63 at most (RFC 1035, 2.3.4)."""


class NodeName(Struct, frozen=True):
    """A node of a cluster, as certificates name it.

    Attributes:
        cluster_id: The id of the cluster.
        node_id: The id of the node in it.
    """

    cluster_id: str
    node_id: int

    def __str__(self) -> str:
        """Returns the name as it stands in a certificate."""
        return f"{_SCHEME}{self.cluster_id}/node/{self.node_id}"


def host_of_node(cluster_id: str, node_id: int | None) -> str:
    """Returns the name of a host that stands for a node in its certificate.

    Args:
        cluster_id: The id of the cluster.
        node_id: The id of the node; None: any node of the cluster.
    """
    digits = cluster_id.encode().hex()
    labels = [digits[at : at + _LABEL_CHARACTERS] for at in range(0, len(digits), _LABEL_CHARACTERS)]
    return ".".join(["node" if node_id is None else f"node-{node_id}", *labels, "replog.internal"])


def hosts_of_node(name: NodeName) -> tuple[str, str]:
    """Returns the names of hosts that the certificate of a node has: its own, and that of any node of its cluster."""
    return host_of_node(name.cluster_id, name.node_id), host_of_node(name.cluster_id, None)


def parse_node_name(text: str) -> NodeName | None:
    """Returns the node of a name; None: it is that of no node."""
    found = _NAME.fullmatch(text)
    return None if found is None else NodeName(found["cluster"], int(found["node"]))


def node_principal(certificate: bytes | None) -> Principal:
    """Returns who showed a certificate where nodes meet: the name of a node, or else the subject, which is that of no node.

    Args:
        certificate: The certificate in DER, which was verified; None: none was shown.

    Raises:
        ValueError: The bytes are no certificate, or it names two nodes.
    """
    if not certificate:
        return ANONYMOUS
    name = certified_node(certificate)
    return Principal(subject_name(certificate) if name is None else str(name))


def certified_node(certificate: bytes) -> NodeName | None:
    """Returns the node that a certificate names; None: it is that of no node.

    Raises:
        ValueError: The bytes are no certificate, or it names two nodes, or something that only looks like one.
    """
    names = [uri for uri in _alternatives(certificate, _URI) if uri.lower().startswith(_SCHEME)]
    if not names:
        return None
    found = parse_node_name(names[0])
    if found is None or len(names) > 1:
        raise ValueError(f"its certificate names {' and '.join(names)}: a node's names one replog://CLUSTER/node/ID")
    return found


def certified_hosts(certificate: bytes) -> list[str]:
    """Returns the names of hosts that a certificate is for.

    Raises:
        ValueError: The bytes are no certificate.
    """
    return _alternatives(certificate, _DNS)


def _alternatives(certificate: bytes, tag: int) -> list[str]:
    """Returns those of one kind among the alternative names of a certificate's subject."""
    found: list[str] = []
    for field in signed_fields(certificate):
        if field.tag != _EXTENSIONS:
            continue
        for extension in der_values(next(der_values(field.content)).content):
            parts = list(der_values(extension.content))
            if object_id(parts[0].content) == _ALTERNATIVE_NAMES and parts[-1].tag == _OCTETS:
                names = next(der_values(parts[-1].content))
                found.extend(name.content.decode("ascii") for name in der_values(names.content) if name.tag == tag)
    return found
