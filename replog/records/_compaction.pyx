# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True, binding=False
"""Compaction of batches, compiled: same names, bytes, counts and errors as `_compaction_py`, which explains the rules.

Why it exists: every record of a log is hashed and looked up once or twice a pass, which costs microseconds in pure Python
and tens of nanoseconds here.

Memory safety rests on three rules:

- the caller's buffer is held for the length of a call, and its checksums hold before a record in it is read;
- every number from the bytes is compared with what is left of its record or body first;
- every write into the output reserves its bytes first.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.memoryview cimport PyMemoryView_FromMemory
from libc.stdint cimport INT64_MAX, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memcpy

from replog.errors import CorruptRecordError, InvalidRecordError, InvariantViolationError
from replog.records._crc32c import crc32c
from replog.records.compaction_rules import FillProgress, Rewritten, checked_seed, map_room
from replog.records.compression import compress_readable, decompress
from replog.records.header import check_crc, check_header, parse_header

IMPLEMENTATION = "cython"

cdef extern from "Python.h":
    int PyBUF_READ

cdef extern from *:
    """
    #if !defined(__BYTE_ORDER__) || __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
    #error "little-endian machines only; others use the pure-Python twin"
    #endif
    """
    bint __builtin_add_overflow(int64_t a, int64_t b, int64_t* out) noexcept nogil
    bint __builtin_sub_overflow(int64_t a, int64_t b, int64_t* out) noexcept nogil

cdef enum:
    HEADER_BYTES = 61
    LOG_OVERHEAD_BYTES = 12
    CRC_POSITION = 17
    CRC_START = 21
    ATTRIBUTES_POSITION = 22
    CODEC_MASK = 0x07
    LOG_APPEND_TIME_BIT = 0x08
    TRANSACTIONAL_BIT = 0x10
    CONTROL_BIT = 0x20
    DELETE_HORIZON_BIT = 0x40
    OUT_OF_RANGE = 1
    BAD_OFFSET = 2
    BAD_TIMESTAMP = 3
    BYTES_LEFT = 4

cdef tuple REASONS = (
    "",
    "a number or a field runs past the end of its record",
    "offset deltas do not rise, or leave the batch",
    "a timestamp delta leaves the range of a timestamp",
    "bytes are left after the last record",
)


include "_numbers.pxi"
include "_compaction_map.pxi"
include "_compaction_walk.pxi"
include "_compaction_rewrite.pxi"
