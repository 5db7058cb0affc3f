# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, binding=False
"""Records to bytes and back, compiled: same names, bytes and errors as `_codec_py`, which explains the format.

Why it exists: a record costs about a microsecond in pure Python and tens of nanoseconds here, and consumers of columns
(Spark, Arrow) get their buffers without one Python object per record.

Memory safety rests on three rules:

- every read is compared with the end of its record or body first, every number from the bytes with what is left;
- every write into a column is compared with its buffer, although the batch headers announced the counts before,
  because `crc32c` may release the GIL and a caller may change a bytearray meanwhile;
- bytes objects are written only while nothing else can see them.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_Check, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.memoryview cimport PyMemoryView_FromMemory
from cpython.object cimport PyObject
from cpython.ref cimport Py_DECREF, Py_INCREF
from cpython.tuple cimport PyTuple_Check, PyTuple_CheckExact, PyTuple_GET_ITEM, PyTuple_GET_SIZE, PyTuple_SET_ITEM
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport INT32_MAX, INT64_MAX, int16_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset

import sys

from replog.errors import InvalidRecordError, InvariantViolationError
from replog.records._crc32c import crc32c
from replog.records._rows_py import check_time, no_such_partition, no_such_row, not_there, too_short
from replog.records.compression import compress_batch, decompress, decompressed_bytes_limit, require_codec
from replog.records.header import check_crc, check_header, parse_header
from replog.records.model import (
    DECOMPRESSED_CALL_BYTES_MAX,
    Codec,
    Columns,
    HeaderColumns,
    Record,
    RecordsSurvey,
    Wanted,
)

if sys.byteorder != "little":
    raise ImportError("the compiled codec writes native integers as little-endian")

IMPLEMENTATION = "cython"

cdef extern from "Python.h":
    int PyBUF_READ
    long long PyLong_AsLongLongAndOverflow(object number, int* overflow) except? -1
    int _PyBytes_Resize(PyObject** string, Py_ssize_t size) except -1
    const char* PyUnicode_AsUTF8AndSize(object text, Py_ssize_t* size) except NULL
    PyObject* PyBytes_FromStringAndSize_raw "PyBytes_FromStringAndSize"(const char* data, Py_ssize_t size)
    char* PyBytes_AS_STRING_raw "PyBytes_AS_STRING"(PyObject* data)
    void Py_XDECREF(PyObject* thing)
    void Py_DECREF_raw "Py_DECREF"(PyObject* thing)
    # the same calls on borrowed references, which Cython would count
    bint tuple_check_raw "PyTuple_CheckExact"(PyObject* thing)
    Py_ssize_t tuple_size_raw "PyTuple_GET_SIZE"(PyObject* thing)
    PyObject* tuple_item_raw "PyTuple_GET_ITEM"(PyObject* thing, Py_ssize_t index)
    bint list_check_raw "PyList_CheckExact"(PyObject* thing)
    Py_ssize_t list_size_raw "PyList_GET_SIZE"(PyObject* thing)
    PyObject* list_item_raw "PyList_GET_ITEM"(PyObject* thing, Py_ssize_t index)
    bint bytes_check_raw "PyBytes_CheckExact"(PyObject* thing)
    Py_ssize_t bytes_size_raw "PyBytes_GET_SIZE"(PyObject* thing)
    bint int_check_raw "PyLong_CheckExact"(PyObject* thing)
    long long int_value_raw "PyLong_AsLongLongAndOverflow"(PyObject* number, int* overflow)
    PyObject* none_raw "Py_None"

cdef extern from *:
    """
    #include <stdint.h>
    /* A NamedTuple of these fields, what tuple.__new__(type, fields) would make, without
       the two tuples in between. Newer versions keep a hash inside tuples, so they go the public way. */
    static inline PyObject *replog_new_tuple(PyTypeObject *type, PyObject **fields, Py_ssize_t count) {
    #if PY_VERSION_HEX < 0x030E0000
        PyObject *record = type->tp_alloc(type, count);
        if (record == NULL) return NULL;
        for (Py_ssize_t i = 0; i < count; i++) {
            Py_INCREF(fields[i]);
            PyTuple_SET_ITEM(record, i, fields[i]);
        }
        return record;
    #else
        PyObject *record = NULL, *arguments = NULL, *plain = PyTuple_New(count);
        if (plain == NULL) return NULL;
        for (Py_ssize_t i = 0; i < count; i++) {
            Py_INCREF(fields[i]);
            PyTuple_SET_ITEM(plain, i, fields[i]);
        }
        arguments = PyTuple_Pack(1, plain);
        if (arguments != NULL) record = PyTuple_Type.tp_new(type, arguments, NULL);
        Py_XDECREF(arguments);
        Py_DECREF(plain);
        return record;
    #endif
    }
    """
    object replog_new_tuple(type kind, PyObject** fields, Py_ssize_t count)

cdef enum:
    KEYLESS_TOLD_MAX = 1000
    HEADER_BYTES = 61
    LOG_OVERHEAD_BYTES = 12
    ATTRIBUTES_POSITION = 21
    CRC_POSITION = 17
    RECORD_BYTES_MIN = 7
    CODEC_MASK = 0x07
    LOG_APPEND_TIME_BIT = 0x08
    CONTROL_BIT = 0x20
    CAPACITY_BYTES_MIN = 1024
    RECORD_OVERHEAD_BYTES_MAX = 32  # length, attributes, two deltas, two lengths, no headers
    SAMPLE_COUNT = 32
    RECORD_FIELDS = 5  # offset, timestamp, key, value, headers
    PLACED_KEY = 5  # the value is behind it
    PLACED_FIELDS = 8  # topic, partition, offset, timestamp, timestamp type, key, value, headers
    KEY_BYTES_GUESS = 16
    COUNT_MIN = 64
    COMPRESSION_RATIO_GUESS = 4
    BAD_LENGTH = 3
    BAD_HEADERS = 5
    BAD_END = 6

cdef tuple REASONS = (
    "",
    "a record runs past the end of its batch",
    "a number of more than 5 or 10 bytes",
    "a record is longer than what is left of its batch",
    "a field is longer than what is left of its record",
    "more headers than bytes, or a header without a name",
    "a record's length does not match its contents",
)
cdef tuple NO_HEADERS = ()
cdef type RECORD = Record

include "_numbers.pxi"
include "_codec_bytes.pxi"
include "_codec_decode.pxi"
include "_codec_columns.pxi"
include "_codec_encode.pxi"
include "_codec_rows.pxi"
include "_codec_append.pxi"
