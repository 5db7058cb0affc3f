"""Values of any schema of a registry as plain objects: dicts, lists, text, numbers (extra `registry`)."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

if TYPE_CHECKING:
    from google.protobuf.descriptor_pool import DescriptorPool


class Schema(NamedTuple):
    """A schema as a registry has it.

    Attributes:
        kind: "AVRO", "JSON" or "PROTOBUF".
        text: The schema; of PROTOBUF the base64 of its file's descriptor.
        references: The names that it uses, with subject and version of what they stand for.
        imports: Name and text of what it refers to, each after what it refers to itself.
        rules: Name and mode of the rules that were agreed on for its values.
    """

    kind: str
    text: str
    references: tuple[Reference, ...] = ()
    imports: tuple[tuple[str, str], ...] = ()
    rules: tuple[tuple[str, str], ...] = ()


class Reference(NamedTuple):
    """A name that a schema uses, and the version of a subject that it stands for."""

    name: str
    subject: str
    version: int


class _Kind(NamedTuple):
    """How values of a kind are read and written: `read` gets the writer's schema, the bytes, and the reader's or None."""

    read: Callable[[Schema, bytes, Schema | None], Any]
    write: Callable[[Schema, Any], bytes]


def plain_value(written_with: Schema, data: bytes, reader: Schema | None = None) -> Any:
    """Returns the value in bytes.

    Args:
        written_with: The schema with which they were written.
        data: The bytes, behind the id of the schema.
        reader: The schema whose value it shall become, of the same kind; None: it stays one of the writer's.

    Raises:
        ValueError, TypeError, KeyError, EOFError, IndexError: They are none, or the reader's schema does not read them.
    """
    return _KINDS[written_with.kind].read(written_with, data, reader)


def plain_bytes(schema: Schema, value: Any) -> bytes:
    """Returns the bytes of a value, to stand behind the id of its schema; of PROTOBUF it is the first message of the file.

    Raises:
        ValueError, TypeError, KeyError: It is not of the schema.
    """
    return _KINDS[schema.kind].write(schema, value)


# ---- Avro ----------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=1_000)
def avro_schema(text: str, imports: tuple[tuple[str, str], ...] = ()) -> Any:
    """Returns a schema as fastavro has it; raises what fastavro does for what is none."""
    import fastavro

    named: dict[str, Any] = {}
    for _, imported in imports:
        fastavro.parse_schema(msgspec.json.decode(imported), named_schemas=named)
    return fastavro.parse_schema(msgspec.json.decode(text), named_schemas=named)


def read_avro(written_with: Any, data: bytes, reader: Any = None) -> Any:
    """Returns the value in bytes, by schemas of `avro_schema`; raises what fastavro does where there is none."""
    import fastavro

    source = io.BytesIO(data)
    value = fastavro.schemaless_reader(source, written_with, reader)
    if left := len(data) - source.tell():
        raise ValueError(f"{left} bytes are left behind the value")
    return value


def _read_avro(written_with: Schema, data: bytes, reader: Schema | None) -> Any:
    own = None if reader is None else avro_schema(reader.text, reader.imports)
    return read_avro(avro_schema(written_with.text, written_with.imports), data, own)


def _write_avro(schema: Schema, value: Any) -> bytes:
    import fastavro

    out = io.BytesIO()
    fastavro.schemaless_writer(out, avro_schema(schema.text, schema.imports), value, strict_allow_default=True)
    return out.getvalue()


# ---- JSON ----------------------------------------------------------------------------------------------------------


def _read_json(_: Schema, data: bytes, _reader: Schema | None) -> Any:
    return msgspec.json.decode(data)


def _write_json(schema: Schema, value: Any) -> bytes:
    validate_json(schema, value)
    return msgspec.json.encode(value)


def validate_json(schema: Schema, value: Any) -> None:
    """Raises ValueError where a value is not one that a schema of JSON allows."""
    from jsonschema.exceptions import ValidationError

    try:
        _json_validator(schema).validate(value)
    except ValidationError as error:
        raise ValueError(f"{error.json_path}: {error.message}") from None


@lru_cache(maxsize=1_000)
def _json_validator(schema: Schema) -> Any:
    from jsonschema.validators import validator_for
    from referencing import Registry, Resource
    from referencing.jsonschema import DRAFT202012

    loaded = msgspec.json.decode(schema.text)
    documents = [
        (name, Resource.from_contents(msgspec.json.decode(text), default_specification=DRAFT202012))
        for name, text in schema.imports
    ]
    # a registry that is given fetches nothing by itself
    return validator_for(loaded)(loaded, registry=Registry().with_resources(documents))


# ---- Protocol Buffers ----------------------------------------------------------------------------------------------


@lru_cache(maxsize=1_000)
def protobuf_pool(text: str, imports: tuple[tuple[str, str], ...] = ()) -> DescriptorPool:
    """Returns the messages of a schema and of what it imports; raises ValueError where they are not told as descriptors."""
    from replog.codecs.protobuf_binary import descriptor_of, pool_of

    files = [descriptor_of(imported) for _, imported in imports]
    for file, (name, _) in zip(files, imports, strict=True):
        file.name = name
    return pool_of([*files, descriptor_of(text)])


def _read_protobuf(written_with: Schema, data: bytes, reader: Schema | None) -> Any:
    from replog.codecs import protobuf_binary as protobuf

    path, position = protobuf.decoded_path(data)
    name = protobuf.message_name(protobuf.descriptor_of(written_with.text), path)
    own = reader or written_with
    try:
        kind = protobuf.message_class(protobuf_pool(own.text, own.imports), name)
    except KeyError:
        raise ValueError(f"it is a message {name}, which the reader's schema lacks") from None
    return protobuf.message_fields(protobuf.parsed_message(kind, data[position:]))


def _write_protobuf(schema: Schema, value: Any) -> bytes:
    from google.protobuf import json_format

    from replog.codecs import protobuf_binary as protobuf

    name = protobuf.message_name(protobuf.descriptor_of(schema.text), [0])
    kind = protobuf.message_class(protobuf_pool(schema.text, schema.imports), name)
    try:
        message = json_format.ParseDict(value, kind())
    except json_format.ParseError as error:
        raise ValueError(str(error)) from None
    return b"\0" + message.SerializeToString()


_KINDS: Final[Mapping[str, _Kind]] = {
    "AVRO": _Kind(_read_avro, _write_avro),
    "JSON": _Kind(_read_json, _write_json),
    "PROTOBUF": _Kind(_read_protobuf, _write_protobuf),
}
