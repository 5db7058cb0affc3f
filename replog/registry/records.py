"""Records of the topic of a registry.

Each record is one change, with a key of its own, so that compaction, which keeps the last record of a key, keeps all of them:

    key    6f0d3b...                                                  the attempt, 32 hexadecimal digits
    value  {"format":1,"revision":7,"change":{"type":"mode","subject":null,"mode":"READONLY"}}

A change counts only if its revision is one more than that of the last change that counted.  Two servers that append at once both say
revision 7; the first in the log counts, at every reader, and the second is void.  So a record is a compare-and-set: ids and
versions in it were computed on the very state that it changes.

This is not the format of Confluent's `_schemas`: its keys are subject and version, and of two servers that write the same key at
once compaction would keep the later record, though the earlier one was acknowledged.

A crash between the append and the answer leaves a change that counts, of which its client does not know; when the client asks again,
it is told what is there.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Final

import msgspec

from replog.errors import UnsupportedVersionError
from replog.registry.model import Change

FORMAT: Final = 1


class LoggedChange(msgspec.Struct, frozen=True):
    """A change as it stands in the log."""

    format: int
    revision: int
    change: Change


class _Format(msgspec.Struct):
    format: int


_decoder = msgspec.json.Decoder(LoggedChange)


def encode_change(revision: int, change: Change) -> bytes:
    """Returns the value of a record."""
    return msgspec.json.encode(LoggedChange(FORMAT, revision, change))


def decode_change(value: bytes) -> LoggedChange | None:
    """Returns the change in a record; None where it is none of a registry's.

    Raises:
        UnsupportedVersionError: A newer server wrote it.  To go on without it would be to serve another state than that one does.
    """
    with suppress(msgspec.DecodeError, UnicodeDecodeError):
        written = msgspec.json.decode(value, type=_Format).format
        if written > FORMAT:
            raise UnsupportedVersionError(
                f"the topic has a change in format {written}, this server knows {FORMAT}: start one of the version that wrote it"
            )
        return _decoder.decode(value)
    return None
