"""Counts of the requests of Kafka's clients since the broker began, for metrics."""

from __future__ import annotations

from collections import Counter

from msgspec import Struct, field

SOFTWARE_MAX = 100
"""How many kinds of software are told apart; a client may call itself anything."""

OTHER = "other"


class RequestCounts(Struct):
    """Counts of one server.

    Attributes:
        requests: The requests by the name of the API and their version.
        software: The connections by the name and the version of the software that they said they are.
        failures: The requests that were answered with an error because of a bug.
        malformed: The frames that were no request that is served.
    """

    requests: Counter[tuple[str, int]] = field(default_factory=Counter[tuple[str, int]])
    software: Counter[tuple[str, str]] = field(default_factory=Counter[tuple[str, str]])
    failures: int = 0
    malformed: int = 0

    def note_software(self, name: str, version: str) -> None:
        """Counts a client that says what it is."""
        kind = (name, version)
        is_known = kind in self.software or len(self.software) < SOFTWARE_MAX
        self.software[kind if is_known else (OTHER, OTHER)] += 1
