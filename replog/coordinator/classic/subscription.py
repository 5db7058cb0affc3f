"""Reads and writes what consumers tell each other: bytes that only members have to understand otherwise.

    int16   version
    int32   number of topics, then for each of them a text: int16 length, UTF-8
            of what it has got: with its partitions behind it, int32 their number, then that many int32
    int32   bytes of what an assignor adds for itself, then these; -1 for none
            what a member wants goes on, from version 1 on, with what it reads now, as what it has got;
            from 2 on with the generation of that, int32; from 3 on with its rack, a text that may be left out

Every version begins so.  A member that sends something else is taken for a member of which nothing is known.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from struct import Struct, pack
from typing import Final, NamedTuple, TypeAlias

from replog.errors import ReplogError
from replog.wire.primitives import Reader, Writer

CONSUMER_PROTOCOL_TYPE: Final = "consumer"
NEWEST_VERSION: Final = 3
NO_GENERATION: Final = -1
_TOPICS_AT: Final = 6
"""Where the first topic begins, behind version and number."""
_version = Struct(">h")
_generation = Struct(">i")
_count = Struct(">i")

NamedPartitions: TypeAlias = tuple[tuple[str, int], ...]
"""Partitions by topic name."""


class Subscription(NamedTuple):
    """What a consumer tells of itself.

    Attributes:
        version: The version that it speaks.
        topics: The topics that it reads.
        owned: The partitions that it reads now.
        rack_id: Where it is; None where it does not say.
    """

    version: int
    topics: tuple[str, ...]
    owned: NamedPartitions = ()
    rack_id: str | None = None


class GivenPartitions(NamedTuple):
    """What a consumer has got.

    Attributes:
        user_data: The bytes that the assignor has added for the next time.
    """

    partitions: NamedPartitions
    user_data: bytes = b""


def read_subscription(metadata: bytes) -> Subscription | None:
    """Returns what a consumer tells; None where it is no consumer."""
    reader = Reader(memoryview(metadata))
    try:
        version = min(reader.fixed(_version)[0], NEWEST_VERSION)
        if version < 0:
            return None
        topics = tuple(reader.text(flexible=False) for _ in range(reader.count(flexible=False, least_bytes=2)))
        reader.nullable_raw(flexible=False)
        owned = _read_partitions(reader) if version >= 1 else ()
        if version >= 2:
            reader.fixed(_generation)
        return Subscription(
            version, topics, owned, (reader.nullable_text(flexible=False) if version >= 3 else None) or None
        )
    except (ReplogError, UnicodeDecodeError):
        return None


def subscription_version(metadata: bytes) -> int | None:
    """Returns the version in which a consumer tells, without a look at its topics; None where it is no consumer."""
    if len(metadata) < _version.size:
        return None
    version: int = _version.unpack_from(metadata)[0]
    return None if version < 0 else min(version, NEWEST_VERSION)


def topics_count(metadata: bytes) -> int:
    """Returns how many topics a consumer says that it names; 0 where that cannot be told."""
    return max(_count.unpack_from(metadata, _version.size)[0], 0) if len(metadata) >= _TOPICS_AT else 0


def read_assignment(assignment: bytes) -> GivenPartitions | None:
    """Returns what a consumer has got; None where that cannot be told.  No bytes are no partitions."""
    if not assignment:
        return GivenPartitions(())
    reader = Reader(memoryview(assignment))
    try:
        if reader.fixed(_version)[0] < 0:
            return None
        return GivenPartitions(_read_partitions(reader), reader.nullable_raw(flexible=False) or b"")
    except (ReplogError, UnicodeDecodeError):
        return None


def write_subscription(topics: Sequence[str], rack_id: str | None) -> bytes:
    """Returns the bytes of what a consumer tells that reads nothing now."""
    writer = Writer()
    writer.fixed(_version, NEWEST_VERSION)
    writer.count(topics, flexible=False)
    for topic in topics:
        writer.text(topic, flexible=False)
    writer.nullable_raw(None, flexible=False)
    writer.count((), flexible=False)
    writer.fixed(_generation, NO_GENERATION)
    writer.nullable_text(rack_id, flexible=False)
    return writer.joined()


def write_assignment(version: int, partitions: Mapping[str, Sequence[int]]) -> bytes:
    """Returns the bytes of what a consumer gets, in the version that it speaks."""
    told = [_version.pack(version), _count.pack(len(partitions))]
    for topic, numbers in partitions.items():
        name = topic.encode()
        told.append(pack(f">h{len(name)}si{len(numbers)}i", len(name), name, len(numbers), *numbers))
    return b"".join((*told, _count.pack(-1)))


def _read_partitions(reader: Reader) -> NamedPartitions:
    found: list[tuple[str, int]] = []
    for _ in range(reader.count(flexible=False, least_bytes=6)):
        topic = reader.text(flexible=False)
        count = reader.count(flexible=False, least_bytes=4)
        found += [(topic, partition) for partition in reader.numbers(count, "i")]
    return tuple(found)


def subscribed_topics(metadata: bytes) -> frozenset[bytes] | None:
    """Returns the topics that a consumer reads, each in UTF-8; None where that cannot be told.

    There may be a hundred thousand, so the bytes are taken as they are.
    """
    end = _end_of_topics(metadata)
    if end is None:
        return None
    found: set[bytes] = set()
    at = _TOPICS_AT
    while at < end:
        first = at + 2
        at = first + (metadata[at] << 8 | metadata[at + 1])
        found.add(metadata[first:at])
    return frozenset(found)


def _end_of_topics(metadata: bytes) -> int | None:
    """Returns where the topics end that a consumer reads; None where that cannot be told."""
    if len(metadata) < _TOPICS_AT:
        return None
    (count,) = _count.unpack_from(metadata, _version.size)
    size, at = len(metadata), _TOPICS_AT
    if not 0 <= count <= (size - at) // 2:
        return None
    for _ in range(count):
        if at + 2 > size or metadata[at] & 0x80:
            return None
        at += 2 + (metadata[at] << 8 | metadata[at + 1])
    return at if at <= size else None


def assigned_partitions(assignment: bytes) -> tuple[tuple[str, int], ...]:
    """Returns the partitions that a consumer has got, by topic name; none where that cannot be told."""
    reader = Reader(memoryview(assignment))
    try:
        reader.fixed(_version)
        return _read_partitions(reader)
    except (ReplogError, UnicodeDecodeError):
        return ()


def topics_of_all(metadata: Iterable[bytes]) -> frozenset[bytes] | None:
    """Returns the topics that any of several consumers reads, each in UTF-8; None where that cannot be told of one.

    What others have told in the same bytes is not read again: most tell the same, and something of their own behind it.
    """
    found: set[bytes] = set()
    told = b""
    for each in metadata:
        if told and each.startswith(told, _version.size):
            continue
        topics, end = subscribed_topics(each), _end_of_topics(each)
        if topics is None:
            return None
        told = each[_version.size : end]
        found |= topics
    return frozenset(found)
