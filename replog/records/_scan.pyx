# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, binding=False
"""Walks over whole batches and checks every byte, compiled: same names and results as `_scan_py`, which explains them.

Why it exists: recovery reads every byte above the recovery point, and in pure Python a batch costs microseconds besides
its checksum.  What is wrong with a bad batch is put into words by the twin: that happens once.

Memory safety: every read is compared with what is left of the buffer, which is held while it is walked over.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_GET_SIZE, PyByteArray_Resize
from cpython.memoryview cimport PyMemoryView_FromMemory
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t

from replog.records._crc32c import crc32c
from replog.records._scan_py import ScannedBatch, describe_damage, describe_length

IMPLEMENTATION = "cython"

cdef extern from "Python.h":
    int PyBUF_READ

cdef enum:
    HEADER_BYTES = 61
    LOG_OVERHEAD_BYTES = 12
    CRC_START = 21

cdef int64_t OFFSET_MAX = 9223372036854775806  # of `header`: what follows the last record has an offset, too

cdef struct Batch:
    int64_t size_bytes
    int64_t base_offset
    int64_t last_offset
    int64_t max_timestamp
    int64_t producer_id
    int32_t leader_epoch
    int32_t base_sequence
    int16_t producer_epoch
    int16_t attributes


include "_numbers.pxi"


cdef inline int16_t read_16(const uint8_t* p) noexcept nogil:
    return <int16_t>((<uint32_t>p[0] << 8) | <uint32_t>p[1])


cdef inline int64_t size_of(const uint8_t* p) noexcept nogil:
    return <int64_t>(load32(p + 8)) + LOG_OVERHEAD_BYTES


cdef bint is_good(
    const uint8_t* p,
    Batch* batch,
    int64_t next_offset,
    int32_t leader_epoch,
    int64_t offset_max,
    bint is_checked,
) except -1:
    """Reads the batch at `p`, whose `size_bytes` are all there."""
    cdef int32_t delta = load32(p + 23)
    cdef int32_t count = load32(p + 57)
    batch.base_offset = load64(p)
    batch.leader_epoch = load32(p + 12)
    batch.attributes = read_16(p + 21)
    batch.max_timestamp = load64(p + 35)
    batch.producer_id = load64(p + 43)
    batch.producer_epoch = read_16(p + 51)
    batch.base_sequence = load32(p + 53)
    if p[16] != 2 or delta < 0 or batch.base_offset < next_offset or batch.base_offset > offset_max - delta:
        return False
    if count < 0 or count > <int64_t>delta + 1:
        return False
    if batch.leader_epoch < -1 or 0 <= batch.leader_epoch < leader_epoch:  # as `describe_epoch`
        return False
    batch.last_offset = batch.base_offset + delta
    if not is_checked:
        return True
    cdef object checked = PyMemoryView_FromMemory(<char*>(p + CRC_START), batch.size_bytes - CRC_START, PyBUF_READ)
    cdef uint32_t actual = crc32c(checked)
    return actual == <uint32_t>load32(p + 17)


cdef tuple as_tuple(const Batch* batch, int64_t position):
    return (
        position,
        batch.size_bytes,
        batch.base_offset,
        batch.last_offset,
        batch.leader_epoch,
        batch.max_timestamp,
        batch.producer_id,
        batch.producer_epoch,
        batch.base_sequence,
        batch.attributes,
    )


def scan_checked(
    buffer,
    *,
    int64_t next_offset,
    int32_t leader_epoch,
    int64_t offset_max,
    int32_t leader_epoch_max,
    bint is_checked=True,
):
    cdef Py_buffer view
    cdef const uint8_t* start
    cdef Batch batch
    cdef int64_t position = 0
    cdef list batches = []
    PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
    try:
        start = <const uint8_t*>view.buf
        while view.len - position >= HEADER_BYTES:
            batch.size_bytes = size_of(start + position)
            if batch.size_bytes < HEADER_BYTES:
                return batches, position, describe_length(batch.size_bytes - LOG_OVERHEAD_BYTES)
            if view.len - position < batch.size_bytes:
                break
            if start[position + 16] == 2 and load32(start + position + 12) > leader_epoch_max:
                break
            if not is_good(start + position, &batch, next_offset, leader_epoch, offset_max, is_checked):
                damage = describe_damage(buffer, position, next_offset, leader_epoch, offset_max)
                return batches, position, damage or "the bytes changed while they were read"
            batches.append(as_tuple(&batch, position))
            leader_epoch, next_offset = max(leader_epoch, batch.leader_epoch), batch.last_offset + 1
            position += batch.size_bytes
    finally:
        PyBuffer_Release(&view)
    return batches, position, None


def consecutive_end(buffer, *, int64_t next_offset, bint is_complete):
    cdef Py_buffer view
    cdef const uint8_t* p
    cdef int64_t position = 0
    cdef int64_t size_bytes, base_offset
    cdef int32_t delta, count
    PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
    try:
        while view.len - position >= HEADER_BYTES:
            p = <const uint8_t*>view.buf + position
            size_bytes = size_of(p)
            if p[16] != 2 or size_bytes < HEADER_BYTES:
                return -1
            if view.len - position < size_bytes:
                break
            base_offset, delta, count = load64(p), load32(p + 23), load32(p + 57)
            if base_offset < 0 or delta < 0 or delta > OFFSET_MAX - base_offset or count < 0 or count > <int64_t>delta + 1:
                return -1
            if (position and base_offset < next_offset) or (is_complete and base_offset > next_offset):
                return -1
            if base_offset + delta < next_offset:
                return -1
            next_offset = base_offset + delta + 1
            position += size_bytes
    finally:
        PyBuffer_Release(&view)
    return next_offset if position else -1


cdef class SegmentScan:
    cdef readonly int64_t size_bytes, next_offset, max_timestamp, max_timestamp_offset, first_timestamp
    cdef readonly int64_t bytes_since_index, missing_bytes
    cdef readonly int32_t leader_epoch
    cdef readonly bytearray offset_entries, time_entries
    cdef readonly list epoch_starts, producer_batches
    cdef readonly object damage
    cdef int64_t _base_offset, _offset_max, _index_interval_bytes, _index_room, _time_room, _last_time_entry

    def __init__(
        self,
        int64_t base_offset,
        int64_t next_offset,
        int32_t leader_epoch,
        int64_t offset_max,
        int64_t index_interval_bytes,
        int64_t index_count_max,
        int64_t time_count_max,
    ):
        self.size_bytes = 0
        self.next_offset = next_offset
        self.leader_epoch = leader_epoch
        self.max_timestamp = -1
        self.max_timestamp_offset = base_offset
        self.first_timestamp = -1
        self.bytes_since_index = 0
        self.offset_entries = bytearray()
        self.time_entries = bytearray()
        self.epoch_starts = []
        self.producer_batches = []
        self.missing_bytes = 0
        self.damage = None
        self._base_offset = base_offset
        self._offset_max = offset_max
        self._index_interval_bytes = index_interval_bytes
        self._index_room = index_count_max
        self._time_room = time_count_max
        self._last_time_entry = -1

    def feed(self, buffer, int64_t length):
        cdef Py_buffer view
        cdef const uint8_t* start
        cdef Batch batch
        cdef int64_t position = 0
        self.missing_bytes = 0
        PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
        try:
            start = <const uint8_t*>view.buf
            length = min(length, <int64_t>view.len)
            while length - position >= HEADER_BYTES:
                batch.size_bytes = size_of(start + position)
                if batch.size_bytes < HEADER_BYTES:
                    self.damage = describe_length(batch.size_bytes - LOG_OVERHEAD_BYTES)
                    break
                if length - position < batch.size_bytes:
                    self.missing_bytes = batch.size_bytes
                    break
                if not is_good(start + position, &batch, self.next_offset, self.leader_epoch, self._offset_max, True):
                    damage = describe_damage(buffer, position, self.next_offset, self.leader_epoch, self._offset_max)
                    self.damage = damage or "the bytes changed while they were read"
                    break
                if batch.leader_epoch > self.leader_epoch:
                    self.epoch_starts.append((batch.leader_epoch, batch.base_offset))
                    self.leader_epoch = batch.leader_epoch
                if batch.producer_id >= 0:
                    self.producer_batches.append(as_tuple(&batch, self.size_bytes))
                self._note(&batch)
                self.next_offset = batch.last_offset + 1
                position += batch.size_bytes
        finally:
            PyBuffer_Release(&view)
        return position

    cdef int _note(self, const Batch* batch) except -1:
        if batch.max_timestamp > self.max_timestamp:
            self.max_timestamp = batch.max_timestamp
            self.max_timestamp_offset = batch.last_offset
        if self.size_bytes == 0:
            self.first_timestamp = batch.max_timestamp
        elif self.bytes_since_index > self._index_interval_bytes:
            self._add_index_entries(batch.last_offset)
        self.bytes_since_index += batch.size_bytes
        self.size_bytes += batch.size_bytes
        return 0

    cdef int _add_index_entries(self, int64_t last_offset) except -1:
        cdef Py_ssize_t end
        cdef uint8_t* entry
        if self._index_room > 0:
            end = PyByteArray_GET_SIZE(self.offset_entries)
            PyByteArray_Resize(self.offset_entries, end + 8)
            entry = <uint8_t*>PyByteArray_AS_STRING(self.offset_entries) + end
            store32(entry, <int32_t>(last_offset - self._base_offset))
            store32(entry + 4, <int32_t>self.size_bytes)
            self._index_room -= 1
        if self._time_room > 0 and self.max_timestamp > self._last_time_entry:
            end = PyByteArray_GET_SIZE(self.time_entries)
            PyByteArray_Resize(self.time_entries, end + 12)
            entry = <uint8_t*>PyByteArray_AS_STRING(self.time_entries) + end
            store64(entry, self.max_timestamp)
            store32(entry + 8, <int32_t>(self.max_timestamp_offset - self._base_offset))
            self._last_time_entry = self.max_timestamp
            self._time_room -= 1
        self.bytes_since_index = 0
        return 0
