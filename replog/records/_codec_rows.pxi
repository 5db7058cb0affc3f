# Part of _codec.pyx: records out of columns; see `_rows_py`, its twin.

cdef enum:
    ROW_OVERHEAD_BYTES = 36
    HEADER_OVERHEAD_BYTES = 10
    VIEWS_MAX = 13  # timestamps; keys, values and values of headers: 3 each; lists; names of headers: 2

cdef struct Field:
    const uint8_t* offsets  # NULL: a null in every row
    const uint8_t* data
    Py_ssize_t data_bytes
    const uint8_t* validity  # NULL: nothing is null


cdef inline int32_t native32(const uint8_t* p, Py_ssize_t index) noexcept nogil:
    cdef int32_t number
    memcpy(&number, p + 4 * index, 4)
    return number


cdef inline bint get_cell(const Field* field, Py_ssize_t row, const char** data, Py_ssize_t* size) noexcept nogil:
    """A cell, its size -1 for null; False where its bytes are not there."""
    cdef int32_t start
    cdef int32_t end
    size[0] = -1
    if field.offsets == NULL or (field.validity != NULL and not field.validity[row >> 3] >> (row & 7) & 1):
        return True
    start = native32(field.offsets, row)
    end = native32(field.offsets, row + 1)
    if start < 0 or end < start or end > field.data_bytes:
        return False
    data[0] = <const char*>field.data + start
    size[0] = end - start
    return True


cdef inline uint32_t murmur2_of(const uint8_t* data, Py_ssize_t size) noexcept nogil:
    cdef uint32_t m = 0x5BD1E995
    cdef uint32_t h = 0x9747B28CU ^ <uint32_t>size
    cdef uint32_t k
    cdef Py_ssize_t i = 0
    while i + 4 <= size:
        memcpy(&k, data + i, 4)
        k *= m
        k ^= k >> 24
        k *= m
        h = (h * m) ^ k
        i += 4
    if i < size:
        k = 0
        memcpy(&k, data + i, size - i)
        h = (h ^ k) * m
    h = (h ^ (h >> 13)) * m
    return h ^ (h >> 15)


def murmur2(data):
    """The hash of a key, as `key_hash.murmur2`."""
    cdef object whole = data if PyBytes_Check(data) else bytes(memoryview(data))
    return murmur2_of(<const uint8_t*>PyBytes_AS_STRING(whole), PyBytes_GET_SIZE(whole))


cdef class RowSource:
    """The rows of some columns, to be put into batches; the buffers are held while this lives."""

    cdef Py_buffer _views[VIEWS_MAX]
    cdef int _views_count
    cdef readonly Py_ssize_t count
    cdef int64_t _timestamp
    cdef const uint8_t* _timestamps
    cdef Field _keys
    cdef Field _values
    cdef bint _has_headers
    cdef const uint8_t* _lists
    cdef Py_ssize_t _headers_count
    cdef Field _names
    cdef Field _header_values

    def __cinit__(self, columns, timestamp_ms):
        cdef Py_ssize_t size = 0
        self.count = columns.count
        check_time(0, timestamp_ms)
        self._timestamp = timestamp_ms
        self._timestamps = self._hold("timestamps", columns.timestamps, self.count, 8, &size)
        self._fill(&self._keys, "key", columns.key_offsets, columns.key_data, columns.key_validity, self.count)
        self._fill(
            &self._values, "value", columns.value_offsets, columns.value_data, columns.value_validity, self.count
        )
        headers = columns.headers
        self._has_headers = headers is not None
        if headers is None:
            return
        self._lists = self._hold("headers", headers.list_offsets, self.count + 1, 4, &size)
        self._headers_count = headers.headers_count
        self._fill(&self._names, "header", headers.key_offsets, headers.key_data, None, self._headers_count)
        self._fill(
            &self._header_values,
            "header",
            headers.value_offsets,
            headers.value_data,
            headers.value_validity,
            self._headers_count,
        )

    def __dealloc__(self):
        cdef int i
        for i in range(self._views_count):
            PyBuffer_Release(&self._views[i])

    cdef const uint8_t* _hold(self, str name, object data, Py_ssize_t count, int width, Py_ssize_t* size) except? NULL:
        """The memory of a buffer; NULL for an empty one."""
        if self._views_count == VIEWS_MAX:
            raise InvariantViolationError("more columns than are known")
        PyObject_GetBuffer(data, &self._views[self._views_count], PyBUF_SIMPLE)
        cdef Py_buffer* view = &self._views[self._views_count]
        self._views_count += 1
        size[0] = view.len
        if view.len == 0:
            return NULL
        if count < 0 or count > view.len // width:
            raise too_short(name, count)
        return <const uint8_t*>view.buf

    cdef int _fill(
        self, Field* field, str name, object offsets, object data, object validity, Py_ssize_t count
    ) except -1:
        cdef Py_ssize_t size = 0
        field.offsets = self._hold(name, offsets, count + 1, 4, &size)
        field.data = self._hold(name, data, 0, 1, &size)
        field.data_bytes = size
        field.validity = NULL
        if validity is not None:
            field.validity = self._hold(name, validity, 0, 1, &size)
            if size < (count + 7) // 8:
                raise too_short(name, count)
        return 0

    cdef int64_t _time(self, Py_ssize_t row) except? -2:
        cdef int64_t timestamp = self._timestamp
        if self._timestamps != NULL:
            memcpy(&timestamp, self._timestamps + 8 * row, 8)
            if timestamp < -1:
                check_time(row, timestamp)
        return timestamp

    cdef int _cell(self, const Field* field, str name, Py_ssize_t row, const char** data, Py_ssize_t* size) except -1:
        if not get_cell(field, row, data, size):
            raise not_there(name, row)
        return 0

    cdef int _headers_of(self, Py_ssize_t row, Py_ssize_t* start, Py_ssize_t* end) except -1:
        start[0] = end[0] = 0
        if self._has_headers and self._lists != NULL:
            start[0] = native32(self._lists, row)
            end[0] = native32(self._lists, row + 1)
            if start[0] < 0 or end[0] < start[0] or end[0] > self._headers_count:
                raise not_there("headers", row)
        return 0

    cdef int _header(
        self, Py_ssize_t row, Py_ssize_t number, const char** name, Py_ssize_t* name_size, const char** data,
        Py_ssize_t* size
    ) except -1:
        """A header whose name is valid UTF-8, as readers expect it."""
        if not get_cell(&self._names, number, name, name_size) or not get_cell(
            &self._header_values, number, data, size
        ):
            raise not_there("header", row)
        name_size[0] = max(name_size[0], 0)
        if name_size[0] and not is_ascii(<const uint8_t*>name[0], <int32_t>name_size[0]):
            try:
                PyUnicode_DecodeUTF8(name[0], name_size[0], NULL)
            except UnicodeDecodeError:
                raise InvalidRecordError(f"row {row}: the name of a header is not valid UTF-8") from None
        return 0

    cdef Py_ssize_t _bound(self, Py_ssize_t row) except -1:
        cdef const char* data = NULL
        cdef const char* name = NULL
        cdef Py_ssize_t size = 0
        cdef Py_ssize_t name_size = 0
        cdef Py_ssize_t start = 0
        cdef Py_ssize_t end = 0
        cdef Py_ssize_t number
        cdef Py_ssize_t total = ROW_OVERHEAD_BYTES
        self._time(row)
        self._cell(&self._keys, "key", row, &data, &size)
        total += max(size, 0)
        self._cell(&self._values, "value", row, &data, &size)
        total += max(size, 0)
        self._headers_of(row, &start, &end)
        for number in range(start, end):
            self._header(row, number, &name, &name_size, &data, &size)
            total += HEADER_OVERHEAD_BYTES + name_size + max(size, 0)
        return total

    def within(self, Py_ssize_t start, Py_ssize_t bytes_max):
        """The end of the rows from `start` on that take at most so many bytes, one at least, and a bound of their size."""
        cdef Py_ssize_t row = max(start, 0)
        cdef Py_ssize_t total = 0
        cdef Py_ssize_t size
        while row < self.count:
            size = self._bound(row)
            if row > start and total + size > bytes_max:
                break
            total += size
            row += 1
        return row, total

    def partitions(self, int32_t partitions_count, given=None, bint is_by_key=True):
        """The partition of each row, int32; -1 where it is still to be chosen."""
        cdef const uint8_t[::1] fixed = memoryview(b"" if given is None else given).cast("B")
        cdef Output output = Output()
        cdef const char* data = NULL
        cdef Py_ssize_t size = 0
        cdef Py_ssize_t row
        cdef int32_t number
        if partitions_count < 1:
            raise ZeroDivisionError("a topic has at least one partition")
        if given is not None and fixed.shape[0] // 4 < self.count:
            raise too_short("partitions", self.count)
        output.allocate(max(4 * self.count, 1))
        for row in range(self.count):
            number = native32(&fixed[0], row) if given is not None else -1
            size = -1
            if is_by_key and number == -1:
                self._cell(&self._keys, "key", row, &data, &size)
            if size >= 0:
                number = <int32_t>(murmur2_of(<const uint8_t*>data, size) & 0x7FFFFFFF) % partitions_count
            memcpy(output.data + 4 * row, &number, 4)
        return output.take(4 * self.count)


cdef Py_ssize_t measure_row_headers(RowSource source, Py_ssize_t row, Py_ssize_t start, Py_ssize_t end) except -1:
    cdef const char* name = NULL
    cdef const char* data = NULL
    cdef Py_ssize_t name_size = 0
    cdef Py_ssize_t size = 0
    cdef Py_ssize_t total = varint_bytes(end - start)
    cdef Py_ssize_t number
    for number in range(start, end):
        source._header(row, number, &name, &name_size, &data, &size)
        total += field_bytes(name_size) + field_bytes(size)
    return total


cdef uint8_t* put_row_headers(
    uint8_t* p, const uint8_t* limit, RowSource source, Py_ssize_t row, Py_ssize_t start, Py_ssize_t end
) except NULL:
    """The headers that were measured; what has changed since, against all rules, stays within `limit`."""
    cdef const char* name = NULL
    cdef const char* data = NULL
    cdef Py_ssize_t name_size = 0
    cdef Py_ssize_t size = 0
    cdef Py_ssize_t number
    p = put_varint(p, end - start)
    for number in range(start, end):
        source._header(row, number, &name, &name_size, &data, &size)
        if field_bytes(name_size) + field_bytes(size) > limit - p:
            raise InvariantViolationError("the columns changed while they were read")
        p = put_bytes(p, name, name_size)
        p = put_bytes(p, data, size)
    return p


cdef bint put_row(BatchBuilder builder, RowSource source, Py_ssize_t row) except -1:
    """Encodes one row; False, and nothing changes, where it does not fit."""
    cdef const char* key = NULL
    cdef const char* value = NULL
    cdef Py_ssize_t key_size = 0
    cdef Py_ssize_t value_size = 0
    cdef Py_ssize_t start = 0
    cdef Py_ssize_t end = 0
    cdef int64_t timestamp = source._time(row)
    cdef int64_t base = timestamp if builder._count == 0 and not builder._fixed_base else builder._base_timestamp
    cdef int64_t delta = wrapping_subtract(timestamp, base)
    cdef Py_ssize_t length = 1 + varint_bytes(delta) + varint_bytes(builder._count)
    cdef Py_ssize_t size
    cdef uint8_t* p
    source._cell(&source._keys, "key", row, &key, &key_size)
    source._cell(&source._values, "value", row, &value, &value_size)
    source._headers_of(row, &start, &end)
    length += field_bytes(key_size) + field_bytes(value_size)
    length += measure_row_headers(source, row, start, end) if end > start else 1
    size = builder._size + varint_bytes(length) + length
    if size > builder._max_bytes:
        return False
    if builder._output is None or size > builder._output.capacity:
        builder._reserve(size)
    p = put_varint(builder._output.data + builder._size, length)
    p[0] = 0
    p = put_varint(p + 1, delta)
    p = put_varint(p, builder._count)
    p = put_bytes(p, key, key_size)
    p = put_bytes(p, value, value_size)
    if end > start:
        put_row_headers(p, builder._output.data + size, source, row, start, end)
    else:
        p[0] = 0
    builder._grow_to(size)
    builder._base_timestamp = base
    if timestamp > builder._max_timestamp:
        builder._max_timestamp = timestamp
    builder._count += 1
    return True


def extend_rows(BatchBuilder builder not None, RowSource source not None, rows, Py_ssize_t first):
    """Encodes rows until one does not fit; returns how many went in."""
    cdef const uint8_t[::1] numbers = memoryview(rows).cast("B")
    cdef Py_ssize_t count = numbers.shape[0] // 4
    cdef Py_ssize_t added = 0
    cdef Py_ssize_t i = max(first, 0)
    cdef int32_t row
    if builder._output is None and i < count and 0 <= native32(&numbers[0], i) < source.count:
        row = native32(&numbers[0], i)  # all like the first: a wrong guess costs a reallocation
        builder._reserve(min(builder._max_bytes, HEADER_BYTES + source._bound(row) * (count - i)))
    while i < count:
        row = native32(&numbers[0], i)
        if not 0 <= row < source.count:
            raise no_such_row(row, source.count)
        if not put_row(builder, source, row):
            break
        added += 1
        i += 1
    return added


def group_rows(partitions, Py_ssize_t start, Py_ssize_t end, int32_t partitions_count, int32_t instead):
    """The numbers of the rows [start, end), int32, by their partition, in order within each."""
    cdef const uint8_t[::1] numbers = memoryview(partitions).cast("B")
    cdef Py_ssize_t all_rows = numbers.shape[0] // 4
    if not 0 <= start <= end <= all_rows:
        raise InvalidRecordError(f"rows {start} to {end} of {all_rows}")
    if start == end:
        return []
    cdef Output places = Output()
    cdef Output output = Output()
    cdef int32_t* place
    cdef int32_t number
    cdef int32_t row
    cdef int32_t begin = 0
    places.allocate(4 * <Py_ssize_t>max(partitions_count, 1))
    place = <int32_t*>places.data
    memset(place, 0, places.capacity)
    for row in range(start, end):
        number = native32(&numbers[0], row)
        number = instead if number == -1 else number
        if not 0 <= number < partitions_count:
            raise no_such_partition(row, number, partitions_count)
        place[number] += 1
    output.allocate(4 * (end - start))
    for number in range(partitions_count):
        begin += place[number]
        place[number] = begin - place[number]
    for row in range(start, end):
        number = native32(&numbers[0], row)
        number = instead if number == -1 else number
        memcpy(output.data + 4 * <Py_ssize_t>place[number], &row, 4)
        place[number] += 1
    grouped = memoryview(output.take(4 * (end - start)))
    groups = []
    begin = 0
    for number in range(partitions_count):
        if place[number] > begin:
            groups.append((number, grouped[4 * begin : 4 * place[number]]))
            begin = place[number]
    return groups
