"""How far groups were behind over the last hour, so that a curve does not begin when somebody opens its page."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Final

SAMPLE_S: Final = 15.0
"""The seconds between two looks at all groups."""

SAMPLES_MAX: Final = 240
"""Of one group: an hour."""


class LagHistory:
    """The newest samples of the groups that are there; of as many groups as one look tells, see `GROUPS_MAX`."""

    def __init__(self) -> None:
        self._samples: dict[str, deque[tuple[int, int]]] = {}

    def add(self, now_ms: int, lags: Mapping[str, int]) -> None:
        """Notes how many records each group is behind; what was known of groups that are not named any more is dropped.

        Args:
            now_ms: The time of the look, milliseconds since 1970.
            lags: The records that each group is behind, by its id.
        """
        self._samples = {group: self._samples.get(group) or deque(maxlen=SAMPLES_MAX) for group in lags}
        for group, lag in lags.items():
            self._samples[group].append((now_ms, lag))

    def of(self, group: str) -> list[tuple[int, int]]:
        """Returns the samples of a group as (milliseconds since 1970, records), the oldest first; none of one that is not known."""
        return list(self._samples.get(group, ()))
