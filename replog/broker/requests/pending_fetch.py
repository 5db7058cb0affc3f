"""A fetch that is answered when the disk has brought the last of its partitions.

Why an object: a function that hands itself out to be called later is a cycle, and holds all that it has read.  A cycle stays in
memory until the garbage collector runs, which is seldom in a broker.  Pending reads refer to this object, and it does not refer
to them, so the records are freed with the answer.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import partial

from replog.broker.replicas.replica import ReplicaKey
from replog.broker.requests.fetch_reader import FetchReader, Slot
from replog.rpc.messages import FetchRequest


def read_wholly(
    reader: FetchReader,
    request: FetchRequest,
    fresh: Collection[ReplicaKey],
    done: Callable[[Sequence[Slot]], None],
    hold: Callable[[int], None],
) -> None:
    """Reads every partition within the request's byte limit, also from the disk.

    Args:
        reader: The reader of the partitions.
        request: The request.
        fresh: The partitions whose positions have just arrived: they count as the follower's progress.
        done: The function that is called with a slot for each partition, none of them without data; now, or when the
            disk has answered.
        hold: The function that is told how many bytes there are, or will be when the disk has answered.
    """
    slots = reader.read_warm(request, fresh)
    hold(sum(slot.max_bytes if slot.data is None else len(slot.data) for slot in slots))
    PendingFetch(reader, request, slots, done).start()


class PendingFetch:
    """One fetch.

    Args:
        reader: The reader of the partitions, which checks them again afterwards.
        request: The request.
        slots: The slots, one for each partition of the request; those without data are read.
        done: The function that is called once, with all slots, each with data.
    """

    __slots__ = ("_done", "_missing_count", "_reader", "_request", "_slots")

    def __init__(
        self, reader: FetchReader, request: FetchRequest, slots: list[Slot], done: Callable[[Sequence[Slot]], None]
    ) -> None:
        self._reader = reader
        self._request = request
        self._slots = slots
        self._done = done
        self._missing_count = 0

    def start(self) -> None:
        """Reads the missing data from the disk; answers at once if none is missing."""
        cold = [index for index, slot in enumerate(self._slots) if slot.data is None]
        self._missing_count = len(cold)
        for index in cold:
            self._read(index)
        if not cold:
            self._done(self._slots)

    def _read(self, index: int) -> None:
        partition = self._request.partitions[index]
        self._reader.read_cold(self._request, partition, self._slots[index], partial(self._fill, index))

    def _fill(self, index: int, data: bytes | None) -> None:
        partition = self._request.partitions[index]
        slot = self._slots[index] = self._reader.checked(self._request, partition, self._slots[index], data)
        if slot.data is None:  # the log was cut, and is cold again
            self._read(index)
            return
        self._missing_count -= 1
        if not self._missing_count:
            self._done(self._slots)
