"""What brokers ask one another about transactions, where one of them does not know it."""

from __future__ import annotations

import logging
from typing import Any
from uuid import UUID

import pytest

from replog.broker.transactions.broker_calls import BrokerCalls
from replog.errors import ErrorCode, InvalidRequestError, ReplogError, RetriableError
from replog.errors.from_code import error_from_code
from replog.rpc.messages import Hello
from replog.rpc.transaction_messages import JoinTransactionResponse, WriteMarkersRequest, WriteMarkersResponse


class Peer:
    """The way to a broker, and the broker."""

    def __init__(self) -> None:
        self.address = "b:1"
        self.answer: Any = WriteMarkersResponse(())

    def connect(self, address: str, *, purpose: str, hello: Hello, node_id: int) -> Peer:
        assert (address, purpose) == (self.address, "transactions")
        return self

    async def call(self, request: Any, *, timeout_ms: int, cluster_id: str) -> Any:
        if isinstance(self.answer, ReplogError):
            raise self.answer
        return self.answer

    async def close(self) -> None:
        pass


@pytest.mark.parametrize(
    "answer", [error_from_code(ErrorCode.UNSUPPORTED_VERSION, "of a kind"), JoinTransactionResponse(())]
)
async def test_an_older_broker_is_asked_again_and_named_once(answer: Any, caplog: pytest.LogCaptureFixture) -> None:
    """Goal: a producer goes on once the broker is upgraded, and an operator sees what it waits for."""
    peer: Any = Peer()
    calls = BrokerCalls(Hello("c", 1, UUID(int=1)), peer, lambda _: peer.address)

    async def ask() -> object:
        return await calls.call(2, WriteMarkersRequest(()), WriteMarkersResponse, 1_000)

    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            peer.answer = answer
            for _ in range(2):
                with pytest.raises(RetriableError, match="broker 2 takes no part in transactions"):
                    await ask()
            peer.answer = WriteMarkersResponse(())
            assert await ask() == WriteMarkersResponse(())
    assert len(caplog.records) == 2
    peer.answer = InvalidRequestError("names no producer")
    with pytest.raises(InvalidRequestError, match="no producer"):
        await ask()
    await calls.close()
