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


cdef inline bint is_empty(PyObject* headers) noexcept:
    if tuple_check_raw(headers):
        return tuple_size_raw(headers) == 0
    return list_check_raw(headers) and list_size_raw(headers) == 0


cdef inline Py_ssize_t plain_bytes(PyObject* record) noexcept:
    """About what a record takes."""
    cdef Py_ssize_t total = 12
    if tuple_check_raw(record) and tuple_size_raw(record) == 4:
        if bytes_check_raw(tuple_item_raw(record, 1)):
            total += bytes_size_raw(tuple_item_raw(record, 1))
        if bytes_check_raw(tuple_item_raw(record, 2)):
            total += bytes_size_raw(tuple_item_raw(record, 2))
    return total


cdef class ByteMeter:
    """Counts the bytes of many batches; see `_append_py.ByteMeter`."""

    cdef public int64_t held_bytes

    def __init__(self):
        self.held_bytes = 0


cdef class BatchBuilder:
    """One batch being filled, encoded record by record as it comes; see `_codec_py.BatchBuilder`."""

    cdef Output _output
    cdef ByteMeter _meter
    cdef Py_ssize_t _size
    cdef Py_ssize_t _max_bytes
    cdef int _attributes
    cdef bint _fixed_base
    cdef int64_t _given_base
    cdef int64_t _base_timestamp
    cdef int64_t _max_timestamp
    cdef int32_t _count

    def __init__(self, *, max_bytes, int attributes=0, base_timestamp=None, ByteMeter meter=None):
        if attributes & CODEC_MASK:
            require_codec(attributes & CODEC_MASK)
        self._meter = meter
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
        cdef Output first
        if self._output is None:
            first = Output()
            first.allocate(max(size, min(CAPACITY_BYTES_MIN, self._max_bytes), HEADER_BYTES))
            self._output = first
        else:
            self._output.grow(self._size, max(size, min(2 * self._output.capacity, self._max_bytes)))
        return 0

    cdef inline void _grow_to(self, Py_ssize_t size) noexcept:
        if self._meter is not None:
            self._meter.held_bytes += size - self._size
        self._size = size

    cdef int32_t _append(self, object time, object key, object value, object headers) except -2:
        """Relative offset, or -1 when the record does not fit; nothing changes on -1 or an error."""
        cdef int overflow = 0
        cdef int64_t timestamp = PyLong_AsLongLongAndOverflow(time, &overflow)
        if timestamp < -1 or overflow:
            raise InvalidRecordError(f"timestamp {time} ms is neither a time since 1970 nor -1 for none")
        return self._append_at(timestamp, key, value, as_headers(headers) if headers else None)

    cdef int32_t _append_at(self, int64_t timestamp, object key, object value, tuple pairs) except -2:
        """`_append` at a time of -1 or later; no headers are None."""
        cdef Py_ssize_t key_size = nullable_size(key)
        cdef Py_ssize_t value_size = nullable_size(value)
        cdef Py_ssize_t length
        cdef uint8_t* p
        cdef int64_t base = timestamp if self._count == 0 and not self._fixed_base else self._base_timestamp
        cdef int64_t delta = wrapping_subtract(timestamp, base)
        length = 1 + varint_bytes(delta) + varint_bytes(self._count)
        length += field_bytes(key_size) + field_bytes(value_size)
        if pairs is not None:
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
        p = put_varint(p + 1, delta)
        p = put_varint(p, self._count)
        p = put_bytes(p, PyBytes_AS_STRING(key) if key_size >= 0 else NULL, key_size)
        p = put_bytes(p, PyBytes_AS_STRING(value) if value_size >= 0 else NULL, value_size)
        if pairs is None:
            p[0] = 0
        else:
            put_headers(p, pairs)
        self._grow_to(size)
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
        if list_check_raw(<PyObject*>records):
            return self._extend_list(records)
        for item in records:
            timestamp, key, value, headers = item
            if self._append(timestamp, key, value, headers) < 0:
                break
            appended += 1
        return appended

    cdef Py_ssize_t _extend_list(self, list records) except -1:
        """`extend`, by way of `_put_plain` for the records that are as plain as most are.

        Nothing Python runs in `_put_plain`, so the list and what is in it stay what they are meanwhile; in between
        anything may happen, and the list may even become shorter.
        """
        cdef Py_ssize_t i = 0
        self._reserve_for(records)
        while i < list_size_raw(<PyObject*>records):
            if not self._put_plain(list_item_raw(<PyObject*>records, i)):
                timestamp, key, value, headers = records[i]
                if self._append(timestamp, key, value, headers) < 0:
                    break
            i += 1
        return i

    cdef int _reserve_for(self, list records) except -1:
        """Room for about what the records will take; a wrong guess costs a reallocation, nothing else."""
        cdef Py_ssize_t count = list_size_raw(<PyObject*>records)
        cdef Py_ssize_t step = max(1, count // SAMPLE_COUNT)
        cdef Py_ssize_t i = 0
        cdef Py_ssize_t sampled = 0
        cdef Py_ssize_t total = 0
        while i < count:
            total += plain_bytes(list_item_raw(<PyObject*>records, i))
            sampled += 1
            i += step
        if sampled and self._output is None:
            total = total // sampled * count
            self._reserve(min(self._max_bytes, HEADER_BYTES + RECORD_OVERHEAD_BYTES_MAX + total + total // 16))
        return 0

    cdef inline bint _put_plain(self, PyObject* record) noexcept:
        """Writes a record of exact types without headers where there is room for it; False leaves it to `_append`."""
        cdef PyObject* time
        cdef PyObject* key
        cdef PyObject* value
        cdef PyObject* headers
        cdef int64_t timestamp
        cdef int64_t delta
        cdef Py_ssize_t key_size = -1
        cdef Py_ssize_t value_size = -1
        cdef Py_ssize_t length
        cdef Py_ssize_t room
        cdef uint8_t* p
        cdef int overflow = 0
        if self._count == 0 or not tuple_check_raw(record) or tuple_size_raw(record) != 4:
            return False
        time = tuple_item_raw(record, 0)
        key = tuple_item_raw(record, 1)
        value = tuple_item_raw(record, 2)
        headers = tuple_item_raw(record, 3)
        if not int_check_raw(time) or not is_empty(headers):
            return False
        if key != none_raw:
            if not bytes_check_raw(key):
                return False
            key_size = bytes_size_raw(key)
        if value != none_raw:
            if not bytes_check_raw(value):
                return False
            value_size = bytes_size_raw(value)
        timestamp = int_value_raw(time, &overflow)
        room = min(self._max_bytes, self._output.capacity) - self._size - RECORD_OVERHEAD_BYTES_MAX
        if overflow or timestamp < -1 or room < 0 or key_size > room or value_size > room - max(key_size, 0):
            return False
        delta = wrapping_subtract(timestamp, self._base_timestamp)
        length = 2 + varint_bytes(delta) + varint_bytes(self._count) + field_bytes(key_size) + field_bytes(value_size)
        p = put_varint(self._output.data + self._size, length)
        p[0] = 0
        p = put_varint(p + 1, delta)
        p = put_varint(p, self._count)
        p = put_bytes(p, PyBytes_AS_STRING_raw(key) if key_size >= 0 else NULL, key_size)
        p = put_bytes(p, PyBytes_AS_STRING_raw(value) if value_size >= 0 else NULL, value_size)
        p[0] = 0
        self._grow_to(p + 1 - self._output.data)
        if timestamp > self._max_timestamp:
            self._max_timestamp = timestamp
        self._count += 1
        return True

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
