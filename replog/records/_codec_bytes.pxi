# Part of _codec.pyx: big-endian numbers, zig-zag varints, and the buffers that results are written into.

cdef extern from *:
    int __builtin_clzll(unsigned long long number) noexcept nogil


cdef inline int64_t wrapping_add(int64_t a, int64_t b) noexcept nogil:
    """Modulo 2^64, as Java counts: a delta may wrap, and wraps back when it is read."""
    return <int64_t>(<uint64_t>a + <uint64_t>b)


cdef inline int64_t wrapping_subtract(int64_t a, int64_t b) noexcept nogil:
    return <int64_t>(<uint64_t>a - <uint64_t>b)


cdef inline uint64_t zigzag_of(int64_t number) noexcept nogil:
    return (<uint64_t>number << 1) ^ <uint64_t>(number >> 63)


cdef inline int64_t load64(const uint8_t* p) noexcept nogil:
    cdef uint64_t raw
    memcpy(&raw, p, 8)
    return <int64_t>replog_swap64(raw)


cdef inline int32_t load32(const uint8_t* p) noexcept nogil:
    cdef uint32_t raw
    memcpy(&raw, p, 4)
    return <int32_t>replog_swap32(raw)


cdef inline void store64(uint8_t* p, int64_t number) noexcept nogil:
    cdef uint64_t raw = replog_swap64(<uint64_t>number)
    memcpy(p, &raw, 8)


cdef inline void store32(uint8_t* p, int32_t number) noexcept nogil:
    cdef uint32_t raw = replog_swap32(<uint32_t>number)
    memcpy(p, &raw, 4)


cdef inline void store16(uint8_t* p, int number) noexcept nogil:
    p[0] = <uint8_t>(number >> 8)
    p[1] = <uint8_t>number


cdef inline int varint_bytes(int64_t number) noexcept nogil:
    return (70 - __builtin_clzll(zigzag_of(number) | 1)) // 7


cdef inline uint8_t* put_varint(uint8_t* p, int64_t number) noexcept nogil:
    cdef uint64_t zigzag = zigzag_of(number)
    while zigzag >= 0x80:
        p[0] = <uint8_t>(zigzag | 0x80)
        p += 1
        zigzag >>= 7
    p[0] = <uint8_t>zigzag
    return p + 1


cdef inline void copy_bytes(uint8_t* p, const char* data, Py_ssize_t size) noexcept nogil:
    """memcpy; up to 16 bytes, which keys often have, without the call."""
    cdef uint64_t low
    cdef uint64_t high
    if size < 8 or size > 16:
        memcpy(p, data, size)
        return
    memcpy(&low, data, 8)
    memcpy(&high, data + size - 8, 8)
    memcpy(p, &low, 8)
    memcpy(p + size - 8, &high, 8)


cdef inline uint8_t* put_bytes(uint8_t* p, const char* data, Py_ssize_t size) noexcept nogil:
    """Length and data; a size of -1 is null."""
    p = put_varint(p, size)
    if size > 0:
        copy_bytes(p, data, size)
        p += size
    return p


cdef inline int get_number(const uint8_t** cursor, const uint8_t* end, int bytes_max, uint64_t* out) noexcept nogil:
    """The zig-zag form as read; the caller cuts it to 32 or 64 bits."""
    cdef const uint8_t* p = cursor[0]
    cdef uint64_t number = 0
    cdef int i
    if p < end and p[0] < 0x80:
        out[0] = p[0]
        cursor[0] = p + 1
        return OK
    if end - p >= 2 and p[1] < 0x80:  # most that is longer
        out[0] = (p[0] & 0x7F) | <uint64_t>p[1] << 7
        cursor[0] = p + 2
        return OK
    for i in range(bytes_max):
        if p + i >= end:
            return UNDERFLOW
        number |= <uint64_t>(p[i] & 0x7F) << (7 * i)
        if p[i] < 0x80:
            out[0] = number
            cursor[0] = p + i + 1
            return OK
    return LONG_NUMBER


cdef inline int get_varint(const uint8_t** cursor, const uint8_t* end, int32_t* out) noexcept nogil:
    cdef uint64_t number
    cdef uint32_t zigzag
    cdef int status = get_number(cursor, end, 5, &number)
    if status == OK:
        zigzag = <uint32_t>number
        out[0] = <int32_t>((zigzag >> 1) ^ (0 - (zigzag & 1)))
    return status


cdef inline int get_varlong(const uint8_t** cursor, const uint8_t* end, int64_t* out) noexcept nogil:
    cdef uint64_t zigzag
    cdef int status = get_number(cursor, end, 10, &zigzag)
    if status == OK:
        out[0] = <int64_t>((zigzag >> 1) ^ (0 - (zigzag & 1)))
    return status


cdef inline int get_field(
    const uint8_t** cursor, const uint8_t* end, const uint8_t** data, int32_t* size
) noexcept nogil:
    """A nullable field: `size` is -1 for null, else `data` has that many bytes before `end`."""
    cdef int status = get_varint(cursor, end, size)
    if status != OK:
        return status
    data[0] = cursor[0]
    if size[0] < -1 or size[0] > end - cursor[0]:
        return BAD_FIELD
    if size[0] > 0:
        cursor[0] += size[0]
    return OK


cdef inline uint32_t crc_of(const uint8_t* batch, Py_ssize_t size_bytes) except? 0:
    """CRC-32C of a whole batch; its caller keeps the memory alive, because other threads may run meanwhile."""
    section = PyMemoryView_FromMemory(<char*>(batch + ATTRIBUTES_POSITION), size_bytes - ATTRIBUTES_POSITION, PyBUF_READ)
    return <uint32_t>crc32c(section)


cdef class Output:
    """A bytes object being written; cut to size when it is taken."""

    cdef PyObject* raw
    cdef uint8_t* data
    cdef Py_ssize_t capacity

    def __cinit__(self):
        self.raw = NULL

    def __dealloc__(self):
        Py_XDECREF(self.raw)

    cdef int grow(self, Py_ssize_t used, Py_ssize_t capacity) except -1:
        """Makes room for `capacity` bytes and keeps the first `used`; a failure changes nothing."""
        cdef PyObject* old = self.raw
        cdef const uint8_t* data = self.data
        self.allocate(capacity)
        memcpy(self.data, data, used)
        Py_XDECREF(old)
        return 0

    cdef int allocate(self, Py_ssize_t capacity) except -1:
        cdef PyObject* raw = PyBytes_FromStringAndSize_raw(NULL, capacity)
        if raw == NULL:
            raise MemoryError(f"{capacity} bytes")
        self.raw = raw
        self.data = <uint8_t*>PyBytes_AS_STRING_raw(raw)
        self.capacity = capacity
        return 0

    cdef bytes take(self, Py_ssize_t size):
        """Hands the first `size` bytes over as an ordinary bytes object; only once."""
        if size != self.capacity:
            _PyBytes_Resize(&self.raw, size)  # on failure raises, and `raw` is NULL
        result = <object>self.raw
        Py_DECREF_raw(self.raw)
        self.raw = NULL
        return <bytes>result
