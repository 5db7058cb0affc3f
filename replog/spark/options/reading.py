"""The options of a batch read, checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from replog.errors import ConfigError
from replog.spark.options.parsers import PartitionOffsets
from replog.spark.options.table import Given
from replog.spark.options.uses import Use


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """Checked options of one read.

    Attributes:
        bootstrap_servers: "host:port,host:port".
        topics: Names, in the order given, without doubles.
        assignment: Topic -> partitions, with `assign`; None: all partitions of `topics`.
        starting_offsets: First offsets; EARLIEST in it means the log start.  None: the log start everywhere.
        ending_offsets: Ends, exclusive; LATEST in it means the high watermark.  None: the high watermark everywhere.
        include_headers: Whether the schema has a column `headers`.
        fail_on_data_loss: Whether records that are gone fail the query; otherwise the rest is read, with a warning.
        min_partitions: The wished number of tasks; 0: one for each topic partition.
        poll_timeout_ms: How long a task may get no records, and planning no offsets; None: 10 s where no broker could serve
            it, 60 s where one may answer yet.
    """

    bootstrap_servers: str
    topics: tuple[str, ...]
    assignment: Mapping[str, tuple[int, ...]] | None
    starting_offsets: PartitionOffsets | None
    ending_offsets: PartitionOffsets | None
    include_headers: bool
    fail_on_data_loss: bool
    min_partitions: int
    poll_timeout_ms: int | None


def is_read(options: Mapping[str, str]) -> bool:
    """Whether the options ask to read: a writer and a catalog may make a data source without them."""
    return any(name.lower() in {"subscribe", "assign", "subscribepattern"} for name in options)


def parse_read_options(options: Mapping[str, str]) -> ReadOptions:
    """Checks the options of a batch read.  Names are case-insensitive, values are as the user wrote them.

    Raises:
        ConfigError: An option is unknown, missing, doubled or has a bad value; it names the next step.
    """
    given = Given(options, Use.BATCH_READ)
    topics, assignment = which_topics(given)
    return ReadOptions(
        bootstrap_servers=which_servers(given),
        topics=topics,
        assignment=assignment,
        starting_offsets=given["startingOffsets"],
        ending_offsets=given["endingOffsets"],
        include_headers=given["includeHeaders"],
        fail_on_data_loss=given["failOnDataLoss"],
        min_partitions=given["minPartitions"] or 0,
        poll_timeout_ms=given["kafkaConsumer.pollTimeoutMs"],
    )


def which_servers(given: Given) -> str:
    """Returns the bootstrap servers, which have two names.

    Raises:
        ConfigError: Neither is given, or they differ.
    """
    names = [name for name in ("bootstrap.servers", "kafka.bootstrap.servers") if (given.text(name) or "").strip()]
    if not names:
        raise ConfigError(
            "bootstrap.servers", None, 'give the option "bootstrap.servers", for example "127.0.0.1:9092"'
        )
    servers: set[str] = {given[name] for name in names}
    if len(servers) > 1:
        raise ConfigError(
            "bootstrap.servers",
            given.text(names[0]),
            '"bootstrap.servers" and "kafka.bootstrap.servers" differ: give one',
        )
    return servers.pop()


def which_topics(given: Given) -> tuple[tuple[str, ...], Mapping[str, tuple[int, ...]] | None]:
    """Returns the topics, and the partitions of each where they are assigned.

    Raises:
        ConfigError: Not exactly one of the options that name topics is given.
    """
    if ("subscribe" in given) == ("assign" in given):
        raise ConfigError(
            "subscribe",
            given.text("subscribe"),
            'give exactly one of "subscribe" (topics, comma-separated) and "assign" (json, {"topic": [0, 1]})',
        )
    if "assign" in given:
        assignment: Mapping[str, tuple[int, ...]] = given["assign"]
        return tuple(assignment), assignment
    return given["subscribe"], None
