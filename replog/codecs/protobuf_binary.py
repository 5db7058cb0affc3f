"""Protocol Buffers in Confluent's format: which message of its file a value is, and the message.

A message is named by its path of indexes: its place among the messages of the file, then among those nested in that one, and so on;
their number and each of them are zigzag varints, and the path [0] is one byte 0.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any, Final

from google.protobuf import descriptor_pool, json_format, message_factory
from google.protobuf.descriptor import FileDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.message import DecodeError, Message

PATH_LENGTH_MAX: Final = 100
WELL_KNOWN: Final = "google/protobuf/"
"""Where the files are that each implementation brings; they are not registered."""


class Protobuf:
    """Values of one class of messages.

    Args:
        kind: A class that protoc, or the library, has made.
    """

    def __init__(self, kind: type[Message]) -> None:
        self._kind = kind
        self._name = kind.DESCRIPTOR.full_name
        self._prefix = _encoded_path(_path_of(kind.DESCRIPTOR))

    def encode(self, value: Message, /) -> bytes:
        """Returns the bytes of a value; raises TypeError for one of another class."""
        if not isinstance(value, self._kind):
            raise TypeError(f"expected {self._kind.__name__}, got {type(value).__name__}")
        return self._prefix + value.SerializeToString()

    def decode(self, written_with: str, data: bytes, /) -> Message:
        """Returns the message in bytes.

        Args:
            written_with: The schema with which they were written, the base64 of a FileDescriptorProto.
            data: The bytes, from the path on.

        Raises:
            ValueError: They are of another message, or of none.
        """
        path, position = decoded_path(data)
        name = message_name(descriptor_of(written_with), path)
        if name != self._name:
            raise ValueError(f"it is a message {name}, not {self._name}")
        return parsed_message(self._kind, data[position:])


def parsed_message(kind: type[Message], data: bytes) -> Message:
    """Returns the message in bytes; raises ValueError where there is none of this class."""
    try:
        return kind.FromString(data)
    except DecodeError as error:
        raise ValueError(f"it is no {kind.DESCRIPTOR.full_name}: {error}") from None


def message_class(pool: descriptor_pool.DescriptorPool, name: str) -> type[Message]:
    """Returns the class for the messages of a full name."""
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(name))


def message_fields(message: Message) -> dict[str, Any]:
    """Returns a message as JSON has it, under the names that stand in its schema; fields with their default are there, too."""
    return json_format.MessageToDict(
        message, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
    )


def file_text(file: FileDescriptor) -> str:
    """Returns the schema of a file: the base64 of its descriptor."""
    return base64.b64encode(file.serialized_pb).decode()


def imports_of(file: FileDescriptor) -> list[FileDescriptor]:
    """Returns the files that a file imports, without those that each implementation has."""
    return [each for each in file.dependencies if not each.name.startswith(WELL_KNOWN)]


@lru_cache(maxsize=1_000)
def descriptor_of(text: str) -> FileDescriptorProto:
    """Returns the descriptor of which a text is the base64; raises ValueError where it is none."""
    found = file_of(text)
    if found is None:
        raise ValueError("the registry does not tell its schema as a descriptor (format=serialized), only as text")
    return found


def file_of(text: str) -> FileDescriptorProto | None:
    """Returns the descriptor of which a text is the base64; None: it is none."""
    try:
        data = base64.b64decode(text, validate=True)
        return FileDescriptorProto.FromString(data) if data else None
    except (binascii.Error, ValueError, DecodeError):
        return None


def pool_of(files: Iterable[FileDescriptorProto]) -> descriptor_pool.DescriptorPool:
    """Returns a pool with files, each after those that it imports; raises what the library does where names are not found."""
    pool = descriptor_pool.DescriptorPool()
    added: set[str] = set()
    for file in files:
        for name in file.dependency:
            if name.startswith(WELL_KNOWN):
                _add_well_known(pool, name, added)
        pool.AddSerializedFile(file.SerializeToString())
        added.add(file.name)
        pool.FindFileByName(file.name)  # pure Python links it here
    return pool


def _add_well_known(pool: descriptor_pool.DescriptorPool, name: str, added: set[str]) -> None:
    if name in added:
        return
    added.add(name)
    __import__(name.removesuffix(".proto").replace("/", ".") + "_pb2")  # which puts it into the pool of all
    known = descriptor_pool.Default().FindFileByName(name)
    for each in known.dependencies:
        _add_well_known(pool, each.name, added)
    pool.AddSerializedFile(known.serialized_pb)


def message_name(file: FileDescriptorProto, path: Sequence[int]) -> str:
    """Returns the full name of the message at a path; raises ValueError where there is none."""
    names = [file.package] if file.package else []
    messages = file.message_type
    for index in path:
        if not 0 <= index < len(messages):
            raise ValueError(f"its schema has no message at {list(path)}")
        names.append(messages[index].name)
        messages = messages[index].nested_type
    return ".".join(names)


def decoded_path(data: bytes) -> tuple[list[int], int]:
    """Returns the path at the beginning of bytes, and where it ends; raises ValueError where there is none."""
    count, position = _zigzag(data, 0)
    if count == 0:
        return [0], position
    if not 0 < count <= PATH_LENGTH_MAX:
        raise ValueError(f"it says that its message is at a path of {count} indexes")
    path = []
    for _ in range(count):
        index, position = _zigzag(data, position)
        path.append(index)
    return path, position


def _zigzag(data: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while position < len(data) and shift < 35:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), position
        shift += 7
    raise ValueError("the path of its message is cut off")


def _encoded_path(path: Sequence[int]) -> bytes:
    if list(path) == [0]:
        return b"\0"
    out = bytearray()
    for number in (len(path), *path):
        left = number << 1
        while left >= 0x80:
            out.append(left & 0x7F | 0x80)
            left >>= 7
        out.append(left)
    return bytes(out)


def _path_of(message: Any) -> list[int]:
    outer = message.containing_type
    siblings = list(message.file.message_types_by_name.values()) if outer is None else list(outer.nested_types)
    index = [each.full_name for each in siblings].index(message.full_name)
    return [index] if outer is None else [*_path_of(outer), index]
