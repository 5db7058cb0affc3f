"""Json values as structs: what `replog.spark.json_decoder` decodes, in Arrow batches as Spark checks them."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from replog.errors import InvalidRecordError
from replog.spark.json_decoder import JsonColumn, Shape, decode_values, misfit_of
from replog.spark.json_decoder.arrow import arrow_type, json_array
from replog.spark.schema import CORRUPT, MISFIT_COLUMNS, WHY

CELLS_TOGETHER_MAX = 1 << 20
"""Cells of one Arrow batch, about: small values of many fields become much more than they were."""


class JsonValues:
    """Puts structs in the place of the column `value`, batch by batch.

    Args:
        schema: The schema of the batches that come out.
        shape: What the values are read as.
        is_strict: Whether a value that does not fit is an error; otherwise it is null, and the MISFIT_COLUMNS that the schema has
            tell of it.
        place: The topic and partition, for errors.
    """

    def __init__(self, schema: pa.Schema, shape: Shape, *, is_strict: bool, place: str) -> None:
        self._schema = schema
        self._shape = shape
        self._type = arrow_type(shape)
        self._is_strict = is_strict
        self._place = place
        self._tells_misfits = not MISFIT_COLUMNS.keys().isdisjoint(schema.names)

    def decoded(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Yields the rows of a batch with decoded values, in one batch or several.

        Args:
            batch: The columns of the schema, `value` as binary, and `offset` if it is none of them.

        Raises:
            InvalidRecordError: A value does not fit; the rows before it came.
        """
        values = batch.column("value")
        validity, offsets, data = values.buffers()
        start, stop = values.offset, values.offset + len(values)
        while start < stop:
            column, row, is_misfit = decode_values(
                self._shape,
                validity,
                offsets,
                data,
                start,
                stop,
                is_strict=self._is_strict,
                cells_max=CELLS_TOGETHER_MAX,
            )
            if column.length:
                yield self._batch(batch.slice(start - values.offset, column.length), column)
            if is_misfit:
                raise self._misfit(batch.slice(row - values.offset, 1))
            start = row

    def _batch(self, batch: pa.RecordBatch, column: JsonColumn) -> pa.RecordBatch:
        made = {"value": json_array(column, self._type)}
        if self._tells_misfits:
            made |= self._misfits(batch.column("value"), made["value"])
        arrays = [made[name] if name in made else batch.column(name) for name in self._schema.names]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _misfits(self, values: pa.Array, structs: pa.Array) -> dict[str, pa.Array]:
        """Returns the MISFIT_COLUMNS of some rows."""
        if structs.null_count == values.null_count:
            return {CORRUPT: pa.nulls(len(values), pa.binary()), WHY: pa.nulls(len(values), pa.string())}
        fits = structs.is_valid().to_pylist()
        corrupt: list[bytes | None] = [None if fits[row] else values[row].as_py() for row in range(len(values))]
        why = [None if value is None else self._why(value) for value in corrupt]
        return {CORRUPT: pa.array(corrupt, pa.binary()), WHY: pa.array(why, pa.string())}

    def _misfit(self, row: pa.RecordBatch) -> InvalidRecordError:
        offset, value = row.column("offset")[0].as_py(), row.column("value")[0].as_py()
        return InvalidRecordError(
            f'{self._place}: the value at offset {offset} {self._why(value)}. Read with the option valueMode "permissive" to have '
            'null in place of such values, or with valueFormat "binary" to look at it.'
        )

    def _why(self, value: bytes) -> str:
        return misfit_of(self._shape, value) or "does not fit the schema"
