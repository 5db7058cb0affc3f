"""Small files that must survive a crash, and the seam to the disk they are written through.

Every reader returns None for a file that is absent and raises `DamagedCheckpointError` for one that is damaged; every
writer replaces the whole file durably before it returns.  See the module of each kind of file for its bytes.
"""

from replog_checkpoints.atomic_file import make_durable_dirs, parent_of, read_file, replace_file, replace_files
from replog_checkpoints.clean_shutdown import (
    CLEAN_SHUTDOWN_FILE,
    CleanShutdown,
    read_clean_shutdown,
    remove_clean_shutdown,
    write_clean_shutdown,
)
from replog_checkpoints.errors import CheckpointError, DamagedCheckpointError
from replog_checkpoints.filesystem import Buffer, DiskUsage, File, FileSystem, Lock, OpenMode, lost_in_fsync
from replog_checkpoints.leader_epochs import (
    LEADER_EPOCH_FILE,
    EpochStart,
    format_leader_epochs,
    read_leader_epochs,
    write_leader_epochs,
)
from replog_checkpoints.meta_properties import (
    META_PROPERTIES_FILE,
    MetaProperties,
    read_meta_properties,
    seal_meta_properties,
    write_meta_properties,
)
from replog_checkpoints.offset_checkpoint import (
    CLEANER_OFFSET_FILE,
    LOG_START_OFFSET_FILE,
    RECOVERY_POINT_FILE,
    REPLICATION_OFFSET_FILE,
    TopicPartition,
    read_offset_checkpoint,
    write_offset_checkpoint,
)
from replog_checkpoints.os_filesystem import OsFileSystem
from replog_checkpoints.partition_metadata import (
    PARTITION_METADATA_FILE,
    PartitionMetadata,
    format_partition_metadata,
    read_partition_metadata,
    write_partition_metadata,
)
from replog_checkpoints.quorum_state import QUORUM_STATE_FILE, QuorumState, read_quorum_state, write_quorum_state
from replog_checkpoints.system_calls import allocate, read_ahead, read_into
from replog_checkpoints.uuid_text import uuid_from_text, uuid_to_text

__all__ = [
    "CLEANER_OFFSET_FILE",
    "CLEAN_SHUTDOWN_FILE",
    "LEADER_EPOCH_FILE",
    "LOG_START_OFFSET_FILE",
    "META_PROPERTIES_FILE",
    "PARTITION_METADATA_FILE",
    "QUORUM_STATE_FILE",
    "RECOVERY_POINT_FILE",
    "REPLICATION_OFFSET_FILE",
    "Buffer",
    "CheckpointError",
    "CleanShutdown",
    "DamagedCheckpointError",
    "DiskUsage",
    "EpochStart",
    "File",
    "FileSystem",
    "Lock",
    "MetaProperties",
    "OpenMode",
    "OsFileSystem",
    "PartitionMetadata",
    "QuorumState",
    "TopicPartition",
    "allocate",
    "format_leader_epochs",
    "format_partition_metadata",
    "lost_in_fsync",
    "make_durable_dirs",
    "parent_of",
    "read_ahead",
    "read_clean_shutdown",
    "read_file",
    "read_into",
    "read_leader_epochs",
    "read_meta_properties",
    "read_offset_checkpoint",
    "read_partition_metadata",
    "read_quorum_state",
    "remove_clean_shutdown",
    "replace_file",
    "replace_files",
    "seal_meta_properties",
    "uuid_from_text",
    "uuid_to_text",
    "write_clean_shutdown",
    "write_leader_epochs",
    "write_meta_properties",
    "write_offset_checkpoint",
    "write_partition_metadata",
    "write_quorum_state",
]
