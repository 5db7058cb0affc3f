"""The log directories of a broker, what they hold, and replicas that move between them.

Field names equal those of ``proto/replog/pb/v1/data.proto``.
"""

from __future__ import annotations

from msgspec import Struct

from replog.waiting.asks import Asks


class MoveReplicaRequest(Asks["MoveReplicaResponse"], frozen=True):
    """Has a replica of the broker asked move to another of its log directories."""

    topic: str
    partition_id: int
    path: str


class MoveReplicaResponse(Struct, frozen=True):
    """It is taken down; `DescribeLogDirsRequest` says how far it is."""


class DescribeLogDirsRequest(Asks["DescribeLogDirsResponse"], frozen=True):
    """The log directories of the broker asked."""


class LogDirReplica(Struct, frozen=True):
    """`size_bytes`: of its segments; -1: it is offline."""

    topic: str
    partition_id: int
    size_bytes: int


class ReplicaMoveStatus(Struct, frozen=True):
    """A replica on its way to the log directory `path`; `missing_bytes` -1: it has not begun."""

    topic: str
    partition_id: int
    path: str
    copied_bytes: int
    missing_bytes: int


class LogDir(Struct, frozen=True):
    """One log directory; `error`: why it is offline, "": it works.  `moves`: of replicas that come here.

    `total_bytes`: the size of its disk; 0: not known.
    """

    path: str
    error: str
    free_bytes: int
    replicas: tuple[LogDirReplica, ...]
    moves: tuple[ReplicaMoveStatus, ...]
    total_bytes: int = 0


class DescribeLogDirsResponse(Struct, frozen=True):
    """In the order of the configuration; those that could not be opened last."""

    directories: tuple[LogDir, ...]
