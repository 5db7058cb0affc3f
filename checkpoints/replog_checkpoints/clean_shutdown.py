"""Clean-shutdown marker: the log directory was closed in order, nothing needs to be checked.

Why: with the marker the next start skips the scan of every log past its recovery point, and the broker epoch in it lets
the controller tell a clean stop from a restart that may have lost data (KIP-966).

A complete file `.kafka_cleanshutdown`: one line, no newline at the end::

    {"version": 0, "brokerEpoch": 17}

It is written last, after every log is flushed and closed and all checkpoints are written, and removed at the next start
as soon as it has been seen, before anything is loaded.

| crash                                     | what the next start finds                                |
|-------------------------------------------|----------------------------------------------------------|
| while running, or before the marker       | no marker: an unclean stop, logs are checked             |
| before the fsync of the folder (write)    | marker or none; all logs were flushed before, both are true |
| after it was seen, before it is removed   | the marker: nothing was changed since, it is still true  |
| before the fsync of the folder (removal)  | not possible to start work: removal returns after the fsync |

A damaged marker is an error to its reader, who treats the stop as unclean.  Source: docs/KAFKA.md 1.11, 3.1.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from replog_checkpoints.atomic_file import parent_of, read_file, replace_file
from replog_checkpoints.entry_lines import INT32_MAX, INT64_MAX
from replog_checkpoints.filesystem import FileSystem
from replog_checkpoints.json_object import JSON_SIZE_BYTES_MAX, JsonObject, format_object

CLEAN_SHUTDOWN_FILE: Final = ".kafka_cleanshutdown"
NO_BROKER_EPOCH: Final = -1
_VERSION: Final = 0


class CleanShutdown(Struct, frozen=True):
    """What the marker says.

    Attributes:
        broker_epoch: Epoch of the incarnation that stopped; -1 when it never registered.
    """

    broker_epoch: int

    def __post_init__(self) -> None:
        if not NO_BROKER_EPOCH <= self.broker_epoch <= INT64_MAX:
            raise ValueError(f"broker_epoch {self.broker_epoch} is not from -1 to {INT64_MAX}")


def read_clean_shutdown(fs: FileSystem, path: str) -> CleanShutdown | None:
    """Reads the marker; returns None when there is none: the last stop was unclean.

    Raises:
        CorruptCheckpointError: There is a marker that cannot be read; treat the stop as unclean.
    """
    data = read_file(fs, path, JSON_SIZE_BYTES_MAX)
    if data is None:
        return None
    document = JsonObject(path, data)
    version = document.number("version", 0, INT32_MAX)
    if version != _VERSION:
        raise document.corrupt(f"version {version} is not supported, only {_VERSION}")
    return CleanShutdown(document.number("brokerEpoch", NO_BROKER_EPOCH, INT64_MAX))


def write_clean_shutdown(fs: FileSystem, path: str, marker: CleanShutdown) -> None:
    """Writes the marker, durably.  Everything it vouches for must be flushed before."""
    replace_file(fs, path, format_object({"version": _VERSION, "brokerEpoch": marker.broker_epoch}))


def remove_clean_shutdown(fs: FileSystem, path: str) -> None:
    """Removes the marker, durably; one that is not there is fine.  Only then may anything in the directory change."""
    try:
        fs.remove(path)
    except FileNotFoundError:
        return
    fs.sync_dir(parent_of(path))
