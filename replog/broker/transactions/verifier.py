"""What a leader asks before it takes a batch of a transaction: whether its partition is part of that (KIP-890)."""

from __future__ import annotations

from collections.abc import Callable

from replog.broker.coordinator.coordinators import Coordinators
from replog.broker.transactions.broker_calls import BrokerCalls
from replog.broker.transactions.joining import join
from replog.errors import ReplogError
from replog.metadata.image import MetadataImage
from replog.rpc.transaction_messages import JoinTransactionRequest, JoinTransactionResponse


class JoinVerifier:
    """Asks the coordinator of a transactional id, on this broker or on another one.

    Args:
        node_id: The id of this node.
        image: The function that returns the metadata as this node knows them.
        coordinators: The coordinators of transactions.
        calls: The way to other brokers.
    """

    def __init__(
        self, node_id: int, image: Callable[[], MetadataImage], coordinators: Coordinators, calls: BrokerCalls
    ) -> None:
        self._node_id = node_id
        self._image = image
        self._coordinators = coordinators
        self._calls = calls

    async def join(self, request: JoinTransactionRequest, timeout_ms: int) -> JoinTransactionResponse:
        """Returns which partitions are no part of the transaction.

        Args:
            request: The request.
            timeout_ms: The time within which an answer is wanted.

        Raises:
            RetriableError: There is no coordinator just now, it is not reached, or ends the last transaction of the producer.
            ReplogError: The coordinator refuses the producer: it is an older one, or not known.
        """
        coordinator = self._coordinators.known(request.transactional_id)
        if isinstance(coordinator, ReplogError):
            raise coordinator
        if coordinator == self._node_id:
            return await self.answer(request, timeout_ms)
        return await self._calls.call(coordinator, request, JoinTransactionResponse, timeout_ms)

    async def answer(self, request: JoinTransactionRequest, timeout_ms: int) -> JoinTransactionResponse:
        """Returns the answer of the coordinator, which has to be this broker; arguments and errors as of `join`."""
        return await join(self._image(), self._coordinators, request, timeout_ms)
