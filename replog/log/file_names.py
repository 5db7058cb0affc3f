"""Names of the files in a partition's directory (docs/KAFKA.md 1.5).

flights-3/00000000000000001024.log          record batches from offset 1024 on
flights-3/00000000000000001024.index        offset index of that segment
flights-3/00000000000000001024.timeindex    time index of that segment
flights-3/00000000000000001024.snapshot     producers as they were just before offset 1024
"""

from __future__ import annotations

import re
from typing import Final
from uuid import UUID

LOG_SUFFIX: Final = ".log"
INDEX_SUFFIX: Final = ".index"
TIME_INDEX_SUFFIX: Final = ".timeindex"
TRANSACTION_INDEX_SUFFIX: Final = ".txnindex"
TRANSACTION_WITNESS_SUFFIX: Final = ".txnwitness"
SNAPSHOT_SUFFIX: Final = ".snapshot"
DELETED_SUFFIX: Final = ".deleted"
CLEANED_SUFFIX: Final = ".cleaned"
SWAP_SUFFIX: Final = ".swap"
SEGMENT_SUFFIXES: Final = (
    LOG_SUFFIX,
    INDEX_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    TRANSACTION_WITNESS_SUFFIX,
)

DELETE_DIR_SUFFIX: Final = "-delete"
STRAY_DIR_SUFFIX: Final = "-stray"
FUTURE_DIR_SUFFIX: Final = "-future"
MOVED_DIR_SUFFIX: Final = "-moved"
_NAME_BYTES_MAX: Final = 255
_OFFSET_NAME: Final = re.compile(r"(\d{20})(\.[a-z]+)")
_PARTITION_DIR: Final = re.compile(r"(.+)-(\d+)")
_RETIRED_DIR: Final = re.compile(r"(.+)\.[0-9a-f]{32}(?:-delete|-stray)")
_MOVING_DIR: Final = re.compile(r"(.+)\.[0-9a-f]{32}(-future|-moved)")
_TOPIC: Final = re.compile(r"[a-zA-Z0-9._-]{1,249}")


def file_path(directory: str, offset: int, suffix: str) -> str:
    """Returns `<directory>/<offset, 20 digits><suffix>`."""
    return f"{directory}/{offset:020d}{suffix}"


def parse_file_name(name: str) -> tuple[int, str] | None:
    """Returns (offset, suffix) of a name such as `00000000000000001024.log`; None for anything else."""
    match = _OFFSET_NAME.fullmatch(name)
    return (int(match[1]), match[2]) if match else None


def partition_dir_name(topic: str, partition: int) -> str:
    """Returns `<topic>-<partition>`."""
    return f"{topic}-{partition}"


def parse_partition_dir_name(name: str) -> tuple[str, int] | None:
    """Returns (topic, partition) of a partition folder's name; None for any other name (such as `...-delete`)."""
    match = _PARTITION_DIR.fullmatch(name)
    if match is None or not _TOPIC.fullmatch(match[1]):
        return None
    return match[1], int(match[2])


def deleted_dir_name(name: str, unique_id: UUID) -> str:
    """Returns `<topic>-<partition>.<32 hex>-delete`, cut so that it stays within 255 bytes."""
    tail = f".{unique_id.hex}{DELETE_DIR_SUFFIX}"
    return name[: _NAME_BYTES_MAX - len(tail)] + tail


def retired_stem(name: str) -> str | None:
    """Returns the part of the replica's name in the name of a `-delete` or `-stray` folder; None for any other name."""
    match = _RETIRED_DIR.fullmatch(name)
    return None if match is None else match[1]


def retired_stems_of(name: str) -> frozenset[str]:
    """Returns the parts of a replica's name that names of retired folders may keep: all of it, or a cut one."""
    tails = (f".{UUID(int=0).hex}{suffix}" for suffix in (DELETE_DIR_SUFFIX, STRAY_DIR_SUFFIX))
    return frozenset(name[: _NAME_BYTES_MAX - len(tail)] for tail in tails)


def future_dir_name(name: str, unique_id: UUID) -> str | None:
    """Returns `<topic>-<partition>.<32 hex>-future`, never cut; None: it is longer than a name may be."""
    found = f"{name}.{unique_id.hex}{FUTURE_DIR_SUFFIX}"
    return found if len(found) <= _NAME_BYTES_MAX else None


def parse_moving_dir_name(name: str) -> tuple[tuple[str, int], str] | None:
    """Returns ((topic, partition), suffix) of a `-future` or `-moved` directory; None for anything else."""
    match = _MOVING_DIR.fullmatch(name)
    key = None if match is None else parse_partition_dir_name(match[1])
    return None if match is None or key is None else (key, match[2])


def stray_dir_name(name: str, unique_id: UUID) -> str:
    """Returns `<topic>-<partition>.<32 hex>-stray`, cut so that it stays within 255 bytes."""
    tail = f".{unique_id.hex}{STRAY_DIR_SUFFIX}"
    return name[: _NAME_BYTES_MAX - len(tail)] + tail
