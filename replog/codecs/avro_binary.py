"""Avro, by fastavro: values of a schema, also those that were written with another one that fits (extra `registry`)."""

from __future__ import annotations

import datetime as dt
import io
from decimal import Decimal
from typing import Any, Final
from uuid import UUID

import fastavro
import msgspec

from replog.codecs.plain_values import Schema, avro_schema, read_avro
from replog.errors import ConfigError
from replog.errors.texts import error_text

_AVROS: Final = (bytes, dt.datetime, dt.date, dt.time, Decimal, UUID)
"""What fastavro takes and gives as it is, for bytes and logical types."""


class Avro:
    """Values of one schema.

    Args:
        schema: The schema, as JSON.
        kind: The class that values are made to; Any: they are dicts.

    Raises:
        ConfigError: The schema is none.
    """

    def __init__(self, schema: str, kind: Any) -> None:
        try:
            self._schema = avro_schema(schema)
        except Exception as error:
            raise ConfigError("schema", schema, f"the schema of Avro cannot be read: {error_text(error)}") from error
        self._kind = kind

    def encode(self, value: Any, /) -> bytes:
        """Returns the bytes of a value.  Raises what fastavro does for one that is not of the schema."""
        if self._kind is not Any:
            if not isinstance(value, self._kind):
                raise TypeError(f"expected {self._kind.__name__}, got {type(value).__name__}")
            value = msgspec.to_builtins(value, builtin_types=_AVROS)
        out = io.BytesIO()
        fastavro.schemaless_writer(out, self._schema, value, strict=True)
        return out.getvalue()

    def decode(self, written_with: Schema, data: bytes, /) -> Any:
        """Returns the value of bytes.  Raises what fastavro does for such as are not of the schema.

        Args:
            written_with: The schema with which they were written.
            data: The bytes.
        """
        value = read_avro(avro_schema(written_with.text, written_with.imports), data, self._schema)
        return value if self._kind is Any else msgspec.convert(value, self._kind, builtin_types=_AVROS)
