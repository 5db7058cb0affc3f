"""Protocol Buffers: schemas as descriptors; whether a reader understands the bytes of a writer.

A schema is the base64 of a serialized FileDescriptorProto, as Confluent's Python client registers it, or the text of a .proto file.
Text is read by protoc, which the package grpcio-tools of the extra brings; without that it is no schema that can be judged.
"""

from __future__ import annotations

import base64
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import Final

import msgspec
from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto, FileDescriptorSet

from replog.codecs.protobuf_binary import file_of, pool_of
from replog.errors.texts import error_text
from replog.registry.formats.problems import invalid_schema
from replog.registry.model import INVALID_SCHEMA, RegistryRefusedError

PROTOC_TIMEOUT_S: Final = 20.0
_MAIN: Final = "schema.proto"

_F: Final = FieldDescriptorProto
_ALIKE: Final = (
    {_F.TYPE_INT32, _F.TYPE_UINT32, _F.TYPE_INT64, _F.TYPE_UINT64, _F.TYPE_BOOL, _F.TYPE_ENUM},
    {_F.TYPE_SINT32, _F.TYPE_SINT64},
    {_F.TYPE_STRING, _F.TYPE_BYTES},
    {_F.TYPE_FIXED32, _F.TYPE_SFIXED32},
    {_F.TYPE_FIXED64, _F.TYPE_SFIXED64},
)
"""Types whose bytes are read as one another ("Updating A Message Type" of the language guide)."""


class ProtobufSchema(msgspec.Struct, frozen=True):
    """The file of a schema, and those that it imports."""

    file: FileDescriptorProto
    imports: tuple[FileDescriptorProto, ...]


def parse_protobuf(text: str, references: Sequence[tuple[str, str]]) -> ProtobufSchema:
    """Parses a schema; `references` are names and texts of the files that it imports, each after what it imports itself.

    Raises:
        RegistryRefusedError: 42201: it is none, or is text and there is no protoc.
    """
    files = {name: file_of(referred) for name, referred in references}
    own = file_of(text)
    if own is None or None in files.values():
        return _compiled(text, references)
    imports = []
    for name, file in files.items():
        if file is not None:
            file.name = name
            imports.append(file)
    return ProtobufSchema(_linked(own, imports), tuple(imports))


def serialized(schema: ProtobufSchema) -> str:
    """Returns the base64 of the file's descriptor."""
    return base64.b64encode(schema.file.SerializeToString(deterministic=True)).decode()


def normal_protobuf(_: str, schema: ProtobufSchema) -> str:
    """Returns the base64 of the file's descriptor, alike for what `.proto` texts and clients say differently: file names, blanks, comments."""
    file = FileDescriptorProto()
    file.CopyFrom(schema.file)
    file.name = _MAIN
    file.ClearField("source_code_info")
    messages = list(file.message_type)
    for message in messages:
        messages += message.nested_type
        _drop_implied_names([*message.field, *message.extension])
    _drop_implied_names(file.extension)
    return base64.b64encode(file.SerializeToString(deterministic=True)).decode()


def _drop_implied_names(fields: Iterable[FieldDescriptorProto]) -> None:
    """Takes out names for JSON that follow from the fields' own: protoc writes them, most libraries do not."""
    for field in fields:
        first, *others = field.name.split("_")
        if field.json_name == first + "".join(each[:1].upper() + each[1:] for each in others):
            field.ClearField("json_name")


def protobuf_problems(reader: ProtobufSchema, writer: ProtobufSchema) -> list[str]:
    """Returns why the reader does not understand all that the writer wrote; nothing: it does."""
    if reader.file.package != writer.file.package:
        return [f"the reader's package is {reader.file.package!r}, the writer's {writer.file.package!r}"]
    own = dict(_messages(reader.file.message_type, ""))
    found = []
    for name, written in _messages(writer.file.message_type, ""):
        message = own.get(name)
        found += (
            [f"{name}: the reader lacks this message"] if message is None else _message_problems(name, message, written)
        )
    return found


def _message_problems(name: str, reader: DescriptorProto, writer: DescriptorProto) -> list[str]:
    own, written = ({field.number: field for field in each.field} for each in (reader, writer))
    found = [
        problem
        for number, field in own.items()
        if number in written
        for problem in _field_problems(f"{name}.{field.name}", field, written[number])
    ]
    found += [
        f"{name}.{field.name}: it is required on one side only"
        for number in own.keys() ^ written.keys()
        if (field := own.get(number) or written[number]).label == _F.LABEL_REQUIRED
    ]
    for index, oneof in enumerate(reader.oneof_decl):
        moved = [
            number for number, field in own.items() if field.HasField("oneof_index") and field.oneof_index == index
        ]
        if sum(number in written and not written[number].HasField("oneof_index") for number in moved) > 1:
            found.append(f"{name}.{oneof.name}: several fields that could be set together are in this oneof")
    return found


def _field_problems(name: str, reader: FieldDescriptorProto, writer: FieldDescriptorProto) -> list[str]:
    if reader.type != writer.type:
        if any({reader.type, writer.type} <= alike for alike in _ALIKE):
            return _label_problems(name, reader, writer)
        shown = [_F.Type.Name(each.type).removeprefix("TYPE_").lower() for each in (reader, writer)]
        return [f"{name} (field {reader.number}): the reader has {shown[0]}, the writer {shown[1]}"]
    if reader.type in {_F.TYPE_MESSAGE, _F.TYPE_GROUP} and reader.type_name != writer.type_name:
        return [f"{name} (field {reader.number}): the reader has {reader.type_name}, the writer {writer.type_name}"]
    return _label_problems(name, reader, writer)


def _label_problems(name: str, reader: FieldDescriptorProto, writer: FieldDescriptorProto) -> list[str]:
    if (reader.label == _F.LABEL_REPEATED) != (writer.label == _F.LABEL_REPEATED):
        return [f"{name} (field {reader.number}): it is repeated on one side only"]
    if reader.label == _F.LABEL_REQUIRED != writer.label:
        return [f"{name} (field {reader.number}): the reader requires it, the writer does not"]
    return []


def _messages(messages: Iterable[DescriptorProto], outer: str) -> Iterator[tuple[str, DescriptorProto]]:
    for message in messages:
        name = f"{outer}{message.name}"
        yield name, message
        yield from _messages(message.nested_type, f"{name}.")


def _linked(file: FileDescriptorProto, imports: Iterable[FileDescriptorProto]) -> FileDescriptorProto:
    """Returns the file, once all names in it are found."""
    try:
        pool_of([*imports, file])
    except Exception as error:  # what the library's pool raises differs between its implementations
        raise invalid_schema("PROTOBUF", error) from error
    return file


def _compiled(text: str, references: Sequence[tuple[str, str]]) -> ProtobufSchema:
    with tempfile.TemporaryDirectory(prefix="replog-protoc-") as folder:
        own, imported, out = (Path(folder) / name for name in ("own", "imported", "out"))
        try:
            _write(own, _MAIN, text)
            imported.mkdir()
            for name, source in references:
                _write(imported, name, source)
        except OSError as error:  # no file can have the name, or one name is a folder of another
            raise invalid_schema("PROTOBUF", ValueError(f"the name of an import: {error.strerror}")) from error
        except ValueError as error:
            raise invalid_schema("PROTOBUF", error) from error
        _run_protoc(f"-I{own}", f"-I{imported}", f"--descriptor_set_out={out}", str(own / _MAIN))
        files = FileDescriptorSet.FromString(out.read_bytes()).file
    return ProtobufSchema(files[-1], tuple(files[:-1]))


def _write(folder: Path, name: str, source: str) -> None:
    """Writes a file of a schema; raises OSError or ValueError where the name is none of a file in that folder."""
    place = PurePosixPath(name)
    if place.is_absolute() or ".." in place.parts or not place.parts:
        raise ValueError(f"{name!r} is no name of a file to import")
    path = folder / place
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(source, encoding="utf-8")


def _run_protoc(*arguments: str) -> None:
    import importlib.util

    if importlib.util.find_spec("grpc_tools") is None:
        raise RegistryRefusedError(
            INVALID_SCHEMA,
            "Invalid schema of PROTOBUF: text of .proto needs grpcio-tools beside the registry (pip install grpcio-tools); "
            "the base64 of a FileDescriptorProto does not",
        )
    # The package's own files (google/protobuf/*.proto) are found by its main function alone.  Without -P, or in the folder of the schemas,
    # Python would take one whose name a stranger has chosen for a module, and run it.
    command = [sys.executable, "-P", "-m", "grpc_tools.protoc", "--include_imports", *arguments]
    try:
        done = subprocess.run(command, capture_output=True, check=False, timeout=PROTOC_TIMEOUT_S)  # noqa: S603 -- a list of our own words
    except (OSError, subprocess.TimeoutExpired) as error:
        raise RegistryRefusedError(
            INVALID_SCHEMA, f"Invalid schema of PROTOBUF: protoc: {error_text(error)}"
        ) from error
    if done.returncode:
        told = done.stderr.decode(errors="replace").strip()[:2_000]
        raise RegistryRefusedError(INVALID_SCHEMA, f"Invalid schema of PROTOBUF: {told}")
