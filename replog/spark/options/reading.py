"""The options of a batch read, checked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from msgspec import Struct

from replog.client.ranges.transport import ReadTransport
from replog.errors import ConfigError
from replog.spark.options.brokers import Brokers, security_of
from replog.spark.options.positions import Position
from replog.spark.options.table import SECURITY_OPTIONS, Given
from replog.spark.options.uses import STRUCTURED, Use

if TYPE_CHECKING:
    from replog.client.security.security import Security


class TopicChoice(Struct, frozen=True):
    """What is read.

    Attributes:
        topics: Names, in the order given, without doubles; none with a pattern.
        pattern: A regular expression for whole names; None: the names are given.
        assignment: Topic -> partitions; None: all partitions of the topics.
    """

    topics: tuple[str, ...] = ()
    pattern: str | None = None
    assignment: Mapping[str, tuple[int, ...]] | None = None

    @property
    def option(self) -> str:
        """The option that says it."""
        if self.pattern is not None:
            return "subscribePattern"
        return "subscribe" if self.assignment is None else "assign"


class RegistrySubject(Struct, frozen=True):
    """Where the schema of the values is.

    Attributes:
        url: Where the registry is.
        subject: The subject whose last schema the values become.
    """

    url: str
    subject: str


class ReadOptions(Struct, frozen=True):
    """Checked options of one batch read.

    Attributes:
        bootstrap_servers: "host:port,host:port".
        chosen: The topics and partitions to read.
        starting: Where each partition starts.
        ending: Where each partition ends, exclusive.
        starts_late_at_end: Whether a partition without a record at or after its starting time starts at its end; otherwise it
            fails the query.
        is_fixed_at_load: Whether all actions read what is there when the DataFrame is made; otherwise each plan fixes it anew.
        include_headers: Whether the schema has a column `headers`.
        value_format: What the column `value` is: "binary", "string", or "json", "avro" or "protobuf" for what a schema says.
        registry: Where that schema is; None: a given one says it.
        is_strict_json: Whether a value that does not fit its schema fails the query; otherwise it is null.
        fail_on_data_loss: Whether records that are gone fail the query; otherwise the rest is read, with a warning.
        min_partitions: The wished number of tasks; 0: as many as their size in bytes asks for.
        target_bytes_per_partition: The wished size of a task.
        max_records_per_partition: The most offsets of one task; None: no limit.
        poll_timeout_ms: How long a task may get no records, and planning no offsets; None: 10 s where no broker could serve
            it, 60 s where one may answer yet.
        transport: How tasks get their bytes.
        security: TLS and the login; None: plain text.
    """

    bootstrap_servers: str
    chosen: TopicChoice
    starting: Position
    ending: Position
    starts_late_at_end: bool
    is_fixed_at_load: bool
    include_headers: bool
    value_format: str
    registry: RegistrySubject | None
    is_strict_json: bool
    fail_on_data_loss: bool
    min_partitions: int
    target_bytes_per_partition: int
    max_records_per_partition: int | None
    poll_timeout_ms: int | None
    transport: ReadTransport
    security: Security | None = None

    @property
    def brokers(self) -> Brokers:
        """Which brokers are asked, and how."""
        return Brokers(self.bootstrap_servers, self.security)


def is_read(options: Mapping[str, str]) -> bool:
    """Whether the options ask to read: a writer and a catalog may make a data source without them."""
    return any(name.lower() in {"subscribe", "assign", "subscribepattern"} for name in options)


def parse_read_options(options: Mapping[str, str]) -> ReadOptions:
    """Checks the options of a batch read.  Names are case-insensitive, values are as the user wrote them.

    Raises:
        ConfigError: An option is unknown, missing, doubled or has a bad value; it names the next step.
    """
    given = Given(options, Use.BATCH_READ)
    return ReadOptions(
        bootstrap_servers=which_servers(given),
        chosen=which_topics(given),
        starting=which_start(given),
        ending=_which_position(given, "endingTimestamp", "endingOffsetsByTimestamp", "endingOffsets"),
        starts_late_at_end=given["startingOffsetsByTimestampStrategy"] == "latest",
        is_fixed_at_load=given["snapshot"] == "load",
        include_headers=given["includeHeaders"],
        value_format=given["valueFormat"],
        registry=which_registry(given),
        is_strict_json=is_strict_json(given),
        fail_on_data_loss=given["failOnDataLoss"],
        min_partitions=given["minPartitions"] or 0,
        target_bytes_per_partition=given["targetBytesPerPartition"],
        max_records_per_partition=given["maxRecordsPerPartition"],
        poll_timeout_ms=given["kafkaConsumer.pollTimeoutMs"],
        transport=which_transport(given),
        security=which_security(given),
    )


def is_strict_json(given: Given) -> bool:
    """Whether a value that does not fit fails the query.

    Raises:
        ConfigError: It is said for values that are not read as json.
    """
    if "valueMode" in given and given["valueFormat"] not in STRUCTURED:
        raise ConfigError(
            "valueMode",
            given.text("valueMode"),
            'valueMode is about values of json, avro or protobuf: set valueFormat to "json", "avro" or "protobuf", or leave valueMode out',
        )
    return bool(given["valueMode"] == "failfast")


def which_registry(given: Given) -> RegistrySubject | None:
    """Returns where the schema of the values is; None: they have none in a registry.

    Raises:
        ConfigError: It is needed and not given, or given and not needed, or the subject is not said and there are several topics.
    """
    value_format, url = given["valueFormat"], given["schema.registry.url"]
    subject: str | None = given["schema.registry.subject"]
    if url is None:
        if value_format in {"avro", "protobuf"} or subject is not None:
            raise ConfigError(
                "schema.registry.url",
                None,
                f'valueFormat "{value_format}": give the option "schema.registry.url", for example "http://127.0.0.1:8081"',
            )
        return None
    if value_format not in STRUCTURED:
        raise ConfigError(
            "schema.registry.url",
            url,
            f'valueFormat is "{value_format}", which needs no schema: set it to "avro", "protobuf" or "json", or leave the url out',
        )
    topics = which_topics(given).topics
    if subject is None and len(topics) != 1:
        raise ConfigError(
            "schema.registry.subject",
            None,
            'several topics may be read: give the option "schema.registry.subject", whose last schema their values become',
        )
    return RegistrySubject(url, subject or f"{topics[0]}-value")


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


def which_security(given: Given) -> Security | None:
    """Returns TLS and the login.  Raises: ConfigError: They cannot be as they are said."""
    return security_of({option.name: given.text(option.name) for option in SECURITY_OPTIONS})


def which_transport(given: Given) -> ReadTransport:
    """Returns how tasks get their bytes.

    Raises:
        ConfigError: A rack is given under both of its names, and they differ.
    """
    racks: set[str] = {given[name] for name in ("clientRack", "kafka.client.rack") if name in given}
    if len(racks) > 1:
        raise ConfigError(
            "clientRack", given.text("clientRack"), '"clientRack" and "kafka.client.rack" differ: give one'
        )
    return ReadTransport(
        direct_reads=given["directReads"], verify_crc=given["verifyCrc"], client_rack=racks.pop() if racks else ""
    )


def which_topics(given: Given) -> TopicChoice:
    """Returns what is read.

    Raises:
        ConfigError: Not exactly one of the options that name topics is given.
    """
    if sum(name in given for name in ("subscribe", "subscribePattern", "assign")) != 1:
        raise ConfigError(
            "subscribe",
            given.text("subscribe"),
            'give exactly one of "subscribe" (topics, comma-separated), "subscribePattern" (a regular expression) and '
            '"assign" (json, {"topic": [0, 1]})',
        )
    if "assign" in given:
        assignment: Mapping[str, tuple[int, ...]] = given["assign"]
        return TopicChoice(tuple(assignment), assignment=assignment)
    if "subscribePattern" in given:
        return TopicChoice(pattern=given["subscribePattern"])
    return TopicChoice(given["subscribe"])


def which_start(given: Given) -> Position:
    """Returns where each partition starts."""
    return _which_position(given, "startingTimestamp", "startingOffsetsByTimestamp", "startingOffsets")


def _which_position(given: Given, *names: str) -> Position:
    """Returns what the first of the options says that is given, or the default of the last; all are checked."""
    positions: list[Position] = [given[name] for name in names if name in given or name == names[-1]]
    return positions[0]
