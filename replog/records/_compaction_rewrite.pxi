# Part of _compaction.pyx: batches without what is superseded.

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
        delta_bytes = <int>(put_varint(delta, number) - &delta[0])
        self.out.put(length, put_varint(length, 1 + delta_bytes + (raw.end - raw.rest)) - &length[0])
        self.out.put(&zero, 1)
        self.out.put(delta, delta_bytes)
        self.out.put(raw.rest, raw.end - raw.rest)
        return 0

    cdef int finish(self, Py_ssize_t start, bint gets_horizon) except -1:
        """Compresses where the original was, and corrects the header of the batch that begins at `start`."""
        cdef Head* head = &self.walk.head
        cdef uint8_t* p
        cdef bytes records
        cdef bytes section
        cdef bint is_stored = False
        if head.attributes & CODEC_MASK:
            codec = parse_header(self.walk.buffer, head.position).codec
            records = self.out.taken(start + HEADER_BYTES)
            compressed = compress_readable(codec, records)
            is_stored = compressed is None
            section = records if is_stored else compressed
            self.out.put(<const uint8_t*>PyBytes_AS_STRING(section), PyBytes_GET_SIZE(section))
        p = self.out.data + start
        if is_stored:
            p[ATTRIBUTES_POSITION] &= ~CODEC_MASK
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
