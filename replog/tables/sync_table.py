"""`replog.SyncTable`: `Table` without async."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Self

from replog.client.consumer.consumer import Consumer
from replog.client.sync.loop_thread import SyncClient
from replog.tables.places import Bound
from replog.tables.table import Table, TableChange


class SyncTable(SyncClient[Consumer], Mapping[bytes, bytes]):
    """`Table` without async; arguments and errors are the same.

    ::

        with replog.SyncTable("users", bootstrap_servers="127.0.0.1:9092") as users:
            print(users[b"ann"], len(users))
            users.refresh()

    It changes within calls of `refresh` and steps of `watch` alone; one thread at a time makes them, and looks.
    """

    def __init__(
        self, topic: str, *, bootstrap_servers: str | Sequence[str], at: Bound | None = None, **settings: Any
    ) -> None:
        self._table = Table(topic, bootstrap_servers=bootstrap_servers, at=at, **settings)
        super().__init__(self._table.consumer)

    def __enter__(self) -> Self:
        """Connects, and reads the topic from its beginning to its end of now.  Raises: As `Table.__aenter__`."""
        try:
            self._run(self._table.__aenter__)
        except BaseException:
            self._let_go()
            raise
        return self

    def close(self) -> None:
        """Closes the connections, as `Table.close` does.  Calling it again does nothing."""
        self._end(self._table.close)

    def __getitem__(self, key: bytes) -> bytes:
        return self._table[key]

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._table)

    def __len__(self) -> int:
        return len(self._table)

    def positions(self) -> dict[int, int]:
        """Returns the offset of each partition below which everything was taken in."""
        return self._table.positions()

    def refresh(self) -> None:
        """Takes in what is committed by now, as `Table.refresh` does."""
        self._run(self._table.refresh)

    def next_change(self) -> TableChange:
        """Takes in the next record that is committed, as `Table.next_change` does."""
        return self._run(self._table.next_change)

    def watch(self) -> Iterator[TableChange]:
        """Takes in each record as it is committed, and yields what it has changed; waits for more without end, as `Table.watch` does."""
        while True:
            yield self.next_change()
