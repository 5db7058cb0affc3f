"""Partitions join a producer's transaction, or are found to be part of it: the coordinator's side, for other brokers."""

from __future__ import annotations

from collections.abc import Iterable

from replog.broker.coordinator.coordinators import Coordinators
from replog.coordinator.transactions.requests import (
    AddPartitions,
    AddPartitionsResponse,
    Incarnation,
    TransactionPartition,
)
from replog.errors import ErrorCode, InvalidRequestError
from replog.errors.from_code import error_code_of
from replog.metadata.image import MetadataImage
from replog.rpc.transaction_messages import (
    JoinTransactionRequest,
    JoinTransactionResponse,
    NamedPartitions,
    PartitionRefusal,
)

PARTITIONS_MAX = 10_000
"""The most partitions of one request: as many as a produce may name."""

ENDING_WAIT_MS = 500
"""How long partitions wait for the end of the producer's last transaction: its leader or its client would only ask again."""


def unknown_partitions(
    image: MetadataImage, partitions: Iterable[TransactionPartition]
) -> frozenset[TransactionPartition]:
    """Returns those partitions that the metadata does not have."""
    found = []
    for each in partitions:
        topic = image.topics_by_name.get(each.topic)
        if topic is None or each.partition not in topic.partitions:
            found.append(each)
    return frozenset(found)


def partitions_of(topics: Iterable[NamedPartitions]) -> tuple[TransactionPartition, ...]:
    """Returns partitions that are named by topic, one by one."""
    return tuple(TransactionPartition(one.topic, number) for one in topics for number in one.partition_ids)


async def join(
    image: MetadataImage, coordinators: Coordinators, request: JoinTransactionRequest, timeout_ms: int
) -> JoinTransactionResponse:
    """Returns the answer of the coordinator of a transactional id, which has to be this broker.

    Args:
        image: The metadata as this broker knows them.
        coordinators: The coordinators of transactions.
        request: The request.
        timeout_ms: The time within which an answer is wanted.

    Raises:
        InvalidRequestError: It names too many partitions.
        ReplogError: The coordinator refuses the producer, or is none just now (`Coordinators.submit`).
    """
    partitions = partitions_of(request.topics)
    if len(partitions) > PARTITIONS_MAX:
        raise InvalidRequestError(f"{len(partitions):,} partitions, {PARTITIONS_MAX:,} may be; ask in several requests")
    unknown = unknown_partitions(image, partitions)
    if unknown:
        return JoinTransactionResponse(tuple(_without(each, each in unknown) for each in partitions))
    asked = AddPartitions(
        request.transactional_id,
        Incarnation(request.producer_id, request.producer_epoch),
        partitions,
        only_verifies=request.only_verifies,
        bumps_epochs=not request.only_verifies,  # only producers of `transaction.version` 2 leave it to brokers
        wait_ms=0 if request.only_verifies else min(ENDING_WAIT_MS, timeout_ms // 2),
    )
    answer: AddPartitionsResponse = await coordinators.submit(request.transactional_id, asked, timeout_ms)
    return JoinTransactionResponse(
        tuple(
            PartitionRefusal(each.topic, each.partition, error_code_of(error), error.told)
            for each, error in zip(partitions, answer.errors, strict=True)
            if error is not None
        )
    )


def _without(partition: TransactionPartition, is_unknown: bool) -> PartitionRefusal:
    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if is_unknown else ErrorCode.OPERATION_NOT_ATTEMPTED
    text = "the coordinator of the transaction does not know " + ("this partition" if is_unknown else "another one")
    return PartitionRefusal(partition.topic, partition.partition, code, text)
