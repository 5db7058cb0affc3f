"""Transactions that are open in a partition, and whether anybody may still be going to end the earliest one.

A coordinator ends each transaction after its time-out at the latest.  Where that is over by far, its end was lost: readers of
committed records wait before it until an operator ends it (KIP-664).
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from replog.broker.replicas.replica import Replica
from replog.config.server import ServerConfig

LATE_BEYOND_MS: Final = 300_000
"""How long over the longest time-out a transaction is open before it counts as late, as in Kafka: its coordinator may be moving."""


class OpenTransactions(Struct, frozen=True):
    """The open transactions of one partition.

    Attributes:
        count: How many there are.
        producer_id: The producer of the earliest one.
        first_offset: The offset at which that begins.
        silent_ms: The time since its producer wrote, or since this broker opened the log.
        is_late: Whether that is longer than any transaction may be open.
    """

    count: int
    producer_id: int
    first_offset: int
    silent_ms: int
    is_late: bool


def open_transactions_of(replica: Replica, config: ServerConfig, wall_ms: int) -> OpenTransactions | None:
    """Returns the open transactions of a replica; None: there are none.

    Args:
        replica: The replica.
        config: The configuration of the node, which says how long a transaction may be open.
        wall_ms: Wall time.
    """
    producers = replica.log.producers
    earliest = next(iter(producers.open_transactions.items()), None)
    if earliest is None:
        return None
    producer_id, first_offset = earliest
    silent_ms = max(0, wall_ms - producers.producers[producer_id].last_seen_ms)
    return OpenTransactions(
        count=len(producers.open_transactions),
        producer_id=producer_id,
        first_offset=first_offset,
        silent_ms=silent_ms,
        is_late=silent_ms > config.transaction_max_timeout_ms + LATE_BEYOND_MS,
    )
