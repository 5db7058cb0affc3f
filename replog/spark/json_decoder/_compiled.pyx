# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, binding=False
"""Json values to Arrow columns, compiled: same names and results as `python_twin`, which explains them.

Why it exists: the standard library makes Python objects of a whole value, some 2 microseconds for each small one; here the
wanted fields go straight into columns, and the others are looked at and passed over.

A value that turns out not to fit is taken back: every column is cut to the rows before.  Why it does not fit is put into words
by the twin.

Memory safety rests on three rules:

- every read is compared with the end of its value first, and `DEPTH_MAX` bounds the recursion;
- every write goes behind `room_for`, which grows the buffer;
- the buffers that are read are held while they are read, and nothing here gives up the GIL on purpose.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.object cimport PyObject
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcmp, memcpy

import sys

from replog.spark.json_decoder import model
from replog.spark.json_decoder.model import JsonColumn, JsonKind
from replog.spark.json_decoder.texts import days_of, microseconds_of, unscaled_of

if sys.byteorder != "little":
    raise ImportError("the compiled decoder writes native integers as little-endian")

IMPLEMENTATION = "cython"

cdef extern from "Python.h":
    double PyOS_string_to_double(const char* text, char** end, PyObject* overflow_error) except? -1.0

cdef enum:
    BOOLEAN = 0  # as in `model.JsonKind`
    INT8 = 1
    INT16 = 2
    INT32 = 3
    INT64 = 4
    FLOAT = 5
    DOUBLE = 6
    STRING = 7
    DATE = 8
    TIMESTAMP = 9
    DECIMAL = 10
    STRUCT = 11
    LIST = 12
    MAP = 13
    DEPTH_MAX = 128
    CELLS_MAX = 16777216
    CAPACITY_MIN = 64
    QUOTE = 34
    BACKSLASH = 92
    MISFIT = 0
    FITS = 1

if [kind.name for kind in JsonKind] != [
    "BOOLEAN", "INT8", "INT16", "INT32", "INT64", "FLOAT", "DOUBLE", "STRING", "DATE", "TIMESTAMP", "DECIMAL", "STRUCT", "LIST",
    "MAP",
] or (model.DEPTH_MAX, model.CELLS_MAX) != (DEPTH_MAX, CELLS_MAX):
    raise ImportError("the compiled decoder was built for other kinds")

cdef int[14] WIDTHS = [0, 1, 2, 4, 8, 4, 8, 0, 4, 8, 16, 0, 0, 0]
cdef double[23] POWERS = [
    1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21,
    1e22,
]  # each is exact

include "_compiled_columns.pxi"
include "_compiled_tokens.pxi"
include "_compiled_texts.pxi"


cdef class Decoder(Tokens):
    """Reads one value after the other into the columns of a shape."""

    cdef int value(self, Column column) except -1:
        """Reads what comes next as a cell."""
        cdef uint8_t first = self.next_byte()
        if self.cells > CELLS_MAX:
            return MISFIT
        if first == b"n":
            if not self.literal(b"null", 4):
                return MISFIT
            self.cells += column.add_null()
            return FITS
        if column.kind == STRUCT:
            return self.struct(column)
        if column.kind == LIST:
            return self.list(column)
        if column.kind == MAP:
            return self.map(column)
        self.cells += 1
        if column.kind == STRING:
            return self.text_cell(column)
        if column.kind == BOOLEAN:
            return self.boolean(column)
        if column.kind <= INT64:
            return self.integer(column)
        if column.kind <= DOUBLE:
            return self.real(column)
        return self.read_text(column)

    cdef int struct(self, Column column) except -1:
        cdef Py_ssize_t row = column.length
        cdef Py_ssize_t place, hint = 0
        cdef Column child
        cdef int status
        if not self.enter(b"{"):
            return MISFIT
        if not self.leave_empty(b"}"):
            while True:
                status = self.name()
                if status != FITS:
                    return status
                place = column.place_of(self.text, self.text_size, hint)
                if not self.colon():
                    return MISFIT
                if place < 0:
                    status = self.skip()
                else:
                    hint = place + 1
                    child = <Column>column.children[place]
                    if child.length > row:  # the field came before
                        child.cut(row)
                    status = self.value(child)
                if status != FITS:
                    return status
                status = self.comma_or(b"}")
                if status < 0:
                    return MISFIT
                if status == 0:
                    break
        for place in range(column.count):
            child = <Column>column.children[place]
            if child.length == row:
                self.cells += child.add_null()
        column.mark(True)
        self.cells += 1
        return FITS

    cdef int list(self, Column column) except -1:
        cdef Column child = <Column>column.children[0]
        cdef int status
        if not self.enter(b"["):
            return MISFIT
        if not self.leave_empty(b"]"):
            while True:
                status = self.value(child)
                if status != FITS:
                    return status
                status = self.comma_or(b"]")
                if status < 0:
                    return MISFIT
                if status == 0:
                    break
        column.end_list(child.length)
        self.cells += 1
        return FITS

    cdef int map(self, Column column) except -1:
        cdef Column names = <Column>column.children[0]
        cdef Column child = <Column>column.children[1]
        cdef int status
        if not self.enter(b"{"):
            return MISFIT
        if not self.leave_empty(b"}"):
            while True:
                status = self.name()
                if status != FITS:
                    return status
                names.add_text(self.text, self.text_size)
                self.cells += 1
                if not self.colon():
                    return MISFIT
                status = self.value(child)
                if status != FITS:
                    return status
                status = self.comma_or(b"}")
                if status < 0:
                    return MISFIT
                if status == 0:
                    break
        column.end_list(child.length)
        self.cells += 1
        return FITS

    cdef int text_cell(self, Column column) except -1:
        cdef int status = self.string()
        if status == FITS:
            column.add_text(self.text, self.text_size)
        return status

    cdef int boolean(self, Column column) except -1:
        if self.literal(b"true", 4):
            column.add_bit(True)
        elif self.literal(b"false", 5):
            column.add_bit(False)
        else:
            return MISFIT
        return FITS

    cdef int integer(self, Column column) except -1:
        cdef int64_t number = 0
        if not self.whole_number(8 * column.width, &number):
            return MISFIT
        column.add_integer(number)
        return FITS

    cdef int real(self, Column column) except -1:
        cdef double number = 0
        cdef int status = self.real_number(&number)
        if status == FITS:
            column.add_real(number)
        return status

    cdef int read_text(self, Column column) except -1:
        """A cell that is made of a text, or a decimal of a number."""
        cdef int64_t number = 0
        cdef Py_ssize_t size
        cdef bint is_whole = False
        cdef int status
        if column.kind == DECIMAL and self.next_byte() != QUOTE:
            size = self.number_size(&is_whole)
            if not size:
                return MISFIT
            self.text, self.text_size = self.p, size
            self.p += size
            if plain_decimal(self.text, size, column.precision, column.scale, &number):
                column.add_integer(number)
                return FITS
            return self.read_anyhow(column)
        status = self.string()
        if status != FITS:
            return status
        if column.kind == DATE and self.text_size == 10 and plain_date(self.text, &number):
            column.add_integer(number)
            return FITS
        if column.kind == TIMESTAMP and plain_time(self.text, self.text_size, &number):
            column.add_integer(number)
            return FITS
        return self.read_anyhow(column)

    cdef int read_anyhow(self, Column column) except -1:
        """The same by the functions that the twin asks."""
        text = PyUnicode_DecodeUTF8(<const char*>self.text, self.text_size, NULL)
        if column.kind == DATE:
            number = days_of(text)
        elif column.kind == TIMESTAMP:
            number = microseconds_of(text)
        else:
            number = unscaled_of(text, column.precision, column.scale)
        if number is None:
            return MISFIT
        if column.kind == DECIMAL:
            column.add_wide(number.to_bytes(16, "little", signed=True))
        else:
            column.add_integer(number)
        return FITS

    cdef int row(self, Column root, const uint8_t* start, const uint8_t* end) except -1:
        """Reads one value; one that does not fit leaves nothing behind."""
        cdef Py_ssize_t before = root.length
        cdef int status
        self.p, self.end = start, end
        self.cells = self.depth = 0
        self.next_byte()
        status = self.struct(root)
        if status == FITS:
            self.next_byte()
            if self.p == end and self.cells <= CELLS_MAX:
                return FITS
        root.cut(before)
        return MISFIT


def decode_values(
    shape, validity, offsets, data, Py_ssize_t start, Py_ssize_t stop, *, bint is_strict, int64_t cells_max
):
    cdef Py_buffer ends
    cdef Py_buffer texts
    cdef Py_buffer bits
    cdef Column root = Column(shape)
    PyObject_GetBuffer(offsets, &ends, PyBUF_SIMPLE)
    try:
        PyObject_GetBuffer(data, &texts, PyBUF_SIMPLE)
        try:
            if validity is not None:
                PyObject_GetBuffer(validity, &bits, PyBUF_SIMPLE)
            try:
                row, is_misfit = decode_rows(
                    root, NULL if validity is None else &bits, &ends, &texts, start, stop, is_strict, cells_max
                )
            finally:
                if validity is not None:
                    PyBuffer_Release(&bits)
        finally:
            PyBuffer_Release(&texts)
    finally:
        PyBuffer_Release(&ends)
    return root.finish(), row, is_misfit


cdef tuple decode_rows(
    Column root,
    Py_buffer* validity,
    Py_buffer* offsets,
    Py_buffer* data,
    Py_ssize_t start,
    Py_ssize_t stop,
    bint is_strict,
    int64_t cells_max,
):
    cdef const int32_t* ends = <const int32_t*>offsets.buf
    cdef const uint8_t* bits = NULL
    cdef const uint8_t* texts = <const uint8_t*>data.buf
    cdef Decoder decoder = Decoder()
    cdef int64_t cells = 0
    cdef Py_ssize_t row = start
    cdef int32_t first, last
    cdef int status
    if validity != NULL:
        bits = <const uint8_t*>validity.buf
    if not 0 <= start <= stop < offsets.len // 4 or (bits != NULL and validity.len < (stop + 7) // 8):
        raise ValueError(f"values {start} to {stop} are not all in these buffers")
    while row < stop and cells < cells_max:
        first, last = ends[row], ends[row + 1]
        if not 0 <= first <= last <= data.len:
            raise ValueError(f"value {row} leads out of the data")
        status = MISFIT
        if bits == NULL or bits[row >> 3] >> (row & 7) & 1:
            status = decoder.row(root, texts + first, texts + last)
            if status == MISFIT and is_strict:
                return row, True
        cells += decoder.cells if status == FITS else root.add_null()
        row += 1
    return row, False
