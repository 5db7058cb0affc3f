"""Record codecs: the compiled one, its pure-Python twin, and a plain copy of the same bytes as the limit of the machine."""

from __future__ import annotations

import importlib
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

from bench.data import RecordInput
from bench.model import System
from replog.records import encode_batch
from replog.records.model import Wanted

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
    def decode_columns(self, batch: bytes, wanted: Wanted) -> int:
        """Makes Arrow buffers of the columns that are wanted; returns how many records."""

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

    def decode_columns(self, batch: bytes, wanted: Wanted) -> int:
        count: int = self._codec.decode_columns(batch, 0, OFFSET_END, int(wanted), DECOMPRESSED_BYTES_MAX).count
        return count

    def check(self, batch: bytes) -> int:
        count: int = self._codec.check_records(batch, 0, DECOMPRESSED_BYTES_MAX)
        return count


class PlainCopy(CodecSystem):
    """Copies the bytes of the batch once, whatever is asked: no codec that touches every byte can be faster."""

    name = "memcpy"

    def __init__(self) -> None:
        self._batch = b""
        self._records: Sequence[RecordInput] = ()

    def encode(self, records: Sequence[RecordInput]) -> bytes:
        if records is not self._records:
            self._records, self._batch = records, encode_batch(records)
        return self._copy(self._batch)

    def decode(self, batch: bytes) -> int:
        self._copy(batch)
        return len(self._records)

    def decode_columns(self, batch: bytes, wanted: Wanted) -> int:  # noqa: ARG002 - a copy is the same for all columns
        return self.decode(batch)

    def check(self, batch: bytes) -> int:
        return self.decode(batch)

    @staticmethod
    def _copy(batch: bytes) -> bytes:
        return bytes(memoryview(batch))


def codecs() -> list[CodecSystem]:
    return [ReplogCodec("replog", "_codec"), ReplogCodec("replog-pure", "_codec_py"), PlainCopy()]
