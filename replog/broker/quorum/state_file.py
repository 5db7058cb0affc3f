"""The quorum-state file of one node: its epoch, its leader, its vote."""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from replog.errors import CorruptCheckpointError, CorruptRecordError, StorageError
from replog.log import is_disk_full
from replog_checkpoints import (
    DamagedCheckpointError,
    FileSystem,
    QuorumState,
    parent_of,
    read_quorum_state,
    write_quorum_state,
)
from replog_quorum import ElectionState


class QuorumStateFile:
    """Reads and writes one file, in any thread, one call at a time.

    Args:
        fs: The disk.
        path: The path of the file.
        make_room: The function that gives the reserve of a full disk back, for one more try, and says whether there was
            one.
        is_log_cut: Whether a repair has given up records of the metadata log beside it, and this node may have a vote.
    """

    def __init__(self, fs: FileSystem, path: str, make_room: Callable[[], bool], *, is_log_cut: bool = False) -> None:
        self._fs = fs
        self._path = path
        self._make_room = make_room
        self._is_log_cut = is_log_cut
        self._on_disk: QuorumState | None = None

    def read(self) -> ElectionState | None:
        """Reads the election state; None when this node never took part in an election.

        Raises:
            CorruptCheckpointError: The file is damaged; this node must not vote.
        """
        try:
            state = read_quorum_state(self._fs, self._path)
        except DamagedCheckpointError as error:
            reason = f"{error.reason}. Nothing was changed: restore the file. Without it this voter could vote twice"
            raise CorruptCheckpointError(error.path, error.line, reason) from error
        self._on_disk = state
        if state is None:
            return None
        return ElectionState(state.leader_epoch, state.leader_id, state.voted_id, state.voted_directory_id)

    def read_beside(self, last_epoch: int, *, votes: bool, is_alone: bool) -> ElectionState | None:
        """Reads the election state of a node whose log is there, and may be what is left of it.

        Every epoch is written here before anything of it is appended, so a file that is missing or older than the log has
        been taken away or put back, and with it a vote that was given.

        Args:
            last_epoch: The epoch of the log's last record; 0: there is none.
            votes: Whether this node has a vote that somebody else could be told of, as its log says.
            is_alone: Whether nothing on this node knows of another that votes.  What is left of a log that was cut does not
                say it: the records that named the others may have been behind the cut.

        Raises:
            CorruptCheckpointError: The file is damaged, missing or older than the log; this node must not vote.
            CorruptRecordError: Nor must it where a repair has given records up.
        """
        state = self.read()
        folder = parent_of(self._path)
        if self._is_log_cut and not is_alone:
            raise CorruptRecordError(
                folder,
                0,
                "a repair gave up records of the metadata log, and with the vote of this node a quorum could forget what was "
                f"committed. Nothing was changed: move {folder} away, and `replog log repair {folder} --accept-loss` makes "
                "the node follow under a new directory id",
            )
        epoch = 0 if state is None else state.epoch
        if epoch >= last_epoch or not votes:
            return state
        what = "it is missing" if state is None else f"it says epoch {epoch}"
        raise CorruptCheckpointError(
            self._path,
            0,
            f"{what}, and the metadata log beside it has records of epoch {last_epoch}: what this voter has promised is "
            f"forgotten, and it could vote twice; or the leader epoch of a batch in {folder} is damaged, which no checksum covers. "
            f"Nothing was changed: restore the file; or move {folder} away, and "
            f"`replog log repair {folder} --accept-loss` makes the node follow under a new directory id",
        )

    def write(self, state: ElectionState) -> None:
        """Writes the election state, which is durable when this returns.

        Raises:
            StorageError: The state is not durable; the node must stop.
        """
        self._write(
            QuorumState(
                state.leader_id,
                state.epoch,
                state.voted_id,
                state.voted_directory_id,
                names_others=self.names_others,
            )
        )

    @property
    def names_others(self) -> bool:
        """Whether the file, as read or written last, says that the log has named another voter."""
        return self._on_disk is not None and self._on_disk.names_others

    def note_others(self, *, names_others: bool) -> None:
        """Notes, durably, whether the log names another voter; not where this node never took part in an election.

        Raises:
            StorageError: It is not noted.
        """
        if self._on_disk is not None and self._on_disk.names_others != names_others:
            self._write(replace(self._on_disk, names_others=names_others))

    def _write(self, on_disk: QuorumState) -> None:
        try:
            try:
                write_quorum_state(self._fs, self._path, on_disk)
            except OSError as error:
                if not (is_disk_full(error) and self._make_room()):
                    raise
                write_quorum_state(self._fs, self._path, on_disk)
        except OSError as error:
            raise StorageError(f"{self._path} cannot be written: {error}. Check the disk") from error
        self._on_disk = on_disk
