"""Numbers of the last hour by name, so that a curve does not begin when somebody opens its page."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Final

SAMPLE_S: Final = 15.0
"""The seconds between two looks."""

SAMPLES_MAX: Final = 240
"""Of one name: an hour."""


class SampleHistory:
    """The newest samples of what is there: of as many names as one look tells."""

    def __init__(self) -> None:
        self._samples: dict[str, deque[tuple[int, int]]] = {}

    def add(self, now_ms: int, found: Mapping[str, int | None]) -> None:
        """Notes what a look has found; what was known of names that are not among it is dropped.

        Args:
            now_ms: The time of the look, milliseconds since 1970.
            found: The number of each name; None: it is there, and its number is not known now.
        """
        self._samples = {name: self._samples.get(name) or deque(maxlen=SAMPLES_MAX) for name in found}
        for name, number in found.items():
            if number is not None:
                self._samples[name].append((now_ms, number))

    def of(self, name: str) -> list[tuple[int, int]]:
        """Returns the samples of a name as (milliseconds since 1970, number), the oldest first; none of one that is not known."""
        return list(self._samples.get(name, ()))
