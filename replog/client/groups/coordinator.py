"""The way to the broker that coordinates a group or transactions: looked for when it is not known, and again when it has moved."""

from __future__ import annotations

from typing import TypeVar

from replog.client.cluster.addresses import address_of
from replog.client.cluster.view import ATTEMPT_TIMEOUT_MS, ClusterView
from replog.errors import (
    BrokerNotAvailableError,
    CoordinatorNotAvailableError,
    NotCoordinatorError,
    RequestTimedOutError,
)
from replog.rpc.transport import ConnectionLostError
from replog.waiting.asks import Asks

T = TypeVar("T")

_MOVED = (
    NotCoordinatorError,
    CoordinatorNotAvailableError,
    BrokerNotAvailableError,
    RequestTimedOutError,
    ConnectionLostError,
)
"""Errors after which another broker may be the coordinator."""


class Coordinator:
    """Remembers who coordinates a group, or transactions, until an error says that it may be another one.

    Args:
        view: The open cluster view of the client.
        key: The group id or the transactional id.
        key_type: The number of `FindCoordinator` that says which of them the key is.
    """

    def __init__(self, view: ClusterView, key: str, key_type: int = 0) -> None:
        self._view = view
        self._key = key
        self._key_type = key_type
        self._broker_id: int | None = None

    @property
    def broker_id(self) -> int:
        """The broker that was asked last and has not turned out to be another one; -1 while it is not known."""
        return -1 if self._broker_id is None else self._broker_id

    async def call(self, request: Asks[T], timeout_ms: int = ATTEMPT_TIMEOUT_MS) -> T:
        """Asks the coordinator, once.

        Args:
            request: The request.
            timeout_ms: The longest wait for the answer; the coordinator is looked for that long, too, or 5 s.

        Raises:
            RetriableError: It cannot be found or reached, or says so itself; the next call looks for it anew.
            ReplogError: It refuses.
        """
        try:
            address = await self._address(min(timeout_ms, ATTEMPT_TIMEOUT_MS))
            return await self._view.call(address, request, timeout_ms=timeout_ms)
        except _MOVED:
            self._broker_id = None
            raise

    async def _address(self, timeout_ms: int) -> str:
        """Returns where the coordinator serves clients."""
        if self._broker_id is None:
            # with Kafka's messages for members of groups, which a client that asks for no group needs not load
            from replog.client.protocol.questions.group_members import CALLED, FindCoordinator

            what = f"find the coordinator of {CALLED[self._key_type]} {self._key}"
            question = FindCoordinator(self._key, self._key_type)
            self._broker_id = await self._view.call_any(question, timeout_ms=timeout_ms, what=what)
        broker = self._view.image.brokers.get(self._broker_id)
        if broker is None:
            self._view.request_refresh()
            raise CoordinatorNotAvailableError(
                f"broker {self._broker_id}, which coordinates {self._key!r}, is not known yet"
            )
        return address_of(broker)
