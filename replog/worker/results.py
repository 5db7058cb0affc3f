"""`Results`: what a handler sends where results and offsets are committed together.

They are kept until the handler has returned, and dropped where it raises: so a record can be handled again without an abort of what
others have done, and a handler that takes an hour holds no transaction open, behind which readers would wait.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from msgspec import Struct

from replog.client.arguments import headers_bytes_bound, require_text, require_timestamp, require_whole, wrong_type
from replog.client.tracing import current_trace, with_trace
from replog.errors import InvalidRequestError, RecordTooLargeError
from replog.records import Header, batch_bytes_bound

RESULTS_BYTES_MAX: Final = 32 << 20
"""What one record may become, in bytes: it is kept in memory until it is committed."""

_RECORD_BYTES_BOUND: Final = batch_bytes_bound(None, None)


class ResultRecord(Struct, frozen=True):
    """A record that is sent in the transaction of the record it came from.

    Attributes:
        topic, value, key, partition, timestamp_ms, headers: As the arguments of `Producer.send`.
        size_bytes: An upper bound of what it takes.
    """

    topic: str
    value: bytes | None
    key: bytes | None
    partition: int | None
    timestamp_ms: int | None
    headers: tuple[Header, ...]
    size_bytes: int


class Results:
    """Takes what one call of a handler sends; from any thread.

    Args:
        max_record_bytes: The largest record.
    """

    def __init__(self, max_record_bytes: int) -> None:
        self._max_record_bytes = max_record_bytes
        self._records: list[ResultRecord] = []
        self._size_bytes = 0
        self._is_over = False

    def send(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Sequence[Header] = (),
    ) -> None:
        """Adds a record to the results.  It is written after the handler has returned, with the offset of the record that it handles.

        Args:
            topic, value, key, partition, timestamp_ms, headers: As the arguments of `Producer.send`.

        Raises:
            RecordTooLargeError: It is larger than `max_request_bytes`.
            InvalidRequestError: The results of one record are larger than 32 MiB; or the handler has ended.
            InvalidRecordError: The timestamp is none.
            TypeError: An argument is of another type.
        """
        require_text("topic", topic)
        for name, data in (("value", value), ("key", key)):
            _require_bytes(name, data)
        if partition is not None:
            partition = require_whole("partition", partition)
        if timestamp_ms is not None:
            require_timestamp(timestamp_ms)
        headers_bytes_bound(headers)  # refuses what are no headers
        headers = with_trace(headers, current_trace())  # of the handler's span: it is over when they are written
        size_bytes = _RECORD_BYTES_BOUND + len(value or b"") + len(key or b"") + headers_bytes_bound(headers)
        if size_bytes > self._max_record_bytes:
            raise RecordTooLargeError(
                f"a result for {topic} takes up to {size_bytes} bytes, and max_request_bytes is {self._max_record_bytes}: make it "
                'smaller, or raise producer_settings={"max_request_bytes": ...}'
            )
        if self._size_bytes + size_bytes > RESULTS_BYTES_MAX:
            raise InvalidRequestError(
                f"the results of one record take more than {RESULTS_BYTES_MAX} bytes, and are kept in memory until they are "
                "committed: make fewer or smaller ones of it"
            )
        if self._is_over:
            raise InvalidRequestError(
                "the handler of this record has ended, and its results may be committed: send before it returns"
            )
        self._size_bytes += size_bytes
        self._records.append(ResultRecord(topic, value, key, partition, timestamp_ms, tuple(headers), size_bytes))

    def end(self) -> Sequence[ResultRecord]:
        """Takes no more, and returns what was sent, in order."""
        self._is_over = True
        return self._records


def result_of(topic: str, value: bytes | None, key: bytes | None, headers: Iterable[Header]) -> ResultRecord:
    """Returns a record as it is handed on, however large it is: how large one may be is for its topic to say."""
    own = tuple(headers)
    size_bytes = _RECORD_BYTES_BOUND + len(value or b"") + len(key or b"") + headers_bytes_bound(own)
    return ResultRecord(topic, value, key, None, None, own, size_bytes)


def _require_bytes(name: str, data: Any) -> None:
    if not isinstance(data, (bytes, type(None))):
        raise wrong_type(name, data, "bytes or None: encode it first")
