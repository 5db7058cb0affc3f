# Part of _codec.pyx: batches to Arrow buffers.

cdef class Column:
    """One variable-length Arrow column; nothing at all when it is not wanted."""

    cdef bint wanted
    cdef Output offsets
    cdef Output values
    cdef Output validity
    cdef Py_ssize_t count
    cdef Py_ssize_t size
    cdef Py_ssize_t null_count
    cdef Py_ssize_t bytes_max

    def __cinit__(self, bint wanted, Py_ssize_t count_max, Py_ssize_t bytes_max, Py_ssize_t first_guess_bytes):
        self.wanted = wanted
        if not wanted:
            return
        self.offsets = Output()
        self.offsets.allocate((count_max + 1) * 4)
        (<int32_t*>self.offsets.data)[0] = 0
        self.values = Output()
        self.bytes_max = bytes_max
        self.values.allocate(min(bytes_max, count_max * first_guess_bytes))
        self.validity = Output()
        self.validity.allocate((count_max + 7) // 8)
        memset(self.validity.data, 0xFF, self.validity.capacity)

    cdef inline int append(self, const uint8_t* data, int32_t size) except -1:
        if size < 0:
            self.validity.data[self.count >> 3] &= <uint8_t>~(1 << (self.count & 7))
            self.null_count += 1
        elif size > 0:
            if size > self.values.capacity - self.size:
                self.reserve(size)
            memcpy(self.values.data + self.size, data, size)
            self.size += size
        self.count += 1
        (<int32_t*>self.offsets.data)[self.count] = <int32_t>self.size
        return 0

    cdef int reserve(self, Py_ssize_t size) except -1:
        """Doubles the buffer for the data, up to what all bodies together could hold."""
        cdef Output grown = Output()
        if self.size + size > INT32_MAX:
            raise InvalidRecordError("a column would pass 2 GiB: decode fewer batches at a time")
        grown.allocate(max(self.size + size, min(2 * self.values.capacity, self.bytes_max)))
        memcpy(grown.data, self.values.data, self.size)
        self.values = grown
        return 0

    cdef tuple finish(self):
        if not self.wanted:
            return (b"", b"", None, 0)
        return (
            self.offsets.take((self.count + 1) * 4),
            self.values.take(self.size),
            self.bitmap() if self.null_count else None,
            self.null_count,
        )

    cdef bytes bitmap(self):
        if self.count & 7:
            self.validity.data[self.count >> 3] &= <uint8_t>((1 << (self.count & 7)) - 1)
        return self.validity.take((self.count + 7) // 8)


cdef class ColumnSet:
    """The columns of one `decode_columns` call."""

    cdef Py_ssize_t count
    cdef Py_ssize_t count_max
    cdef Output offsets
    cdef Output timestamps
    cdef Output types
    cdef Column keys
    cdef Column values

    def __cinit__(self, Py_ssize_t count_max, Py_ssize_t bytes_max, bint with_keys, bint with_values):
        self.count_max = count_max
        self.offsets = Output()
        self.offsets.allocate(count_max * 8)
        self.timestamps = Output()
        self.timestamps.allocate(count_max * 8)
        self.types = Output()
        self.types.allocate(count_max * 4)
        self.keys = Column(with_keys, count_max, min(bytes_max, INT32_MAX), KEY_BYTES_GUESS)
        self.values = Column(with_values, count_max, min(bytes_max, INT32_MAX), bytes_max)

    cdef int fill(self, Body body, int64_t start_offset, int64_t end_offset) except -1:
        cdef Parsed parsed
        cdef int64_t timestamp = 0
        cdef int64_t offset
        cdef int32_t kind = 1 if body.head.attributes & LOG_APPEND_TIME_BIT else 0
        while body.next(&parsed, &timestamp):
            offset = body.head.base_offset + parsed.offset_delta
            if offset < start_offset or offset >= end_offset:
                continue
            if self.count >= self.count_max:
                raise InvariantViolationError("more records than the batch headers announced")
            (<int64_t*>self.offsets.data)[self.count] = offset
            (<int64_t*>self.timestamps.data)[self.count] = timestamp
            (<int32_t*>self.types.data)[self.count] = kind
            self.count += 1
            if self.keys.wanted:
                self.keys.append(parsed.key, parsed.key_bytes)
            if self.values.wanted:
                self.values.append(parsed.value, parsed.value_bytes)
        return 0

    cdef object finish(self):
        return Columns(
            self.count,
            self.offsets.take(self.count * 8),
            self.timestamps.take(self.count * 8),
            self.types.take(self.count * 4),
            *self.keys.finish(),
            *self.values.finish(),
        )


def decode_columns(
    buffer, int64_t start_offset, int64_t end_offset, bint with_keys, bint with_values, max_decompressed_bytes
):
    """The records of `decode_records` as Arrow buffers."""
    cdef Source source = Source(buffer)
    cdef Body body = Body()
    cdef Body each
    cdef ColumnSet columns
    cdef Py_ssize_t position = 0
    cdef Py_ssize_t count_max = 0
    cdef Py_ssize_t bytes_max = 0
    cdef list bodies = []
    while source.read_head(position, &body.head):
        if touches(&body.head, start_offset, end_offset):
            body.open(source, position, max_decompressed_bytes)
            count_max += body.left
            bytes_max += body.end - body.cursor
            bodies.append(body)
            each = body
            body = Body()
            position += each.head.size_bytes
        else:
            position += body.head.size_bytes
    columns = ColumnSet(count_max, bytes_max, with_keys, with_values)
    for each in bodies:
        columns.fill(each, start_offset, end_offset)
    return columns.finish()
