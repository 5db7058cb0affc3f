"""Where Spark comes in: the data source `replog`.

Light to import on purpose.  Spark imports it while it looks for data sources, and one module that fails there hides
all Python data sources of the session.
"""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)

from replog.errors import ConfigError, OffsetOutOfRangeError, UnknownTopicOrPartitionError

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from replog.spark.options import ReadOptions, StreamOptions
    from replog.spark.options.reading import RegistrySubject
    from replog.spark.schema import Column
    from replog.spark.snapshot import PinnedOffsets


class ReplogDataSource(DataSource):
    """`spark.read.format("replog")`: topics of a replog cluster as a DataFrame; `df.write.format("replog")` appends to them.

    ::

        spark.read.format("replog").option("bootstrap.servers", "127.0.0.1:9092").option("subscribe", "flights").load()

    Options are in `replog.spark.options.table.OPTIONS`, columns in `replog.spark.schema.COLUMN_TYPES`.

    What is read is fixed when this object is made: for each partition, offsets from the start to the high watermark of
    that moment.  Spark makes it in `load()`, after `.schema(...)` when the first action is planned; then it pickles it and
    uses the copy for every scan, so that repeated actions and both sides of a self-join see the same records; a new `load()`
    sees newer ones.  With the option `snapshot` "action" it is fixed anew each time Spark plans a scan.

    Whether the options are those of `read` or of `readStream` Spark does not say before it asks for a reader.  So options
    that fit only one of them are refused where the other one's reader is asked for.

    Raises:
        ConfigError, UnknownTopicOrPartitionError, OffsetOutOfRangeError, RequestTimedOutError: What
            `parse_read_options` and `fetch_snapshot` say.
    """

    def __init__(self, options: MutableMapping[str, str]) -> None:
        from replog.spark.environment import require_pyarrow
        from replog.spark.options import is_read, parse_read_options, refuse_table

        super().__init__(options)
        require_pyarrow()
        refuse_table(options)
        self._read_options: ReadOptions | None = None
        self._stream_options: StreamOptions | None = None  # where they are no options of a batch read
        self._snapshot: PinnedOffsets | None = None
        self._is_unpickled = False
        if not is_read(options):
            return
        try:
            self._read_options = parse_read_options(options)
        except ConfigError as error:
            self._stream_options = _stream_options(options, error)
            return
        if self._read_options.is_fixed_at_load:
            self._snapshot = _snapshot_at_load(options, self._read_options)

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Notes that this is a copy: Spark plans each micro-batch with a new data source, and tells of its end by a copy."""
        self.__dict__.update(state, _is_unpickled=True)

    @classmethod
    def name(cls) -> str:
        return "replog"

    def schema(self) -> str | StructType:
        from replog.spark.schema import schema_ddl

        options = self._options_of_read() if self._stream_options is None else self._stream_options.read
        if options.registry is not None:
            return _registered_schema(options, options.registry)
        return schema_ddl(include_headers=options.include_headers, value_type=options.value_format)

    def reader(self, schema: StructType) -> DataSourceReader:
        from replog.spark.reader import ReplogReader

        options = self._options_of_read()
        columns = _columns(schema, options)
        return ReplogReader(options, self._snapshot or _fetch_snapshot(options), columns)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from replog.spark.options import check_arrived
        from replog.spark.sink.writer import ReplogWriter, plan_write

        check_arrived(self.options)
        options = plan_write(self.options, schema.fields, overwrite=overwrite, mode="overwrite")
        if options.once is None:
            return ReplogWriter(options)
        from replog.spark.sink.once.writer import OnceWriter

        return OnceWriter(options, options.once)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 -- Spark's name
        from replog.spark.options import check_arrived, parse_stream_options
        from replog.spark.stream.reader import ReplogStreamReader

        check_arrived(self.options)
        options = parse_stream_options(self.options)
        return ReplogStreamReader(options, _columns(schema, options.read))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802 -- Spark's signature
        from replog.spark.sink.writer import ReplogStreamWriter, plan_write

        options = plan_write(
            self.options, schema.fields, overwrite=overwrite, mode="complete", is_over=self._is_unpickled
        )
        if options.once is None:
            return ReplogStreamWriter(options)
        from replog.spark.options.writing import refuse_names_in_stream
        from replog.spark.sink.once.writer import OnceStreamWriter

        refuse_names_in_stream(options)
        return OnceStreamWriter(options, options.once)

    def _options_of_read(self) -> ReadOptions:
        from replog.spark.options import check_arrived, parse_read_options

        check_arrived(self.options)
        if self._read_options is not None:
            return self._read_options
        if self._stream_options is not None:
            return parse_read_options(self.options)  # raises: they are those of a stream
        raise ConfigError("subscribe", None, 'give the option "subscribe" (topics, comma-separated) or "assign"')


def _registered_schema(options: ReadOptions, registry: RegistrySubject) -> StructType:
    """Returns the schema where a registry has that of the values."""
    from pyspark.sql.types import StructType

    from replog.spark.registry_types import latest_type
    from replog.spark.schema import schema_with

    schema_id, registered = latest_type(registry.url, registry.subject, options.value_format)
    made = schema_with(
        registered.type, schema_id, include_headers=options.include_headers, is_strict=options.is_strict_json
    )
    return StructType.fromJson(made)


def _columns(schema: StructType, options: ReadOptions) -> tuple[Column, ...]:
    """Returns the columns to read, with what the values are read as."""
    from replog.spark.schema import ID_KEY, columns_of

    registered = None
    if options.registry is not None and "value" in schema.names:
        from replog.codecs.plain_values import Schema
        from replog.spark.registry_types import latest_type, type_by_id
        from replog.spark.schema import RegisteredType

        url, schema_id = options.registry.url, schema["value"].metadata.get(ID_KEY)
        if isinstance(schema_id, int):
            registered = type_by_id(url, schema_id, options.value_format)
        elif options.value_format == "json":  # the given schema says what is read
            registered = RegisteredType(url, Schema("JSON", ""), None)
        else:
            _, registered = latest_type(url, options.registry.subject, options.value_format)
    return columns_of(
        schema.fields, value_type=options.value_format, is_strict=options.is_strict_json, registered=registered
    )


def _fetch_snapshot(options: ReadOptions) -> PinnedOffsets:
    from replog.spark.worker_client import fetch_snapshot

    return fetch_snapshot(options)


def _snapshot_at_load(options: MutableMapping[str, str], read: ReadOptions) -> PinnedOffsets | None:
    """Returns the snapshot; None where there is none from the start that is asked for, and a stream may be meant.

    One with a checkpoint does not begin at that start: retention may have passed it long ago.  The reader of a batch fails.
    """
    try:
        return _fetch_snapshot(read)
    except ConfigError as error:
        if error.field == "bootstrap.servers" or not _fits_stream(options):
            raise
    except OffsetOutOfRangeError:
        if not _fits_stream(options):
            raise
    except UnknownTopicOrPartitionError:
        if read.chosen.pattern is None or not _fits_stream(options):
            raise
    return None


def _fits_stream(options: MutableMapping[str, str]) -> bool:
    """Whether the options are those of a stream read, too."""
    from replog.spark.options import parse_stream_options

    try:
        parse_stream_options(options)
    except ConfigError:
        return False
    return True


def _stream_options(options: MutableMapping[str, str], batch_error: ConfigError) -> StreamOptions:
    """Returns the options of a stream read; where they are none either, raises the error that fits what was meant."""
    from replog.spark.options import parse_stream_options
    from replog.spark.options.table import has_option_only_of
    from replog.spark.options.uses import Use

    try:
        return parse_stream_options(options)
    except ConfigError as error:
        # where they differ in what they refuse first, a stream takes what the batch refuses
        is_stream = error.field != batch_error.field and not has_option_only_of(options, Use.BATCH_READ)
        if is_stream or has_option_only_of(options, Use.STREAM_READ):
            raise
        raise batch_error from None
