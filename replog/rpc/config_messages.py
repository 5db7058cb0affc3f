"""The configurations in force, and where each value comes from.

Field names equal those of ``proto/replog/pb/v1/data.proto``.
"""

from __future__ import annotations

from msgspec import Struct

from replog.metadata.records import ResourceType
from replog.waiting.asks import Asks


class DescribeConfigsRequest(Asks["DescribeConfigsResponse"], frozen=True):
    """`resource_name` of a broker is its id, "" for the cluster's defaults."""

    resource_type: ResourceType
    resource_name: str


class ConfigDescription(Struct, frozen=True):
    """`source`: topic, broker, cluster, node (its configuration file), or default."""

    name: str
    value: str | None
    source: str


class DescribeConfigsResponse(Struct, frozen=True):
    configs: tuple[ConfigDescription, ...]


class DescribeNodeConfigsRequest(Asks["DescribeNodeConfigsResponse"], frozen=True):
    """Asks for all that a node goes by itself.

    Attributes:
        node_id: The id of a voter of the metadata quorum, to which the request is passed on; None: the node that is asked.
    """

    node_id: int | None = None


class DescribeNodeConfigsResponse(Struct, frozen=True):
    """Every key of the node's file and every dynamic configuration, by name."""

    node_id: int
    configs: tuple[ConfigDescription, ...]
