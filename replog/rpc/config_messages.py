"""The configurations in force, and where each value comes from.

Field names equal those of ``proto/replog/pb/v1/data.proto``.
"""

from __future__ import annotations

from dataclasses import dataclass

from replog.metadata.records import ResourceType


@dataclass(frozen=True, slots=True)
class DescribeConfigsRequest:
    """`resource_name` of a broker is its id, "" for the cluster's defaults."""

    resource_type: ResourceType
    resource_name: str


@dataclass(frozen=True, slots=True)
class ConfigDescription:
    """`source`: topic, broker, cluster, node (its configuration file), or default."""

    name: str
    value: str | None
    source: str


@dataclass(frozen=True, slots=True)
class DescribeConfigsResponse:
    configs: tuple[ConfigDescription, ...]


@dataclass(frozen=True, slots=True)
class DescribeNodeConfigsRequest:
    """Asks a node for all that it goes by itself."""


@dataclass(frozen=True, slots=True)
class DescribeNodeConfigsResponse:
    """Every key of the node's file and every dynamic configuration, by name."""

    node_id: int
    configs: tuple[ConfigDescription, ...]
