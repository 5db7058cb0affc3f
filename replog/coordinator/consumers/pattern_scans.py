"""What patterns match among the topics of the cluster, found out in short steps.

A name that has been looked at is not looked at again: behind the first pass over all of them, only topics that have come or
gone since cost something.  What is known is shared by all groups of a shard; it is no part of the log, and a pattern that was
not asked for in a long time is forgotten.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping
from typing import Any, Final

from replog.coordinator.consumers.checks import TOPICS_MAX
from replog.coordinator.topic_view import TopicView
from replog.errors import InvalidRegularExpressionError
from replog.host.extras import install_command
from replog.metadata.persistent_map import difference

PATTERN_CHARS_MAX: Final = 2_000
"""The characters of a pattern."""
PROGRAM_MAX: Final = 2_000
"""The instructions that a pattern is compiled to: in the worst case each is looked at for each character of a name."""
MEMORY_BYTES: Final = 1 << 20
"""What RE2 may keep to be faster with one pattern."""

_SHOWN_CHARS: Final = 100


class TopicPattern:
    """A pattern that the whole name of a topic has to match.

    Python's `re` tries one way after the other, so that some patterns take years for a name of 249 characters, and a client that
    sends one would hold the coordinator.  RE2 goes all ways at once; its syntax is that of Kafka's coordinator, which has it in Java.
    What it cannot do, it refuses: references to groups, and to what stands before or behind.

    Raises:
        InvalidRegularExpressionError: It is none, is too large, or the library is not installed.

    Attributes:
        size: The number of instructions.
    """

    __slots__ = ("_program", "size")

    def __init__(self, pattern: str) -> None:
        re2 = _library()
        if len(pattern) > PATTERN_CHARS_MAX:
            raise _refused(pattern, f"has {len(pattern)} characters, and may have {PATTERN_CHARS_MAX}")
        options = re2.Options()
        options.log_errors, options.never_capture, options.max_mem = False, True, MEMORY_BYTES
        try:
            self._program = re2.compile(pattern, options)
        except re2.error as error:
            raise _refused(pattern, f"is no regular expression of RE2: {_reason(error)}") from None
        self.size: int = self._program.programsize
        if self.size > PROGRAM_MAX:
            raise _refused(pattern, f"takes {self.size} instructions, and may take {PROGRAM_MAX}: repeat less")

    def matches(self, name: str) -> bool:
        """Whether the whole name matches."""
        return self._program.fullmatch(name.encode()) is not None  # of text, it would be counted where characters begin


def _reason(error: Exception) -> str:
    told: object = error.args[0] if error.args else ""
    return told.decode(errors="replace") if isinstance(told, bytes) else str(told)


def _refused(pattern: str, why: str) -> InvalidRegularExpressionError:
    shown = pattern if len(pattern) <= _SHOWN_CHARS else pattern[:_SHOWN_CHARS] + "..."
    return InvalidRegularExpressionError(f"the pattern {shown!r} {why}; or name the topics")


def _library() -> Any:
    """Imports google-re2.

    Raises:
        InvalidRegularExpressionError: It is not installed; the message says what to install.
    """
    try:
        import re2  # pyright: ignore[reportMissingTypeStubs] -- it is shipped without type information
    except ImportError:
        raise InvalidRegularExpressionError(
            "the broker resolves patterns of topics with a library that is not installed there: "
            f"{install_command('patterns')}; or name the topics"
        ) from None
    return re2


PATTERNS_KEPT: Final = 200
"""The patterns that are remembered: each may hold a MiB of RE2's memory beside the names that it matches."""
NAMES_CHARS_MAX: Final = 400_000
"""The characters of the names that one pattern may match: they are written in one record."""
STEP_COST: Final = 200_000
"""What one step may cost, in instructions of RE2: a millisecond or two, unless a single name takes longer."""
NAME_COST: Final = 200
"""What a name costs beside RE2's work."""


class PatternScans:
    """The patterns of a shard.

    Args:
        topics: The topics of the cluster.
    """

    def __init__(self, topics: TopicView) -> None:
        self._topics = topics
        self._scans: OrderedDict[str, _Scan] = OrderedDict()

    def clear(self) -> None:
        """Forgets everything."""
        self._scans.clear()

    def step(self, pattern: str) -> frozenset[str] | None:
        """Looks at some names.

        Returns:
            The topics that match; None where there are names left to be looked at.

        Raises:
            InvalidRegularExpressionError: It is no pattern that can be used here, or matches too much.
        """
        scan = self._scans.get(pattern)
        if scan is None:
            scan = self._scans[pattern] = _Scan(TopicPattern(pattern))
            if len(self._scans) > PATTERNS_KEPT:
                self._scans.popitem(last=False)
        self._scans.move_to_end(pattern)
        return scan.step(self._topics.by_name)

    def check(self, pattern: str) -> None:
        """Checks a pattern that a member goes on to want.

        Raises:
            InvalidRegularExpressionError: It has been found to match too much.
        """
        scan = self._scans.get(pattern)
        if scan is not None:
            scan.check()


class _Scan:
    """What one pattern matches.

    Invariants:
        - `_found` is what matches in `_seen`, but for the names that `_pending` has not come to.
    """

    def __init__(self, pattern: TopicPattern) -> None:
        self._pattern = pattern
        self._seen: Mapping[str, object] = {}
        self._pending: Iterator[tuple[str, bool]] | None = None
        self._found: set[str] = set()
        self._chars = 0
        self._result: frozenset[str] = frozenset()

    def step(self, now: Mapping[str, object]) -> frozenset[str] | None:
        if self._pending is None:
            if now is self._seen:
                self.check()
                return self._result
            self._pending, self._seen = _changes(self._seen, now), now
        cost = 0
        for name, is_there in self._pending:
            self._look_at(name, is_there=is_there)
            cost += NAME_COST + len(name) * self._pattern.size
            if cost >= STEP_COST:
                return None
        self._pending = None
        self.check()
        self._result = frozenset(self._found)
        return self.step(now) if now is self._seen else None

    def _look_at(self, name: str, *, is_there: bool) -> None:
        if not is_there:
            if name in self._found:
                self._found.remove(name)
                self._chars -= len(name)
        elif name not in self._found and self._pattern.matches(name):
            self._found.add(name)
            self._chars += len(name)

    def check(self) -> None:
        if len(self._found) > TOPICS_MAX or self._chars > NAMES_CHARS_MAX:
            raise InvalidRegularExpressionError(
                f"the pattern matches {len(self._found)} topics, whose names have {self._chars} characters, and may match "
                f"{TOPICS_MAX} with {NAMES_CHARS_MAX}: make it narrower, or name the topics"
            )


def _changes(before: Mapping[str, object], now: Mapping[str, object]) -> Iterator[tuple[str, bool]]:
    """Yields the names that have come or gone, each with whether it is there now."""
    if not before:  # nothing has been looked at: a difference of all of them would be one long step
        yield from ((name, True) for name in now)
        return
    for name, value in difference(before, now).items():
        if value is None or name not in before:
            yield name, value is not None
