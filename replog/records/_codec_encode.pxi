# Part of _codec.pyx: records to batches.

cdef inline Py_ssize_t nullable_size(object data) except -2:
    if data is None:
        return -1
    if not PyBytes_Check(data):
        raise TypeError(f"keys and values are bytes or None, not {type(data).__name__}")
    return PyBytes_GET_SIZE(data)


cdef inline Py_ssize_t field_bytes(Py_ssize_t size) noexcept:
    return varint_bytes(size) + (size if size > 0 else 0)


cdef const char* header_name(object name, Py_ssize_t* size) except NULL:
    if not isinstance(name, str):
        raise TypeError(f"header names are str, not {type(name).__name__}")
    try:
        return PyUnicode_AsUTF8AndSize(name, size)
    except UnicodeEncodeError as error:
        raise InvalidRecordError(f"header name {name!r} is not valid Unicode: {error.reason}") from None


cdef tuple as_headers(object headers):
    """Headers as a tuple of plain pairs, so that measuring and writing see the same thing."""
    cdef list pairs = []
    for name, value in headers:
        pairs.append((name, value))
    return tuple(pairs)


cdef Py_ssize_t measure_headers(tuple headers) except -1:
    cdef Py_ssize_t total = varint_bytes(len(headers))
    cdef Py_ssize_t size = 0
    for name, value in headers:
        header_name(name, &size)
        total += field_bytes(size) + field_bytes(nullable_size(value))
    return total


cdef uint8_t* put_headers(uint8_t* p, tuple headers) except NULL:
    cdef Py_ssize_t size = 0
    cdef const char* text
    p = put_varint(p, len(headers))
    for name, value in headers:
        text = header_name(name, &size)
        p = put_bytes(p, text, size)
        size = nullable_size(value)
        p = put_bytes(p, PyBytes_AS_STRING(value) if size >= 0 else NULL, size)
    return p


cdef class BatchBuilder:
    """One batch being filled, encoded record by record as it comes; see `_codec_py.BatchBuilder`."""

    cdef Output _output
    cdef Py_ssize_t _size
    cdef Py_ssize_t _max_bytes
    cdef int _attributes
    cdef bint _fixed_base
    cdef int64_t _given_base
    cdef int64_t _base_timestamp
    cdef int64_t _max_timestamp
    cdef int32_t _count

    def __init__(self, *, max_bytes, int attributes=0, base_timestamp=None):
        require_codec(attributes & CODEC_MASK)
        self._max_bytes = min(max_bytes, INT32_MAX)
        self._attributes = attributes
        self._fixed_base = base_timestamp is not None
        self._given_base = -1 if base_timestamp is None else base_timestamp
        self._reset()

    cdef int _reset(self) except -1:
        self._output = None
        self._size = HEADER_BYTES
        self._base_timestamp = self._given_base
        self._max_timestamp = -1
        self._count = 0
        return 0

    @property
    def size_bytes(self):
        """Size of the batch so far, header included, before compression."""
        return self._size

    @property
    def records_count(self):
        """Records appended so far."""
        return self._count

    cdef int _reserve(self, Py_ssize_t size) except -1:
        """Room for `size` bytes in all; at least doubles, up to the batch's own limit. A failure changes nothing."""
        cdef Py_ssize_t capacity = CAPACITY_BYTES_MIN
        cdef Output grown = Output()
        if self._output is not None:
            capacity = 2 * self._output.capacity
        grown.allocate(max(size, min(capacity, self._max_bytes), HEADER_BYTES))
        if self._output is not None:
            memcpy(grown.data, self._output.data, self._size)
        self._output = grown
        return 0

    cdef int32_t _append(self, object time, object key, object value, object headers) except -2:
        """Relative offset, or -1 when the record does not fit; nothing changes on -1 or an error."""
        cdef int64_t timestamp
        cdef Py_ssize_t key_size = nullable_size(key)
        cdef Py_ssize_t value_size = nullable_size(value)
        cdef Py_ssize_t length
        cdef tuple pairs = None
        cdef uint8_t* p
        cdef int overflow = 0
        timestamp = PyLong_AsLongLongAndOverflow(time, &overflow)
        if timestamp < -1 or overflow:
            raise InvalidRecordError(f"timestamp {time} ms is neither a time since 1970 nor -1 for none")
        cdef int64_t base = timestamp if self._count == 0 and not self._fixed_base else self._base_timestamp
        length = 1 + varint_bytes(timestamp - base) + varint_bytes(self._count)
        length += field_bytes(key_size) + field_bytes(value_size)
        if headers:
            pairs = as_headers(headers)
            length += measure_headers(pairs)
        else:
            length += 1
        cdef Py_ssize_t size = self._size + varint_bytes(length) + length
        if size > self._max_bytes:
            return -1
        if self._output is None or size > self._output.capacity:
            self._reserve(size)
        p = put_varint(self._output.data + self._size, length)
        p[0] = 0
        p = put_varint(p + 1, timestamp - base)
        p = put_varint(p, self._count)
        p = put_bytes(p, PyBytes_AS_STRING(key) if key_size >= 0 else NULL, key_size)
        p = put_bytes(p, PyBytes_AS_STRING(value) if value_size >= 0 else NULL, value_size)
        if pairs is None:
            p[0] = 0
        else:
            put_headers(p, pairs)
        self._size = size
        self._base_timestamp = base
        if timestamp > self._max_timestamp:
            self._max_timestamp = timestamp
        self._count += 1
        return self._count - 1

    def append(self, timestamp, key, value, headers=()):
        """Encodes one record; None when it does not fit and the batch stays as it was."""
        cdef int32_t offset = self._append(timestamp, key, value, headers)
        return None if offset < 0 else offset

    def extend(self, records):
        """Encodes records until one does not fit; returns how many went in."""
        cdef Py_ssize_t appended = 0
        cdef tuple record
        if self._output is None:
            self._reserve(min(self._max_bytes, HEADER_BYTES + estimate(records)))
        for item in records:
            if PyTuple_CheckExact(item) and PyTuple_GET_SIZE(item) == 4:
                record = <tuple>item
                if self._append(record[0], record[1], record[2], record[3]) < 0:
                    break
            else:
                timestamp, key, value, headers = item
                if self._append(timestamp, key, value, headers) < 0:
                    break
            appended += 1
        return appended

    def build(
        self,
        int64_t producer_id=-1,
        int16_t producer_epoch=-1,
        int32_t base_sequence=-1,
        int64_t base_offset=0,
        int32_t partition_leader_epoch=-1,
    ):
        """Seals the batch (header, checksum, compression where asked for) and empties the builder."""
        if self._count == 0:
            raise InvalidRecordError("a batch has at least one record")
        cdef Output output = self._output  # keeps the memory while the checksum runs, which may let other threads in
        cdef Py_ssize_t size = self._size
        cdef uint8_t* p = output.data
        store64(p, base_offset)
        store32(p + 8, <int32_t>(size - LOG_OVERHEAD_BYTES))
        store32(p + 12, partition_leader_epoch)
        p[16] = 2
        store16(p + 21, self._attributes & ~CODEC_MASK)
        store32(p + 23, self._count - 1)
        store64(p + 27, self._base_timestamp)
        store64(p + 35, self._max_timestamp)
        store64(p + 43, producer_id)
        store16(p + 51, producer_epoch)
        store32(p + 53, base_sequence)
        store32(p + 57, self._count)
        self._reset()
        store32(p + CRC_POSITION, <int32_t>crc_of(p, size))
        batch = output.take(size)
        return compress_batch(batch, Codec(self._attributes & CODEC_MASK)) if self._attributes & CODEC_MASK else batch


cdef Py_ssize_t estimate(object records) except -1:
    """About how many bytes the records will take; a wrong guess costs a reallocation, nothing else."""
    cdef Py_ssize_t total = 0
    if not isinstance(records, (list, tuple)):
        return 0
    for item in records:
        if PyTuple_CheckExact(item) and PyTuple_GET_SIZE(item) == 4:
            key = (<tuple>item)[1]
            value = (<tuple>item)[2]
            total += 12
            if PyBytes_Check(key):
                total += PyBytes_GET_SIZE(key)
            if PyBytes_Check(value):
                total += PyBytes_GET_SIZE(value)
    return total
