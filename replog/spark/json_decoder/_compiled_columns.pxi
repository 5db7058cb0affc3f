# Part of _compiled.pyx: columns being filled, and cut again where a value does not fit.

cdef struct Growing:
    uint8_t* data
    Py_ssize_t capacity


cdef inline uint8_t* room_for(Growing* buffer, Py_ssize_t size) except NULL:
    """Returns the buffer with room for `size` bytes in all; what is in it stays."""
    cdef Py_ssize_t capacity
    cdef void* data
    if size > buffer.capacity or buffer.data == NULL:
        capacity = max(size, 2 * buffer.capacity, <Py_ssize_t>CAPACITY_MIN)
        data = realloc(buffer.data, capacity)
        if data == NULL:
            raise MemoryError(f"{capacity} bytes")
        buffer.data, buffer.capacity = <uint8_t*>data, capacity
    return buffer.data


cdef class Column:
    """One column, with those of its children."""

    cdef int kind
    cdef int width
    cdef int precision
    cdef int scale
    cdef Py_ssize_t count  # of children
    cdef list children
    cdef list names
    cdef dict places
    cdef Py_ssize_t length
    cdef Growing bits
    cdef Growing ends
    cdef Growing cells

    def __cinit__(self, shape):
        self.kind = shape.kind
        self.width = WIDTHS[self.kind]
        self.precision, self.scale = shape.precision, shape.scale
        self.names = [name.encode() for name in shape.names]
        self.places = {name: place for place, name in enumerate(self.names)}
        self.children = [Column(child) for child in shape.children]
        if self.kind == MAP:
            self.children.insert(0, Column(model.Shape(JsonKind.STRING)))
        self.count = len(self.children)
        if self.kind == STRUCT and len(self.names) != self.count:
            raise ValueError("a struct has as many names as children")
        if self.kind == LIST and self.count != 1 or self.kind == MAP and self.count != 2:
            raise ValueError("a list or map has one child")
        (<int32_t*>room_for(&self.ends, 4))[0] = 0

    def __dealloc__(self):
        free(self.bits.data)
        free(self.ends.data)
        free(self.cells.data)

    cdef inline Py_ssize_t place_of(self, const uint8_t* name, Py_ssize_t size, Py_ssize_t hint) except -2:
        """The place of a field; -1: nobody wants it.  `hint` is where it is if objects are written in the order of the shape."""
        if hint < self.count:
            expected = <bytes>self.names[hint]
            if PyBytes_GET_SIZE(expected) == size and memcmp(PyBytes_AS_STRING(expected), name, size) == 0:
                return hint
        found = self.places.get(PyBytes_FromStringAndSize(<const char*>name, size))
        return -1 if found is None else found

    cdef inline int mark(self, bint is_present) except -1:
        """Ends the cell that was just written."""
        cdef uint8_t* byte = room_for(&self.bits, (self.length >> 3) + 1) + (self.length >> 3)
        cdef uint8_t bit = <uint8_t>(1 << (self.length & 7))
        byte[0] = (byte[0] | bit) if is_present else (byte[0] & <uint8_t>~bit)
        self.length += 1
        return 0

    cdef inline int end_list(self, Py_ssize_t end) except -1:
        (<int32_t*>room_for(&self.ends, 4 * (self.length + 2)))[self.length + 1] = <int32_t>end
        return self.mark(True)

    cdef inline int add_text(self, const uint8_t* text, Py_ssize_t size) except -1:
        cdef int32_t* ends = <int32_t*>room_for(&self.ends, 4 * (self.length + 2))
        cdef Py_ssize_t end = ends[self.length]
        if size:
            memcpy(room_for(&self.cells, end + size) + end, text, size)
        ends[self.length + 1] = <int32_t>(end + size)
        return self.mark(True)

    cdef inline int add_integer(self, int64_t number) except -1:
        """An integer that is known to be in range, or what is made of a text."""
        cdef uint8_t* cell = room_for(&self.cells, (self.length + 1) * self.width) + self.length * self.width
        cdef int64_t wide[2]
        wide[0], wide[1] = number, number >> 63
        memcpy(cell, wide, self.width)  # little-endian: the low bytes come first
        return self.mark(True)

    cdef inline int add_real(self, double number) except -1:
        cdef uint8_t* cell = room_for(&self.cells, (self.length + 1) * self.width) + self.length * self.width
        cdef float single = <float>number
        if self.width == 4:
            memcpy(cell, &single, 4)
        else:
            memcpy(cell, &number, 8)
        return self.mark(True)

    cdef int add_wide(self, bytes number) except -1:
        cdef uint8_t* cell = room_for(&self.cells, (self.length + 1) * 16) + self.length * 16
        memcpy(cell, PyBytes_AS_STRING(number), 16)
        return self.mark(True)

    cdef inline int add_bit(self, bint value) except -1:
        cdef uint8_t* byte = room_for(&self.cells, (self.length >> 3) + 1) + (self.length >> 3)
        cdef uint8_t bit = <uint8_t>(1 << (self.length & 7))
        byte[0] = (byte[0] | bit) if value else (byte[0] & <uint8_t>~bit)
        return self.mark(True)

    cdef Py_ssize_t add_null(self) except -1:
        """Adds a null, with those of a struct's fields; returns how many cells these are."""
        cdef Py_ssize_t place, cells = 1
        cdef int32_t* ends
        cdef int64_t zero[2]
        if self.kind == STRUCT:
            for place in range(self.count):
                cells += (<Column>self.children[place]).add_null()
        elif self.kind == STRING or self.kind == LIST or self.kind == MAP:
            ends = <int32_t*>room_for(&self.ends, 4 * (self.length + 2))
            ends[self.length + 1] = ends[self.length]
        elif self.kind == BOOLEAN:
            self.add_bit(False)
            self.length -= 1
        else:
            zero[0] = zero[1] = 0
            memcpy(room_for(&self.cells, (self.length + 1) * self.width) + self.length * self.width, zero, self.width)
        self.mark(False)
        return cells

    cdef int cut(self, Py_ssize_t length) except -1:
        """Takes back all behind `length` cells, and what was begun of one more."""
        cdef Py_ssize_t place
        cdef Py_ssize_t end = length
        if self.kind == LIST or self.kind == MAP:
            end = (<int32_t*>self.ends.data)[length]
        for place in range(self.count):
            (<Column>self.children[place]).cut(end)
        self.length = length
        return 0

    cdef object finish(self):
        """Returns the column, with copies of its buffers."""
        cdef Py_ssize_t place, present = 0
        cdef bytes validity = None
        cdef bytes ends = None
        cdef bytes cells = None
        for place in range(self.length):
            present += self.bits.data[place >> 3] >> (place & 7) & 1
        if present < self.length:
            validity = copied_bits(&self.bits, self.length)
        if self.kind == STRING or self.kind == LIST or self.kind == MAP:
            ends = copied(&self.ends, 4 * (self.length + 1))
        if self.kind == STRING:
            cells = copied(&self.cells, (<int32_t*>self.ends.data)[self.length])
        elif self.kind == BOOLEAN:
            cells = copied_bits(&self.cells, self.length)
        elif self.width:
            cells = copied(&self.cells, self.length * self.width)
        children = tuple([(<Column>child).finish() for child in self.children])
        return JsonColumn(self.length, self.length - present, validity, ends, cells, children)


cdef inline bytes copied(Growing* buffer, Py_ssize_t size):
    return PyBytes_FromStringAndSize(<const char*>buffer.data, size) if size else b""


cdef bytes copied_bits(Growing* buffer, Py_ssize_t count):
    """As many bits; those behind them in the last byte are 0."""
    if count & 7:
        buffer.data[count >> 3] &= <uint8_t>((1 << (count & 7)) - 1)
    return copied(buffer, (count + 7) // 8)
