# Part of _codec.pyx: batches to Arrow buffers.

cdef enum:
    OFFSETS = 1  # as in replog.records.model.Wanted
    TIMESTAMPS = 2
    KEYS = 4
    VALUES = 8
    HEADERS = 16
    FIELDS = KEYS | VALUES | HEADERS

if (Wanted.OFFSETS, Wanted.TIMESTAMPS, Wanted.KEYS, Wanted.VALUES, Wanted.HEADERS) != (1, 2, 4, 8, 16):
    raise ImportError("the compiled codec was built for other columns")


cdef class Column:
    """One variable-length Arrow column; nothing at all when it is not wanted."""

    cdef bint wanted
    cdef Output offsets
    cdef Output values
    cdef Output validity
    cdef Py_ssize_t count
    cdef Py_ssize_t count_max
    cdef Py_ssize_t size
    cdef Py_ssize_t null_count

    def __cinit__(self, bint wanted, Py_ssize_t count_max, Py_ssize_t first_guess_bytes):
        self.wanted = wanted
        if not wanted:
            return
        self.count_max = count_max
        self.offsets = Output()
        self.offsets.allocate((count_max + 1) * 4)
        (<int32_t*>self.offsets.data)[0] = 0
        self.values = Output()
        self.values.allocate(min(first_guess_bytes, INT32_MAX))
        self.validity = Output()
        self.validity.allocate((count_max + 7) // 8)
        memset(self.validity.data, 0xFF, self.validity.capacity)

    cdef inline int append(self, const uint8_t* data, int32_t size) except -1:
        if self.count == self.count_max:
            self.reserve_count(max(2 * self.count_max, COUNT_MIN))
        if size < 0:
            self.validity.data[self.count >> 3] &= <uint8_t>~(1 << (self.count & 7))
            self.null_count += 1
        elif size > 0:
            if size > self.values.capacity - self.size:
                self.reserve_bytes(size)
            memcpy(self.values.data + self.size, data, size)
            self.size += size
        self.count += 1
        (<int32_t*>self.offsets.data)[self.count] = <int32_t>self.size
        return 0

    cdef int reserve_bytes(self, Py_ssize_t size) except -1:
        """Room for `size` more bytes of data; at least doubles."""
        if self.size + size > INT32_MAX:
            raise InvalidRecordError("a column would pass 2 GiB: decode fewer batches at a time")
        self.values.grow(self.size, min(max(self.size + size, 2 * self.values.capacity), INT32_MAX))
        return 0

    cdef int reserve_count(self, Py_ssize_t count_max) except -1:
        """Room for `count_max` values in all."""
        cdef Py_ssize_t used = (self.count + 7) // 8
        if count_max <= self.count_max:
            return 0
        if self.count >= INT32_MAX - 1:
            raise InvalidRecordError("a column would pass 2^31 values: decode fewer batches at a time")
        self.offsets.grow((self.count + 1) * 4, (count_max + 1) * 4)
        self.validity.grow(used, (count_max + 7) // 8)
        memset(self.validity.data + used, 0xFF, self.validity.capacity - used)
        self.count_max = count_max
        return 0

    cdef tuple finish(self):
        if not self.wanted:
            return (b"", b"", None, 0)
        return (
            self.offsets.take((self.count + 1) * 4),
            self.values.take(self.size),
            bitmap(self.validity, self.count) if self.null_count else None,
            self.null_count,
        )


cdef bytes bitmap(Output validity, Py_ssize_t count):
    if count & 7:
        validity.data[count >> 3] &= <uint8_t>((1 << (count & 7)) - 1)
    return validity.take((count + 7) // 8)


cdef inline bint is_ascii(const uint8_t* data, int32_t size) noexcept nogil:
    cdef int32_t i
    cdef uint8_t bits = 0
    for i in range(size):
        bits |= data[i]
    return bits < 0x80


cdef class HeaderColumn:
    """Headers as list<struct<key, value>>: the ends of the lists, and one column each for names and values."""

    cdef bint wanted
    cdef Column lists  # its data stays empty: the offsets are set to the number of headers
    cdef Column names
    cdef Column values

    def __cinit__(self, bint wanted, Py_ssize_t count_max):
        self.wanted = wanted
        if not wanted:
            return
        self.lists = Column(True, count_max, 0)
        self.names = Column(True, COUNT_MIN, CAPACITY_BYTES_MIN)
        self.values = Column(True, COUNT_MIN, CAPACITY_BYTES_MIN)

    cdef int append(self, Parsed* parsed, const uint8_t* end) except -1:
        """The headers that `parse_record` has walked over."""
        cdef const uint8_t* cursor = parsed.headers
        cdef const uint8_t* data = NULL
        cdef int32_t size = 0
        cdef int32_t i
        for i in range(parsed.headers_count):
            if get_field(&cursor, end, &data, &size) != OK or size < 0:
                raise InvalidRecordError(REASONS[BAD_HEADERS])
            if is_ascii(data, size):
                self.names.append(data, size)
            else:
                self.append_name(data, size)
            if get_field(&cursor, end, &data, &size) != OK:
                raise InvalidRecordError(REASONS[BAD_HEADERS])
            self.values.append(data, size)
        self.lists.append(NULL, 0 if parsed.headers_count else -1)
        (<int32_t*>self.lists.offsets.data)[self.lists.count] = <int32_t>self.names.count
        return 0

    cdef int append_name(self, const uint8_t* data, int32_t size) except -1:
        """Arrow strings are valid UTF-8, names from elsewhere need not be."""
        cdef bytes name = PyUnicode_DecodeUTF8(<char*>data, size, "replace").encode()
        self.names.append(<const uint8_t*>PyBytes_AS_STRING(name), <int32_t>PyBytes_GET_SIZE(name))
        return 0

    cdef object finish(self):
        if not self.wanted:
            return None
        cdef Py_ssize_t count = self.names.count
        list_offsets, _, list_validity, list_null_count = self.lists.finish()
        key_offsets, key_data, _, _ = self.names.finish()
        return HeaderColumns(
            count, list_offsets, list_validity, list_null_count, key_offsets, key_data, *self.values.finish()
        )


cdef class ColumnSet:
    """The columns of one `decode_columns` call."""

    cdef int wanted
    cdef Py_ssize_t count
    cdef Py_ssize_t count_max
    cdef Output offsets
    cdef Output timestamps
    cdef Output types
    cdef Column keys
    cdef Column values
    cdef HeaderColumn headers

    def __cinit__(self, int wanted, Py_ssize_t count_max, Py_ssize_t bytes_max):
        self.wanted = wanted
        self.count_max = count_max
        self.offsets = Output()
        self.offsets.allocate(count_max * 8 if wanted & OFFSETS else 0)
        self.timestamps = Output()
        self.timestamps.allocate(count_max * 8 if wanted & TIMESTAMPS else 0)
        self.types = Output()
        self.types.allocate(count_max * 4 if wanted & TIMESTAMPS else 0)
        self.keys = Column(wanted & KEYS != 0, count_max, min(bytes_max, count_max * KEY_BYTES_GUESS))
        self.values = Column(wanted & VALUES != 0, count_max, bytes_max)
        self.headers = HeaderColumn(wanted & HEADERS != 0, count_max)

    cdef int reserve(self, Py_ssize_t count) except -1:
        """Room for `count` more records."""
        cdef Py_ssize_t count_max
        if self.count + count <= self.count_max:
            return 0
        count_max = max(self.count + count, 2 * self.count_max)
        if self.wanted & OFFSETS:
            self.offsets.grow(self.count * 8, count_max * 8)
        if self.wanted & TIMESTAMPS:
            self.timestamps.grow(self.count * 8, count_max * 8)
            self.types.grow(self.count * 4, count_max * 4)
        self.count_max = count_max
        return 0

    cdef int fill(self, Body body, int64_t start_offset, int64_t end_offset) except -1:
        """The records of an opened batch."""
        cdef Parsed parsed
        cdef int64_t timestamp = 0
        cdef int64_t offset
        cdef int32_t kind = 1 if body.head.attributes & LOG_APPEND_TIME_BIT else 0
        self.reserve(body.left)
        if not self.wanted & FIELDS:
            return self.fill_starts(body, start_offset, end_offset)
        while body.next(&parsed, &timestamp):
            offset = body.head.base_offset + parsed.offset_delta
            if offset < start_offset or offset >= end_offset:
                continue
            self.put_fixed(offset, timestamp, kind)
            if self.keys.wanted:
                self.keys.append(parsed.key, parsed.key_bytes)
            if self.values.wanted:
                self.values.append(parsed.value, parsed.value_bytes)
            if self.headers.wanted:
                self.headers.append(&parsed, body.cursor)
        return 0

    cdef int fill_starts(self, Body body, int64_t start_offset, int64_t end_offset) except -1:
        """`fill` for offsets and timestamps alone."""
        cdef Parsed parsed
        cdef int64_t timestamp = 0
        cdef int64_t offset
        cdef int32_t kind = 1 if body.head.attributes & LOG_APPEND_TIME_BIT else 0
        while body.next_start(&parsed, &timestamp):
            offset = body.head.base_offset + parsed.offset_delta
            if start_offset <= offset < end_offset:
                self.put_fixed(offset, timestamp, kind)
        return 0

    cdef inline int put_fixed(self, int64_t offset, int64_t timestamp, int32_t kind) except -1:
        if self.count >= self.count_max:
            raise InvariantViolationError("more records than the batch header announced")
        if self.wanted & OFFSETS:
            (<int64_t*>self.offsets.data)[self.count] = offset
        if self.wanted & TIMESTAMPS:
            (<int64_t*>self.timestamps.data)[self.count] = timestamp
            (<int32_t*>self.types.data)[self.count] = kind
        self.count += 1
        return 0

    cdef int fill_from_head(self, Head* head, int64_t start_offset, int64_t end_offset) except -1:
        """The records of a batch for which `head_says_all`: nothing behind the header is read."""
        cdef int64_t first = head.base_offset
        cdef int64_t count = head.records_count
        cdef Py_ssize_t i
        if count == <int64_t>head.last_offset_delta + 1:
            first = max(head.base_offset, start_offset)
            count = min(head.base_offset + head.last_offset_delta, end_offset - 1) - first + 1
        self.reserve(count)
        for i in range(count):
            if self.wanted & OFFSETS:
                (<int64_t*>self.offsets.data)[self.count + i] = first + i
            if self.wanted & TIMESTAMPS:
                (<int64_t*>self.timestamps.data)[self.count + i] = head.max_timestamp
                (<int32_t*>self.types.data)[self.count + i] = 1
        self.count += count
        return 0

    cdef object finish(self):
        return Columns(
            self.count,
            self.offsets.take(self.count * 8 if self.wanted & OFFSETS else 0),
            self.timestamps.take(self.count * 8 if self.wanted & TIMESTAMPS else 0),
            self.types.take(self.count * 4 if self.wanted & TIMESTAMPS else 0),
            *self.keys.finish(),
            *self.values.finish(),
            self.headers.finish(),
        )


cdef bint head_says_all(Head* head, int wanted, int64_t start_offset, int64_t end_offset) noexcept nogil:
    """Whether the columns follow from the header: no fields, no times of their own, and no gaps that would matter.

    As many records as offsets means that each offset has its record: deltas rise from record to record.
    """
    if wanted & FIELDS or (wanted & TIMESTAMPS and not head.attributes & LOG_APPEND_TIME_BIT):
        return False
    if head.records_count == <int64_t>head.last_offset_delta + 1:
        return True
    return (
        not wanted & OFFSETS
        and head.base_offset >= start_offset
        and head.base_offset + head.last_offset_delta < end_offset
    )


cdef Py_ssize_t announced_bytes(Source source, Py_ssize_t position, Head* head, object max_bytes) except -1:
    """The least that the records announced by a header take; refused where the batch could not hold them.

    Returns 0 for an uncompressed batch, whose records are there to be seen.
    """
    cdef Py_ssize_t size = head.size_bytes - HEADER_BYTES
    cdef Py_ssize_t needed = <Py_ssize_t>head.records_count * RECORD_BYTES_MIN
    cdef bint is_compressed = head.attributes & CODEC_MASK != 0 and size > 0
    if is_compressed:
        parse_header(source.buffer, position).codec  # raises for codecs that do not exist
        size = decompressed_bytes_limit(size, max_bytes)
    if needed > size:
        raise InvalidRecordError(f"{head.records_count} records cannot stand in {size} bytes")
    return needed if is_compressed else 0


cdef ColumnSet guess_columns(Source source, int64_t start_offset, int64_t end_offset, int wanted):
    """Columns with room for what the headers announce, as far as the bytes that are there make it likely.

    Nothing is checked here: a lie costs a buffer in proportion to the input, or makes one grow later.
    """
    cdef Py_ssize_t position = 0
    cdef Py_ssize_t count_max = 0
    cdef Py_ssize_t bytes_max = 0
    cdef Py_ssize_t size
    cdef int64_t base_offset
    cdef const uint8_t* p
    while source.size - position >= HEADER_BYTES:
        p = source.data + position
        size = <Py_ssize_t>load32(p + 8) + LOG_OVERHEAD_BYTES - HEADER_BYTES
        if size < 0 or size > source.size - position - HEADER_BYTES:
            break
        position += size + HEADER_BYTES
        base_offset = load64(p)
        if base_offset >= end_offset or base_offset < start_offset - max(0, load32(p + 23)):
            continue
        if p[ATTRIBUTES_POSITION + 1] & CODEC_MASK:
            count_max += max(0, min(load32(p + 57), size))
            bytes_max += COMPRESSION_RATIO_GUESS * size
        else:
            count_max += max(0, min(load32(p + 57), size // RECORD_BYTES_MIN))
            bytes_max += size
    return ColumnSet(wanted, count_max, bytes_max)


def decode_columns(
    buffer, int64_t start_offset, int64_t end_offset, int wanted, max_decompressed_bytes, bint is_checked=True
):
    """The records of `decode_records` as Arrow buffers."""
    start_offset = max(start_offset, 0)
    end_offset = max(start_offset, end_offset)  # counts are differences of the two
    cdef Source source = Source(buffer, is_checked)
    cdef Body body = Body()
    cdef ColumnSet columns = guess_columns(source, start_offset, end_offset, wanted)
    cdef Py_ssize_t position = 0
    cdef Py_ssize_t spent_bytes = 0
    while source.read_head(position, &body.head):
        if touches(&body.head, start_offset, end_offset):
            max_bytes = left_of(max_decompressed_bytes, spent_bytes)
            if head_says_all(&body.head, wanted, start_offset, end_offset):
                spent_bytes += announced_bytes(source, position, &body.head, max_bytes)
                columns.fill_from_head(&body.head, start_offset, end_offset)
            else:
                body.open(source, position, max_bytes)
                spent_bytes += body.decompressed_bytes
                columns.fill(body, start_offset, end_offset)
        position += body.head.size_bytes
    return columns.finish()
