"""One snapshot on its way to a follower: open, chunk after chunk, install (KIP-630; docs/KAFKA.md 5.4).

| interrupted                     | what happens next                                                                     |
|---------------------------------|---------------------------------------------------------------------------------------|
| before or between chunks        | the next download of the same id goes on behind the bytes that are there              |
| by another leader               | the same, if it has a snapshot of that id; else another id, and the partial file stays |
| after the last chunk            | the next download asks behind the end, gets the size without data, and installs       |
| in the middle of installing     | the host's table: either the old log, or the snapshot and an empty log behind it      |
"""

from __future__ import annotations

from enum import Enum, auto

from replog_quorum.context import Context
from replog_quorum.messages import (
    EpochEnd,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    InstallSnapshot,
    OpenSnapshot,
    QuorumError,
    SnapshotChunkWritten,
    SnapshotOpened,
    WriteSnapshotChunk,
)


class _Stage(Enum):
    OPENING = auto()
    FETCHING = auto()
    WRITING = auto()
    INSTALLING = auto()


class SnapshotDownload:
    """Decides what one download does next.

    Invariants:
        - chunks are written in order, each behind the one before;
        - nothing is installed before `size` bytes are there.
    """

    def __init__(self, context: Context, snapshot_id: EpochEnd, *, restart: bool = False) -> None:
        self.snapshot_id = snapshot_id
        self._context = context
        self._position = 0
        self._size: int | None = None
        self._stage = _Stage.OPENING
        context.emit(OpenSnapshot(snapshot_id, restart))

    @property
    def wants_chunk(self) -> bool:
        """Whether the next request is due."""
        return self._stage is _Stage.FETCHING

    def opened(self, message: SnapshotOpened) -> None:
        """Begins to fetch: the file is open, with what an interrupted download has left."""
        if self._stage is _Stage.OPENING and message.snapshot_id == self.snapshot_id:
            self._position = message.position
            self._stage = _Stage.FETCHING

    def written(self, message: SnapshotChunkWritten) -> None:
        """Goes on after a chunk that is in the file now."""
        if self._stage is _Stage.WRITING and message.snapshot_id == self.snapshot_id:
            self._position = message.position
            self._stage = _Stage.FETCHING
            self._maybe_install()

    def request(self, correlation_id: int, leader_time_ms: int) -> FetchSnapshotRequest:
        """Returns the request for what follows."""
        return FetchSnapshotRequest(
            correlation_id=correlation_id,
            replica_id=self._context.node_id,
            replica_directory_id=self._context.directory_id,
            leader_epoch=self._context.epoch,
            snapshot_id=self.snapshot_id,
            position=self._position,
            max_bytes=self._context.config.snapshot_chunk_max_bytes,
            leader_time_ms=leader_time_ms,
        )

    def take(self, response: FetchSnapshotResponse) -> bool:
        """Uses a good answer; returns False when it brings nothing usable."""
        is_next = response.snapshot_id == self.snapshot_id and response.position == self._position
        if not is_next or not self.wants_chunk or response.error is not QuorumError.NONE:
            return False
        self._size = response.size
        if len(response.data) > 0:
            self._stage = _Stage.WRITING
            self._context.emit(WriteSnapshotChunk(self.snapshot_id, self._position, response.data))
            return True
        self._maybe_install()
        return self._stage is _Stage.INSTALLING

    def _maybe_install(self) -> None:
        if self._size is not None and self._position == self._size:
            self._stage = _Stage.INSTALLING
            self._context.is_installing = True
            self._context.emit(InstallSnapshot(self.snapshot_id))
