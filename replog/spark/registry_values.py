"""Values with the id of a schema before them, in Arrow batches: each is read by the schema that wrote it, as a value of one schema.

Avro and Protocol Buffers are decoded value by value, json in bulk (`replog.spark.json_values`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from replog.codecs.plain_values import Schema, avro_schema, protobuf_pool, read_avro
from replog.codecs.registry import PREFIX_BYTES, schema_id_of
from replog.errors import InvalidRecordError, ReplogError
from replog.errors.texts import error_text
from replog.spark.json_decoder import Shape
from replog.spark.json_values import JsonValues
from replog.spark.registry_types import arrow_type_of, registry_at
from replog.spark.schema import CORRUPT, MISFIT_COLUMNS, WHY, RegisteredType

ROWS_TOGETHER_MAX: Final = 10_000
"""Rows of one batch: each value is an object of Python before it is a cell."""

Read: TypeAlias = Callable[[bytes], Any]


class Misfits(Struct, frozen=True):
    """How values that cannot be read are told.

    Attributes:
        schema: The schema of the batches that come out.
        place: The topic and partition.
        is_strict: Whether they are an error; otherwise their value is null, and the MISFIT_COLUMNS that the schema has say why.
    """

    schema: pa.Schema
    place: str
    is_strict: bool

    def batch(self, batch: pa.RecordBatch, values: pa.Array, told: dict[int, tuple[bytes, str]]) -> pa.RecordBatch:
        """Returns rows with their values; `told` are the bytes of those that cannot be read, and why, by row."""
        made = {"value": values}
        if not MISFIT_COLUMNS.keys().isdisjoint(self.schema.names):
            rows = [told.get(row, (None, None)) for row in range(len(batch))]
            made[CORRUPT] = pa.array([data for data, _ in rows], pa.binary())
            made[WHY] = pa.array([why for _, why in rows], pa.string())
        arrays = [made[name] if name in made else batch.column(name) for name in self.schema.names]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def error(self, batch: pa.RecordBatch, row: int, why: str) -> InvalidRecordError:
        """Returns the error about a row."""
        return InvalidRecordError(
            f"{self.place}: the value at offset {batch.column('offset')[row].as_py()} cannot be read: {why}. Read with the option "
            'valueMode "permissive" to have null in place of such values, or with valueFormat "binary" to look at it.'
        )


class RowValues:
    """Puts values of Avro or Protocol Buffers in the place of the column `value`.

    Args:
        registered: The schema whose values they become.
        misfits: How those that cannot be read are told.
    """

    def __init__(self, registered: RegisteredType, misfits: Misfits) -> None:
        self._type = arrow_type_of(registered.type)
        self._misfits = misfits
        self._read = _reader_of(registered)

    def decoded(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Yields the rows of a batch with decoded values.

        Args:
            batch: The columns of the schema, `value` as binary, and `offset` if it is none of them.

        Raises:
            InvalidRecordError: A value cannot be read; the rows before it came.
            RegistryNotAvailableError: The registry does not answer.
        """
        for start in range(0, len(batch), ROWS_TOGETHER_MAX):
            yield from self._decoded(batch.slice(start, ROWS_TOGETHER_MAX))

    def _decoded(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        data = batch.column("value").to_pylist()
        values: list[Any] = []
        told: dict[int, tuple[bytes, str]] = {}
        for row, each in enumerate(data):
            value, why = self._one(each)
            if why:
                told[row] = (each, why)
                if self._misfits.is_strict:
                    break
            values.append(value)
        try:
            cells = pa.array(values, self._type)
        except (pa.ArrowException, ValueError, TypeError, OverflowError):  # one that no column can hold
            values, told = self._one_by_one(values, data, told)
            cells = pa.array(values, self._type)
        if len(values):
            yield self._misfits.batch(batch.slice(0, len(values)), cells, told)
        if told and self._misfits.is_strict:
            raise self._misfits.error(batch, len(values), told[len(values)][1])

    def _one(self, data: bytes | None) -> tuple[Any, str]:
        """Returns a value, and why there is none."""
        if data is None:
            return None, ""
        try:
            return self._read(data), ""
        except ReplogError:
            raise
        except Exception as error:  # noqa: BLE001 -- what the libraries raise for bytes that are none of theirs
            return None, str(error) if isinstance(error, ValueError) else error_text(error)

    def _one_by_one(
        self, values: list[Any], data: list[bytes], told: dict[int, tuple[bytes, str]]
    ) -> tuple[list[Any], dict[int, tuple[bytes, str]]]:
        """Finds the values that fit no column; returns those that do, and what is told of the others."""
        found: list[Any] = []
        for row, value in enumerate(values):
            try:
                pa.array([value], self._type)
            except (pa.ArrowException, ValueError, TypeError, OverflowError) as error:
                told = {**told, row: (data[row], f"it does not fit the column: {error_text(error)}")}
                if self._misfits.is_strict:
                    return found, {row: told[row]}
                found.append(None)
            else:
                found.append(value)
        return found, told


class BulkJsonValues:
    """Puts structs in the place of values of json; the bytes that are told of one that does not fit are those behind the id.

    Args:
        registered: Where the schemas are.
        shape: What the values are read as.
        misfits: How those that cannot be read are told.
    """

    def __init__(self, registered: RegisteredType, shape: Shape, misfits: Misfits) -> None:
        self._url = registered.url
        self._misfits = misfits
        self._json = JsonValues(misfits.schema, shape, is_strict=misfits.is_strict, place=misfits.place)
        self._type = misfits.schema.field("value").type
        self._known: set[bytes] = set()

    def decoded(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Yields the rows of a batch with decoded values.  Raises: As `RowValues.decoded`."""
        values = batch.column("value")
        bad = self._wrong_prefixes(pc.binary_slice(values, 0, PREFIX_BYTES))
        place = batch.schema.get_field_index("value")
        # `pc.binary_slice` from the sixth byte on ends with "Negative buffer resize" where values are null or shorter (pyarrow 26)
        cut = [each if each is None else each[PREFIX_BYTES:] for each in values.to_pylist()]
        bodies = batch.set_column(place, batch.schema.field(place), pa.array(cut, pa.binary()))
        start = 0
        for row, why in bad.items():
            yield from self._json.decoded(bodies.slice(start, row - start))
            if self._misfits.is_strict:
                raise self._misfits.error(batch, row, why)
            one = batch.slice(row, 1)
            yield self._misfits.batch(one, pa.nulls(1, self._type), {0: (values[row].as_py(), why)})
            start = row + 1
        yield from self._json.decoded(bodies.slice(start))

    def _wrong_prefixes(self, prefixes: pa.Array) -> dict[int, str]:
        """Returns why values are none of a schema of json, by row in order; each schema is asked for once."""
        wrong: dict[bytes, str] = {}
        for prefix in pc.unique(prefixes).to_pylist():
            if prefix is None or prefix in self._known:
                continue
            try:
                schema_id = schema_id_of(prefix)
                kind = registry_at(self._url).schema(schema_id).kind
                if kind != "JSON":
                    raise ValueError(f"its schema {schema_id} is one of {kind}, not of JSON")  # noqa: TRY301
                self._known.add(prefix)
            except ValueError as error:
                wrong[prefix] = str(error)
        if not wrong:
            return {}
        return {row: wrong[prefix] for row, prefix in enumerate(prefixes.to_pylist()) if prefix in wrong}


def _reader_of(registered: RegisteredType) -> Read:
    make = _avro_reader if registered.schema.kind == "AVRO" else _protobuf_reader
    readers: dict[int, Read] = {}

    def read(data: bytes) -> Any:
        schema_id = schema_id_of(data)
        reader = readers.get(schema_id)
        if reader is None:
            written_with = registry_at(registered.url).schema(schema_id)
            if written_with.kind != registered.schema.kind:
                raise ValueError(
                    f"its schema {schema_id} is one of {written_with.kind}, not of {registered.schema.kind}"
                )
            reader = readers[schema_id] = make(written_with, registered.schema)
        return reader(data[PREFIX_BYTES:])

    return read


def _avro_reader(written_with: Schema, wanted: Schema) -> Read:
    writer, reader = (avro_schema(each.text, each.imports) for each in (written_with, wanted))
    own = None if written_with == wanted else reader
    return lambda data: read_avro(writer, data, own)


def _protobuf_reader(written_with: Schema, wanted: Schema) -> Read:
    from replog.codecs import protobuf_binary as protobuf
    from replog.codecs.protobuf_fields import message_row

    name = protobuf.message_name(protobuf.descriptor_of(wanted.text), [0])
    kind = protobuf.message_class(protobuf_pool(wanted.text, wanted.imports), name)
    file = protobuf.descriptor_of(written_with.text)

    def read(data: bytes) -> Any:
        path, position = protobuf.decoded_path(data)
        written = protobuf.message_name(file, path)
        if written != name:
            raise ValueError(f"it is a message {written}, not {name}")
        return message_row(protobuf.parsed_message(kind, data[position:]))

    return read
