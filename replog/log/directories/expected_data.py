"""Which log directories of a node should hold data and do not: the disk is not mounted, or `log.dirs` names another place.

Why: a directory that is formatted anew looks like success, and all that the node had is somewhere else.  So nothing is
formatted at a start unless an operator said that it is new (`replog storage format`, `--accept-empty`), as in Kafka.

| found in the paths of `log.dirs`                               | outcome                                            |
|----------------------------------------------------------------|----------------------------------------------------|
| all are formatted                                              | fine                                               |
| none is                                                        | refused: the node is new, or its data is elsewhere |
| some are, and each that was open with them the last time is there | fine: a folder was added, it is formatted       |
| some are, and one that was open with them is not there         | refused: it is not mounted, or its disk is new     |

A path that cannot be read, or is not this node's, is not judged here: the error of opening it says more (`log_manager`).
"""

from __future__ import annotations

from collections.abc import Sequence

from replog.errors import ReplogError
from replog.log.directories.identity import opened_with, read_identity
from replog_checkpoints import DamagedCheckpointError, FileSystem, MetaProperties


def missing_data(fs: FileSystem, paths: Sequence[str], node_id: int) -> list[str]:
    """Returns the directories without data of which one at least should have some; empty: all is as it should be.

    Args:
        fs: The disks.
        paths: Paths of the log directories of one node.
        node_id: Id of that node.
    """
    found: dict[str, MetaProperties | None] = {}
    for path in paths:
        try:
            found[path] = read_identity(fs, path, None, node_id)
        except (OSError, DamagedCheckpointError, ReplogError):
            continue
    empty = [path for path, meta in found.items() if meta is None]
    formatted = [meta for meta in found.values() if meta is not None]
    if not formatted:
        return empty
    known = {directory_id for meta in formatted for directory_id in opened_with(meta) or ()}
    absent_count = len(known - {meta.directory_id for meta in formatted})
    unreadable_count = len(paths) - len(found)
    return empty if absent_count > unreadable_count else []
