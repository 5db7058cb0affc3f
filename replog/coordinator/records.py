"""The records of an internal topic, and their bytes, which are Kafka's.

    key    int16  type of the record
           ...    the key's message, version 0
    value  int16  version of the value's message
           ...    the value's message

A record without a value says that what its key names is gone.  Readers leave out a type that is not known here:
the same topic holds groups of other kinds, and a newer release may add some.  A version that is not known is an error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from struct import Struct
from typing import NamedTuple, TypeAlias

from replog.errors import InvariantViolationError, MalformedFrameError, UnsupportedVersionError
from replog.wire.primitives import Reader, Writer
from replog.wire.record_parts import RecordPart

_prefix = Struct(">h")
KEY_VERSION = 0


EncodedRecord: TypeAlias = tuple[bytes, bytes | None]
"""Key and value."""


class CoordinatorRecord(NamedTuple):
    """One record.

    Attributes:
        key: The key.
        value: The value; None where what the key names is gone.
        version: The version in which the value is written.
        packed: The bytes of the record, where they have been made beside the loop; None: not yet.
    """

    key: RecordPart
    value: RecordPart | None
    version: int = 0
    packed: EncodedRecord | None = None


FastWrite: TypeAlias = Callable[[RecordPart, RecordPart, int], EncodedRecord | None]
"""Writes key and value in a version; returns None for any other shape than the one that it is for."""


class RecordCodec:
    """Reads and writes the records of one topic.

    Args:
        types: The class of the key and that of the value, of each type of records.
        fast_writes: The functions that write the bulk of some types faster than the classes do, by type.
    """

    def __init__(
        self,
        types: Iterable[tuple[type[RecordPart], type[RecordPart]]],
        fast_writes: Mapping[int, FastWrite] | None = None,
    ) -> None:
        self._fast_writes = dict(fast_writes or {})
        self._types: Mapping[int, tuple[type[RecordPart], type[RecordPart]]] = {
            each[0].RECORD_TYPE: each for each in types
        }

    def encode(self, record: CoordinatorRecord) -> EncodedRecord:
        """Returns the bytes of key and value.

        Raises:
            InvariantViolationError: The record is of a type that this topic does not have.
            ValueError: A text is longer than its field can hold.
        """
        if record.packed is not None:
            return record.packed
        key, value = record.key, record.value
        if key.RECORD_TYPE not in self._types or (value is not None and value.RECORD_TYPE != key.RECORD_TYPE):
            raise InvariantViolationError(f"no record of this topic: {record!r}")
        fast_write = self._fast_writes.get(key.RECORD_TYPE)
        if (
            fast_write is not None
            and value is not None
            and (found := fast_write(key, value, record.version)) is not None
        ):
            return found
        encoded = None if value is None else _written(value, record.version, record.version)
        return _written(key, key.RECORD_TYPE, KEY_VERSION), encoded

    def decode(self, key: bytes | None, value: bytes | None) -> CoordinatorRecord | None:
        """Returns a record; None where its type is not known here.

        Raises:
            MalformedFrameError: The bytes are no key, or no value, of their type.
            UnsupportedVersionError: The value has a version that is not known here.
        """
        if key is None:
            raise MalformedFrameError("a record has no key")
        reader = Reader(memoryview(key))
        record_type: int = reader.fixed(_prefix)[0]
        classes = self._types.get(record_type)
        if classes is None:
            return None
        key_class, value_class = classes
        parsed_key = key_class.read(reader, KEY_VERSION)
        reader.finish()
        if value is None:
            return CoordinatorRecord(parsed_key, None)
        reader = Reader(memoryview(value))
        version: int = reader.fixed(_prefix)[0]
        if version not in value_class.VERSIONS:
            raise UnsupportedVersionError(
                f"a record of type {record_type} has version {version}, and this release reads "
                f"{value_class.VERSIONS[0]} to {value_class.VERSIONS[-1]}: a newer one wrote it, which has to read it too"
            )
        parsed_value = value_class.read(reader, version)
        reader.finish()
        return CoordinatorRecord(parsed_key, parsed_value, version)


def _written(part: RecordPart, prefix: int, version: int) -> bytes:
    writer = Writer()
    writer.fixed(_prefix, prefix)
    part.write(writer, version)
    return writer.joined()
