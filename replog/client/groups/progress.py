"""How far the application has come in what it reads: a record is done with when the next one is asked for.  Pure.

Why not when it is handed out: whoever fails, or is killed, while it works on a record has to get it again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from replog.client.types import TopicPartition


class Progress:
    """Invariants:
    - what is done with was handed out, and asked past after that;
    - of a partition that is sought in, only what is handed out afterwards counts;
    - what the application has said itself is not taken back by what it does later, unless it seeks.

    Attributes:
        held_back: The function that returns, of what was handed out last, the first offset that is not asked past in each
            partition; None: all of it is in hand until the next is asked for.
    """

    def __init__(self) -> None:
        self._floors: dict[TopicPartition, int] = {}  # where reading began, or what the application has committed since
        self._touched: set[TopicPartition] = (
            set()
        )  # of which something was handed out since then, or the policy decided
        self._in_hand: dict[TopicPartition, int] = {}  # the first offset of what was handed out last
        self.held_back: Callable[[], Mapping[TopicPartition, int]] | None = None

    def begin(self, partition: TopicPartition, offset: int) -> None:
        """Begins anew at `offset`: the partition is read from there on."""
        self._floors[partition] = offset
        self._touched.discard(partition)
        self._in_hand.pop(partition, None)

    def begin_at_reset(self, partition: TopicPartition, offset: int) -> None:
        """Begins anew at `offset`, which the reset policy has chosen: it counts as done with up to there.

        Whoever reads the partition next would else ask the policy anew, and "latest" is a later place then.
        """
        self.begin(partition, offset)
        self._floors[partition] = offset - 1
        self._touched.add(partition)

    def end(self, partition: TopicPartition) -> None:
        """Forgets a partition."""
        self._floors.pop(partition, None)
        self._touched.discard(partition)
        self._in_hand.pop(partition, None)

    def settle(self, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Counts what is below these offsets as done with, because the application says so; returns what it goes back to."""
        before = {each: self._floors[each] for each in offsets if each in self._floors}
        self._floors.update({each: offsets[each] for each in before})
        return before

    def take_back(self, offsets: Mapping[TopicPartition, int], before: Mapping[TopicPartition, int]) -> None:
        """Counts it as before `settle`, of those partitions of which the application has not said something else since.

        Args:
            offsets: What was settled.
            before: What `settle` has returned.
        """
        self._floors.update({each: old for each, old in before.items() if self._floors.get(each) == offsets[each]})

    def ask(self) -> None:
        """Counts all that was handed out as done with: the application asks for more."""
        self._in_hand.clear()

    def hand_out(self, partition: TopicPartition, first_offset: int) -> None:
        """Counts records of a partition from `first_offset` on as in the application's hands."""
        if partition in self._floors:
            self._touched.add(partition)
            self._in_hand.setdefault(partition, first_offset)

    def done(self, position: Callable[[TopicPartition], int]) -> dict[TopicPartition, int]:
        """Returns the offset of the first record that is not done with, of partitions in which something is.

        Args:
            position: The function that returns the offset after the last record that was handed out.
        """
        in_hand: Mapping[TopicPartition, int] = self._in_hand
        if in_hand and self.held_back is not None:
            in_hand = self.held_back()
        positions = {each: position(each) for each in self._touched}  # below what is in hand where that was taken back
        found = {each: min(in_hand.get(each, offset), offset) for each, offset in positions.items()}
        return {each: offset for each, offset in found.items() if offset > self._floors[each]}
