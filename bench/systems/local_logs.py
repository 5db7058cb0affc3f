"""Durable logs in this process: `replog.open_log`, a plain file, and SQLite, which everybody knows.

Same durability on all sides.  "always": a record counts after an fsync.  "os": it counts once the operating system has it
(SQLite: WAL with synchronous=NORMAL).  The peers take records one by one also from many tasks, without any hop between
threads: that is the best they can do, because none of them lets callers share an fsync.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import sqlite3
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import replog
from bench.model import System
from replog.local.config import FlushPolicy
from replog_checkpoints import OpenMode, OsFileSystem
from replog_checkpoints.os_filesystem import OsFile

LENGTH_BYTES: Final = 4


class Store(ABC):
    """One open log."""

    @abstractmethod
    def append_all(self, values: Sequence[bytes]) -> None:
        """Appends values one after the other, each counting before the next."""

    def append_from_tasks(self, values: Sequence[bytes], tasks_count: int) -> None:  # noqa: ARG002 - no peer can use them
        """The same from many asyncio tasks, each with a share of the values."""
        self.append_all(values)

    @abstractmethod
    def read_all(self) -> int:
        """Reads every record from the first on; returns the bytes of all values."""

    @abstractmethod
    def close(self) -> None: ...


class LocalLogSystem(System):
    """Makes stores in new folders, which `drop` removes."""

    def __init__(self) -> None:
        self._directory: Path | None = None
        self._made = 0

    def start(self, directory: Path) -> None:
        self._directory = directory

    @abstractmethod
    def open(self, directory: Path, *, flush: str, sync_delay_s: float) -> Store | None:
        """An empty store; None: it cannot be slowed down like that."""

    def new_store(self, *, flush: str, sync_delay_s: float) -> tuple[Store | None, Path]:
        """A store in a folder of its own."""
        if self._directory is None:
            raise RuntimeError(f"{self.name} was not started")
        self._made += 1
        directory = self._directory / f"store-{self._made}"
        directory.mkdir()
        return self.open(directory, flush=flush, sync_delay_s=sync_delay_s), directory

    def drop(self, store: Store | None, directory: Path) -> None:
        """Closes and removes it."""
        if store is not None:
            store.close()
        shutil.rmtree(directory)


class SlowSyncFileSystem(OsFileSystem):
    """The disk of this machine with a slower fsync of files.

    Args:
        delay_s: added to each.
    """

    def __init__(self, delay_s: float) -> None:
        self._delay_s = delay_s

    def open(self, path: str, mode: OpenMode) -> OsFile:
        return _SlowSyncFile(path, super().open(path, mode).fileno(), self._delay_s)


class _SlowSyncFile(OsFile):
    def __init__(self, path: str, fd: int, delay_s: float) -> None:
        super().__init__(path, fd)
        self._delay_s = delay_s

    def sync(self) -> None:
        time.sleep(self._delay_s)
        super().sync()


class ReplogStore(Store):
    def __init__(self, directory: Path, flush: str, sync_delay_s: float) -> None:
        disk = SlowSyncFileSystem(sync_delay_s) if sync_delay_s else None
        policy: FlushPolicy = "always" if flush == "always" else "os"
        self._log = replog.open_log(directory, flush=policy, flush_interval_ms=0, file_system=disk)

    def append_all(self, values: Sequence[bytes]) -> None:
        append = self._log.append
        for value in values:
            append(value)

    def append_from_tasks(self, values: Sequence[bytes], tasks_count: int) -> None:
        asyncio.run(self._append_from_tasks(values, tasks_count))

    async def _append_from_tasks(self, values: Sequence[bytes], tasks_count: int) -> None:
        async def work(share: Sequence[bytes]) -> None:
            for value in share:
                await log.append(value)

        async with self._log.aio() as log:
            await asyncio.gather(*(work(values[number::tasks_count]) for number in range(tasks_count)))

    def read_all(self) -> int:
        return sum(len(record.value or b"") for record in self._log)

    def close(self) -> None:
        self._log.close()


class PlainFileStore(Store):
    """One `write` and one `fdatasync` for a record: length, then bytes.  No checksum, no index, no recovery."""

    def __init__(self, directory: Path, flush: str, sync_delay_s: float) -> None:
        self._fd = os.open(directory / "data", os.O_RDWR | os.O_CREAT | os.O_APPEND)
        self._syncs = flush == "always"
        self._sync_delay_s = sync_delay_s

    def append_all(self, values: Sequence[bytes]) -> None:
        for value in values:
            os.write(self._fd, len(value).to_bytes(LENGTH_BYTES, "big") + value)
            if self._syncs:
                if self._sync_delay_s:
                    time.sleep(self._sync_delay_s)
                os.fdatasync(self._fd)

    def read_all(self) -> int:
        data = os.pread(self._fd, os.fstat(self._fd).st_size, 0)
        position, total = 0, 0
        while position < len(data):
            length = int.from_bytes(data[position : position + LENGTH_BYTES], "big")
            position += LENGTH_BYTES
            total += len(data[position : position + length])
            position += length
        return total

    def close(self) -> None:
        os.close(self._fd)


class SqliteStore(Store):
    """One row and one commit for a record, in WAL mode."""

    def __init__(self, directory: Path, flush: str) -> None:
        self._connection = sqlite3.connect(directory / "data.db", isolation_level=None)
        self._connection.execute("PRAGMA journal_mode=WAL")
        self._connection.execute(f"PRAGMA synchronous={'FULL' if flush == 'always' else 'NORMAL'}")
        self._connection.execute("CREATE TABLE log (seq INTEGER PRIMARY KEY AUTOINCREMENT, value BLOB)")

    def append_all(self, values: Sequence[bytes]) -> None:
        execute = self._connection.execute
        for value in values:
            execute("INSERT INTO log (value) VALUES (?)", (value,))

    def read_all(self) -> int:
        return sum(len(value) for (value,) in self._connection.execute("SELECT value FROM log ORDER BY seq"))

    def close(self) -> None:
        self._connection.close()


class ReplogLocalLogs(LocalLogSystem):
    name = "replog"

    def open(self, directory: Path, *, flush: str, sync_delay_s: float) -> Store:
        return ReplogStore(directory, flush, sync_delay_s)


class PlainFiles(LocalLogSystem):
    name = "plain-file"

    def open(self, directory: Path, *, flush: str, sync_delay_s: float) -> Store:
        return PlainFileStore(directory, flush, sync_delay_s)


class Sqlite(LocalLogSystem):
    name = "sqlite-wal"

    def open(self, directory: Path, *, flush: str, sync_delay_s: float) -> Store | None:
        return None if sync_delay_s else SqliteStore(directory, flush)


def local_logs() -> list[LocalLogSystem]:
    """All, ours first."""
    return [ReplogLocalLogs(), PlainFiles(), Sqlite()]
