"""Why this broker does not serve a partition, and the result that says so for each kind of request."""

from __future__ import annotations

from typing import Protocol, TypeVar
from uuid import UUID

from msgspec import Struct

from replog.broker.replicas.replica import Replica
from replog.errors import ErrorCode

ResultT_co = TypeVar("ResultT_co", covariant=True)


class Refusal(Struct, frozen=True):
    """Why this broker does not serve a partition, and which broker may."""

    error: ErrorCode
    message: str
    leader_id: int = -1
    leader_epoch: int = -1


class OfPartition(Protocol):
    """A part of a request that names a partition."""

    @property
    def topic_id(self) -> UUID: ...

    @property
    def partition_id(self) -> int: ...


class MakeResult(Protocol[ResultT_co]):
    """A kind of result that a partition can be answered with."""

    def __call__(
        self, *, topic_id: UUID, partition_id: int, error: ErrorCode, message: str, leader_id: int, leader_epoch: int
    ) -> ResultT_co: ...


def refused(make: MakeResult[ResultT_co], partition: OfPartition, refusal: Refusal) -> ResultT_co:
    """Makes the result of a partition that is not served.

    Args:
        make: The class of the result.
        partition: The partition of the request.
        refusal: Why it is not served.
    """
    return make(
        topic_id=partition.topic_id,
        partition_id=partition.partition_id,
        error=refusal.error,
        message=refusal.message,
        leader_id=refusal.leader_id,
        leader_epoch=refusal.leader_epoch,
    )


def refused_by(replica: Replica | None, error: ErrorCode, message: str) -> Refusal:
    """Makes the refusal of a replica of this broker, with the leader that the metadata name; None: the replica is unknown."""
    if replica is None:
        return Refusal(error, message)
    return Refusal(error, message, replica.registration.leader, replica.registration.leader_epoch)
