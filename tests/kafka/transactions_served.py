"""Whether brokers of ours serve transactions; until they do, tests of transactions run with Kafka only."""

from __future__ import annotations

from typing import Final

import pytest

REPLOG_SERVES_TRANSACTIONS: Final = False


def skip_unless_served(name: str) -> None:
    """Skips the test if the broker, "kafka" or "replog", serves no transactions."""
    if name == "replog" and not REPLOG_SERVES_TRANSACTIONS:
        pytest.skip("brokers of replog do not serve transactions: tests/kafka/transactions_served.py")
