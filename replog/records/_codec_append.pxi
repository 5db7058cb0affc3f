# Part of _codec.pyx: one record to the open batch of its partition; see `_append_py`, its twin.

cdef extern from *:
    """
    /* An instance of a class that inherits tp_new from a compiled one, without __init__. */
    static inline PyObject *replog_new_bare(PyTypeObject *type, PyObject *no_arguments) {
        return type->tp_new(type, no_arguments, NULL);
    }
    """
    object replog_new_bare(type kind, tuple no_arguments)

cdef enum:
    NANOSECONDS_PER_MS = 1000000
    CHARACTER_BYTES_MAX = 4  # in UTF-8


cdef Py_ssize_t plain_headers_bound(tuple headers) except -2:
    """The most that headers of exact types take; -1: some are of others."""
    cdef Py_ssize_t total = 0
    for header in headers:
        if not PyTuple_CheckExact(header) or PyTuple_GET_SIZE(header) != 2:
            return -1
        name, value = <tuple>header
        if type(name) is not str or not (value is None or bytes_check_raw(<PyObject*>value)):
            return -1
        total += HEADER_OVERHEAD_BYTES + CHARACTER_BYTES_MAX * len(<str>name)
        if value is not None:
            total += PyBytes_GET_SIZE(value)
    return total


cdef class RecordPlace:
    """Where a record stands in a batch that is being filled."""

    cdef readonly object _batch
    cdef readonly Py_ssize_t _relative_offset
    cdef readonly int64_t _timestamp_ms

    def __init__(self, batch, Py_ssize_t relative_offset, int64_t timestamp_ms):
        self._batch = batch
        self._relative_offset = relative_offset
        self._timestamp_ms = timestamp_ms


cdef class StickyPartition:
    """The partition of a topic's records without a key, for a while."""

    cdef readonly Py_ssize_t partition
    cdef public int64_t left_bytes
    cdef int64_t _stint_bytes

    def __init__(self, int64_t stint_bytes):
        self.partition = -1
        self.left_bytes = 0
        self._stint_bytes = stint_bytes

    def begin(self, Py_ssize_t partition):
        """Sticks to a partition from now on."""
        self.partition = partition
        self.left_bytes = 2 * self._stint_bytes

    def end_batch(self, Py_ssize_t partition):
        """Takes in that a batch of a partition takes no more records."""
        if partition == self.partition and self.left_bytes <= self._stint_bytes + self._stint_bytes // 4:
            self.left_bytes = 0


cdef class OpenBatches:
    """The batches of one topic that take records, by partition."""

    cdef list _batches
    cdef list _builders
    cdef readonly StickyPartition sticky

    def __init__(self, StickyPartition sticky=None):
        self._batches = []
        self._builders = []
        self.sticky = sticky

    def add_partition(self):
        """Makes room for one partition more."""
        self._batches.append(None)
        self._builders.append(None)

    def put(self, Py_ssize_t partition, batch, BatchBuilder builder):
        """Sets the open batch of a partition and what fills it; None: there is none."""
        if not 0 <= partition < len(self._builders):
            raise IndexError(f"there is no partition {partition} among {len(self._builders)}")
        if self._builders[partition] is not None and self.sticky is not None:
            self.sticky.end_batch(partition)
        self._batches[partition] = batch
        self._builders[partition] = builder


cdef class Appender:
    """Appends records to open batches, a call each; see `_append_py.Appender`."""

    cdef public int64_t turn_bytes
    cdef public Py_ssize_t blocked_count
    cdef dict _topics
    cdef type _kind
    cdef ByteMeter _meter
    cdef object _wall_ns
    cdef int64_t _limit_bytes
    cdef int64_t _record_bytes_max
    cdef int64_t _overhead_bytes

    def __init__(self, kind, ByteMeter meter not None, wall_ns, *, limit_bytes, record_bytes_max, overhead_bytes, dict topics not None):
        if not issubclass(kind, RecordPlace):
            raise TypeError(f"{kind!r} is not a subclass of RecordPlace")
        self.turn_bytes = 0
        self.blocked_count = 0
        self._topics = topics
        self._kind = kind
        self._meter = meter
        self._wall_ns = wall_ns
        self._limit_bytes = min(limit_bytes, INT64_MAX >> 1)
        self._record_bytes_max = min(record_bytes_max, INT32_MAX)
        self._overhead_bytes = overhead_bytes

    def append(self, topic, value, key, partition, timestamp_ms, headers):
        """Where the record stands now, or None: somebody has to look first, and nothing has changed."""
        cdef OpenBatches places
        cdef BatchBuilder builder
        cdef RecordPlace place
        cdef StickyPartition sticky = None
        cdef int64_t size = self._overhead_bytes
        cdef int64_t timestamp
        cdef tuple pairs = None
        cdef Py_ssize_t pairs_bytes
        cdef Py_ssize_t before
        cdef Py_ssize_t number
        cdef int32_t offset
        cdef int overflow = 0
        if self.blocked_count:
            return None
        if headers is not NO_HEADERS:
            if PyTuple_CheckExact(headers):
                pairs = headers
            elif list_check_raw(<PyObject*>headers):
                pairs = tuple(<list>headers)
            else:
                return None
            pairs_bytes = plain_headers_bound(pairs)
            if pairs_bytes < 0:
                return None
            size += pairs_bytes
            pairs = pairs or None
        if value is not None:
            if not bytes_check_raw(<PyObject*>value):
                return None
            size += PyBytes_GET_SIZE(value)
        if key is not None:
            if not bytes_check_raw(<PyObject*>key):
                return None
            size += PyBytes_GET_SIZE(key)
        if size > self._record_bytes_max or size > self.turn_bytes or self._meter.held_bytes > self._limit_bytes - size:
            return None
        if type(topic) is not str:
            return None
        if timestamp_ms is None:
            timestamp = <int64_t>self._wall_ns() // NANOSECONDS_PER_MS
        elif not int_check_raw(<PyObject*>timestamp_ms):
            return None
        else:
            timestamp = int_value_raw(<PyObject*>timestamp_ms, &overflow)
            if overflow:
                return None
        if timestamp < -1:
            return None
        place = <RecordPlace>replog_new_bare(self._kind, NO_HEADERS)
        # nothing Python runs from here on, not even a collection of garbage: what is found below stays as it is
        places = self._topics.get(topic)
        if places is None:
            return None
        if partition is not None:
            if not int_check_raw(<PyObject*>partition):
                return None
            number = int_value_raw(<PyObject*>partition, &overflow)
            if overflow:
                return None
        elif places.sticky is None:
            return None
        elif key is not None:
            if not places._builders:
                return None
            number = (murmur2_of(<const uint8_t*>PyBytes_AS_STRING(key), PyBytes_GET_SIZE(key)) & 0x7FFFFFFF) % len(places._builders)
        else:
            sticky = places.sticky
            if sticky.left_bytes <= 0:
                return None
            number = sticky.partition
        if not 0 <= number < len(places._builders):
            return None
        builder = places._builders[number]
        if builder is None:
            return None
        before = builder._size
        offset = builder._append_at(timestamp, key, value, pairs)
        if offset < 0:
            return None
        self.turn_bytes -= size
        if sticky is not None:
            sticky.left_bytes -= builder._size - before
        place._batch = places._batches[number]
        place._relative_offset = offset
        place._timestamp_ms = timestamp
        return place
