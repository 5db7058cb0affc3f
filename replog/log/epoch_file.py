"""The leader-epoch checkpoint of one log."""

from __future__ import annotations

from collections.abc import Sequence

import replog_checkpoints as checkpoints
from replog.log.disk_space import disk_full, is_disk_full
from replog_checkpoints import FileSystem


def epoch_path(directory: str) -> str:
    """Returns the path of the leader-epoch checkpoint in a partition folder."""
    return f"{directory}/{checkpoints.LEADER_EPOCH_FILE}"


def write_epochs(fs: FileSystem, directory: str, entries: Sequence[tuple[int, int]]) -> None:
    """Replaces the leader-epoch checkpoint, durably.

    Raises:
        DiskFullError: There is no room; the old file is still there, and nothing follows that needs the new one.
        OSError: The disk failed.
    """
    try:
        checkpoints.write_leader_epochs(fs, epoch_path(directory), entries)
    except OSError as error:
        if is_disk_full(error):
            raise disk_full("the leader-epoch checkpoint cannot be written", directory, error) from error
        raise
