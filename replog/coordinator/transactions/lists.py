"""Tells people of transactional ids; nothing of it changes one."""

from __future__ import annotations

from typing import Final

from replog.coordinator.config import TransactionsConfig
from replog.coordinator.name_pattern import NamePattern
from replog.coordinator.runtime.background import Background, Work
from replog.coordinator.runtime.machine import Outcome
from replog.coordinator.runtime.messages import Reply
from replog.coordinator.transactions.ends import Ends
from replog.coordinator.transactions.packed import Glance
from replog.coordinator.transactions.requests import (
    DescribeTransaction,
    ListedTransaction,
    ListTransactions,
    ListTransactionsResponse,
    TransactionDescription,
)
from replog.coordinator.transactions.state import TransactionState
from replog.coordinator.transactions.transitions import incarnation_of, status_of
from replog.errors import InvalidRequestError, TransactionalIdNotFoundError

STEP_COST: Final = 200_000
"""What the pattern may cost in one step, in instructions of RE2: a millisecond or two."""


class Lists:
    """Answers what people ask."""

    def __init__(self, state: TransactionState, ends: Ends, background: Background, config: TransactionsConfig) -> None:
        self._state = state
        self._ends = ends
        self._background = background
        self._config = config

    def describe(self, request: DescribeTransaction) -> TransactionDescription:
        """Returns where a transactional id is.

        Raises:
            InvalidRequestError: The transactional id is empty.
            TransactionalIdNotFoundError: There is no such transactional id.
        """
        if not request.transactional_id:
            raise InvalidRequestError("the transactional id is empty: name one")
        value = self._state.find(request.transactional_id)
        if value is None:
            raise TransactionalIdNotFoundError(f"there is no transactional id {request.transactional_id!r}")
        return TransactionDescription(
            request.transactional_id,
            status_of(value),
            incarnation_of(value),
            value.transaction_timeout_ms,
            value.transaction_start_timestamp_ms,
            self._ends.left_of(request.transactional_id, value),
        )

    def list(self, request_id: int, request: ListTransactions) -> Work:
        """Lists transactional ids in steps: each as it is when the list comes to it.

        Raises:
            InvalidRegularExpressionError: The pattern cannot be used.
        """
        pattern = NamePattern(request.pattern, "or ask without a pattern") if request.pattern else None
        found: list[ListedTransaction] = []
        visits = cost = 0
        for transactional_id in list(self._state.ids()):
            visits += 1
            glance = self._state.glance(transactional_id)
            if glance is not None and self._is_wanted(glance, request):
                cost += 0 if pattern is None else pattern.size * len(transactional_id)
                if pattern is None or pattern.matches(transactional_id):
                    found.append(ListedTransaction(transactional_id, glance.producer_id, glance.status))
            if visits >= self._config.visits_per_step or cost >= STEP_COST:
                visits = cost = 0
                yield Outcome()
        yield Outcome(answers=(Reply(request_id, ListTransactionsResponse(tuple(found))),))

    def _is_wanted(self, glance: Glance, request: ListTransactions) -> bool:
        if request.statuses and glance.status not in request.statuses:
            return False
        if request.producer_ids and glance.producer_id not in request.producer_ids:
            return False
        if request.begun_longer_ago_than_ms < 0:
            return True
        return self._background.moment.wall_ms - glance.start_ms > request.begun_longer_ago_than_ms
