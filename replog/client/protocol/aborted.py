"""The records of aborted transactions, which readers of what is committed do not see."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from itertools import islice
from typing import Final

from replog.errors import CorruptRecordError, InvalidRecordError
from replog.records import decode_batch, scan
from replog.records._crc32c import crc32c
from replog.records.control import ControlRecordType, control_record_type
from replog.records.header import CONTROL_BIT, BatchHeader
from replog.rpc.messages import AbortedTransaction, Buffer

_CRC_AT: Final = 17
_ATTRIBUTES_AT: Final = 21

_crc = struct.Struct(">I")
_attributes = struct.Struct(">h")


def hide_aborted(data: Buffer, aborted: Sequence[AbortedTransaction]) -> Buffer:
    """Returns an answer in which batches of aborted transactions are control batches, which nobody reads as records.

    Their offsets and sizes stay, so that positions go past them.  The bytes are those given where nothing was aborted.

    Args:
        data: Whole batches, and perhaps the beginning of another one, in the order of their offsets.
        aborted: The aborted transactions of which a batch may be among them: each begins at its first offset and ends with
            the next abort marker of its producer.
    """
    if not aborted:
        return data
    hidden = bytearray(data)
    waiting = sorted(aborted, key=lambda each: each.first_offset, reverse=True)  # the next one last
    begun: set[int] = set()
    try:
        for header in scan(data):
            while waiting and waiting[-1].first_offset <= header.last_offset:
                begun.add(waiting.pop().producer_id)
            if header.is_control:
                if header.producer_id in begun and _is_abort(data, header):
                    begun.discard(header.producer_id)
            elif header.is_transactional and header.producer_id in begun:
                _hide(hidden, header)
    except CorruptRecordError:  # the reader finds it, and says where
        pass
    return memoryview(hidden)


def _is_abort(data: Buffer, header: BatchHeader) -> bool:
    """Whether a control batch ends a transaction as aborted."""
    try:
        return any(
            control_record_type(record) is ControlRecordType.ABORT
            for record in islice(decode_batch(data, header.position), 1)
        )
    except InvalidRecordError:
        return False


def _hide(data: bytearray, header: BatchHeader) -> None:
    at = header.position + _ATTRIBUTES_AT
    (attributes,) = _attributes.unpack_from(data, at)
    _attributes.pack_into(data, at, attributes | CONTROL_BIT)
    _crc.pack_into(data, header.position + _CRC_AT, crc32c(memoryview(data)[at : header.end_position]))
