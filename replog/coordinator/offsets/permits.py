"""The permits with which producers commit offsets in a transaction (`replog.coordinator.offsets.transactions`).

They are no part of the log: another coordinator gives others.
"""

from __future__ import annotations

from typing import Final

PERMITS_MAX: Final = 10_000
"""The permits that are kept; the oldest one goes, and who has it asks for another."""


class Permits:
    """The permit of each producer that has one."""

    def __init__(self) -> None:
        self._numbers: dict[int, int] = {}  # the oldest first
        self._last = 0

    def give(self, producer_id: int, now_ms: int) -> int:
        """Returns the permit of a producer; a new one where it has none.

        Args:
            producer_id: The producer.
            now_ms: The monotonic milliseconds, which make it another one than those of earlier leaderships of this process.
        """
        number = self._numbers.get(producer_id)
        if number is None:
            number = self._last = max(self._last + 1, now_ms << 20)
            self._numbers[producer_id] = number
            if len(self._numbers) > PERMITS_MAX:
                del self._numbers[next(iter(self._numbers))]
        return number

    def is_valid(self, producer_id: int, number: int) -> bool:
        """Whether a permit has not been taken back."""
        return self._numbers.get(producer_id) == number

    def take_back(self, producer_id: int) -> None:
        """Makes the permit of a producer invalid, if it has one."""
        self._numbers.pop(producer_id, None)

    def stop(self) -> None:
        """Takes back all of them."""
        self._numbers.clear()
