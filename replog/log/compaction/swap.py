"""The place of compacted segments in the log, and what an interrupted swap looks like (docs/KAFKA.md 1.5, 3.2 a and b).

All segments of a pass are exchanged together.  Old segments 0, 100, 200 become new segments 0, 150::

    step                                              names of the `.log` files (the indexes likewise)
    1 written and fsynced, directory fsynced          0 100 200   0.cleaned 150.cleaned
    2 new ones renamed, the highest first             0 100 200   0.cleaned 150.swap
    3 directory fsynced                               0 100 200   0.swap 150.swap
    4 list exchanged, old ones renamed                0.swap 150.swap   0.deleted 100.deleted 200.deleted
    5 directory fsynced                               the same
    6 new ones renamed, the lowest first              0 150.swap        0.deleted 100.deleted 200.deleted
    7 directory fsynced                               0 150             0.deleted 100.deleted 200.deleted

| crash          | what the next start finds                                                                       |
|----------------|-------------------------------------------------------------------------------------------------|
| in 1, 2        | a `.cleaned` file: every `.swap` at or above the lowest is dropped, then the `.cleaned` ones; as before the pass |
| after 2, in 3  | all `.swap`, or a part of step 2: as in the line above or below                                  |
| in 4, 5        | all `.swap`: old segments whose base lies within a new one are deleted, `.swap` is stripped       |
| in 6, 7        | some `.swap`, no old segment: `.swap` is stripped                                                |
| later          | `.deleted` files: swept                                                                          |

The swap is decided when no `.cleaned` file is left (step 2, durable in 3).  That is why a pass begins with a sweep: a
`.cleaned` file of an earlier pass would make the next start drop a swap whose old segments are gone.

Kafka leaves the same files: it exchanges one group at a time, and uses the names for splitting a segment as well.
A new segment covers the offsets from its base to the end of its last batch; its own base counts even when it is empty.
"""

from __future__ import annotations

from collections.abc import Sequence

from replog.errors import CorruptRecordError
from replog.log.file_names import (
    CLEANED_SUFFIX,
    LOG_SUFFIX,
    SEGMENT_SUFFIXES,
    SWAP_SUFFIX,
    file_path,
    parse_file_name,
)
from replog.log.segments.promised_end import promised_end_offset
from replog.log.segments.scan import scan_batches
from replog.log.segments.segment import OFFSET_MAX, LogSegment
from replog_checkpoints import FileSystem, OpenMode


def rename_to_swap(fs: FileSystem, directory: str, segments: Sequence[LogSegment]) -> None:
    """Takes steps 2 and 3: renames the new segments to `.swap`.  Removes anything else in `.cleaned` first.

    Raises:
        OSError: The disk failed; nothing is decided, and the segments in use are untouched.
    """
    ours = {path for segment in segments for path in segment.file_names}
    strays = [name for name in fs.list_dir(directory) if name.endswith(CLEANED_SUFFIX)]
    strays = [name for name in strays if f"{directory}/{name}" not in ours]
    for name in strays:
        fs.remove(f"{directory}/{name}")
    if strays:
        fs.sync_dir(directory)
    for segment in reversed(segments):
        segment.change_suffix(SWAP_SUFFIX)
    fs.sync_dir(directory)


def strip_swap(fs: FileSystem, directory: str, segments: Sequence[LogSegment]) -> None:
    """Takes steps 6 and 7: gives the new segments their usual names.

    Raises:
        OSError: The disk failed; the next start completes the names.
    """
    for segment in segments:
        segment.change_suffix("")
    fs.sync_dir(directory)


def complete_swaps(fs: FileSystem, directory: str) -> None:
    """Finishes or drops an interrupted swap; when it returns, only whole segments are left, durably.

    Args:
        fs: The disk.
        directory: The partition folder of a log that is not open.

    Raises:
        CorruptRecordError: A new segment is damaged; nothing was changed, because the segments that it replaces may be gone.
        OSError: The disk failed; call it again.
    """
    names = fs.list_dir(directory)
    cleaned = _offsets_by_name(names, CLEANED_SUFFIX)
    swaps = _offsets_by_name(names, SWAP_SUFFIX)
    lowest_cleaned = min(cleaned.values(), default=None)
    dropped = [name for name, base in swaps.items() if lowest_cleaned is not None and base >= lowest_cleaned]
    finished = {name: base for name, base in swaps.items() if name not in dropped}
    new_logs = [base for name, base in finished.items() if name.endswith(f"{LOG_SUFFIX}{SWAP_SUFFIX}")]
    covered = [(base, _end_of_swap(fs, directory, base)) for base in new_logs]  # refuses before anything is changed
    for leftovers in (dropped, list(cleaned)):  # in this order, or half a swap would look like a whole one
        _remove_all(fs, directory, leftovers)
    replaced = [name for name in names if _is_replaced(name, covered)]
    _remove_all(fs, directory, replaced)
    for name in sorted(finished, key=lambda one: (finished[one], _kind_order(one))):
        fs.rename(f"{directory}/{name}", f"{directory}/{name.removesuffix(SWAP_SUFFIX)}")
    if finished:
        fs.sync_dir(directory)


def _offsets_by_name(names: Sequence[str], suffix: str) -> dict[str, int]:
    """Returns file name -> base offset of the segment files with this suffix behind their usual name."""
    found: dict[str, int] = {}
    for name in names:
        parsed = parse_file_name(name.removesuffix(suffix)) if name.endswith(suffix) else None
        if parsed is not None and parsed[1] in SEGMENT_SUFFIXES:
            found[name] = parsed[0]
    return found


def _end_of_swap(fs: FileSystem, directory: str, base_offset: int) -> int:
    """Checks every byte of the new segment; returns its end offset, at least the one behind its base."""
    path = file_path(directory, base_offset, LOG_SUFFIX) + SWAP_SUFFIX
    file = fs.open(path, OpenMode.READ)
    end_offset = base_offset + 1
    try:
        for _, header, _ in scan_batches(file, 0, file.size()):
            end_offset = max(end_offset, header.next_offset)
        promised = promised_end_offset(fs, directory, base_offset, OFFSET_MAX, name_suffix=SWAP_SUFFIX)
        if promised > end_offset:
            reason = f"its indexes know of offset {promised - 1}, the file ends at {end_offset}"
            raise CorruptRecordError(path, file.size(), reason)  # noqa: TRY301 - told below with what to do
    except CorruptRecordError as error:
        raise CorruptRecordError(
            path,
            error.position,
            f"{error.reason}: it was about to replace older segments, some of which may be gone. Nothing was changed: "
            "restore the file; where the partition has other replicas, this one is fetched from its leader again",
        ) from error
    finally:
        file.close()
    return end_offset


def _is_replaced(name: str, covered: Sequence[tuple[int, int]]) -> bool:
    parsed = parse_file_name(name)
    if parsed is None or parsed[1] not in SEGMENT_SUFFIXES:
        return False
    return any(base <= parsed[0] < end for base, end in covered)


def _kind_order(name: str) -> int:
    """Returns the rank of a file among its segment's: the log first.

    An index that still has the suffix then is stripped by the next start.
    """
    parsed = parse_file_name(name.removesuffix(SWAP_SUFFIX))
    return SEGMENT_SUFFIXES.index(parsed[1]) if parsed else len(SEGMENT_SUFFIXES)


def _remove_all(fs: FileSystem, directory: str, names: Sequence[str]) -> None:
    for name in names:
        fs.remove(f"{directory}/{name}")
    if names:
        fs.sync_dir(directory)
