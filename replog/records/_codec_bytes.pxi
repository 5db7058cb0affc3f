# Part of _codec.pyx: fields of records, and the buffers that results are written into.

cdef extern from *:
    int __builtin_clzll(unsigned long long number) noexcept nogil


cdef inline int64_t wrapping_add(int64_t a, int64_t b) noexcept nogil:
    """Modulo 2^64, as Java counts: a delta may wrap, and wraps back when it is read."""
    return <int64_t>(<uint64_t>a + <uint64_t>b)


cdef inline int64_t wrapping_subtract(int64_t a, int64_t b) noexcept nogil:
    return <int64_t>(<uint64_t>a - <uint64_t>b)


cdef inline void store16(uint8_t* p, int number) noexcept nogil:
    p[0] = <uint8_t>(number >> 8)
    p[1] = <uint8_t>number


cdef inline int varint_bytes(int64_t number) noexcept nogil:
    return (70 - __builtin_clzll(zigzag_of(number) | 1)) // 7


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
