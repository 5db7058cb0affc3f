"""What nodes ask one another about transactions: coordinators the leaders of partitions, and those the coordinators.

Field names equal those of ``proto/replog/pb/v1/data.proto``.
"""

from __future__ import annotations

from msgspec import Struct

from replog.errors import ErrorCode
from replog.waiting.asks import Asks


class NamedPartitions(Struct, frozen=True):
    """Partitions of one topic."""

    topic: str
    partition_ids: tuple[int, ...]


class PartitionRefusal(Struct, frozen=True):
    """Why one partition is refused."""

    topic: str
    partition_id: int
    error: ErrorCode
    message: str = ""


class Marker(Struct, frozen=True):
    """The end of a transaction, for some of its partitions.

    Attributes:
        bumps_epochs: Whether its epoch has to be higher than that of the transaction's records (`transaction.version` 2).
    """

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    is_commit: bool
    bumps_epochs: bool
    topics: tuple[NamedPartitions, ...]


class WriteMarkersRequest(Asks["WriteMarkersResponse"], frozen=True):
    """Write these markers to partitions that the asked broker leads; answered when they have committed."""

    markers: tuple[Marker, ...]


class WriteMarkersResponse(Struct, frozen=True):
    """The partitions of each marker, in the order of the request, that have not got it; all others have."""

    refusals: tuple[tuple[PartitionRefusal, ...], ...]


class JoinTransactionRequest(Asks["JoinTransactionResponse"], frozen=True):
    """Say whether partitions are part of a producer's open transaction, or make them part of it.

    Attributes:
        only_verifies: Whether they have to be part of it already: producers of `transaction.version` 0 and 1 have asked the
            coordinator themselves.
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    only_verifies: bool
    topics: tuple[NamedPartitions, ...]


class JoinTransactionResponse(Struct, frozen=True):
    """The partitions that are no part of it; all others are."""

    refusals: tuple[PartitionRefusal, ...]
