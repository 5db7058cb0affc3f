"""Questions about many transactions, or about none: which a broker coordinates, and whether it has ours beside Kafka's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from replog.client.protocol.asking import Broker, Question
from replog.client.protocol.questions.answered import require_answer
from replog.coordinator.transactions.records import TransactionStatus
from replog.coordinator.transactions.requests import (
    ListedTransaction,
    ListTransactions,
    ListTransactionsResponse,
    PrepareTransaction,
)
from replog.errors import UnsupportedVersionError
from replog.protocol.private import PRIVATE_APIS
from replog.waiting.asks import Asks
from replog.wire.messages.list_transactions import ListTransactionsRequest
from replog.wire.messages.list_transactions import ListTransactionsResponse as Listed

DURATION_FROM: Final = 1
"""The first version of ListTransactions that tells those that have been open for a while."""

PATTERN_FROM: Final = 2
"""The first version of ListTransactions that looks at names."""

_NAMES: Final = {status: status.name.title().replace("_", "") for status in TransactionStatus}
_STATUSES: Final = {name: status for status, name in _NAMES.items()}


class OffersPreparing(Asks[bool], frozen=True):
    """Says whether a broker can prepare transactions, which Apache Kafka's cannot."""


async def list_transactions(broker: Broker, question: ListTransactions, timeout_ms: int) -> ListTransactionsResponse:
    """Asks for the transactional ids that a broker coordinates.  Those in a state that replog does not know are left out.

    Raises:
        UnsupportedVersionError: The broker cannot look for what is asked for.
    """
    version = await broker.version(ListTransactionsRequest)
    for needed, is_asked, what in (
        (DURATION_FROM, question.begun_longer_ago_than_ms >= 0, "how long a transaction has been open"),
        (PATTERN_FROM, bool(question.pattern), "names"),
    ):
        if is_asked and version < needed:
            raise UnsupportedVersionError(
                f"{broker.address} serves ListTransactions up to version {version}, which does not look at {what} (that comes with "
                f"version {needed}): list all of them, or use a newer broker"
            )
    request = ListTransactionsRequest(
        [_NAMES[each] for each in sorted(question.statuses)],
        sorted(question.producer_ids),
        question.begun_longer_ago_than_ms,
        question.pattern or None,
    )
    answer = await broker.ask(request, Listed, timeout_ms=timeout_ms)
    require_answer(broker, answer.error_code, "", "to list its transactions")
    return ListTransactionsResponse(
        tuple(
            ListedTransaction(each.transactional_id, each.producer_id, _STATUSES[each.transaction_state])
            for each in answer.transaction_states
            if each.transaction_state in _STATUSES
        )
    )


async def offers_preparing(broker: Broker, _question: OffersPreparing, _timeout_ms: int) -> bool:
    """Looks at the APIs that the broker has told of."""
    return await broker.offers(PRIVATE_APIS[PrepareTransaction].API_KEY)


QUESTIONS: Final[Mapping[type, Question]] = {
    ListTransactions: list_transactions,
    OffersPreparing: offers_preparing,
}
