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
    uint64_t __builtin_bswap64(uint64_t number) noexcept nogil
    uint32_t __builtin_bswap32(uint32_t number) noexcept nogil

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
    VARINT_BYTES_MAX = 5
    VARLONG_BYTES_MAX = 10
    OK = 0
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


# Numbers

cdef inline int64_t load64(const uint8_t* p) noexcept nogil:
    cdef uint64_t raw
    memcpy(&raw, p, 8)
    return <int64_t>__builtin_bswap64(raw)


cdef inline int32_t load32(const uint8_t* p) noexcept nogil:
    cdef uint32_t raw
    memcpy(&raw, p, 4)
    return <int32_t>__builtin_bswap32(raw)


cdef inline void store64(uint8_t* p, int64_t number) noexcept nogil:
    cdef uint64_t raw = __builtin_bswap64(<uint64_t>number)
    memcpy(p, &raw, 8)


cdef inline void store32(uint8_t* p, int32_t number) noexcept nogil:
    cdef uint32_t raw = __builtin_bswap32(<uint32_t>number)
    memcpy(p, &raw, 4)


cdef inline int get_number(const uint8_t** cursor, const uint8_t* end, int bytes_max, int64_t* out) noexcept nogil:
    """A zig-zag varint of 32 bits (5 bytes at most) or 64 bits (10)."""
    cdef const uint8_t* p = cursor[0]
    cdef uint64_t number = 0
    cdef int i
    for i in range(bytes_max):
        if p + i >= end:
            return OUT_OF_RANGE
        number |= <uint64_t>(p[i] & 0x7F) << (7 * i)
        if p[i] < 0x80:
            if bytes_max == VARINT_BYTES_MAX:
                number &= 0xFFFFFFFFULL
            out[0] = <int64_t>((number >> 1) ^ (0 - (number & 1)))
            cursor[0] = p + i + 1
            return OK
    return OUT_OF_RANGE


cdef inline int put_number(uint8_t* p, int64_t number) noexcept nogil:
    """Writes a zig-zag varint; returns its size in bytes, at most 10."""
    cdef uint64_t zigzag = (<uint64_t>number << 1) ^ <uint64_t>(number >> 63)
    cdef int size = 0
    while zigzag >= 0x80:
        p[size] = <uint8_t>(zigzag | 0x80)
        zigzag >>= 7
        size += 1
    p[size] = <uint8_t>zigzag
    return size + 1


include "_compaction_map.pxi"
include "_compaction_walk.pxi"
include "_compaction_rewrite.pxi"
