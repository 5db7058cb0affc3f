# Part of _compaction.pyx: the batches of a buffer, and their records.

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
    int32_t key_bytes
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
            or head.base_offset > INT64_MAX - 1 - head.last_offset_delta
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
        cdef int32_t length = 0
        cdef int32_t delta = 0
        cdef int64_t number = 0
        cdef const uint8_t* p = self.cursor
        raw.start = p
        if get_varint(&p, self.body_end, &length) != OK or length < 1 or length > self.body_end - p:
            return OUT_OF_RANGE
        raw.end = p + length
        p += 1  # the attributes byte means nothing so far
        if get_varlong(&p, raw.end, &number) != OK:
            return OUT_OF_RANGE
        raw.rest = p
        if get_varint(&p, raw.end, &delta) != OK or get_field(&p, raw.end, &raw.key, &raw.key_bytes) != OK:
            return OUT_OF_RANGE
        if get_varint(&p, raw.end, &length) != OK or length < -1 or length > raw.end - p:
            return OUT_OF_RANGE
        raw.has_value = length >= 0
        raw.offset_delta = delta
        if delta <= self.last_delta or delta > self.head.last_offset_delta:
            return BAD_OFFSET
        self.last_delta = delta
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
