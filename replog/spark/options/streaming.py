"""The options of a stream read, checked."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from replog.errors import ConfigError
from replog.spark.options.positions import BeforeEnd
from replog.spark.options.reading import (
    ReadOptions,
    is_strict_json,
    which_registry,
    which_security,
    which_servers,
    which_start,
    which_topics,
    which_transport,
)
from replog.spark.options.table import Given
from replog.spark.options.uses import Use


class Limits(Struct, frozen=True):
    """What one batch may take.

    Attributes:
        max_offsets: The most offsets of one batch; None: no limit.
        min_offsets: The offsets to wait for; 0: any.
        max_delay_ms: How long to wait for them, since the batch before.
        max_bytes: About the most bytes of one batch, as they lie in the logs; None: no limit.
    """

    max_offsets: int | None = None
    min_offsets: int = 0
    max_delay_ms: int = 0
    max_bytes: int | None = None


class StreamOptions(Struct, frozen=True):
    """Checked options of one stream read.

    Attributes:
        read: What a batch read of the same would have, from where a new query starts to the high watermarks.
        limits: The limits of each batch.
        group_id: The consumer group that is told where the query stands; None: none is.
    """

    read: ReadOptions
    limits: Limits
    group_id: str | None = None


def parse_stream_options(options: Mapping[str, str]) -> StreamOptions:
    """Checks the options of a stream read.

    Raises:
        ConfigError: An option is unknown, missing, doubled or has a bad value; it names the next step.
    """
    given = Given(options, Use.STREAM_READ)
    limits = Limits(
        max_offsets=given["maxOffsetsPerTrigger"],
        min_offsets=given["minOffsetsPerTrigger"] or 0,
        max_delay_ms=given["maxTriggerDelay"],
        max_bytes=given["maxBytesPerTrigger"],
    )
    if limits.max_offsets is not None and limits.min_offsets > limits.max_offsets:
        raise ConfigError(
            "minOffsetsPerTrigger",
            limits.min_offsets,
            f"minOffsetsPerTrigger is {limits.min_offsets} and maxOffsetsPerTrigger {limits.max_offsets}: give a maximum at or "
            "above the minimum",
        )
    read = ReadOptions(
        bootstrap_servers=which_servers(given),
        chosen=which_topics(given),
        starting=which_start(given),
        ending=BeforeEnd("endingOffsets"),
        starts_late_at_end=given["startingOffsetsByTimestampStrategy"] == "latest",
        is_fixed_at_load=False,
        include_headers=given["includeHeaders"],
        value_format=given["valueFormat"],
        registry=which_registry(given),
        is_strict_json=is_strict_json(given),
        fail_on_data_loss=given["failOnDataLoss"],
        target_bytes_per_partition=given["targetBytesPerPartition"],
        min_partitions=given["minPartitions"] or 0,
        max_records_per_partition=given["maxRecordsPerPartition"],
        poll_timeout_ms=given["kafkaConsumer.pollTimeoutMs"],
        transport=which_transport(given),
        security=which_security(given),
    )
    return StreamOptions(read, limits, given["commitOffsetsToGroup"])
