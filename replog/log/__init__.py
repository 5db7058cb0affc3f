"""The segmented log over a file system: every replica, of data or of metadata, is stored in one.

`Log` is one replica.  `LogState` is its state; each part is given that, and the other parts that it needs:

| part                                 | what it does                                                  |
|--------------------------------------|---------------------------------------------------------------|
| `LeaderAppender`, `FollowerAppender` | append: give offsets, or take those of the leader             |
| `ActiveSegment`                      | writes to the last segment, and begins the next one           |
| `Truncator`                          | cuts records that the leader does not have                    |
| `Flusher`, `DirtyWindow`             | fsync; write dirty pages back before there are many           |
| `LogReader`                          | reads by offset and by time                                   |
| `Compactor`, `Upkeep`                | put compacted segments in place; delete old ones              |

`LogDirectory` holds many replicas under one lock, and is made in the same way: `DirectoryState` is its state,
`DirectoryCheckpoints`, `ReplicaOpener` and `DirectoryReplicas` are given it.  Files are Kafka's, byte for
byte (KAFKA.md 1 and 3); where the behaviour differs on purpose, the module says so.  `LogManager` is several directories, with
threads: `ReplicaHomes` knows which directory holds which replica.  It is loaded when it is first used: one log in a folder does without.
"""

from typing import TYPE_CHECKING

from replog.host.late_names import late_names
from replog.log.append_group import AppendInfo, AppendOutcome
from replog.log.compaction import CompactionJob, CompactionSettings, CompactionStats, Dirtiness, Throttle
from replog.log.config import Cleanup, LogConfig
from replog.log.deletion import DirectoryDeletionJob
from replog.log.directories.directory_state import METADATA_TOPIC
from replog.log.directories.log_directory import LogDirectory
from replog.log.directories.log_manager import CreateJob, run_together
from replog.log.directories.offset_checkpoints import CheckpointJob
from replog.log.directories.retirement import RetiredReplica, RetirementJob
from replog.log.dirty_window import WriteBackJob
from replog.log.disk_space import DiskLimits, DiskSpace, DiskState, is_disk_full
from replog.log.epoch_cache import CachedEpochEnd, LeaderEpochCache
from replog.log.flush import FlushJob
from replog.log.follower_append import MisfitRecordsError
from replog.log.log import Log
from replog.log.producers.guards import TransactionGuard
from replog.log.producers.state import ProducerStateManager
from replog.log.reading.captured_read import ReadJob
from replog.log.reading.locating import FileSpan
from replog.log.reading.tail_cache import TailCache
from replog.log.reading.time_search import SearchJob
from replog.log.recovery.loaded_log import RecoveryReport
from replog.log.recovery.progress import RecoveryProgress

if TYPE_CHECKING:
    from replog.log.directories.log_manager import LogManager

__all__ = [
    "METADATA_TOPIC",
    "AppendInfo",
    "AppendOutcome",
    "CachedEpochEnd",
    "CheckpointJob",
    "Cleanup",
    "CompactionJob",
    "CompactionSettings",
    "CompactionStats",
    "CreateJob",
    "DirectoryDeletionJob",
    "Dirtiness",
    "DiskLimits",
    "DiskSpace",
    "DiskState",
    "FileSpan",
    "FlushJob",
    "LeaderEpochCache",
    "Log",
    "LogConfig",
    "LogDirectory",
    "LogManager",
    "MisfitRecordsError",
    "ProducerStateManager",
    "ReadJob",
    "RecoveryProgress",
    "RecoveryReport",
    "RetiredReplica",
    "RetirementJob",
    "SearchJob",
    "TailCache",
    "Throttle",
    "TransactionGuard",
    "WriteBackJob",
    "is_disk_full",
    "run_together",
]

__getattr__, __dir__ = late_names(__name__, {"LogManager": "replog.log.directories.log_manager"}, __all__)
