# Part of _codec.pyx, _compaction.pyx and _scan.pyx: big-endian numbers, zig-zag varints, and nullable fields.
# Byte by byte, which compilers make one load or store of; so it is right on machines of any byte order.

cdef enum:
    OK = 0
    UNDERFLOW = 1
    LONG_NUMBER = 2
    BAD_FIELD = 4


cdef inline int32_t load32(const uint8_t* p) noexcept nogil:
    return <int32_t>((<uint32_t>p[0] << 24) | (<uint32_t>p[1] << 16) | (<uint32_t>p[2] << 8) | <uint32_t>p[3])


cdef inline int64_t load64(const uint8_t* p) noexcept nogil:
    return <int64_t>((<uint64_t><uint32_t>load32(p) << 32) | <uint64_t><uint32_t>load32(p + 4))


cdef inline void store32(uint8_t* p, int32_t number) noexcept nogil:
    p[0] = <uint8_t>(<uint32_t>number >> 24)
    p[1] = <uint8_t>(<uint32_t>number >> 16)
    p[2] = <uint8_t>(<uint32_t>number >> 8)
    p[3] = <uint8_t>number


cdef inline void store64(uint8_t* p, int64_t number) noexcept nogil:
    store32(p, <int32_t>(<uint64_t>number >> 32))
    store32(p + 4, <int32_t>number)


cdef inline uint64_t zigzag_of(int64_t number) noexcept nogil:
    return (<uint64_t>number << 1) ^ <uint64_t>(number >> 63)


cdef inline uint8_t* put_varint(uint8_t* p, int64_t number) noexcept nogil:
    """Writes a number in at most 10 bytes; returns the place behind it."""
    cdef uint64_t zigzag = zigzag_of(number)
    while zigzag >= 0x80:
        p[0] = <uint8_t>(zigzag | 0x80)
        p += 1
        zigzag >>= 7
    p[0] = <uint8_t>zigzag
    return p + 1


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
