# Part of _codec.pyx: batches to records.

cdef struct Parsed:
    int64_t timestamp_delta
    int32_t offset_delta
    int32_t key_bytes
    int32_t value_bytes
    int32_t headers_count
    const uint8_t* key
    const uint8_t* value
    const uint8_t* headers


cdef inline int parse_record(const uint8_t** cursor, const uint8_t* body_end, Parsed* out) noexcept nogil:
    """Reads one record and moves the cursor behind it."""
    cdef int32_t length = 0
    cdef int32_t ignored
    cdef int32_t i
    cdef const uint8_t* data
    cdef const uint8_t* end
    cdef int status = get_varint(cursor, body_end, &length)
    if status != OK:
        return status
    if length < 0 or length > body_end - cursor[0]:
        return BAD_LENGTH
    end = cursor[0] + length
    if cursor[0] >= end:
        return UNDERFLOW
    cursor[0] += 1  # the attributes byte means nothing so far
    status = get_varlong(cursor, end, &out.timestamp_delta)
    if status == OK:
        status = get_varint(cursor, end, &out.offset_delta)
    if status == OK:
        status = get_field(cursor, end, &out.key, &out.key_bytes)
    if status == OK:
        status = get_field(cursor, end, &out.value, &out.value_bytes)
    if status == OK:
        status = get_varint(cursor, end, &out.headers_count)
    if status != OK:
        return status
    if out.headers_count < 0 or out.headers_count > end - cursor[0]:
        return BAD_HEADERS
    out.headers = cursor[0]
    for i in range(out.headers_count):
        status = get_field(cursor, end, &data, &ignored)
        if status == OK and ignored < 0:
            return BAD_HEADERS
        if status == OK:
            status = get_field(cursor, end, &data, &ignored)
        if status != OK:
            return status
    return OK if cursor[0] == end else BAD_END


cdef inline int parse_start(const uint8_t** cursor, const uint8_t* body_end, Parsed* out) noexcept nogil:
    """Reads the two deltas at the start of a record and moves the cursor behind it; its fields are not looked at."""
    cdef int32_t length = 0
    cdef const uint8_t* end
    cdef int status = get_varint(cursor, body_end, &length)
    if status != OK:
        return status
    if length < 0 or length > body_end - cursor[0]:
        return BAD_LENGTH
    end = cursor[0] + length
    if cursor[0] >= end:
        return UNDERFLOW
    cursor[0] += 1
    status = get_varlong(cursor, end, &out.timestamp_delta)
    if status == OK:
        status = get_varint(cursor, end, &out.offset_delta)
    cursor[0] = end
    return status


cdef struct Head:
    int64_t base_offset
    int64_t base_timestamp
    int64_t max_timestamp
    int32_t last_offset_delta
    int32_t records_count
    int attributes
    Py_ssize_t size_bytes


cdef class Body:
    """The records of one batch, decompressed where need be, and a cursor over them."""

    cdef Head head
    cdef object owner  # keeps decompressed bytes alive; None while `cursor` points into the caller's buffer
    cdef const uint8_t* cursor
    cdef const uint8_t* end
    cdef int32_t last_delta
    cdef int32_t left
    cdef Py_ssize_t decompressed_bytes  # what it cost to open; 0 without compression

    cdef int open(self, Source source, Py_ssize_t position, object max_decompressed_bytes) except -1:
        """Points at the records of the batch whose header is already in `head` and whose checksum held."""
        cdef bytes data
        cdef Py_ssize_t size = self.head.size_bytes - HEADER_BYTES
        self.owner = None
        self.decompressed_bytes = 0
        self.cursor = source.data + position + HEADER_BYTES
        if self.head.attributes & CODEC_MASK and size:
            section = PyMemoryView_FromMemory(<char*>self.cursor, size, PyBUF_READ)
            codec = parse_header(source.buffer, position).codec  # raises for codecs that do not exist
            data = decompress(codec, section, max_decompressed_bytes)
            self.owner = data
            self.cursor = <const uint8_t*>PyBytes_AS_STRING(data)
            size = PyBytes_GET_SIZE(data)
            self.decompressed_bytes = size
        self.end = self.cursor + size
        self.last_delta = -1
        self.left = self.head.records_count
        if <int64_t>self.left * RECORD_BYTES_MIN > size:
            raise InvalidRecordError(f"{self.left} records cannot stand in {size} bytes")
        return 0

    cdef inline bint next(self, Parsed* out, int64_t* timestamp) except -1:
        """Parses the next record; False after the last, when the body must be used up."""
        if self.left == 0:
            return self.ends()
        self.left -= 1
        return self.accept(parse_record(&self.cursor, self.end, out), out, timestamp)

    cdef inline bint next_start(self, Parsed* out, int64_t* timestamp) except -1:
        """`next`, but only what stands before the fields of a record is read and checked."""
        if self.left == 0:
            return self.ends()
        self.left -= 1
        return self.accept(parse_start(&self.cursor, self.end, out), out, timestamp)

    cdef inline bint accept(self, int status, Parsed* out, int64_t* timestamp) except -1:
        if status != OK or out.offset_delta <= self.last_delta or out.offset_delta > self.head.last_offset_delta:
            return self.refuse(status, out)
        self.last_delta = out.offset_delta
        if self.head.attributes & LOG_APPEND_TIME_BIT:
            timestamp[0] = self.head.max_timestamp
        else:
            timestamp[0] = wrapping_add(self.head.base_timestamp, out.timestamp_delta)
        return True

    cdef int walk(self) except -1:
        """Checks all records as `next` does, in one loop without a look at Python in between."""
        cdef Parsed parsed
        cdef const uint8_t* cursor = self.cursor
        cdef int32_t before = -1
        cdef int status
        while self.left > 0:
            self.left -= 1
            status = parse_record(&cursor, self.end, &parsed)
            if status != OK or parsed.offset_delta <= before or parsed.offset_delta > self.head.last_offset_delta:
                self.last_delta = before
                self.refuse(status, &parsed)
            before = parsed.offset_delta
        self.cursor = cursor
        self.ends()
        return 0

    cdef bint ends(self) except -1:
        if self.cursor != self.end:
            raise InvalidRecordError(f"{self.end - self.cursor} bytes are left after {self.head.records_count} records")
        return False

    cdef bint refuse(self, int status, Parsed* out) except -1:
        if status != OK:
            raise InvalidRecordError(REASONS[status])
        raise InvalidRecordError(
            f"offset delta {out.offset_delta} after {self.last_delta}, the batch ends at {self.head.last_offset_delta}"
        )


cdef class Source:
    """A caller's buffer, held for the length of one call."""

    cdef Py_buffer view
    cdef object buffer
    cdef const uint8_t* data
    cdef Py_ssize_t size
    cdef bint held
    cdef bint is_checked  # whether checksums are looked at

    def __cinit__(self, buffer, bint is_checked=True):
        PyObject_GetBuffer(buffer, &self.view, PyBUF_SIMPLE)
        self.held = True
        self.is_checked = is_checked
        self.buffer = buffer
        self.data = <const uint8_t*>self.view.buf
        self.size = self.view.len

    def __dealloc__(self):
        if self.held:
            PyBuffer_Release(&self.view)

    cdef bint read_head(self, Py_ssize_t position, Head* head) except -1:
        """Fills `head` and checks the checksum; False when no whole batch is left. Odd headers raise in Python."""
        cdef const uint8_t* p = self.data + position
        cdef int64_t length
        if position < 0 or self.size - position < HEADER_BYTES:
            return False
        length = load32(p + 8)
        if length < HEADER_BYTES - LOG_OVERHEAD_BYTES or p[16] != 2:
            return self.refuse(position)
        head.size_bytes = length + LOG_OVERHEAD_BYTES
        if head.size_bytes > self.size - position:
            return False
        head.base_offset = load64(p)
        head.attributes = p[ATTRIBUTES_POSITION + 1]
        head.last_offset_delta = load32(p + 23)
        head.base_timestamp = load64(p + 27)
        head.max_timestamp = load64(p + 35)
        head.records_count = load32(p + 57)
        if (
            head.base_offset < 0
            or head.last_offset_delta < 0
            or head.base_offset > INT64_MAX - 1 - head.last_offset_delta
            or head.records_count < 0
            or head.records_count > <int64_t>head.last_offset_delta + 1
        ):
            return self.refuse(position)
        if self.is_checked and crc_of(p, head.size_bytes) != <uint32_t>load32(p + CRC_POSITION):
            return self.refuse(position)
        return True

    cdef bint refuse(self, Py_ssize_t position) except -1:
        """Lets the readable code find out what is wrong with a header, and say so."""
        header = parse_header(self.buffer, position)
        check_header(header)
        check_crc(self.buffer, header)
        raise InvariantViolationError("the compiled codec refused a batch header that the header functions accept")


cdef inline object bytes_or_none(const uint8_t* data, int32_t size):
    if size < 0:
        return None
    return PyBytes_FromStringAndSize(<const char*>data, size)


cdef tuple read_headers(Parsed* parsed, const uint8_t* end):
    """The headers that `parse_record` has walked over; names that are not UTF-8 get replacement characters."""
    cdef const uint8_t* cursor = parsed.headers
    cdef const uint8_t* data = NULL
    cdef int32_t size = 0
    cdef int32_t i
    cdef list headers = []
    for i in range(parsed.headers_count):
        if get_field(&cursor, end, &data, &size) != OK or size < 0:
            raise InvalidRecordError(REASONS[BAD_HEADERS])
        name = PyUnicode_DecodeUTF8(<char*>data, size, "replace")
        if get_field(&cursor, end, &data, &size) != OK:
            raise InvalidRecordError(REASONS[BAD_HEADERS])
        headers.append((name, bytes_or_none(data, size)))
    return tuple(headers)


cdef int read_records(
    Body body, int64_t start_offset, int64_t end_offset, list out, type kind=RECORD, tuple place=None
) except -1:
    """Appends the records of a range as tuples of `kind`; `place` is (topic, partition, timestamp type) where they have it."""
    cdef Parsed parsed
    cdef int64_t timestamp = 0
    cdef int64_t last_timestamp = 0
    cdef int64_t record_offset
    cdef object offset, key, value, headers
    cdef object time = 0  # consecutive records often share a timestamp: one integer object serves them
    cdef PyObject* fields[PLACED_FIELDS]
    cdef PyObject** start = fields  # where offset and timestamp go
    cdef PyObject** end = fields + 2  # where key, value and headers go
    cdef Py_ssize_t count = RECORD_FIELDS
    if place is not None:
        count = PLACED_FIELDS
        fields[0], fields[1], fields[4] = <PyObject*>place[0], <PyObject*>place[1], <PyObject*>place[2]
        start, end = fields + 2, fields + 5
    while body.next(&parsed, &timestamp):
        record_offset = body.head.base_offset + parsed.offset_delta
        if record_offset < start_offset or record_offset >= end_offset:
            continue
        if timestamp != last_timestamp:
            time = timestamp
            last_timestamp = timestamp
        offset = record_offset
        key = bytes_or_none(parsed.key, parsed.key_bytes)
        value = bytes_or_none(parsed.value, parsed.value_bytes)
        headers = read_headers(&parsed, body.cursor) if parsed.headers_count else NO_HEADERS
        start[0], start[1] = <PyObject*>offset, <PyObject*>time
        end[0], end[1], end[2] = <PyObject*>key, <PyObject*>value, <PyObject*>headers
        out.append(replog_new_tuple(kind, fields, count))
    return 0


cdef Body first_body(Source source, Py_ssize_t position, object max_decompressed_bytes):
    cdef Body body = Body()
    if not source.read_head(position, &body.head):
        source.refuse(position)
    body.open(source, position, max_decompressed_bytes)
    return body


def decode_batch(buffer, Py_ssize_t position, max_decompressed_bytes):
    """All records of the batch at `position`, control records too."""
    cdef list out = []
    read_records(first_body(Source(buffer), position, max_decompressed_bytes), 0, INT64_MAX, out)
    return out


def decode_placed(buffer, Py_ssize_t position, int64_t start_offset, type kind, tuple place, max_decompressed_bytes):
    """The records of the batch at `position` from an offset on, last first, with their place."""
    cdef list out = []
    read_records(first_body(Source(buffer), position, max_decompressed_bytes), start_offset, INT64_MAX, out, kind, place)
    out.reverse()
    return out


cdef int make_fields(list records, Py_ssize_t index, make) except -1:
    """Puts what `make` returns in the place of a field; the records are in this list only, so that they may change still."""
    cdef Py_ssize_t i
    for i in range(len(records)):
        record = records[i]
        if not PyTuple_Check(record) or PyTuple_GET_SIZE(record) != PLACED_FIELDS:
            raise TypeError(f"{type(record).__name__} is no record as decode_placed makes them")
        data = <object>PyTuple_GET_ITEM(record, index)
        if data is not None:
            made = make(data)
            Py_INCREF(made)
            PyTuple_SET_ITEM(record, index, made)
            Py_DECREF(data)  # what the record had
    return 0


def decode_fields(list records, key_of, value_of):
    """Replaces keys and values of records as `decode_placed` has made them; see its twin."""
    if key_of is not None:
        make_fields(records, PLACED_KEY, key_of)
    if value_of is not None:
        make_fields(records, PLACED_KEY + 1, value_of)


def check_records(buffer, Py_ssize_t position, max_decompressed_bytes, bint is_checked=True):
    """Walks the records of one batch without keeping them; returns their count."""
    cdef Source source = Source(buffer, is_checked)
    cdef Body body = first_body(source, position, max_decompressed_bytes)
    body.walk()
    return body.head.records_count


def survey_records(buffer, Py_ssize_t position, max_decompressed_bytes, bint is_checked=True):
    """What a leader may have to know of the records of one batch: see `RecordsSurvey`."""
    cdef Source source = Source(buffer, is_checked)
    cdef Body body = first_body(source, position, max_decompressed_bytes)
    cdef const uint8_t* cursor = body.cursor
    cdef int64_t timestamp = body.head.max_timestamp
    cdef int64_t low = -1
    cdef int64_t high = -1
    cdef bint has_one_time = body.head.attributes & LOG_APPEND_TIME_BIT
    cdef bint has_time = False
    cdef int32_t before = -1
    cdef int32_t left = body.left
    cdef int32_t null_keys = 0
    cdef int32_t[KEYLESS_TOLD_MAX] places
    cdef int status = OK
    cdef Parsed parsed
    with nogil:  # a leader looks into compressed batches in a thread
        while left > 0:
            status = parse_record(&cursor, body.end, &parsed)
            if status != OK or parsed.offset_delta <= before or parsed.offset_delta > body.head.last_offset_delta:
                break
            before = parsed.offset_delta
            if parsed.key_bytes < 0:
                if null_keys < KEYLESS_TOLD_MAX:
                    places[null_keys] = body.head.records_count - left
                null_keys += 1
            left -= 1
            if not has_one_time:
                timestamp = wrapping_add(body.head.base_timestamp, parsed.timestamp_delta)
            if timestamp != -1:
                low = min(low, timestamp) if has_time else timestamp
                high = max(high, timestamp) if has_time else timestamp
                has_time = True
    body.last_delta = before
    if left > 0:
        body.refuse(status, &parsed)
    body.cursor = cursor
    body.ends()
    told = tuple([places[i] for i in range(min(null_keys, KEYLESS_TOLD_MAX))])
    return RecordsSurvey(body.head.records_count, low, high, null_keys, told)


def find_record(buffer, Py_ssize_t position, int64_t timestamp_ms, int64_t start_offset, max_decompressed_bytes):
    """(offset, timestamp) of the first record from `start_offset` on that is at least this new; None: there is none."""
    cdef Source source = Source(buffer)
    cdef Body body = first_body(source, position, max_decompressed_bytes)
    cdef const uint8_t* cursor = body.cursor
    cdef int64_t first_delta = start_offset - body.head.base_offset
    cdef int64_t timestamp = body.head.max_timestamp
    cdef bint has_one_time = body.head.attributes & LOG_APPEND_TIME_BIT
    cdef int32_t before = -1
    cdef int32_t left = body.left
    cdef int status = OK
    cdef bint is_found = False
    cdef Parsed parsed
    with nogil:  # as many records as a client likes: other threads go on meanwhile
        while left > 0 and not is_found:
            status = parse_record(&cursor, body.end, &parsed)
            if status != OK or parsed.offset_delta <= before or parsed.offset_delta > body.head.last_offset_delta:
                break
            before = parsed.offset_delta
            left -= 1
            if not has_one_time:
                timestamp = wrapping_add(body.head.base_timestamp, parsed.timestamp_delta)
            is_found = before >= first_delta and timestamp >= timestamp_ms
    if is_found:
        return body.head.base_offset + before, timestamp
    body.last_delta = before
    if left > 0:
        body.refuse(status, &parsed)
    body.cursor = cursor
    body.ends()
    return None


cdef inline bint touches(Head* head, int64_t start_offset, int64_t end_offset) noexcept nogil:
    return (
        not head.attributes & CONTROL_BIT
        and head.base_offset + head.last_offset_delta >= start_offset
        and head.base_offset < end_offset
    )


cdef inline object left_of(object max_decompressed_bytes, Py_ssize_t spent_bytes):
    """What the next batch of a call may decompress to."""
    return min(max_decompressed_bytes, DECOMPRESSED_CALL_BYTES_MAX - spent_bytes)


def decode_records(buffer, int64_t start_offset, int64_t end_offset, max_decompressed_bytes):
    """Data records of all whole batches within [start_offset, end_offset)."""
    cdef Source source = Source(buffer)
    cdef Body body = Body()
    cdef Py_ssize_t position = 0
    cdef Py_ssize_t spent_bytes = 0
    cdef list out = []
    while source.read_head(position, &body.head):
        if touches(&body.head, start_offset, end_offset):
            body.open(source, position, left_of(max_decompressed_bytes, spent_bytes))
            spent_bytes += body.decompressed_bytes
            read_records(body, start_offset, end_offset, out)
        position += body.head.size_bytes
    return out
