"""Names that are no options here, and that jobs written for Spark's Kafka source may carry: what becomes of each.

Kafka's client settings come with the prefix `kafka.`.  Those whose loss changes neither what is read or written nor its
safety are ignored, with one warning for all; a job that asks for security that there is not must fail.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator

from msgspec import Struct

from replog.spark.options.uses import Use


class Treatment(enum.Enum):
    """What is done where an option is given that is none of ours."""

    IGNORED = "ignored, with a warning"
    REFUSED = "refused"


class ForeignOption(Struct, frozen=True):
    """A name that another connector knows.

    Attributes:
        name: The name in Kafka's spelling; with a star at its end, all that begin so.
        uses: What it may be met in.
        treatment: What is done.
        reason: Why, as a part of a sentence.
        harmless_values: Values, in capitals, that ask for what is done here anyway: accepted without a word.
    """

    name: str
    uses: Use
    treatment: Treatment
    reason: str
    harmless_values: frozenset[str] = frozenset()

    def spelled(self, written: str) -> str:
        """Returns Kafka's spelling of a name that the user wrote."""
        return written.lower() if self.name.endswith("*") else self.name


def find_foreign(name: str) -> ForeignOption | None:
    """Returns the row of a name in any case; None: nobody knows it."""
    wanted = name.lower()
    for option in FOREIGN_OPTIONS:
        known = option.name.lower()
        if wanted == known or (known.endswith("*") and wanted.startswith(known[:-1])):
            return option
    return None


_OTHER_SECURITY = "replog has no such setting of TLS or SASL, and what it asks for would not be done. docs/SECURITY_CLIENTS.md says what there is"
_JAAS = "Spark hides passwords by the names of their options, and this name tells of none. Give kafka.sasl.username and kafka.sasl.password"
_NOT_YET = "a replog write does not honour it yet. Leave it out"
_BY_SPARK = "Spark plans which task reads which offsets"
_NO_GROUP = (
    "offsets are kept by Spark, there is no consumer group; commitOffsetsToGroup tells one where a stream stands"
)
_SIZES = "sizes of fetches are chosen for Spark's tasks"
_TIMES = "kafkaConsumer.pollTimeoutMs is the limit of all waiting"
_CONNECTIONS = "connections are the client's own"
_METRICS = "the client reports no metrics of Kafka's kind"
_DECODED = "key and value are binary columns: cast them after the read"
_ENCODED = "key and value are taken as string or binary columns"

_IGNORED: tuple[tuple[str, Use, tuple[str, ...]], ...] = (
    (
        _NO_GROUP,
        Use.READ,
        (
            "groupIdPrefix", "kafka.group.id", "kafka.group.instance.id", "kafka.group.protocol",
            "kafka.group.remote.assignor", "kafka.heartbeat.interval.ms", "kafka.session.timeout.ms",
            "kafka.auto.commit.interval.ms", "kafka.internal.leave.group.on.close",
        ),
    ),
    (_BY_SPARK, Use.READ, ("kafka.partition.assignment.strategy", "kafka.max.poll.interval.ms", "kafka.max.poll.records")),
    (
        _SIZES,
        Use.READ,
        ("kafka.fetch.max.bytes", "kafka.fetch.max.wait.ms", "kafka.fetch.min.bytes", "kafka.max.partition.fetch.bytes"),
    ),
    (_TIMES, Use.READ, ("fetchOffset.numRetries", "fetchOffset.retryIntervalMs", "kafka.default.api.timeout.ms")),
    ("only committed records are ever read", Use.READ, ("kafka.isolation.level",)),
    ("the checksum of every batch is compared", Use.READ, ("kafka.check.crcs",)),
    ("reading creates no topic", Use.READ, ("kafka.allow.auto.create.topics",)),
    ("a pattern matches none of the cluster's own topics", Use.READ, ("kafka.exclude.internal.topics",)),
    ("brokers do not ask for a name", Use.ANY, ("kafka.client.id",)),
    (
        _CONNECTIONS,
        Use.ANY,
        (
            "kafka.client.dns.lookup", "kafka.connections.max.idle.ms", "kafka.receive.buffer.bytes",
            "kafka.reconnect.backoff.max.ms", "kafka.reconnect.backoff.ms", "kafka.request.timeout.ms",
            "kafka.retry.backoff.max.ms", "kafka.retry.backoff.ms", "kafka.send.buffer.bytes",
            "kafka.socket.connection.setup.timeout.max.ms", "kafka.socket.connection.setup.timeout.ms",
        ),
    ),
    (
        "brokers push their metadata",
        Use.ANY,
        ("kafka.metadata.max.age.ms", "kafka.metadata.recovery.rebootstrap.trigger.ms", "kafka.metadata.recovery.strategy"),
    ),
    (
        _METRICS,
        Use.ANY,
        (
            "kafka.enable.metrics.push", "kafka.metric.reporters", "kafka.metrics.num.samples",
            "kafka.metrics.recording.level", "kafka.metrics.sample.window.ms", "kafka.auto.include.jmx.reporter",
        ),
    ),
    (
        "the client chooses it by what the brokers take",
        Use.WRITE,
        (
            "kafka.buffer.memory", "kafka.max.block.ms", "kafka.max.in.flight.requests.per.connection",
            "kafka.metadata.max.idle.ms", "kafka.partitioner.adaptive.partitioning.enable",
            "kafka.partitioner.availability.timeout.ms",
        ),
    ),
)  # fmt: skip

_REFUSED: tuple[tuple[str, Use, tuple[str, ...]], ...] = (
    (_JAAS, Use.ANY, ("kafka.sasl.jaas.config",)),
    (_OTHER_SECURITY, Use.ANY, ("kafka.ssl.*", "kafka.sasl.*", "kafka.security.providers")),
    ('load("...") and save("...") set it. Name topics with "subscribe", or with "topic" where you write', Use.ANY, ("path",)),
    (
        'each read says where it starts with "startingOffsets". Give that',
        Use.READ,
        ("kafka.auto.offset.reset",),
    ),
    ("offsets are kept by Spark and never committed by a consumer. Leave it out", Use.READ, ("kafka.enable.auto.commit",)),
    ("there are no interceptors. Leave it out, and change rows with Spark", Use.ANY, ("kafka.interceptor.classes",)),
    (f"{_DECODED}. Leave it out", Use.READ, ("kafka.key.deserializer", "kafka.value.deserializer")),
    (f"{_ENCODED}. Leave it out", Use.WRITE, ("kafka.key.serializer", "kafka.value.serializer")),
    (
        _NOT_YET,
        Use.WRITE,
        (
            "kafka.partitioner.class", "kafka.partitioner.ignore.keys", "kafka.retries",
            "kafka.transaction.two.phase.commit.enable", "kafka.transactional.id",
        ),
    ),
)  # fmt: skip


def _rows() -> Iterator[ForeignOption]:
    for table, treatment in ((_IGNORED, Treatment.IGNORED), (_REFUSED, Treatment.REFUSED)):
        for reason, uses, names in table:
            for name in names:
                yield ForeignOption(name, uses, treatment, reason)


FOREIGN_OPTIONS: tuple[ForeignOption, ...] = tuple(_rows())
