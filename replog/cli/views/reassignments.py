"""What `replog topics reassign --verify` says about the partitions of a plan."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import asdict

from replog.cli import common

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from replog.client import CopyProgress, Reassignments
    from replog.client.admin.reassignments import CopyTotal
    from replog.rpc.metadata_messages import ClusterMetadata, PartitionInfo

_UNITS = ("B", "kB", "MB", "GB", "TB", "PB")


class Verified(Struct, frozen=True):
    """One partition of the plan.

    Attributes:
        is_done: Whether it has the replicas of the plan, and no others.
        is_under_way: Whether it moves, wherever to.
        state: The state in words.
        copies: The progress of its new replicas.
    """

    topic: str
    partition_id: int
    is_done: bool
    is_under_way: bool
    state: str
    copies: tuple[CopyProgress, ...] = ()

    def __str__(self) -> str:
        words = [self.state, *(copy_words(copy) for copy in self.copies)]
        return f"{self.topic}-{self.partition_id}: {'; '.join(words)}"


def verified(
    metadata: ClusterMetadata, moves: Reassignments, wanted: Mapping[tuple[str, int], tuple[int, ...]]
) -> list[Verified]:
    """Compares the partitions of a plan, in its order, with what the cluster has.  Pure.

    Args:
        metadata: The metadata of the cluster.
        moves: The reassignments that are under way.
        wanted: The replicas of the plan by topic and partition.
    """
    found = {(topic.name, p.partition_id): p for topic in metadata.topics for p in topic.partitions}
    copies = {(one.topic, one.partition_id): one.copies for one in moves.partitions}
    return [_verified(*key, found.get(key), replicas, copies.get(key, ())) for key, replicas in wanted.items()]


def _verified(
    topic: str, number: int, partition: PartitionInfo | None, wanted: tuple[int, ...], copies: tuple[CopyProgress, ...]
) -> Verified:
    if partition is None:
        return Verified(topic, number, is_done=False, is_under_way=False, state="there is no such partition")
    if partition.adding_replicas or partition.removing_replicas:
        missing = [replica for replica in target(partition) if replica not in partition.isr]
        state = f"under way; not in sync yet: {', '.join(map(str, missing)) or 'nobody, about to end'}"
        return Verified(topic, number, is_done=False, is_under_way=True, state=state, copies=copies)
    if partition.replicas == wanted:
        return Verified(topic, number, is_done=True, is_under_way=False, state="done")
    state = f"not under way; its replicas are {', '.join(map(str, partition.replicas))}"
    return Verified(topic, number, is_done=False, is_under_way=False, state=state)


def target(partition: PartitionInfo) -> tuple[int, ...]:
    """Returns the replicas of a partition once what is under way has ended."""
    return tuple(replica for replica in partition.replicas if replica not in partition.removing_replicas)


def copy_words(copy: CopyProgress) -> str:
    """Describes one new replica: `broker 3 has 1.2 of 4.0 MB (30 %), 2.1 MB/s, 2 s left`."""
    name = f"broker {copy.broker_id}"
    if copy.is_in_sync:
        return f"{name} is in sync"
    if copy.needed_bytes is None or copy.copied_bytes is None:
        return f"{name}: how much it has is not known ({copy.trouble or 'an older broker does not say'})"
    words = [f"{name} has {share_words(copy.copied_bytes, copy.needed_bytes)}"]
    if copy.is_stalled:
        words.append(f"stalls: {_why(copy)}")
        return ", ".join(words)
    words.extend(_pace(copy.bytes_per_s, copy.eta_s))
    if copy.throttle_bytes_per_s is not None:
        words.append(f"throttled to {size_text(copy.throttle_bytes_per_s)}/s")
    if copy.trouble:
        words.append(copy.trouble)
    return ", ".join(words)


def _why(copy: CopyProgress) -> str:
    if copy.trouble:
        return copy.trouble
    if copy.throttle_bytes_per_s is not None:
        return f"throttled to {size_text(copy.throttle_bytes_per_s)}/s, shared by all that moves"
    return f"nobody says why; see the log of broker {copy.broker_id}"


def total_words(total: CopyTotal) -> str:
    """Describes all that is under way together."""
    words = [f"in all {share_words(total.copied_bytes, total.needed_bytes)}", *_pace(total.bytes_per_s, total.eta_s)]
    if total.stalled_count:
        words.append(f"{common.counted(total.stalled_count, 'replica')} stalled")
    return ", ".join(words)


def _pace(bytes_per_s: float | None, eta_s: float | None) -> list[str]:
    if bytes_per_s is None:
        return []
    return [
        f"{size_text(bytes_per_s)}/s",
        "no end in sight at this rate" if eta_s is None else f"{time_text(eta_s)} left",
    ]


def share_words(part: int, whole: int) -> str:
    """Says `1.2 MB of 4.0 MB (30 %)`; never 100 % while something is missing."""
    percent = 100 if part >= whole else part * 100 // whole
    return f"{size_text(part)} of {size_text(whole)} ({percent} %)"


def size_text(size_bytes: float) -> str:
    """Says a size with three digits or so, in powers of 1,000."""
    for unit in _UNITS[:-1]:
        if size_bytes < 999.5 or (unit == "B" and size_bytes < 1000):
            return f"{size_bytes:.0f} {unit}" if unit == "B" or size_bytes >= 99.95 else f"{size_bytes:.1f} {unit}"
        size_bytes /= 1000
    return f"{size_bytes:,.1f} {_UNITS[-1]}"


def time_text(seconds: float) -> str:
    """Says a time: `9 s`, `3 min 20 s`, `2 h 5 min`, `3 d 4 h`; rounded up to a second."""
    left = -int(-seconds // 1)
    parts: list[tuple[int, str]] = []
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1)):
        number, left = divmod(left, size)
        if number or parts or unit == "s":
            parts.append((number, unit))
    return " ".join(f"{number} {unit}" for number, unit in parts[:2] if number or len(parts) == 1)


def as_json(partitions: Iterable[Verified], moves: Reassignments) -> str:
    """Returns one look as one line of JSON."""
    found = [asdict(one) for one in partitions]
    return common.json_object({
        "is_done": all(one["is_done"] for one in found), "partitions": found, "total": moves.total
    })  # fmt: skip


def lines(partitions: Sequence[Verified], moves: Reassignments) -> list[str]:
    """Returns one look as lines of text; the last line is about all that moves, also what is not in the plan."""
    return [*map(str, partitions), *([total_words(moves.total)] if moves.copies else [])]
