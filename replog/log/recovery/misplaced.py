"""A partition folder that stands in the place of another one: `partition.metadata` in it says whose it is.

Two folders that were exchanged while they were not open are whole, each with the records of another partition.  Served under the
wrong name, acknowledged records would be gone, and others would appear that were never sent there.
"""

from __future__ import annotations

from pathlib import PurePosixPath

import replog_checkpoints as checkpoints
from replog.errors import CorruptCheckpointError
from replog_checkpoints import FileSystem, PartitionMetadata, parent_of

_NAME_LINE = 3


def misplaced(directory: str, metadata: PartitionMetadata | None) -> CorruptCheckpointError | None:
    """Returns the error for a folder that holds another partition than its name says; None: nothing says so.

    Args:
        directory: The partition folder.
        metadata: The content of its `partition.metadata`; None: there is no such file.
    """
    own = PurePosixPath(directory).name
    if metadata is None or metadata.folder_name in {None, own}:
        return None
    return CorruptCheckpointError(
        f"{directory}/{checkpoints.PARTITION_METADATA_FILE}",
        _NAME_LINE,
        f"this is the folder of {metadata.folder_name}, and stands in the place of {own}. Nothing was changed: stop the node and give "
        f"each folder its name back, a `...-stray` one too, as the line `partition` of this file in it says; or, where you know that "
        f"this one is {own}, remove the file",
    )


def misplaced_replica(fs: FileSystem, directory: str) -> CorruptCheckpointError | None:
    """Returns the same for a folder in a log directory; None too where it is none, or the file cannot be read.

    A copy of a folder elsewhere may have any name.

    Raises:
        OSError: The disk failed.
    """
    if not fs.exists(f"{parent_of(directory)}/{checkpoints.META_PROPERTIES_FILE}"):
        return None
    try:
        metadata = checkpoints.read_partition_metadata(fs, f"{directory}/{checkpoints.PARTITION_METADATA_FILE}")
    except checkpoints.DamagedCheckpointError:
        return None
    return misplaced(directory, metadata)
