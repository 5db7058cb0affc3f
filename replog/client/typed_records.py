"""Keys and values as their codecs have them: encoded before a record has a place in a batch, decoded a batch at a time.

None goes past the codecs: it is a tombstone, or no key.  A client without codecs has none of this.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, Literal, TypeAlias

from replog.client.arguments import shown
from replog.client.types import ConsumerRecord
from replog.codecs import ValueCodec, codec_of
from replog.errors import RecordDecodeError, RecordEncodeError, RetriableError
from replog.errors.texts import error_text
from replog.records import decode_fields

OnUndecodable: TypeAlias = Literal["raise", "skip"]

Typed: TypeAlias = ConsumerRecord[Any, Any]

_NOT_THE_RECORDS: Final = (RetriableError, MemoryError)
"""What a codec raises that says nothing of the record: it is tried again."""

_log = logging.getLogger(__name__)


class RecordEncoder:
    """Makes bytes of keys and values.

    Args:
        key, value: The codecs; None: they are bytes.
    """

    def __init__(self, key: ValueCodec[Any] | None, value: ValueCodec[Any] | None) -> None:
        self._key = key
        self._value = value

    @classmethod
    def of(cls, key: object, value: object) -> RecordEncoder | None:
        """Returns the encoder of a producer's arguments; None where both are bytes.  Raises: ConfigError: One is no codec."""
        codecs = codec_of("key", key), codec_of("value", value)
        return None if codecs == (None, None) else cls(*codecs)

    def encode(self, topic: str, value: Any, key: Any) -> tuple[Any, Any]:
        """Returns the value and the key of a record as bytes; what has no codec as it is.

        Raises:
            RecordEncodeError: One is not its codec's.
        """
        if value is not None and self._value is not None:
            value = _encoded(self._value, "value", topic, value)
        if key is not None and self._key is not None:
            key = _encoded(self._key, "key", topic, key)
        return value, key

    def encode_all(self, topic: str, records: Iterable[Any]) -> Iterator[tuple[Any, ...]]:
        """Yields each record of `send_many` with its value and its key encoded: a plain tuple is one with a key, all else a value."""
        for record in records:
            if type(record) is tuple and 2 <= len(record) <= 3:
                value, key, *headers = record
                yield (*self.encode(topic, value, key), *headers)
            elif type(record) is tuple:
                raise TypeError(
                    f"a record of send_many is a value, (value, key), or (value, key, headers), not {len(record)} things; give a "
                    "value that is a tuple as (value, None)"
                )
            else:
                yield self.encode(topic, record, None)

    def before(self, append: Callable[..., Any]) -> Callable[..., Any]:
        """Returns a function that takes what `append` does, value and key not encoded yet."""

        def append_encoded(topic: str, value: Any, key: Any, *others: Any) -> Any:
            return append(topic, *self.encode(topic, value, key), *others)

        return append_encoded


class RecordDecoder:
    """Makes keys and values of bytes.

    Args:
        key, value: The codecs; None: they are bytes.
        is_skipping: Whether records that cannot be decoded are left out.
        next_step: The function that returns how to go on, for the error about such a record; None: somebody goes on by itself.

    Attributes:
        skipped_count: The records that were left out; told to the log with the first, second, fourth, eighth of them, and so on.
    """

    def __init__(
        self,
        key: ValueCodec[Any] | None,
        value: ValueCodec[Any] | None,
        *,
        is_skipping: bool,
        next_step: Callable[[ConsumerRecord], str] | None,
    ) -> None:
        self.skipped_count = 0
        self._key = key
        self._value = value
        self._is_skipping = is_skipping
        self._next_step = next_step

    @classmethod
    def of(
        cls, key: object, value: object, *, is_skipping: bool, next_step: Callable[[ConsumerRecord], str] | None
    ) -> RecordDecoder | None:
        """Returns the decoder of a reader's arguments; None where both are bytes.  Raises: ConfigError: One is no codec."""
        codecs = codec_of("key", key), codec_of("value", value)
        return None if codecs == (None, None) else cls(*codecs, is_skipping=is_skipping, next_step=next_step)

    def decode_all(self, read: Callable[[], list[Typed]]) -> tuple[list[Typed], RecordDecodeError | None]:
        """Decodes the records of one batch.

        Args:
            read: The function that returns them, the last first, made anew each time.

        Returns:
            The records, the last first, of which those that cannot be decoded are left out; or those before the first of them, and the
            error about it.

        Raises:
            RetriableError, MemoryError: A codec cannot work now; it has nothing to do with the records.
        """
        records = read()
        try:
            decode_fields(records, _decode_of(self._key), _decode_of(self._value))
        except _NOT_THE_RECORDS:
            raise
        except Exception:  # noqa: BLE001 -- each record is looked at below
            return self._decode_each(read())
        return records, None

    def _decode_each(self, records: Sequence[ConsumerRecord]) -> tuple[list[Typed], RecordDecodeError | None]:
        found: list[Typed] = []
        for record in reversed(records):
            try:
                found.append(self.decode(record))
            except RecordDecodeError as error:
                if not self._is_skipping:
                    return found[::-1], error
                self.note_skipped(error)
        return found[::-1], None

    def decode(self, record: ConsumerRecord) -> Typed:
        """Decodes one record.

        Raises:
            RecordDecodeError: Its key or its value is not its codec's.
            RetriableError, MemoryError: As `decode_all`.
        """
        key = record.key if self._key is None else self._decoded(self._key, "key", record.key, record)
        value = record.value if self._value is None else self._decoded(self._value, "value", record.value, record)
        return record._replace(key=key, value=value)

    def note_skipped(self, error: RecordDecodeError) -> None:
        """Counts a record that is left out."""
        self.skipped_count += 1
        if not self.skipped_count & (self.skipped_count - 1):
            _log.warning("left out, record %d that cannot be decoded: %s", self.skipped_count, error)

    def _decoded(self, codec: ValueCodec[Any], field: str, data: bytes | None, record: ConsumerRecord) -> Any:
        if data is None:
            return None
        try:
            return codec.decode(data)
        except _NOT_THE_RECORDS:
            raise
        except Exception as error:  # noqa: BLE001 -- whatever a codec raises says that this is not its own
            cause = error.with_traceback(None)  # its frames have the batch
        text = f"{record.topic}-{record.partition} offset {record.offset}: the {field} cannot be decoded by {codec!r}: {error_text(cause)}"
        if self._next_step is not None:
            text = f"{text}. {self._next_step(record)}"
        raise RecordDecodeError(text, record, field) from cause


def _decode_of(codec: ValueCodec[Any] | None) -> Callable[[bytes], Any] | None:
    return None if codec is None else codec.decode


def _encoded(codec: ValueCodec[Any], field: str, topic: str, given: Any) -> bytes:
    try:
        data = codec.encode(given)
    except _NOT_THE_RECORDS:
        raise
    except Exception as error:
        raise RecordEncodeError(
            f"the {field} of a record for {topic} was not sent, for {codec!r} cannot encode it: {error_text(error)}. It is "
            f"{shown(given)}"
        ) from error
    if type(data) is not bytes:
        raise RecordEncodeError(
            f"the {field} of a record for {topic} was not sent, for encode of {codec!r} has returned {shown(data)} "
            f"({type(data).__name__}); it must return bytes, and is not asked for None"
        )
    return data
