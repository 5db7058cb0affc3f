"""Messages of the data path: what producers, consumers and followers ask of the leaders of partitions.

Requests about the cluster, a node or the quorum stand in ``*_messages`` beside this; all that a unary call may carry is
listed in ``client_messages``.

Field names equal those of ``proto/replog/pb/v1/data.proto``.  A message with records carries them as `batches`, one
buffer per partition in the order of `partitions` (or `results`); on the wire they follow the header as raw bytes.
"""

from __future__ import annotations

from typing import Annotated, TypeAlias
from uuid import UUID

from msgspec import Struct

from replog.errors import ErrorCode
from replog.waiting.asks import Asks

Buffer: TypeAlias = bytes | bytearray | memoryview

MIN_API_VERSION = 1
MAX_API_VERSION = 1

LATEST_TIMESTAMP = -1
EARLIEST_TIMESTAMP = -2
LARGEST_TIMESTAMP = -3
FROM_OFFSET_TIMESTAMP = -100  # ours; Kafka counts down from -1
CONSUMER_REPLICA_ID = -1

IN_PROCESS = "in process"
"""Marks a field that no stream carries: it is for requests that begin in the broker's own process."""

ACKS_ALL = -1


class Hello(Struct, frozen=True):
    """First message of every stream, both ways.  `node_id` -1 is a client."""

    cluster_id: str
    node_id: int
    incarnation_id: UUID
    client_id: str = ""
    min_api_version: int = MIN_API_VERSION
    max_api_version: int = MAX_API_VERSION


def client_hello(cluster_id: str, client_id: str) -> Hello:
    """Returns the hello of a client: no node id, no incarnation."""
    return Hello(cluster_id=cluster_id, node_id=-1, incarnation_id=UUID(int=0), client_id=client_id)


# ---- produce ---------------------------------------------------------------------------------------------------------


class ProducePartition(Struct, frozen=True, gc=False):
    """Where one batch goes.  `leader_epoch` -1: not checked."""

    topic_id: UUID
    partition_id: int
    leader_epoch: int = -1
    topic: Annotated[str, IN_PROCESS] = ""


class ProducedTransaction(Struct, frozen=True):
    """The transaction that the transactional batches of a produce belong to; the producer is in their headers.

    Attributes:
        adds_partitions: Whether their partitions are made part of it here (KIP-890 part 2); otherwise the producer has asked
            the coordinator before.
        knows_abortable: Whether the client knows TRANSACTION_ABORTABLE.
    """

    transactional_id: str
    adds_partitions: bool
    knows_abortable: bool = True


class ProduceRequest(Struct, frozen=True):
    """`batches[i]` is exactly one record batch for `partitions[i]`.  acks: 0, 1 or -1 (all)."""

    correlation_id: int
    timeout_ms: int
    acks: int
    partitions: tuple[ProducePartition, ...]
    batches: tuple[Buffer, ...]
    transaction: Annotated[ProducedTransaction | None, IN_PROCESS] = None


class ProduceResult(Struct, frozen=True, gc=False):
    """What became of the batch of one partition.

    Attributes:
        keyless: Its records that were refused for want of a key, by their places in the batch, counted from 0.
    """

    topic_id: UUID
    partition_id: int
    error: ErrorCode
    message: str = ""
    base_offset: int = -1
    log_start_offset: int = -1
    append_time_ms: int = -1
    leader_id: int = -1
    leader_epoch: int = -1
    keyless: tuple[int, ...] = ()


class LeaderEndpoint(Struct, frozen=True):
    """Where a broker serves clients that a refusal names as the leader."""

    broker_id: int
    host: str
    port: int
    rack: str | None = None


class ProduceResponse(Struct, frozen=True):
    correlation_id: int
    results: tuple[ProduceResult, ...]
    leaders: Annotated[tuple[LeaderEndpoint, ...], IN_PROCESS] = ()


class InitProducerIdRequest(Asks["InitProducerIdResponse"], frozen=True):
    pass


class InitProducerIdResponse(Struct, frozen=True):
    producer_id: int
    producer_epoch: int


# ---- fetch -----------------------------------------------------------------------------------------------------------


class FetchPartition(Struct, frozen=True, gc=False):
    """What a follower (all fields) or a consumer (the first three and `leader_epoch`) asks of one partition."""

    topic_id: UUID
    partition_id: int
    fetch_offset: int
    flushed_offset: int = -1
    log_start_offset: int = -1
    leader_epoch: int = -1
    last_fetched_epoch: int = -1
    max_bytes: int = 1 << 20
    topic: Annotated[str, IN_PROCESS] = ""


class ForgottenPartition(Struct, frozen=True):
    """One that an incremental fetch asks for no longer."""

    topic_id: UUID
    partition_id: int


class FetchRequest(Struct, frozen=True):
    """What is asked of some partitions.

    With `incremental`, `partitions` names those whose question is another one than this stream's fetches before have asked.
    For all others the last question stands, until it is answered with records, a divergence or an error; an answer names
    only partitions with news.

    What is IN_PROCESS cannot be sent: `frames` refuses it.

    Attributes:
        read_committed: Whether records end at the last stable offset, and the answer names what was aborted.
        near: The brokers that the consumer would rather read from than from the leader; a leader names one of them that is
            in sync instead of sending records, where `replica.selector` says so.
        offsets_only: Whether high watermarks and log starts are asked for, and no records: each change of them is worth an answer.
    """

    correlation_id: int
    timeout_ms: int
    replica_id: int
    broker_epoch: int
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    partitions: tuple[FetchPartition, ...]
    incremental: bool = False
    forgotten: tuple[ForgottenPartition, ...] = ()
    read_committed: Annotated[bool, IN_PROCESS] = False
    near: Annotated[tuple[int, ...], IN_PROCESS] = ()
    offsets_only: Annotated[bool, IN_PROCESS] = False


class DivergingEpoch(Struct, frozen=True):
    epoch: int
    end_offset: int


class AbortedTransaction(Struct, frozen=True):
    """The transactional batches of a producer from `first_offset` up to the next abort marker of that producer."""

    producer_id: int
    first_offset: int


class FetchResult(Struct, frozen=True, gc=False):
    """One partition's answer.  `log_end_offset` is filled for followers only.

    What is IN_PROCESS is left out where the answer is sent.

    Attributes:
        last_stable_offset: The end of what readers of committed transactions see.
        aborted: The transactions with records in the answer that were aborted; for `read_committed` only.
        preferred_replica: The broker of `near` that the consumer is to read from; -1: this one.
        size_bytes: The bytes of the whole log, from the log start to its end; for `offsets_only`.
    """

    topic_id: UUID
    partition_id: int
    error: ErrorCode
    fetch_offset: int
    high_watermark: int = -1
    log_start_offset: int = -1
    log_end_offset: int = -1
    diverging: DivergingEpoch | None = None
    leader_id: int = -1
    leader_epoch: int = -1
    message: str = ""
    last_stable_offset: Annotated[int, IN_PROCESS] = -1
    aborted: Annotated[tuple[AbortedTransaction, ...], IN_PROCESS] = ()
    preferred_replica: Annotated[int, IN_PROCESS] = -1
    size_bytes: Annotated[int, IN_PROCESS] = -1


class FetchResponse(Struct, frozen=True):
    """`batches[i]` are whole record batches of `results[i]`, possibly empty."""

    correlation_id: int
    results: tuple[FetchResult, ...]
    batches: tuple[Buffer, ...]
    leaders: Annotated[tuple[LeaderEndpoint, ...], IN_PROCESS] = ()


# ---- offsets ---------------------------------------------------------------------------------------------------------


class ListOffsetsPartition(Struct, frozen=True, gc=False):
    """What offset is asked for.

    Attributes:
        timestamp: The time in ms since 1970, or LATEST_TIMESTAMP (the end of what is visible), EARLIEST_TIMESTAMP (the log
            start), LARGEST_TIMESTAMP (the first record with the largest timestamp of all), FROM_OFFSET_TIMESTAMP (the first
            record at or after `from_offset`).
        read_committed: Whether only what is below the last stable offset is visible, instead of the high watermark.
        from_offset: The offset that FROM_OFFSET_TIMESTAMP means.
    """

    topic_id: UUID
    partition_id: int
    timestamp: int
    leader_epoch: int = -1
    read_committed: bool = False
    from_offset: int = 0
    topic: Annotated[str, IN_PROCESS] = ""


class ListOffsetsRequest(Asks["ListOffsetsResponse"], frozen=True):
    """`read_uncommitted`: what our client asks with, of all partitions."""

    partitions: tuple[ListOffsetsPartition, ...]
    read_uncommitted: Annotated[bool, IN_PROCESS] = False


class ListOffsetsResult(Struct, frozen=True, gc=False):
    topic_id: UUID
    partition_id: int
    error: ErrorCode
    offset: int = -1
    timestamp: int = -1
    leader_epoch: int = -1
    leader_id: int = -1
    message: str = ""


class ListOffsetsResponse(Struct, frozen=True):
    results: tuple[ListOffsetsResult, ...]


class DeleteRecordsPartition(Struct, frozen=True):
    """Everything below `offset` may go; -1: below the high watermark."""

    topic_id: UUID
    partition_id: int
    offset: int
    leader_epoch: int = -1
    topic: Annotated[str, IN_PROCESS] = ""


class DeleteRecordsRequest(Asks["DeleteRecordsResponse"], frozen=True):
    partitions: tuple[DeleteRecordsPartition, ...]


class DeleteRecordsResult(Struct, frozen=True):
    """`low_watermark`: the lowest log start among the live replicas: what is below is gone everywhere."""

    topic_id: UUID
    partition_id: int
    error: ErrorCode
    low_watermark: int = -1
    leader_epoch: int = -1
    leader_id: int = -1
    message: str = ""


class DeleteRecordsResponse(Struct, frozen=True):
    results: tuple[DeleteRecordsResult, ...]


class EpochEndPartition(Struct, frozen=True):
    """Asks where leader epoch `epoch` ends in the leader's log (OffsetsForLeaderEpoch; docs/KAFKA.md 4.5)."""

    topic_id: UUID
    partition_id: int
    epoch: int
    leader_epoch: int = -1
    topic: Annotated[str, IN_PROCESS] = ""


class EpochEndsRequest(Asks["EpochEndsResponse"], frozen=True):
    partitions: tuple[EpochEndPartition, ...]


class EpochEndResult(Struct, frozen=True):
    """The largest epoch not above the one asked for, and its end (exclusive); -1 for both when there is none."""

    topic_id: UUID
    partition_id: int
    error: ErrorCode
    epoch: int = -1
    end_offset: int = -1
    leader_epoch: int = -1
    leader_id: int = -1
    message: str = ""


class EpochEndsResponse(Struct, frozen=True):
    results: tuple[EpochEndResult, ...]


class FindCutsPartition(Struct, frozen=True):
    """Asks about offsets [start_offset, end_offset) of one partition."""

    topic_id: UUID
    partition_id: int
    start_offset: int
    end_offset: int
    leader_epoch: int = -1


class FindCutsRequest(Asks["FindCutsResponse"], frozen=True):
    """`target_bytes` is the wished size of a part; parts are larger where there would be too many."""

    partitions: tuple[FindCutsPartition, ...]
    target_bytes: int


class Cut(Struct, frozen=True):
    """The end of a part, exclusive, and about how many bytes the batches of the part have."""

    offset: int
    size_bytes: int


class FindCutsResult(Struct, frozen=True):
    """Cuts in order; the last is the end of the range that was asked for."""

    topic_id: UUID
    partition_id: int
    error: ErrorCode
    cuts: tuple[Cut, ...] = ()
    leader_epoch: int = -1
    leader_id: int = -1
    message: str = ""


class FindCutsResponse(Struct, frozen=True):
    results: tuple[FindCutsResult, ...]


class WatchOffsetsRequest(Struct, frozen=True):
    """Partitions that the asked broker leads.  `cluster_id` "": of any cluster."""

    cluster_id: str
    partitions: tuple[FetchPartition, ...]
