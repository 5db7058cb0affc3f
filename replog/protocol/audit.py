"""The lines that say what was denied to clients, and what they administered: JSON, one a line, in the logger `replog.audit`.

What is allowed and changes nothing is not told.  Lines are counted by the second: a client that is denied a thousand things a
second, or many that are, do not fill a disk.  What was left out is said in the first line afterwards.

::

    {
        "event": "denied",
        "principal": "User:alice",
        "address": "10.0.0.9",
        "api": "Produce",
        "operation": "WRITE",
        "resource_type": "TOPIC",
        "resource_name": "flights",
    }
    {
        "event": "administered",
        "principal": "User:bob",
        "address": "10.0.0.7",
        "api": "DeleteTopics",
        "resources": ["flights"],
        "resources_count": 1,
        "errors": [],
    }
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Final

import msgspec

from replog.access.principal import ClientIdentity
from replog.access.rights import Denial

LINES_A_SECOND_MAX: Final = 100
"""How many lines there are in a second at most."""

NAME_CHARACTERS_MAX: Final = 300
"""How much of a name is told: clients choose those of groups, which may have 32 KiB."""

NAMES_MAX: Final = 10
"""How many of the resources of one request are named."""

_log = logging.getLogger("replog.audit")


class Audit:
    """Writes the lines of one node.

    Args:
        clock: The function that returns the seconds of a clock which never goes back.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._second = -1
        self._written_count = 0
        self._left_out_count = 0

    def denied(self, denial: Denial) -> None:
        """Tells what a client may not do."""
        if self._has_room():
            self._write(
                {
                    "event": "denied",
                    "principal": _short(str(denial.client.principal)),
                    "address": denial.client.host,
                    "api": denial.api,
                    "operation": denial.operation.name,
                    "resource_type": denial.kind.name,
                    "resource_name": _short(denial.name),
                }
            )

    def administered(self, client: ClientIdentity, api: str, resources: Sequence[str], errors: Iterable[str]) -> None:
        """Tells what a client has changed, or was told why not.

        Args:
            client: The client.
            api: The name of the API.
            resources: The names of what the request is about.
            errors: The names of the errors in the answer.
        """
        if self._has_room():
            self._write(
                {
                    "event": "administered",
                    "principal": _short(str(client.principal)),
                    "address": client.host,
                    "api": api,
                    "resources": [_short(name) for name in resources[:NAMES_MAX]],
                    "resources_count": len(resources),
                    "errors": sorted(errors),
                }
            )

    def _has_room(self) -> bool:
        second = int(self._clock())
        if second != self._second:
            self._second, self._written_count = second, 0
        self._written_count += 1
        if self._written_count > LINES_A_SECOND_MAX:
            self._left_out_count += 1
            return False
        return True

    def _write(self, line: dict[str, object]) -> None:
        if self._left_out_count:
            line["left_out_before"] = self._left_out_count
            self._left_out_count = 0
        _log.info("%s", msgspec.json.encode(line).decode())


def _short(name: str) -> str:
    return name if len(name) <= NAME_CHARACTERS_MAX else name[:NAME_CHARACTERS_MAX] + "..."
