# Part of _compiled.pyx: the grammar of json, byte by byte.

cdef inline bint is_digit(uint8_t byte) noexcept:
    return 48 <= byte <= 57


cdef inline int hex_digit(uint8_t byte) noexcept:
    if is_digit(byte):
        return byte - 48
    byte |= 0x20
    return byte - 87 if 97 <= byte <= 102 else -1


cdef inline int32_t hex_number(const uint8_t* p) noexcept:
    """Four digits; -1: they are none."""
    cdef int32_t number = 0
    cdef int place, digit
    for place in range(4):
        digit = hex_digit(p[place])
        if digit < 0:
            return -1
        number = number << 4 | digit
    return number


cdef inline uint8_t plain_of(uint8_t escaped) noexcept:
    """The character that a backslash and this one stand for; 0: none."""
    if escaped == QUOTE or escaped == BACKSLASH or escaped == b"/":
        return escaped
    if escaped == b"b":
        return 8
    if escaped == b"f":
        return 12
    if escaped == b"n":
        return 10
    if escaped == b"r":
        return 13
    return 9 if escaped == b"t" else 0


cdef inline uint8_t* put_character(uint8_t* out, uint32_t code) noexcept:
    """Writes a character as UTF-8: never more bytes than its escape has."""
    if code < 0x80:
        out[0] = <uint8_t>code
        return out + 1
    if code < 0x800:
        out[0] = <uint8_t>(0xC0 | code >> 6)
        out[1] = <uint8_t>(0x80 | code & 0x3F)
        return out + 2
    if code < 0x10000:
        out[0] = <uint8_t>(0xE0 | code >> 12)
        out[1] = <uint8_t>(0x80 | code >> 6 & 0x3F)
        out[2] = <uint8_t>(0x80 | code & 0x3F)
        return out + 3
    out[0] = <uint8_t>(0xF0 | code >> 18)
    out[1] = <uint8_t>(0x80 | code >> 12 & 0x3F)
    out[2] = <uint8_t>(0x80 | code >> 6 & 0x3F)
    out[3] = <uint8_t>(0x80 | code & 0x3F)
    return out + 4


cdef bint is_utf8(const uint8_t* p, const uint8_t* end) noexcept:
    """As Unicode's table 3-7 has it: no surrogates, nothing longer than it must be."""
    cdef uint8_t first, low, high
    cdef Py_ssize_t place, more
    while p < end:
        first = p[0]
        p += 1
        if first < 0x80:
            continue
        if first < 0xC2 or first > 0xF4:
            return False
        more = 1 if first < 0xE0 else 2 if first < 0xF0 else 3
        if end - p < more:
            return False
        low, high = 0x80, 0xBF
        if first == 0xE0:
            low = 0xA0
        elif first == 0xED:
            high = 0x9F
        elif first == 0xF0:
            low = 0x90
        elif first == 0xF4:
            high = 0x8F
        if not low <= p[0] <= high:
            return False
        for place in range(1, more):
            if p[place] & 0xC0 != 0x80:
                return False
        p += more
    return True


cdef class Tokens:
    """A place in one value, and what was read there last."""

    cdef const uint8_t* p
    cdef const uint8_t* end
    cdef const uint8_t* text
    cdef Py_ssize_t text_size
    cdef Growing scratch
    cdef int64_t cells
    cdef int depth

    def __dealloc__(self):
        free(self.scratch.data)

    cdef inline uint8_t next_byte(self) noexcept:
        """Passes whitespace over and returns what comes then; 0 at the end, which no token begins with."""
        while self.p < self.end and (self.p[0] == 32 or self.p[0] == 10 or self.p[0] == 13 or self.p[0] == 9):
            self.p += 1
        return self.p[0] if self.p < self.end else 0

    cdef inline bint literal(self, const char* word, Py_ssize_t size) noexcept:
        if self.end - self.p < size or memcmp(self.p, word, size) != 0:
            return False
        self.p += size
        return True

    cdef inline bint enter(self, uint8_t bracket) noexcept:
        if self.next_byte() != bracket or self.depth == DEPTH_MAX:
            return False
        self.p += 1
        self.depth += 1
        return True

    cdef inline bint leave_empty(self, uint8_t bracket) noexcept:
        if self.next_byte() != bracket:
            return False
        self.p += 1
        self.depth -= 1
        return True

    cdef inline int comma_or(self, uint8_t bracket) noexcept:
        """1: a comma; 0: the bracket; -1: neither."""
        cdef uint8_t byte = self.next_byte()
        if byte == b",":
            self.p += 1
            return 1
        return 0 if self.leave_empty(bracket) else -1

    cdef inline bint colon(self) noexcept:
        if self.next_byte() != b":":
            return False
        self.p += 1
        return True

    cdef inline int name(self) except -1:
        self.next_byte()
        return self.string()

    cdef int string(self) except -1:
        """Reads a string into `text`, which holds until the next one is read."""
        cdef const uint8_t* q = self.p + 1
        cdef const uint8_t* start = q
        cdef uint8_t seen = 0
        if self.p == self.end or self.p[0] != QUOTE:
            return MISFIT
        while q < self.end and q[0] != QUOTE:
            if q[0] < 32:
                return MISFIT
            if q[0] == BACKSLASH:
                return self.escaped_string(start, q)
            seen |= q[0]
            q += 1
        if q >= self.end or (seen & 0x80 and not is_utf8(start, q)):
            return MISFIT
        self.text, self.text_size, self.p = start, q - start, q + 1
        return FITS

    cdef int escaped_string(self, const uint8_t* start, const uint8_t* q) except -1:
        """The same of one with a backslash at `q`."""
        cdef const uint8_t* close
        cdef uint8_t* out
        cdef uint8_t plain
        while q < self.end and q[0] != QUOTE:
            if q[0] < 32:
                return MISFIT
            q += 2 if q[0] == BACKSLASH else 1
        if q >= self.end or not is_utf8(start, q):
            return MISFIT
        close, q = q, start
        out = room_for(&self.scratch, close - start)
        while q < close:
            if q[0] != BACKSLASH:
                out[0] = q[0]
                out += 1
                q += 1
            elif q[1] == b"u":
                q = self.escaped_character(q, close, &out)
                if q == NULL:
                    return MISFIT
            else:
                plain = plain_of(q[1])
                if not plain:
                    return MISFIT
                out[0] = plain
                out += 1
                q += 2
        self.text, self.text_size, self.p = self.scratch.data, out - self.scratch.data, close + 1
        return FITS

    cdef const uint8_t* escaped_character(self, const uint8_t* q, const uint8_t* close, uint8_t** out) noexcept:
        """Writes the character of the escape at `q`, or of two that are a pair; returns what is behind, NULL: it is none."""
        cdef int32_t code = hex_number(q + 2) if close - q >= 6 else -1
        cdef int32_t low
        if code < 0 or 0xDC00 <= code <= 0xDFFF:
            return NULL
        if 0xD800 <= code <= 0xDBFF:
            if close - q < 12 or q[6] != BACKSLASH or q[7] != b"u":
                return NULL
            low = hex_number(q + 8)
            if not 0xDC00 <= low <= 0xDFFF:
                return NULL
            out[0] = put_character(out[0], 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00))
            return q + 12
        out[0] = put_character(out[0], code)
        return q + 6

    cdef Py_ssize_t number_size(self, bint* is_whole) noexcept:
        """The length of the number that begins here; 0: none does."""
        cdef const uint8_t* q = self.p
        if q < self.end and q[0] == b"-":
            q += 1
        if q == self.end or not is_digit(q[0]):
            return 0
        if q[0] == b"0":
            q += 1
        else:
            while q < self.end and is_digit(q[0]):
                q += 1
        is_whole[0] = True
        if q < self.end and q[0] == b".":
            is_whole[0] = False
            q += 1
            if q == self.end or not is_digit(q[0]):
                return 0
            while q < self.end and is_digit(q[0]):
                q += 1
        if q < self.end and q[0] | 0x20 == b"e":
            is_whole[0] = False
            q += 1
            if q < self.end and (q[0] == b"+" or q[0] == b"-"):
                q += 1
            if q == self.end or not is_digit(q[0]):
                return 0
            while q < self.end and is_digit(q[0]):
                q += 1
        return q - self.p

    cdef bint whole_number(self, int bits, int64_t* number) noexcept:
        """Reads an integer of so many bits."""
        cdef bint is_whole = False
        cdef Py_ssize_t size = self.number_size(&is_whole)
        cdef const uint8_t* end = self.p + size
        cdef bint is_negative = size and self.p[0] == b"-"
        cdef uint64_t limit = (<uint64_t>1 << (bits - 1)) - (0 if is_negative else 1)
        cdef uint64_t magnitude = 0
        if not size or not is_whole or size > 20:
            return False
        self.p += is_negative
        while self.p < end:
            if magnitude > limit // 10:
                return False
            magnitude = magnitude * 10 + (self.p[0] - 48)
            self.p += 1
        if magnitude > limit:
            return False
        number[0] = <int64_t>(0 - magnitude if is_negative else magnitude)
        return True

    cdef int real_number(self, double* number) except -1:
        """Reads a number as the nearest double: by one exact operation where there is one, as of nearly all."""
        cdef bint is_whole = False
        cdef Py_ssize_t size = self.number_size(&is_whole)
        cdef const uint8_t* q = self.p
        cdef const uint8_t* end = self.p + size
        cdef bint is_negative = size and q[0] == b"-"
        cdef bint is_fraction = False
        cdef uint64_t digits = 0
        cdef int shift = 0
        cdef uint8_t* copy
        if not size:
            return MISFIT
        self.p = end
        if size <= 16 and sizeof(void*) == 8:  # elsewhere doubles may be rounded twice
            q += is_negative
            while q < end and q[0] | 0x20 != b"e":
                if q[0] == b".":
                    is_fraction = True
                else:
                    digits = digits * 10 + (q[0] - 48)
                    shift += is_fraction
                q += 1
            if q == end and digits < <uint64_t>1 << 53:
                number[0] = <double>digits / POWERS[shift]
                if is_negative:
                    number[0] = -number[0]
                return FITS
        copy = room_for(&self.scratch, size + 1)
        memcpy(copy, end - size, size)
        copy[size] = 0
        number[0] = PyOS_string_to_double(<const char*>copy, NULL, NULL)
        return FITS

    cdef int skip(self) except -1:
        """Looks at a value that nobody wants."""
        cdef uint8_t first = self.next_byte()
        cdef bint is_whole = False
        cdef Py_ssize_t size
        cdef int status
        if first == QUOTE:
            return self.string()
        if first == b"{" or first == b"[":
            return self.skip_all(first)
        if first == b"t":
            return self.literal(b"true", 4)
        if first == b"f":
            return self.literal(b"false", 5)
        if first == b"n":
            return self.literal(b"null", 4)
        size = self.number_size(&is_whole)
        self.p += size
        return FITS if size else MISFIT

    cdef int skip_all(self, uint8_t bracket) except -1:
        cdef uint8_t close = bracket + 2  # of both kinds
        cdef int status
        if not self.enter(bracket):
            return MISFIT
        if self.leave_empty(close):
            return FITS
        while True:
            if bracket == b"{":
                status = self.name()
                if status != FITS:
                    return status
                if not self.colon():
                    return MISFIT
            status = self.skip()
            if status != FITS:
                return status
            status = self.comma_or(close)
            if status <= 0:
                return FITS if status == 0 else MISFIT
