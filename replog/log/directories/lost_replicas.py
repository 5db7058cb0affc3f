"""Replicas whose folders are gone although the log directory's checkpoints name them.

Only a broker that deletes a replica or moves it to another directory may take its folder away: it renames the folder, and then
writes the checkpoints without the line.  A line above 0 without its folder means data that was removed from outside:

| found at a start                                     | what it is                                                     |
|------------------------------------------------------|----------------------------------------------------------------|
| a folder for the line, here or in another directory  | a replica, or one that was moved                               |
| a `-delete` or `-stray` folder, after an unclean stop | a retirement that a crash has interrupted                     |
| neither, and the line says 0                         | nothing: no record was ever flushed; of the metadata log a vote may have been |
| neither                                              | lost: quarantined, and the stop before it was no orderly one   |

Were it made anew instead, an empty replica could lead, and those that are whole would be cut to nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from replog.errors import CorruptRecordError
from replog.log.directories.directory_state import METADATA_TOPIC
from replog.log.file_names import partition_dir_name
from replog_checkpoints import TopicPartition


def lost_replicas(
    recovery_points: Mapping[TopicPartition, int], found: Collection[TopicPartition]
) -> list[TopicPartition]:
    """Returns the replicas that are gone.

    Args:
        recovery_points: The recovery points in the directory's checkpoint.
        found: The replicas that have a folder, here or in another directory of the node, or had one that was retired.
    """
    return [
        key for key, point in recovery_points.items() if key not in found and (point > 0 or key[0] == METADATA_TOPIC)
    ]


def folder_is_gone(path: str, key: TopicPartition, recovery_point: int) -> CorruptRecordError:
    """Returns the error for a replica whose folder is gone.

    Args:
        path: The log directory.
        key: Topic and partition.
        recovery_point: The exclusive end of its flushed records.
    """
    folder = f"{path}/{partition_dir_name(*key)}"
    known = f"its folder is gone, and everything below offset {recovery_point} was flushed. Nothing was changed"
    if key[0] == METADATA_TOPIC:
        return CorruptRecordError(
            folder,
            0,
            f"{known}: without it this node has forgotten what it has voted for and what was committed, and must not vote "
            f"again. Restore the folder; or, where the quorum has other voters, `replog log repair {folder} --accept-loss` "
            f"gives the directory a new id: the node follows then, until `replog quorum remove-voter` and `add-voter` with its id",
        )
    return CorruptRecordError(
        folder,
        0,
        f"{known}: restore the folder; where the partition has other replicas, this one is fetched from its leader again; "
        f"or `replog log repair {folder} --accept-loss` gives up all that it held",
    )
