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

from crc32c import crc32c

from replog.errors import CorruptRecordError, InvalidRecordError, InvariantViolationError
from replog.records._compaction_py import checked_seed, map_room
from replog.records.compaction_rules import FillProgress, Rewritten
from replog.records.compression import compress, decompress
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


# The offset map

cdef inline uint64_t rotate(uint64_t number, int bits) noexcept nogil:
    return (number << bits) | (number >> (64 - bits))


cdef inline void sip_rounds(uint64_t* v, int count) noexcept nogil:
    cdef int i
    for i in range(count):
        v[0] += v[1]
        v[2] += v[3]
        v[1] = rotate(v[1], 13) ^ v[0]
        v[3] = rotate(v[3], 16) ^ v[2]
        v[0] = rotate(v[0], 32)
        v[2] += v[1]
        v[0] += v[3]
        v[1] = rotate(v[1], 17) ^ v[2]
        v[3] = rotate(v[3], 21) ^ v[0]
        v[2] = rotate(v[2], 32)


cdef void sip_hash(const uint8_t* data, Py_ssize_t size, uint64_t k0, uint64_t k1, uint64_t* out) noexcept nogil:
    """SipHash-2-4 with 128 bits of output (Aumasson and Bernstein), a keyed hash for short inputs."""
    cdef uint64_t[4] v
    cdef uint64_t word
    cdef Py_ssize_t whole = size & ~7
    cdef Py_ssize_t i
    v[0] = k0 ^ 0x736F6D6570736575ULL
    v[1] = k1 ^ 0x646F72616E646F6DULL ^ 0xEE
    v[2] = k0 ^ 0x6C7967656E657261ULL
    v[3] = k1 ^ 0x7465646279746573ULL
    for i in range(0, whole, 8):
        memcpy(&word, data + i, 8)
        v[3] ^= word
        sip_rounds(v, 2)
        v[0] ^= word
    word = 0
    if size > whole:
        memcpy(&word, data + whole, size - whole)
    word |= <uint64_t>(size & 0xFF) << 56
    v[3] ^= word
    sip_rounds(v, 2)
    v[0] ^= word
    v[2] ^= 0xEE
    sip_rounds(v, 4)
    out[0] = v[0] ^ v[1] ^ v[2] ^ v[3]
    v[1] ^= 0xDD
    sip_rounds(v, 4)
    out[1] = v[0] ^ v[1] ^ v[2] ^ v[3]


cdef struct Slot:
    uint64_t high
    uint64_t low
    int64_t offset_plus_one


cdef class OffsetMap:
    """Key -> offset of its newest record; see `_compaction_py.OffsetMap`."""

    cdef Slot* table
    cdef uint64_t slots
    cdef uint64_t k0
    cdef uint64_t k1
    cdef readonly Py_ssize_t capacity
    cdef readonly Py_ssize_t count

    def __cinit__(self, size_bytes, load_factor, seed):
        cdef bytes checked = checked_seed(seed)
        slots, self.capacity = map_room(size_bytes, load_factor)
        self.slots = slots
        memcpy(&self.k0, PyBytes_AS_STRING(checked), 8)
        memcpy(&self.k1, PyBytes_AS_STRING(checked) + 8, 8)
        self.table = <Slot*>calloc(slots, sizeof(Slot))  # pages that no entry touches take no memory
        if self.table == NULL:
            raise MemoryError(f"{size_bytes} bytes for log.cleaner.dedupe.buffer.size")

    def __dealloc__(self):
        free(self.table)

    cdef inline Slot* find(self, const uint8_t* key, Py_ssize_t size, uint64_t* digest) noexcept nogil:
        """The slot that holds the key, or a free one."""
        cdef uint64_t i
        sip_hash(key, size, self.k0, self.k1, digest)
        i = ((digest[0] >> 32) * self.slots) >> 32  # fewer than 2^32 slots: see `map_room`
        while self.table[i].offset_plus_one != 0 and (
            self.table[i].high != digest[0] or self.table[i].low != digest[1]
        ):
            i += 1
            if i == self.slots:
                i = 0
        return &self.table[i]

    cdef inline bint put_raw(self, const uint8_t* key, Py_ssize_t size, int64_t offset) noexcept nogil:
        cdef uint64_t[2] digest
        cdef Slot* slot = self.find(key, size, digest)
        if slot.offset_plus_one == 0:
            if self.count >= self.capacity:
                return False
            self.count += 1
            slot.high = digest[0]
            slot.low = digest[1]
        slot.offset_plus_one = offset + 1
        return True

    cdef inline int64_t get_raw(self, const uint8_t* key, Py_ssize_t size) noexcept nogil:
        cdef uint64_t[2] digest
        return self.find(key, size, digest).offset_plus_one - 1

    def put(self, key, int64_t offset):
        """Notes that `key` was written at `offset`; False when it is new and the map is full."""
        cdef bytes data = bytes(key)
        return self.put_raw(<const uint8_t*>PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data), offset)

    def get(self, key):
        """Offset of the newest record of `key`; -1 when there is none."""
        cdef bytes data = bytes(key)
        return self.get_raw(<const uint8_t*>PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data))


def key_hash(key, seed):
    """The 16 bytes that stand for a key, for comparing with the published test vectors of the hash."""
    cdef bytes data = bytes(key)
    cdef bytes checked = checked_seed(seed)
    cdef uint64_t[2] digest
    cdef uint64_t k0, k1
    memcpy(&k0, PyBytes_AS_STRING(checked), 8)
    memcpy(&k1, PyBytes_AS_STRING(checked) + 8, 8)
    sip_hash(<const uint8_t*>PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data), k0, k1, digest)
    return PyBytes_FromStringAndSize(<const char*>digest, 16)


# Batches and records

cdef struct Head:
    Py_ssize_t position
    Py_ssize_t size_bytes
    int64_t base_offset
    int64_t base_timestamp
    int64_t max_timestamp
    int64_t producer_id
    int32_t last_offset_delta
    int32_t records_count
    int attributes


cdef struct Raw:
    const uint8_t* start
    const uint8_t* rest  # behind the timestamp
    const uint8_t* end
    const uint8_t* key
    int64_t key_bytes
    int64_t offset_delta
    int64_t timestamp
    bint has_value


cdef inline uint32_t crc_of(const uint8_t* data, Py_ssize_t size) except? 0:
    return <uint32_t>crc32c(PyMemoryView_FromMemory(<char*>data, size, PyBUF_READ))


cdef class Walk:
    """The whole batches of a caller's buffer one by one, and the records of the current one.

    The buffer is held while this lives.
    """

    cdef Py_buffer view
    cdef object buffer
    cdef bint held
    cdef const uint8_t* data
    cdef Py_ssize_t size
    cdef Py_ssize_t next_position
    cdef object max_decompressed_bytes
    cdef Head head
    cdef bytes section  # decompressed records of the current batch, or None
    cdef const uint8_t* body
    cdef const uint8_t* body_end
    cdef const uint8_t* cursor
    cdef int32_t left
    cdef int64_t last_delta

    def __cinit__(self, buffer, max_decompressed_bytes):
        PyObject_GetBuffer(buffer, &self.view, PyBUF_SIMPLE)
        self.held = True
        self.buffer = buffer
        self.data = <const uint8_t*>self.view.buf
        self.size = self.view.len
        self.max_decompressed_bytes = max_decompressed_bytes

    def __dealloc__(self):
        if self.held:
            PyBuffer_Release(&self.view)

    cdef bint next_batch(self) except -1:
        """Moves to the next whole batch, whose checksum held; False when there is none."""
        cdef Head* head = &self.head
        cdef const uint8_t* p = self.data + self.next_position
        cdef int64_t length
        if self.size - self.next_position < HEADER_BYTES:
            return False
        length = load32(p + 8)
        if length < HEADER_BYTES - LOG_OVERHEAD_BYTES or p[16] != 2:
            self.refuse(self.next_position)
        if length + LOG_OVERHEAD_BYTES > self.size - self.next_position:
            return False
        head.position = self.next_position
        head.size_bytes = length + LOG_OVERHEAD_BYTES
        head.base_offset = load64(p)
        head.attributes = p[ATTRIBUTES_POSITION]
        head.last_offset_delta = load32(p + 23)
        head.base_timestamp = load64(p + 27)
        head.max_timestamp = load64(p + 35)
        head.producer_id = load64(p + 43)
        head.records_count = load32(p + 57)
        if (
            head.base_offset < 0
            or head.last_offset_delta < 0
            or head.base_offset > INT64_MAX - head.last_offset_delta
            or head.records_count < 0
            or head.records_count > <int64_t>head.last_offset_delta + 1
            or crc_of(p + CRC_START, head.size_bytes - CRC_START) != <uint32_t>load32(p + CRC_POSITION)
        ):
            self.refuse(head.position)
        self.next_position += head.size_bytes
        self.section = None
        return True

    cdef int refuse(self, Py_ssize_t position) except -1:
        """Lets the readable code say what is wrong with a batch."""
        header = parse_header(self.buffer, position)
        check_header(header)
        check_crc(self.buffer, header)
        raise InvariantViolationError("the compiled compaction refused a batch that the header functions accept")

    cdef int open_records(self) except -1:
        """Before the first `next_record` of a batch, and to begin with it again."""
        if self.section is None:
            self.body = self.data + self.head.position + HEADER_BYTES
            self.body_end = self.data + self.head.position + self.head.size_bytes
            if self.head.records_count == 0:
                self.body_end = self.body
            elif self.head.attributes & CODEC_MASK:
                self.inflate()
        self.cursor = self.body
        self.left = self.head.records_count
        self.last_delta = -1
        return 0

    cdef int inflate(self) except -1:
        raw = PyMemoryView_FromMemory(<char*>self.body, self.body_end - self.body, PyBUF_READ)
        codec = parse_header(self.buffer, self.head.position).codec  # raises for codecs that do not exist
        try:
            self.section = decompress(codec, raw, self.max_decompressed_bytes)
        except InvalidRecordError as error:
            raise CorruptRecordError("", self.head.position, str(error)) from error
        self.body = <const uint8_t*>PyBytes_AS_STRING(self.section)
        self.body_end = self.body + PyBytes_GET_SIZE(self.section)
        return 0

    cdef inline bint next_record(self, Raw* raw) except -1:
        """The next record; False after the last, when the body must be used up."""
        cdef int status = OK
        if self.left == 0:
            if self.cursor != self.body_end:
                self.fail(BYTES_LEFT)
            return False
        self.left -= 1
        status = self.read_raw(raw)
        if status != OK:
            self.fail(status)
        return True

    cdef int fail(self, int status) except -1:
        raise CorruptRecordError("", self.head.position, REASONS[status])

    cdef inline int read_raw(self, Raw* raw) noexcept nogil:
        cdef int64_t length = 0
        cdef int64_t number = 0
        cdef const uint8_t* p = self.cursor
        raw.start = p
        if get_number(&p, self.body_end, VARINT_BYTES_MAX, &length) != OK or length < 1 or length > self.body_end - p:
            return OUT_OF_RANGE
        raw.end = p + length
        p += 1  # the attributes byte means nothing so far
        if get_number(&p, raw.end, VARLONG_BYTES_MAX, &number) != OK:
            return OUT_OF_RANGE
        raw.rest = p
        if get_number(&p, raw.end, VARINT_BYTES_MAX, &raw.offset_delta) != OK:
            return OUT_OF_RANGE
        if get_number(&p, raw.end, VARINT_BYTES_MAX, &raw.key_bytes) != OK:
            return OUT_OF_RANGE
        if raw.key_bytes < -1 or raw.key_bytes > raw.end - p:
            return OUT_OF_RANGE
        raw.key = p
        if raw.key_bytes > 0:
            p += raw.key_bytes
        if get_number(&p, raw.end, VARINT_BYTES_MAX, &length) != OK or length < -1 or length > raw.end - p:
            return OUT_OF_RANGE
        raw.has_value = length >= 0
        if raw.offset_delta <= self.last_delta or raw.offset_delta > self.head.last_offset_delta:
            return BAD_OFFSET
        self.last_delta = raw.offset_delta
        if self.head.attributes & LOG_APPEND_TIME_BIT:
            raw.timestamp = self.head.max_timestamp
        elif __builtin_add_overflow(self.head.base_timestamp, number, &raw.timestamp):
            return BAD_TIMESTAMP
        self.cursor = raw.end
        return OK

    cdef inline bint is_dropped(self, transactions) except -1:
        """Aborted data, or a marker that decides nothing any more."""
        cdef const uint8_t* p = self.data + self.head.position
        if self.head.attributes & CONTROL_BIT:
            return transactions.drops_marker(PyBytes_FromStringAndSize(<const char*>p, self.head.size_bytes))
        if self.head.attributes & TRANSACTIONAL_BIT:
            return transactions.drops_data(self.head.producer_id, self.head.base_offset + self.head.last_offset_delta)
        return False


def fill_offset_map(OffsetMap offset_map, buffer, int64_t start_offset, transactions, max_decompressed_bytes):
    """See `replog.records.compaction.fill_offset_map`."""
    cdef Walk walk = Walk(buffer, max_decompressed_bytes)
    cdef Raw raw
    cdef int64_t offset
    cdef int64_t end_offset = -1
    cdef Py_ssize_t records_count = 0
    while walk.next_batch():
        if not walk.is_dropped(transactions) and not walk.head.attributes & CONTROL_BIT:
            walk.open_records()
            while walk.next_record(&raw):
                offset = walk.head.base_offset + raw.offset_delta
                if raw.key_bytes >= 0 and offset >= start_offset:
                    if not offset_map.put_raw(raw.key, raw.key_bytes, offset):
                        return FillProgress(walk.head.position, records_count, offset, True)
                records_count += 1
        end_offset = walk.head.base_offset + walk.head.last_offset_delta + 1
    return FillProgress(walk.next_position, records_count, end_offset, False)


# Rewriting

cdef class Sink:
    """Bytes being written one after the other."""

    cdef uint8_t* data
    cdef Py_ssize_t size
    cdef Py_ssize_t capacity

    def __dealloc__(self):
        free(self.data)

    cdef inline int reserve(self, Py_ssize_t size) except -1:
        if size > self.capacity - self.size:
            self.grow(size)
        return 0

    cdef int grow(self, Py_ssize_t size) except -1:
        cdef Py_ssize_t capacity = max(self.size + size, 2 * self.capacity)
        cdef uint8_t* data = <uint8_t*>realloc(self.data, capacity)
        if data == NULL:
            raise MemoryError(f"{capacity} bytes")
        self.data = data
        self.capacity = capacity
        return 0

    cdef inline int put(self, const uint8_t* data, Py_ssize_t size) except -1:
        if size > 0:
            self.reserve(size)
            memcpy(self.data + self.size, data, size)
            self.size += size
        return 0

    cdef bytes taken(self, Py_ssize_t start):
        """A copy of everything from `start` on, which is cut off."""
        result = PyBytes_FromStringAndSize(<const char*>self.data + start, self.size - start) if self.size > start else b""
        self.size = start
        return result


cdef class Rewriter:
    """One `rewrite_batches` call."""

    cdef Walk walk
    cdef OffsetMap offset_map
    cdef Sink out
    cdef object rules
    cdef object last_data_offsets
    cdef object marker_epochs
    cdef int64_t clean_end_offset
    cdef int64_t now_ms
    cdef int64_t new_horizon
    cdef int64_t max_timestamp  # of the records kept of the current batch
    cdef int64_t last_tombstone
    cdef int32_t kept

    def __cinit__(self, Walk walk, OffsetMap offset_map, rules):
        self.walk = walk
        self.offset_map = offset_map
        self.out = Sink()
        self.last_data_offsets = rules.last_data_offsets
        self.marker_epochs = rules.marker_epochs
        self.clean_end_offset = rules.clean_end_offset
        self.now_ms = rules.now_ms
        self.new_horizon = min(rules.now_ms + rules.delete_retention_ms, INT64_MAX)

    cdef bint is_last_of_producer(self) except -1:
        cdef Head* head = &self.walk.head
        if head.producer_id == -1:
            return False
        if head.attributes & CONTROL_BIT:
            epoch = <int>(<signed char>self.walk.data[head.position + 51]) * 256 + self.walk.data[head.position + 52]
            return self.marker_epochs.get(head.producer_id) == epoch
        return (head.base_offset + head.last_offset_delta) in self.last_data_offsets

    cdef Py_ssize_t rewrite(self, bint is_dropped, bint keeps_last) except -1:
        """Writes what is kept of the current batch; returns its size, and leaves `kept` and `max_timestamp`."""
        cdef Head* head = &self.walk.head
        cdef bint is_control = head.attributes & CONTROL_BIT
        cdef bint has_horizon = head.attributes & DELETE_HORIZON_BIT
        cdef bint is_past_horizon = has_horizon and self.now_ms >= head.base_timestamp
        cdef bint gets_horizon
        cdef Py_ssize_t start = self.out.size
        self.kept = 0
        self.last_tombstone = -1
        if not is_dropped or (is_control and not is_past_horizon):
            self.copy_kept(is_control, is_past_horizon, False)
        if self.kept == 0:
            self.out.size = start
            self.max_timestamp = head.max_timestamp
            if keeps_last or self.is_last_of_producer():
                self.write_empty()
            return self.out.size - start
        gets_horizon = not has_horizon and (
            (is_control and is_dropped)
            or (self.last_tombstone >= 0 and head.base_offset + head.last_offset_delta < self.clean_end_offset)
        )
        if self.kept == head.records_count and not gets_horizon:
            self.out.size = start
            self.out.put(self.walk.data + head.position, head.size_bytes)
            self.max_timestamp = head.max_timestamp
            return self.out.size - start
        if gets_horizon:
            self.out.size = start
            self.copy_kept(is_control, is_past_horizon, True)
        self.finish(start, gets_horizon)
        return self.out.size - start

    cdef int copy_kept(self, bint is_control, bint is_past_horizon, bint rebases) except -1:
        """Writes room for a header and the records that are kept; nothing at all when that is every one as it is."""
        cdef Walk walk = self.walk
        cdef Raw raw
        cdef const uint8_t* run_start  # of records that are kept and not written yet
        cdef bint is_started = rebases
        self.kept = 0
        self.max_timestamp = -1
        walk.open_records()
        run_start = walk.body
        if rebases:
            self.start_batch()
        while walk.next_record(&raw):
            if is_control or self.keeps(&raw, is_past_horizon):
                self.kept += 1
                if raw.timestamp > self.max_timestamp:
                    self.max_timestamp = raw.timestamp
                if not raw.has_value:
                    self.last_tombstone = raw.offset_delta
                if rebases:
                    self.put_rebased(&raw)
            else:
                if not is_started:
                    is_started = True
                    self.start_batch()
                if not rebases:
                    self.out.put(run_start, raw.start - run_start)
                run_start = raw.end
        if is_started and not rebases:
            self.out.put(run_start, walk.body_end - run_start)
        return 0

    cdef inline bint keeps(self, const Raw* raw, bint is_past_horizon) noexcept:
        cdef int64_t offset = self.walk.head.base_offset + raw.offset_delta
        if offset >= self.clean_end_offset:
            return True
        if raw.key_bytes < 0 or self.offset_map.get_raw(raw.key, raw.key_bytes) > offset:
            return False
        return raw.has_value or not is_past_horizon

    cdef int start_batch(self) except -1:
        self.out.put(self.walk.data + self.walk.head.position, HEADER_BYTES)
        return 0

    cdef int put_rebased(self, const Raw* raw) except -1:
        """One record with its timestamp relative to the new horizon."""
        cdef uint8_t[10] delta
        cdef uint8_t[10] length
        cdef uint8_t zero = 0
        cdef int64_t number = 0
        cdef int delta_bytes
        if __builtin_sub_overflow(raw.timestamp, self.new_horizon, &number):
            raise CorruptRecordError(
                "", self.walk.head.position, f"timestamp delta {raw.timestamp - <object>self.new_horizon} cannot be stored"
            )
        delta_bytes = put_number(delta, number)
        self.out.put(length, put_number(length, 1 + delta_bytes + (raw.end - raw.rest)))
        self.out.put(&zero, 1)
        self.out.put(delta, delta_bytes)
        self.out.put(raw.rest, raw.end - raw.rest)
        return 0

    cdef int finish(self, Py_ssize_t start, bint gets_horizon) except -1:
        """Compresses where the original was, and corrects the header of the batch that begins at `start`."""
        cdef Head* head = &self.walk.head
        cdef uint8_t* p
        cdef bytes section
        if head.attributes & CODEC_MASK:
            codec = parse_header(self.walk.buffer, head.position).codec
            section = compress(codec, self.out.taken(start + HEADER_BYTES))
            self.out.put(<const uint8_t*>PyBytes_AS_STRING(section), PyBytes_GET_SIZE(section))
        p = self.out.data + start
        if gets_horizon:
            p[ATTRIBUTES_POSITION] |= DELETE_HORIZON_BIT
            store64(p + 27, self.new_horizon)
        self.seal(p, self.out.size - start, self.max_timestamp, self.kept)
        return 0

    cdef int write_empty(self) except -1:
        """Only the header, so that offsets, sequence and epoch survive."""
        cdef Py_ssize_t start = self.out.size
        cdef uint8_t* p
        self.start_batch()
        if self.walk.head.size_bytes == HEADER_BYTES:
            return 0  # as it was
        p = self.out.data + start
        p[ATTRIBUTES_POSITION - 1] = 0
        p[ATTRIBUTES_POSITION] &= LOG_APPEND_TIME_BIT | TRANSACTIONAL_BIT | CONTROL_BIT
        store64(p + 27, -1)
        self.seal(p, HEADER_BYTES, self.walk.head.max_timestamp, 0)
        return 0

    cdef int seal(self, uint8_t* p, Py_ssize_t size_bytes, int64_t max_timestamp, int32_t records_count) except -1:
        store32(p + 8, <int32_t>(size_bytes - LOG_OVERHEAD_BYTES))
        store64(p + 35, max_timestamp)
        store32(p + 57, records_count)
        store32(p + CRC_POSITION, <int32_t>crc_of(p + CRC_START, size_bytes - CRC_START))
        return 0


def rewrite_batches(buffer, OffsetMap offset_map, rules, transactions, bint keeps_last, max_decompressed_bytes):
    """See `replog.records.compaction.rewrite_batches`."""
    cdef Walk walk = Walk(buffer, max_decompressed_bytes)
    cdef Rewriter rewriter = Rewriter(walk, offset_map, rules)
    cdef list batches = []
    cdef Py_ssize_t size
    cdef Py_ssize_t records_read = 0
    cdef Py_ssize_t records_kept = 0
    while walk.next_batch():
        size = rewriter.rewrite(walk.is_dropped(transactions), keeps_last and walk.next_position == walk.size)
        if size:
            last_offset = walk.head.base_offset + walk.head.last_offset_delta
            batches.append((size, last_offset, rewriter.max_timestamp))
        records_read += walk.head.records_count
        records_kept += rewriter.kept
    return Rewritten(rewriter.out.taken(0), batches, walk.next_position, records_read, records_kept)
