"""All options of the data source: a row for each.  The table in `docs/SPARK.md` is made of it (`make docs`).

A name may have several rows where its uses differ in default or meaning; each use has at most one of them.
"""

from __future__ import annotations

import difflib
import logging
from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from replog.client.security.kafka_names import KNOWN
from replog.errors import ConfigError
from replog.spark.options import brokers, parsers, positions
from replog.spark.options.foreign import FOREIGN_OPTIONS, Treatment, find_foreign
from replog.spark.options.parsers import EARLIEST, LATEST, Parser
from replog.spark.options.uses import STRUCTURED, Use

TASKS_MAX = 1_000_000
"""Tasks of one scan: Spark plans each of them in the driver."""

TARGET_BYTES_MIN = 1 << 16
"""The smallest size of a task that may be wished for: below it, Spark's cost of a task is all there is."""

TARGET_BYTES_MAX = 1 << 50
"""The largest one."""

POLL_TIMEOUT_MS_MAX = 86_400_000
"""A day: longer is a mistake in the unit."""

PRODUCER_BYTES_MAX = 55 << 20
"""What one message to a broker carries."""

NEAR_ENOUGH = 0.6
"""How like another a name must be to be taken for a misspelling."""

_NAME_CHARACTERS_MAX = 200
"""Longer ones are no misspelling, and comparing them takes long."""

_log = logging.getLogger(__name__)


class Option(Struct, frozen=True):
    """One option.

    Attributes:
        name: Its name in Kafka's spelling; users may write it in any case.
        uses: What it may be given for.
        default: The text that is parsed where it is not given; None: the value is None then.
        parse: What checks the value and returns it.
        meaning: One or two sentences for the manual.
    """

    name: str
    uses: Use
    default: str | None
    parse: Parser
    meaning: str


OPTIONS: tuple[Option, ...] = (
    Option(
        "bootstrap.servers",
        Use.ANY,
        None,
        parsers.parse_servers,
        "**Required.** Brokers to begin with, `host:port,host:port`.",
    ),
    Option("kafka.bootstrap.servers", Use.ANY, None, parsers.parse_servers, "The same under Kafka's name."),
    Option(
        "subscribe",
        Use.READ,
        None,
        parsers.parse_topics,
        "Topics, comma-separated. Exactly one of this, `subscribePattern` and `assign` is given.",
    ),
    Option(
        "subscribePattern",
        Use.READ,
        None,
        parsers.parse_pattern,
        "A regular expression (Python's) that matches whole names of topics. A batch read of none is refused.",
    ),
    Option("assign", Use.READ, None, parsers.parse_assignment, 'Partitions, as json: `{"rides": [0, 1]}`.'),
    Option(
        "startingTimestamp",
        Use.READ,
        None,
        positions.parse_time,
        "Each partition starts at its first record at or after this time: milliseconds since 1970, or a while before now, "
        "such as `-10m` (`ms`, `s`, `m`, `h`, `d`). Goes before `startingOffsetsByTimestamp`, and that before `startingOffsets`.",
    ),
    Option(
        "startingOffsetsByTimestamp",
        Use.READ,
        None,
        positions.parse_times,
        'A time for every partition that is read: `{"rides": {"0": 1700000000000}}`.',
    ),
    Option(
        "startingOffsetsByTimestampStrategy",
        Use.READ,
        "error",
        parsers.choice_parser("error", "latest"),
        "A partition that has no record at or after its starting time fails the query with `error`, and starts at its end "
        "with `latest`.",
    ),
    Option(
        "startingOffsets",
        Use.BATCH_READ,
        "earliest",
        positions.position_parser(words=("earliest",), markers=(EARLIEST,)),
        "Where each partition starts: `earliest`, a number of offsets from an end (`latest-100`, `earliest+100`), or json for "
        'every partition that is read: `{"rides": {"0": 23, "1": -2}}`, where -2 is its first record.',
    ),
    Option(
        "startingOffsets",
        Use.STREAM_READ,
        "latest",
        positions.position_parser(words=("earliest", "latest"), markers=(EARLIEST, LATEST)),
        "Where a new query starts, said as for a batch; -1 in a json is the high watermark. A query with a checkpoint goes on "
        "there, and a partition that comes later starts at its first record.",
    ),
    Option(
        "endingTimestamp",
        Use.BATCH_READ,
        None,
        positions.parse_time,
        "Each partition ends before its first record at or after this time, or at its high watermark. Goes before "
        "`endingOffsetsByTimestamp`, and that before `endingOffsets`.",
    ),
    Option(
        "endingOffsetsByTimestamp",
        Use.BATCH_READ,
        None,
        positions.parse_times,
        "A time for every partition that is read.",
    ),
    Option(
        "endingOffsets",
        Use.BATCH_READ,
        "latest",
        positions.position_parser(words=("latest",), markers=(LATEST,)),
        "Where each partition ends, exclusive: `latest`, its high watermark, a number of offsets from an end, or json in "
        "which -1 is the high watermark.",
    ),
    Option(
        "failOnDataLoss",
        Use.READ,
        "true",
        parsers.parse_boolean,
        "Whether records that are gone fail the query; with `false` what is left is read, with a warning.",
    ),
    Option(
        "snapshot",
        Use.BATCH_READ,
        "load",
        parsers.choice_parser("load", "action"),
        "When what is read is fixed: `load`, when the DataFrame is made, for all its actions; `action`, each time Spark plans.",
    ),
    Option("includeHeaders", Use.READ, "false", parsers.parse_boolean, "Whether there is a column `headers`."),
    Option(
        "valueFormat",
        Use.READ,
        "binary",
        parsers.choice_parser("binary", "string", *STRUCTURED),
        "What the column `value` is: `binary`, `string`, of values that are UTF-8: another one fails the query, or `json`, a struct "
        "whose fields a given schema names; with `schema.registry.url` `json`, `avro` or `protobuf`, what the schema there says.",
    ),
    Option(
        "schema.registry.url",
        Use.READ,
        None,
        parsers.parse_url,
        "The registry with the schemas of the values, such as `http://127.0.0.1:8081`.",
    ),
    Option(
        "schema.registry.subject",
        Use.READ,
        None,
        parsers.parse_subject,
        "The subject whose last schema the values become; unset: the name of the one topic, and `-value`.",
    ),
    Option(
        "valueMode",
        Use.READ,
        "failfast",
        parsers.choice_parser("failfast", "permissive"),
        "What a value that does not fit the schema does with `valueFormat` `json`, `avro` or `protobuf`: it fails the query, or the column is "
        "null with `permissive`, and the columns `_corrupt` and `_why`, where the schema names them, tell of it.",
    ),
    Option(
        "targetBytesPerPartition",
        Use.READ,
        "128m",
        parsers.size_parser(TARGET_BYTES_MIN, TARGET_BYTES_MAX),
        "The wished size of a task, as in the log, in bytes or with `k`, `m` or `g`: larger partitions are cut between batches, "
        "small ones share a task up to an eighth of it.",
    ),
    Option(
        "minPartitions",
        Use.READ,
        None,
        parsers.number_parser("a number of tasks", 1, TASKS_MAX),
        "The wished number of tasks: where there are fewer, the large ones are split. Nothing shares a task, then.",
    ),
    Option(
        "maxRecordsPerPartition",
        Use.READ,
        None,
        parsers.number_parser("a number of offsets", 1, 2**63 - 1),
        "The most offsets that one task reads: larger ranges are split.",
    ),
    Option(
        "maxOffsetsPerTrigger",
        Use.STREAM_READ,
        None,
        parsers.number_parser("a number of offsets", 1, 2**63 - 1),
        "The most offsets of one batch, shared in proportion to what each partition has; one at least for each that has any.",
    ),
    Option(
        "maxBytesPerTrigger",
        Use.STREAM_READ,
        None,
        parsers.number_parser("a number of bytes", 1, 2**63 - 1),
        "About the most bytes of one batch, as they lie in the logs: reckoned by the average size of each partition's records.",
    ),
    Option(
        "minOffsetsPerTrigger",
        Use.STREAM_READ,
        None,
        parsers.number_parser("a number of offsets", 1, 2**63 - 1),
        "A batch waits until there are so many offsets, or `maxTriggerDelay` is over. The first batch of a run does not wait, "
        "and none of a run with the trigger `availableNow`.",
    ),
    Option(
        "maxTriggerDelay",
        Use.STREAM_READ,
        "15m",
        parsers.parse_duration_ms,
        "How long `minOffsetsPerTrigger` is waited for since the batch before, such as `90s` (`ms`, `s`, `m`, `min`, `h`, `d`; without one: `ms`).",
    ),
    Option(
        "commitOffsetsToGroup",
        Use.STREAM_READ,
        None,
        parsers.parse_group,
        "A consumer group that is told after each batch where the query stands, for tools that show lags; it must have no "
        "members. Nothing is read from it.",
    ),
    Option(
        "kafkaConsumer.pollTimeoutMs",
        Use.READ,
        None,
        parsers.number_parser("milliseconds", 1, POLL_TIMEOUT_MS_MAX),
        "How long a task may get no records, and planning no offsets; unset: 10 s where no broker could serve it, a minute "
        "where one may answer yet.",
    ),
    Option("topic", Use.WRITE, None, parsers.parse_topic, "The topic of all rows; goes before the column `topic`."),
    Option("includeHeaders", Use.WRITE, "true", parsers.parse_boolean, "Whether a column `headers` is written."),
    Option(
        "delivery",
        Use.WRITE,
        parsers.AT_LEAST_ONCE,
        parsers.parse_delivery,
        "How often a row is in its topic for readers of committed records: `atLeastOnce`, or `exactlyOnce`, which needs brokers of "
        'replog: see "Exactly once".',
    ),
    Option(
        "txnAppId",
        Use.WRITE,
        None,
        parsers.parse_writer,
        "With `txnVersion`, `exactlyOnce` and a batch: the name of the application that numbers its writes. One whose number is not "
        "above that of its last one writes nothing.",
    ),
    Option(
        "txnVersion",
        Use.WRITE,
        None,
        parsers.number_parser("", 0, 2**63 - 1),
        "The number of the write: in `foreachBatch` the id of the batch.",
    ),
    Option(
        "writeId",
        Use.WRITE,
        None,
        parsers.parse_writer,
        "With `exactlyOnce` and a batch: the name of this one write. A second one of the same name writes nothing.",
    ),
    Option(
        "kafka.transaction.timeout.ms",
        Use.WRITE,
        None,
        parsers.number_parser("milliseconds", 1, POLL_TIMEOUT_MS_MAX),
        "With `exactlyOnce`: how long a task may write before its brokers abort what it has written, at most their "
        "`transaction.max.timeout.ms`. Unset: 900000.",
    ),
    Option(
        "kafka.acks",
        Use.WRITE,
        "all",
        parsers.choice_parser("all", "-1", "1"),
        "Who must have a row before it counts as written: all in-sync replicas, or (`1`) the leader alone.",
    ),
    Option(
        "kafka.enable.idempotence",
        Use.WRITE,
        None,
        parsers.parse_boolean,
        "Whether retries within one attempt of a task write no row twice; unset: yes, where `kafka.acks` is `all`.",
    ),
    Option(
        "kafka.compression.type",
        Use.WRITE,
        "none",
        parsers.choice_parser("none", "gzip", "snappy", "lz4", "zstd"),
        "How batches are compressed; the last three need the extra `compression` where tasks run.",
    ),
    Option(
        "kafka.compression.gzip.level",
        Use.WRITE,
        None,
        parsers.level_parser(-1, 9),
        "1 to 9; unset, or -1: zlib's default, 6.",
    ),
    Option(
        "kafka.compression.lz4.level",
        Use.WRITE,
        None,
        parsers.level_parser(9, 9),
        "9, Kafka's default; there is no other.",
    ),
    Option(
        "kafka.compression.zstd.level", Use.WRITE, None, parsers.level_parser(-131_072, 22), "-131072 to 22; unset: 3."
    ),
    Option(
        "kafka.batch.size",
        Use.WRITE,
        None,
        parsers.number_parser("bytes", 1, PRODUCER_BYTES_MAX),
        "Size at which a batch is closed, before compression; unset: 524288.",
    ),
    Option(
        "kafka.linger.ms",
        Use.WRITE,
        None,
        parsers.number_parser("milliseconds", 0, POLL_TIMEOUT_MS_MAX),
        "How long a batch that is not full waits for more rows; unset: 0.",
    ),
    Option(
        "kafka.max.request.size",
        Use.WRITE,
        None,
        parsers.number_parser("bytes", 256, PRODUCER_BYTES_MAX),
        "Bound of a row with its overhead, and of the batches of one message; unset: 1048576.",
    ),
    Option(
        "kafka.delivery.timeout.ms",
        Use.WRITE,
        None,
        parsers.number_parser("milliseconds", 1, POLL_TIMEOUT_MS_MAX),
        "How long a row may wait for its acknowledgement, retries included; then the task fails. Unset: 120000.",
    ),
    Option(
        "directReads",
        Use.READ,
        "true",
        parsers.parse_boolean,
        "Whether a task on the machine of a replica reads its files; with `false`, and elsewhere, records are fetched.",
    ),
    Option(
        "verifyCrc",
        Use.READ,
        "true",
        parsers.parse_boolean,
        "Whether checksums are looked at; `false` is a little faster, and hands on what a bad disk made of a record.",
    ),
    Option(
        "clientRack",
        Use.READ,
        None,
        parsers.parse_rack,
        "The rack that the tasks run in: a replica in it is preferred to the leader where the brokers' `replica.selector` lets "
        "it serve.",
    ),
    Option("kafka.client.rack", Use.READ, None, parsers.parse_rack, "The same under Kafka's name."),
)


_TEXT_OF = {
    "security.protocol": "`PLAINTEXT`, `SSL`, `SASL_PLAINTEXT` or `SASL_SSL`; unset: `PLAINTEXT`. Files that the options about security "
    "name must be on the driver and on each executor.",
    "sasl.tokenauth": "`true`: `kafka.sasl.username` and `kafka.sasl.password` are the id and the HMAC of a delegation token "
    "([docs/SECURITY_CLIENTS.md](SECURITY_CLIENTS.md)).",
    "sasl.password": "The password. Spark hides it in plans by the word in its name.",
}
"""What the manual says of options about security that need more than their name in Kafka's manual."""

SECURITY_OPTIONS = tuple(
    Option(
        f"{brokers.PREFIX}{name}",
        Use.ANY,
        None,
        parsers.parse_text,
        _TEXT_OF.get(name, "As in Kafka's clients; see [docs/SECURITY_CLIENTS.md](SECURITY_CLIENTS.md)."),
    )
    for name in KNOWN
    if name != "sasl.jaas.config"
)
OPTIONS += SECURITY_OPTIONS


class Given:
    """The options of one use: `given[name]` is the parsed value, or that of the default.

    Args:
        options: What the user wrote, by name in any case.
        use: What it is for; exactly one.

    Raises:
        ConfigError: A name is unknown, belongs to another use, or is one that would be ignored at a cost.
    """

    def __init__(self, options: Mapping[str, str], use: Use) -> None:
        self.use = use
        self._rows = {option.name.lower(): option for option in OPTIONS if use in option.uses}
        self._texts = {name.lower(): text for name, text in options.items()}
        ignored = [reason for name, text in options.items() if (reason := _why_ignored(name, text, use, self._rows))]
        if ignored:
            _log.warning("format replog ignores options: %s", "; ".join(ignored))

    def __contains__(self, name: str) -> bool:
        return name.lower() in self._texts

    def __getitem__(self, name: str) -> Any:
        """Parses the option's text, or that of its default."""
        option = self._rows[name.lower()]
        text = self._texts.get(name.lower(), option.default)
        return None if text is None else option.parse(option.name, text)

    def text(self, name: str) -> str | None:
        """Returns what the user wrote; None: nothing."""
        return self._texts.get(name.lower())


def has_option_only_of(options: Mapping[str, str], use: Use) -> bool:
    """Whether some option is one of this use and of nothing else."""
    uses: dict[str, Use] = {}
    for option in OPTIONS:
        uses[option.name.lower()] = uses.get(option.name.lower(), Use(0)) | option.uses
    return any(uses.get(name.lower()) == use for name in options)


def _why_ignored(name: str, text: str, use: Use, rows: Mapping[str, Option]) -> str:
    """Returns why the option changes nothing; "" when it is used."""
    if name.lower() in rows:
        return ""
    for option in OPTIONS:
        if option.name.lower() == name.lower():
            raise _of_another_use(option.name, text, _uses_of(option.name), use)
    foreign = find_foreign(name)
    if foreign is None:
        raise _unknown(name, text, use)
    if use not in foreign.uses:
        raise _of_another_use(foreign.spelled(name), text, foreign.uses, use)
    spelled = foreign.spelled(name)
    if text.strip().upper() in foreign.harmless_values:
        return ""
    if foreign.treatment is Treatment.IGNORED:
        return f"{spelled} ({foreign.reason})"
    raise ConfigError(spelled, None, f'option "{spelled}" is refused: {foreign.reason}')  # the value may be a password


def _uses_of(name: str) -> Use:
    found = Use(0)
    for option in OPTIONS:
        if option.name == name:
            found |= option.uses
    return found


def _of_another_use(name: str, text: str, uses: Use, use: Use) -> ConfigError:
    return ConfigError(name, text, f'option "{name}" is one of a {uses.title}, and this is a {use.title}: leave it out')


def _unknown(name: str, text: str, use: Use) -> ConfigError:
    known = {option.name.lower(): option.name for option in OPTIONS if use in option.uses}
    if name.lower().startswith("kafka."):
        known |= {foreign.name.lower(): foreign.name for foreign in FOREIGN_OPTIONS if use in foreign.uses}
    is_comparable = len(name) <= _NAME_CHARACTERS_MAX
    close = difflib.get_close_matches(name.lower(), known, n=1, cutoff=NEAR_ENOUGH) if is_comparable else []
    listed = ", ".join(sorted(option.name for option in OPTIONS if use in option.uses))
    advice = f'Did you mean "{known[close[0]]}"?' if close else f"Options are: {listed}."
    return ConfigError(name, text, f'option "{name[:_NAME_CHARACTERS_MAX]}" is unknown to format replog. {advice}')
