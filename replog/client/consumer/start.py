"""Where a consumer begins to read a partition: a word for all, or an offset for each."""

from __future__ import annotations

from collections.abc import Mapping
from operator import index
from typing import Literal, SupportsIndex, get_args

from replog.choices import require_choice
from replog.client.arguments import partition_of
from replog.errors import InvalidRequestError

OFFSET_MAX = 2**63 - 1

Start = Literal["earliest", "latest"]


def check_start(start: object) -> None:
    """Refuses what names no place, before anybody is asked.

    Raises:
        ConfigError: Another word than `Start` has, or neither word nor mapping.
        InvalidRequestError: A mapping to something that is no offset.
        TypeError: A mapping from something that is no partition.
    """
    if not isinstance(start, Mapping):
        require_choice("start", start, get_args(Start))
        return
    for key, offset in start.items():
        partition = partition_of("a key of start", key)
        if is_offset(offset):
            continue
        why = f"{offset!r}, which is no offset from 0"
        if offset == -1:
            why = (
                "-1: list_offsets says so where no record is as late as asked for; use the offset of end_offsets there"
            )
        raise InvalidRequestError(f"start of {partition} is {why}")


def is_offset(offset: object) -> bool:
    """Whether this is a whole number from 0 that a request can say, of whatever library."""
    return isinstance(offset, SupportsIndex) and 0 <= index(offset) <= OFFSET_MAX
