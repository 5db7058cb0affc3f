# Part of _compaction.pyx: the offset map and its hash.

cdef inline uint64_t rotate(uint64_t number, int bits) noexcept nogil:
    return (number << bits) | (number >> (64 - bits))


cdef inline void sip_rounds(uint64_t* v, int count) noexcept nogil:
    cdef int i
    for i in range(count):
        v[0] += v[1]
        v[2] += v[3]
        v[1] = rotate(v[1], 13) ^ v[0]
        v[3] = rotate(v[3], 16) ^ v[2]
        v[0] = rotate(v[0], 32)
        v[2] += v[1]
        v[0] += v[3]
        v[1] = rotate(v[1], 17) ^ v[2]
        v[3] = rotate(v[3], 21) ^ v[0]
        v[2] = rotate(v[2], 32)


cdef void sip_hash(const uint8_t* data, Py_ssize_t size, uint64_t k0, uint64_t k1, uint64_t* out) noexcept nogil:
    """SipHash-2-4 with 128 bits of output (Aumasson and Bernstein), a keyed hash for short inputs."""
    cdef uint64_t[4] v
    cdef uint64_t word
    cdef Py_ssize_t whole = size & ~7
    cdef Py_ssize_t i
    v[0] = k0 ^ 0x736F6D6570736575ULL
    v[1] = k1 ^ 0x646F72616E646F6DULL ^ 0xEE
    v[2] = k0 ^ 0x6C7967656E657261ULL
    v[3] = k1 ^ 0x7465646279746573ULL
    for i in range(0, whole, 8):
        memcpy(&word, data + i, 8)
        v[3] ^= word
        sip_rounds(v, 2)
        v[0] ^= word
    word = 0
    if size > whole:
        memcpy(&word, data + whole, size - whole)
    word |= <uint64_t>(size & 0xFF) << 56
    v[3] ^= word
    sip_rounds(v, 2)
    v[0] ^= word
    v[2] ^= 0xEE
    sip_rounds(v, 4)
    out[0] = v[0] ^ v[1] ^ v[2] ^ v[3]
    v[1] ^= 0xDD
    sip_rounds(v, 4)
    out[1] = v[0] ^ v[1] ^ v[2] ^ v[3]


cdef struct Slot:
    uint64_t high
    uint64_t low
    int64_t offset_plus_one


cdef class OffsetMap:
    """Key -> offset of its newest record; see `_compaction_py.OffsetMap`."""

    cdef Slot* table
    cdef uint64_t slots
    cdef uint64_t k0
    cdef uint64_t k1
    cdef readonly Py_ssize_t capacity
    cdef readonly Py_ssize_t count

    def __cinit__(self, size_bytes, load_factor, seed):
        cdef bytes checked = checked_seed(seed)
        slots, self.capacity = map_room(size_bytes, load_factor)
        self.slots = slots
        memcpy(&self.k0, PyBytes_AS_STRING(checked), 8)
        memcpy(&self.k1, PyBytes_AS_STRING(checked) + 8, 8)
        self.table = <Slot*>calloc(slots, sizeof(Slot))  # pages that no entry touches take no memory
        if self.table == NULL:
            raise MemoryError(f"{size_bytes} bytes for log.cleaner.dedupe.buffer.size")

    def __dealloc__(self):
        free(self.table)

    cdef inline Slot* find(self, const uint8_t* key, Py_ssize_t size, uint64_t* digest) noexcept nogil:
        """The slot that holds the key, or a free one."""
        cdef uint64_t i
        sip_hash(key, size, self.k0, self.k1, digest)
        i = ((digest[0] >> 32) * self.slots) >> 32  # fewer than 2^32 slots: see `map_room`
        while self.table[i].offset_plus_one != 0 and (
            self.table[i].high != digest[0] or self.table[i].low != digest[1]
        ):
            i += 1
            if i == self.slots:
                i = 0
        return &self.table[i]

    cdef inline bint put_raw(self, const uint8_t* key, Py_ssize_t size, int64_t offset) noexcept nogil:
        cdef uint64_t[2] digest
        cdef Slot* slot = self.find(key, size, digest)
        if slot.offset_plus_one == 0:
            if self.count >= self.capacity:
                return False
            self.count += 1
            slot.high = digest[0]
            slot.low = digest[1]
        slot.offset_plus_one = offset + 1
        return True

    cdef inline int64_t get_raw(self, const uint8_t* key, Py_ssize_t size) noexcept nogil:
        cdef uint64_t[2] digest
        return self.find(key, size, digest).offset_plus_one - 1

    def put(self, key, int64_t offset):
        """Notes that `key` was written at `offset`; False when it is new and the map is full."""
        if not 0 <= offset < INT64_MAX:
            raise ValueError(f"{offset} is no offset")
        cdef bytes data = bytes(key)
        return self.put_raw(<const uint8_t*>PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data), offset)

    def get(self, key):
        """Offset of the newest record of `key`; -1 when there is none."""
        cdef bytes data = bytes(key)
        return self.get_raw(<const uint8_t*>PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data))


def key_hash(key, seed):
    """The 16 bytes that stand for a key, for comparing with the published test vectors of the hash."""
    cdef bytes data = bytes(key)
    cdef bytes checked = checked_seed(seed)
    cdef uint64_t[2] digest
    cdef uint64_t k0, k1
    memcpy(&k0, PyBytes_AS_STRING(checked), 8)
    memcpy(&k1, PyBytes_AS_STRING(checked) + 8, 8)
    sip_hash(<const uint8_t*>PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data), k0, k1, digest)
    return PyBytes_FromStringAndSize(<const char*>digest, 16)
