"""Record codecs: the compiled one and its pure-Python twin, side by side in one process."""

from __future__ import annotations

import importlib
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

from bench.data import RecordInput
from bench.model import System

OFFSET_END = 2**63 - 1
BATCH_BYTES_MAX = 2**31 - 1
DECOMPRESSED_BYTES_MAX = 2**30


class CodecSystem(System):
    """Turns records into one batch and back.  All of them read and write the same format."""

    @abstractmethod
    def encode(self, records: Sequence[RecordInput]) -> bytes:
        """One batch."""

    @abstractmethod
    def decode(self, batch: bytes) -> int:
        """Makes an object of every record; returns how many."""

    @abstractmethod
    def decode_columns(self, batch: bytes) -> int:
        """Makes Arrow buffers; returns how many records."""

    @abstractmethod
    def check(self, batch: bytes) -> int:
        """Reads every record without making objects; returns how many."""


class ReplogCodec(CodecSystem):
    """A codec module of `replog.records`, whichever the package itself has chosen.

    Args:
        name: as shown.
        module: `_codec` or `_codec_py`; both have the same functions.
    """

    def __init__(self, name: str, module: str) -> None:
        self.name = name
        self._module_name = f"replog.records.{module}"
        self._codec: Any = None

    def missing(self) -> str | None:
        try:
            self._codec = importlib.import_module(self._module_name)
        except ImportError as error:
            return str(error)
        return None

    def encode(self, records: Sequence[RecordInput]) -> bytes:
        builder = self._codec.BatchBuilder(max_bytes=BATCH_BYTES_MAX)
        builder.extend(records)
        batch: bytes = builder.build()
        return batch

    def decode(self, batch: bytes) -> int:
        return len(self._codec.decode_records(batch, 0, OFFSET_END, DECOMPRESSED_BYTES_MAX))

    def decode_columns(self, batch: bytes) -> int:
        count: int = self._codec.decode_columns(batch, 0, OFFSET_END, True, True, DECOMPRESSED_BYTES_MAX).count  # noqa: FBT003 - positional in the codec
        return count

    def check(self, batch: bytes) -> int:
        count: int = self._codec.check_records(batch, 0, DECOMPRESSED_BYTES_MAX)
        return count


def codecs() -> list[CodecSystem]:
    return [ReplogCodec("replog", "_codec"), ReplogCodec("replog-pure", "_codec_py")]
