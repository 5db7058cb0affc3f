"""Json values as structs: what `replog.records.json_values` decodes, in Arrow batches as Spark checks them."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from replog.errors import InvalidRecordError
from replog.records.json_values import JsonColumn, Shape, decode_values, misfit_of
from replog.records.json_values.arrow import arrow_type, json_array

CELLS_TOGETHER_MAX = 1 << 20
"""Cells of one Arrow batch, about: small values of many fields become much more than they were."""


class JsonValues:
    """Puts structs in the place of the column `value`, batch by batch.

    Args:
        schema: The schema of the batches that come out.
        shape: What the values are read as.
        is_strict: Whether a value that does not fit is an error; otherwise it is null.
        place: The topic and partition, for errors.
    """

    def __init__(self, schema: pa.Schema, shape: Shape, *, is_strict: bool, place: str) -> None:
        self._schema = schema
        self._shape = shape
        self._type = arrow_type(shape)
        self._is_strict = is_strict
        self._place = place

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
        arrays = [
            json_array(column, self._type) if name == "value" else batch.column(name) for name in self._schema.names
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _misfit(self, row: pa.RecordBatch) -> InvalidRecordError:
        offset, value = row.column("offset")[0].as_py(), row.column("value")[0].as_py()
        reason = misfit_of(self._shape, value) or "does not fit the schema"
        return InvalidRecordError(
            f'{self._place}: the value at offset {offset} {reason}. Read with the option valueMode "permissive" to have null in '
            'place of such values, or with valueFormat "binary" to look at it.'
        )
