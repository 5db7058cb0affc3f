"""What the quorum's core wants of the disk: appends, cuts, snapshots; each answered with a message to the core."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias, assert_never

from msgspec.structs import replace

from replog.broker.disk.flusher import LogFlusher
from replog.broker.quorum.committed_log import CommittedLog
from replog.broker.quorum.gathered_appends import GatheredAppends
from replog.broker.quorum.metadata_log import MetadataLog
from replog.errors import CorruptRecordError, InvariantViolationError, StorageError
from replog.log.snapshots.files import SnapshotId
from replog_quorum import VoterSet
from replog_quorum.messages import (
    AppendBatches,
    Appended,
    AppendLeaderChange,
    AppendVoters,
    EpochEnd,
    Flushed,
    InstallSnapshot,
    Message,
    OpenSnapshot,
    QuorumError,
    Response,
    SendFetchedData,
    SendSnapshotChunk,
    SnapshotChunkWritten,
    SnapshotDamaged,
    SnapshotInstalled,
    SnapshotOpened,
    Truncated,
    TruncateTo,
    WriteSnapshotChunk,
)

FETCH_MAX_BYTES = 8 << 20
"""Most of the metadata log one fetch answer carries (docs/KAFKA.md 2)."""

LogChange: TypeAlias = AppendLeaderChange | AppendVoters | AppendBatches | TruncateTo
Download: TypeAlias = OpenSnapshot | WriteSnapshotChunk
Reading: TypeAlias = SendFetchedData | SendSnapshotChunk

_log = logging.getLogger(__name__)


class QuorumStorage:
    """Performs the effects that touch the metadata log and its snapshots.

    Args:
        log: The metadata log and its snapshots.
        committed: The committed part of the log; it loads what is installed.
        appends: The controller's gathered records; they go before a voter set.
        flusher: The flusher of all logs of the node.
        post: The function that takes the answer, for the core.
        on_control_records: The function that is told the active controller's next offset when it has moved.
        note_others: The function that notes durably, beside the log, that it names another voter.
        in_thread: The function that runs blocking work in a thread.
    """

    def __init__(
        self,
        log: MetadataLog,
        committed: CommittedLog,
        appends: GatheredAppends,
        flusher: LogFlusher,
        *,
        post: Callable[[Message], None],
        on_control_records: Callable[[int], None],
        note_others: Callable[[], None],
        in_thread: Callable[[Callable[[], object]], Awaitable[None]],
    ) -> None:
        self._log = log
        self._committed = committed
        self._appends = appends
        self._flusher = flusher
        self._post = post
        self._on_control_records = on_control_records
        self._note_others = note_others
        self._in_thread = in_thread

    async def change(self, effect: LogChange) -> None:
        """Appends to the log, or cuts it.

        Raises:
            InvariantViolationError: Something that is committed and handed over was to be cut.
            StorageError: The disk failed.
        """
        match effect:
            case AppendLeaderChange():
                self._log.append_leader_change(
                    effect.leader_epoch, effect.leader_id, effect.voters, effect.granting_voters
                )
                self.appended()
            case AppendVoters():
                await self._append_voters(effect)
            case AppendBatches():
                self.appended(self._log.append_fetched(effect.batches, effect.leader_epoch))
            case TruncateTo():
                self._truncate(effect.end_offset)
            case _ as unreachable:
                assert_never(unreachable)

    def appended(self, voter_sets: Sequence[tuple[int, VoterSet]] = ()) -> None:
        """Tells the core that the log has grown, and asks for an fsync."""
        self._post(Appended(self._log.log_end_offset, tuple(voter_sets)))
        self._flusher.request(self._log.log, lambda offset: self._post(Flushed(offset)), is_first=True)

    def read(self, effect: Reading) -> Response:
        """Reads the bytes that were asked for, and returns the answer with them."""
        match effect:
            case SendFetchedData():
                end_offset = self._log.log_end_offset
                batches = self._log.read(effect.fetch_offset, max_bytes=FETCH_MAX_BYTES, end_offset=end_offset)
                return replace(effect.response, batches=batches)
            case SendSnapshotChunk():
                return self._read_chunk(effect)
            case _ as unreachable:
                assert_never(unreachable)

    def download(self, effect: Download, source: tuple[int, int]) -> None:
        """Takes a step of fetching a snapshot; `source` is the leader and epoch it comes from."""
        snapshot_id, snapshots = _from_epoch_end(effect.snapshot_id), self._log.snapshots
        match effect:
            case OpenSnapshot():
                if effect.restart:
                    snapshots.abandon_download()
                self._post(SnapshotOpened(effect.snapshot_id, snapshots.begin_download(snapshot_id, source)))
            case WriteSnapshotChunk():
                position = snapshots.write_chunk(snapshot_id, effect.position, effect.data)
                self._post(SnapshotChunkWritten(effect.snapshot_id, position))
            case _ as unreachable:
                assert_never(unreachable)

    async def install(self, effect: InstallSnapshot) -> None:
        """Puts a fetched snapshot in the place of the log.

        Raises:
            StorageError: The disk failed.
        """
        snapshot_id = _from_epoch_end(effect.snapshot_id)
        try:
            await self._in_thread(lambda: self._log.snapshots.check_download(snapshot_id))
        except CorruptRecordError as error:
            _log.warning("snapshot %s came damaged and is fetched again: %s", snapshot_id.stem, error)
            self._log.snapshots.abandon_download()
            self._post(SnapshotDamaged(effect.snapshot_id))
            return
        except OSError as error:
            raise StorageError(f"snapshot {snapshot_id.stem} cannot be read: {error}. Check the disk") from error
        self._log.install(snapshot_id)
        _log.info("snapshot %s installed, the metadata log starts there", snapshot_id.stem)
        self._committed.load(snapshot_id)
        self._post(SnapshotInstalled(effect.snapshot_id, self._log.voters_at(snapshot_id.end_offset)))

    async def _append_voters(self, effect: AppendVoters) -> None:
        if len(effect.voters) > 1:  # what a repair leaves of the log may not say it
            await self._in_thread(self._note_others)
        self._appends.append_all()
        found = self._log.append_voters(effect.leader_epoch, effect.voters, writes_version=effect.writes_version)
        self.appended(found)
        if self._appends.is_open:
            self._appends.skip_to(self._log.log_end_offset)
            self._on_control_records(self._log.log_end_offset)

    def _truncate(self, end_offset: int) -> None:
        if end_offset < self._committed.applied:
            raise InvariantViolationError(
                f"the metadata log was asked to cut at {end_offset}, but {self._committed.applied} is committed and applied"
            )
        self._log.truncate_to(end_offset)
        self._post(Truncated(self._log.log_end_offset))

    def _read_chunk(self, effect: SendSnapshotChunk) -> Response:
        response = effect.response
        chunk = self._log.snapshots.read_chunk(
            _from_epoch_end(response.snapshot_id), response.position, effect.max_bytes
        )
        if chunk is None:
            return replace(response, error=QuorumError.SNAPSHOT_NOT_FOUND)
        size_bytes, data = chunk
        if response.position > size_bytes:
            return replace(response, error=QuorumError.POSITION_OUT_OF_RANGE)
        return replace(response, size=size_bytes, data=data)


def _from_epoch_end(snapshot_id: EpochEnd) -> SnapshotId:
    return SnapshotId(snapshot_id.end_offset, snapshot_id.epoch)
