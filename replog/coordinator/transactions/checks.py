"""Bounds of what clients may ask of a coordinator of transactions."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from replog.coordinator.config import TransactionsConfig
from replog.coordinator.transactions.requests import InitProducer, TransactionPartition
from replog.errors import (
    InvalidRequestError,
    InvalidTransactionTimeoutError,
    PolicyViolationError,
    TransactionAbortableError,
)

_BYTES_BESIDE_TOPIC: Final = 8
"""What a topic takes in a record at most, beside its name and its partitions."""


def check_init(request: InitProducer, config: TransactionsConfig) -> None:
    """Checks what a producer asks for that takes over a transactional id.

    Raises:
        InvalidRequestError: The transactional id is empty or too long.
        InvalidTransactionTimeoutError: A transaction may not be open for so long, or for no time at all.
    """
    if not request.transactional_id:
        raise InvalidRequestError("the transactional id is empty: name one, or ask for a producer id without one")
    size_bytes = len(request.transactional_id.encode())
    if size_bytes > config.max_id_bytes:
        raise InvalidRequestError(
            f"the transactional id has {size_bytes} bytes, and may have {config.max_id_bytes}: choose a shorter one"
        )
    if not 0 < request.timeout_ms <= config.max_timeout_ms:
        raise InvalidTransactionTimeoutError(
            f"a transaction may be open for 1 to {config.max_timeout_ms} ms (transaction.max.timeout.ms), not for "
            f"{request.timeout_ms}: set transaction.timeout.ms of the producer so"
        )


def check_room(ids_count: int, config: TransactionsConfig) -> None:
    """Checks that there may be one more transactional id.

    Raises:
        PolicyViolationError: There are as many as there may be.
    """
    if ids_count >= config.max_ids:
        raise PolicyViolationError(
            f"this coordinator keeps {ids_count} transactional ids, and no more: use them again instead of new ones; those "
            f"that nobody uses go after {config.id_expiration_ms} ms (transactional.id.expiration.ms)"
        )


def check_size(
    held: Collection[TransactionPartition],
    added: Collection[TransactionPartition],
    size_bytes: int,
    config: TransactionsConfig,
) -> None:
    """Checks that a transaction may have more partitions.

    Args:
        held: The partitions that it has.
        added: The partitions that come.
        size_bytes: The bytes of its record as it is.
        config: The bounds.

    Raises:
        TransactionAbortableError: It may not.
    """
    count = len(held) + len(added)
    if count > config.max_partitions:
        raise TransactionAbortableError(
            f"the transaction would have {count} partitions, and may have {config.max_partitions}: abort it, and write to "
            "fewer partitions in one"
        )
    topics = {each.topic for each in added}.difference(each.topic for each in held)
    size_bytes += sum(len(each.encode()) + _BYTES_BESIDE_TOPIC for each in topics) + 4 * len(added)
    if size_bytes > config.max_record_bytes:
        raise TransactionAbortableError(
            f"the record of the transaction would have {size_bytes} bytes with {count} partitions, and may have "
            f"{config.max_record_bytes}: abort it, and write to fewer topics in one"
        )
