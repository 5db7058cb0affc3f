"""The records of a local log one after the other, for `for` loops in threads."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain
from operator import length_hint

from replog.errors import BrokerClosedError
from replog.records import Record


class RecordIterator:
    """The records of [offset, end_offset).

    No generator, as one in which an error was raised, such as the KeyboardInterrupt of a Ctrl-C, has ended: who goes on with
    it would find no record any more and take that for the end of the log.  This one goes on with the record after the last
    that it gave, in the next `for` loop over it as well as by `next`.

    Each `for` loop gets an iterator of its own, which gives out records without running any Python code for one of them.  They
    share the page that was read, and its list iterator knows how far it was given out.

    Args:
        read: Reads records from an offset on, below an end; returns them and the offset to go on with.
        offset: The offset where it begins.
        end_offset: The offset where it ends, exclusive.
    """

    __slots__ = ("_end_offset", "_page", "_read")

    def __init__(
        self,
        read: Callable[[int, int], tuple[list[Record], int]],
        offset: int,
        end_offset: int,
    ) -> None:
        self._read = read
        self._end_offset = end_offset
        nothing: list[Record] = []
        self._page: tuple[Iterator[Record], int] = iter(nothing), offset  # what was read, and where to read on

    def __iter__(self) -> Iterator[Record]:
        return chain.from_iterable(iter(self._unfinished_page, None))

    def __next__(self) -> Record:
        while (page := self._unfinished_page()) is not None:
            for record in page:  # taken and returned in one step: an interrupt comes before it or after
                return record
        raise StopIteration

    def _unfinished_page(self) -> Iterator[Record] | None:
        """Returns what is left of the page read last, or else the next page that has records; None at the end."""
        while not length_hint(self._page[0]):
            offset = self._page[1]
            if offset >= self._end_offset:
                return None
            records, next_offset = self._read(offset, self._end_offset)
            self._page = iter(records), next_offset
        return self._page[0]


class TailIterator(RecordIterator):
    """The records from `offset` on, also those that are still to come; interrupted, it goes on as `RecordIterator` does.

    Args:
        read: Reads records, as for `RecordIterator`.
        wait: Waits for the record at an offset; returns the end of what can be read then, exclusive, or None: none will come.
        offset: The offset where it begins.
    """

    __slots__ = ("_has_ended", "_wait")

    def __init__(
        self,
        read: Callable[[int, int], tuple[list[Record], int]],
        wait: Callable[[int], int | None],
        offset: int,
    ) -> None:
        super().__init__(read, offset, offset)
        self._wait = wait
        self._has_ended = False

    def _unfinished_page(self) -> Iterator[Record] | None:
        while not self._has_ended:
            try:
                page = super()._unfinished_page()
            except BrokerClosedError:
                page, self._has_ended = None, True
            if page is not None:
                return page
            if not self._has_ended:
                self._wait_for_more()
        return None

    def _wait_for_more(self) -> None:
        end_offset = self._wait(self._page[1])
        if end_offset is None:
            self._has_ended = True
        else:
            self._end_offset = end_offset
