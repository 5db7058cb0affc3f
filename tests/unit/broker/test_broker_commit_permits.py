"""Permits to commit offsets in a transaction: who is asked, and what the client is told where the transaction's coordinator refuses."""

from __future__ import annotations

from typing import Any, cast

import pytest

from replog.broker.coordinator.commit_permits import CommitPermits
from replog.broker.coordinator.coordinators import Coordinators
from replog.coordinator.offsets.transactions import CommitPermit, GetCommitPermit
from replog.coordinator.runtime.transactions import TransactionWriter
from replog.errors import (
    ConcurrentTransactionsError,
    CoordinatorNotAvailableError,
    ErrorCode,
    InvalidProducerEpochError,
    InvalidProducerIdMappingError,
    InvalidTxnStateError,
    NotCoordinatorError,
    ProducerFencedError,
    ReplogError,
    RequestTimedOutError,
    TransactionAbortableError,
)
from replog.rpc.transaction_messages import (
    JoinTransactionRequest,
    JoinTransactionResponse,
    NamedPartitions,
    PartitionRefusal,
)

REQUEST = GetCommitPermit("g", TransactionWriter(7, 3))


class FakeCoordinators:
    """The coordinator of the group: the one of partition 4 of the offsets topic."""

    def __init__(self, *, is_open: bool) -> None:
        self.permit = CommitPermit(11, is_open)

    async def submit(self, name: str, request: GetCommitPermit, timeout_ms: int) -> CommitPermit:
        assert (name, request) == ("g", REQUEST)
        return self.permit

    def partition_id(self, name: str) -> int:
        return 4


class FakeVerifier:
    """The coordinator of the transaction."""

    def __init__(self, refusal: ErrorCode | ReplogError | None) -> None:
        self.asked: list[JoinTransactionRequest] = []
        self.refusal = refusal

    async def join(self, request: JoinTransactionRequest, timeout_ms: int) -> JoinTransactionResponse:
        self.asked.append(request)
        if isinstance(self.refusal, ReplogError):
            raise self.refusal
        if self.refusal is None:
            return JoinTransactionResponse(())
        return JoinTransactionResponse((PartitionRefusal("__consumer_offsets", 4, self.refusal),))


async def permit(
    refusal: ErrorCode | ReplogError | None = None, *, is_open: bool = False, only_verifies: bool = False
) -> tuple[int, FakeVerifier]:
    """The permit, and whom it has cost a question."""
    verifier = FakeVerifier(refusal)
    permits = CommitPermits(cast("Coordinators", FakeCoordinators(is_open=is_open)), verifier)
    return await permits.get("tx", REQUEST, only_verifies=only_verifies, timeout_ms=100), verifier


@pytest.mark.parametrize("only_verifies", [True, False])
async def test_the_partition_of_the_group_is_part_of_the_transaction_first(only_verifies: bool) -> None:
    number, verifier = await permit(only_verifies=only_verifies)
    assert number == 11
    place = (NamedPartitions("__consumer_offsets", (4,)),)
    assert verifier.asked == [JoinTransactionRequest("tx", 7, 3, only_verifies, place)]


async def test_nobody_is_asked_while_the_transaction_is_known_to_be_open() -> None:
    assert (await permit(InvalidTxnStateError("never asked"), is_open=True))[1].asked == []


@pytest.mark.parametrize(
    ("refusal", "only_verifies", "told"),
    [
        (ErrorCode.INVALID_TXN_STATE, True, InvalidTxnStateError),
        (ErrorCode.TRANSACTION_ABORTABLE, True, TransactionAbortableError),
        (ErrorCode.PRODUCER_FENCED, False, InvalidProducerEpochError),
        (ProducerFencedError("another one"), False, InvalidProducerEpochError),
        (InvalidProducerIdMappingError("another one"), False, InvalidProducerIdMappingError),
        (ErrorCode.CONCURRENT_TRANSACTIONS, False, ConcurrentTransactionsError),
        (ErrorCode.CONCURRENT_TRANSACTIONS, True, CoordinatorNotAvailableError),
        (ConcurrentTransactionsError("it ends"), False, ConcurrentTransactionsError),
        (NotCoordinatorError("broker 3 is"), False, CoordinatorNotAvailableError),
        (ErrorCode.NOT_COORDINATOR, False, CoordinatorNotAvailableError),
        (RequestTimedOutError("no answer"), True, CoordinatorNotAvailableError),
    ],
)
async def test_a_refusal_is_told_so_that_the_client_asks_no_other_coordinator_of_the_group(
    refusal: Any, only_verifies: bool, told: type[ReplogError]
) -> None:
    with pytest.raises(ReplogError) as raised:
        await permit(refusal, only_verifies=only_verifies)
    assert type(raised.value) is told
