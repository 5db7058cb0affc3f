"""The frame that all text checkpoints share: a version, a count, one entry per line.

    0            version
    2            number of entries
    0 0          an entry: fields separated by white space
    3 120
    (every line, the last one too, ends with a newline)

Why stricter than Kafka's reader: it takes an empty file as an empty list and does not miss the last newline.  After a
crash an empty file is what a lost write looks like, and `t 0 42` may be the beginning of `t 0 4200`; taken at their word
both would make a log start over at an older offset.  Source: docs/KAFKA.md 1.10.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from replog_checkpoints.errors import DamagedCheckpointError

CHECKPOINT_VERSION: Final = 0
INT32_MAX: Final = 2**31 - 1
INT64_MAX: Final = 2**63 - 1
CHECKPOINT_SIZE_BYTES_MAX: Final = 256 * 1024 * 1024
"""About four million partitions; a larger file is not a checkpoint."""


def format_entries(entries: Sequence[str]) -> bytes:
    """Returns the complete file for these entry lines (without newlines of their own)."""
    return "\n".join([str(CHECKPOINT_VERSION), str(len(entries)), *entries, ""]).encode("utf-8")


def parse_entries(path: str, data: bytes, field_count: int) -> Iterator[tuple[int, list[str]]]:
    """Yields the line number and the fields of each entry.

    Args:
        path: The file's path, for error messages only.
        data: The content of the complete file.
        field_count: The number of fields of every entry.

    Raises:
        CorruptCheckpointError: The file is empty, not UTF-8 or of another version, the count does not fit, an entry
            has a wrong number of fields, or the last line has no newline.  Some entries may have been yielded before.
    """
    lines = _split_lines(path, data)
    version = parse_number(path, 1, lines[0], "version", INT32_MAX)
    if version != CHECKPOINT_VERSION:
        raise DamagedCheckpointError(path, 1, f"version {version} is not supported, only {CHECKPOINT_VERSION}")
    if len(lines) < 2:
        raise DamagedCheckpointError(path, 2, "the number of entries is missing")
    count = parse_number(path, 2, lines[1], "number of entries", INT32_MAX)
    if count != len(lines) - 2:
        raise DamagedCheckpointError(path, 2, f"{count} entries announced, {len(lines) - 2} found")
    for line, text in enumerate(lines[2:], start=3):
        fields = text.split()
        if len(fields) != field_count:
            raise DamagedCheckpointError(path, line, f"{len(fields)} fields instead of {field_count}: {text[:80]!r}")
        yield line, fields


def parse_number(path: str, line: int, text: str, name: str, value_max: int) -> int:
    """Returns the decimal number from 0 to `value_max`, inclusive, that `text` is.

    Raises:
        CorruptCheckpointError: There is a sign or another digit than 0 to 9, or the number is out of range.
    """
    digits = text.strip()
    if not (digits.isascii() and digits.isdigit() and len(digits) <= len(str(value_max)) and int(digits) <= value_max):
        raise DamagedCheckpointError(path, line, f"{name} {text[:80]!r} is not a number from 0 to {value_max}")
    return int(digits)


def _split_lines(path: str, data: bytes) -> list[str]:
    """Returns the lines of a file, at least one, without their newlines."""
    if not data:
        raise DamagedCheckpointError(path, 1, "the file is empty")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise DamagedCheckpointError(path, line, f"not UTF-8 at byte {error.start}") from error
    lines = text.split("\n")
    if lines.pop():
        raise DamagedCheckpointError(path, len(lines) + 1, "the last line has no newline: the file was cut")
    return lines
