"""The log directories of a broker, what they hold, and replicas that move between them.

Field names equal those of ``proto/replog/pb/v1/data.proto``.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class MoveReplicaRequest:
    """Has a replica of the broker asked move to another of its log directories."""

    topic: str
    partition_id: int
    path: str


@dataclass(frozen=True, slots=True)
class MoveReplicaResponse:
    """It is taken down; `DescribeLogDirsRequest` says how far it is."""


@dataclass(frozen=True, slots=True)
class DescribeLogDirsRequest:
    """The log directories of the broker asked."""


@dataclass(frozen=True, slots=True)
class LogDirReplica:
    """`size_bytes`: of its segments; -1: it is offline."""

    topic: str
    partition_id: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class ReplicaMoveStatus:
    """A replica on its way to the log directory `path`; `missing_bytes` -1: it has not begun."""

    topic: str
    partition_id: int
    path: str
    copied_bytes: int
    missing_bytes: int


@dataclass(frozen=True, slots=True)
class LogDir:
    """One log directory; `error`: why it is offline, "": it works.  `moves`: of replicas that come here.

    `total_bytes`: the size of its disk; 0: not known.
    """

    path: str
    error: str
    free_bytes: int
    replicas: tuple[LogDirReplica, ...]
    moves: tuple[ReplicaMoveStatus, ...]
    total_bytes: int = 0


@dataclass(frozen=True, slots=True)
class DescribeLogDirsResponse:
    """In the order of the configuration; those that could not be opened last."""

    directories: tuple[LogDir, ...]
