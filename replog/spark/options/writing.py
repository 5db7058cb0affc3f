"""The options of a write, of a DataFrame or of a stream, checked."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from replog.client.producer.config import ProducerConfig
from replog.errors import ConfigError
from replog.spark.options.brokers import Brokers
from replog.spark.options.reading import which_security, which_servers
from replog.spark.options.table import Given
from replog.spark.options.uses import Use

if TYPE_CHECKING:
    from replog.client.security.security import Security

_SPARKS_OWN = frozenset({"checkpointlocation", "queryname"})
"""What Spark itself takes of a stream's options and hands on."""

_SETTINGS = {
    "kafka.enable.idempotence": "enable_idempotence",
    "kafka.compression.type": "compression",
    "kafka.compression.gzip.level": "compression_gzip_level",
    "kafka.compression.lz4.level": "compression_lz4_level",
    "kafka.compression.zstd.level": "compression_zstd_level",
    "kafka.batch.size": "batch_size_bytes",
    "kafka.linger.ms": "linger_ms",
    "kafka.max.request.size": "max_request_bytes",
    "kafka.delivery.timeout.ms": "delivery_timeout_ms",
}
"""Option -> setting of the producer."""

_OPTION_OF = {
    spelling: option
    for option, setting in _SETTINGS.items()
    for spelling in (setting, setting.replace("_", "."))
    if setting != "compression"  # a word of its own
}
_SETTING = re.compile(rf"(?<![\w.])({'|'.join(map(re.escape, _OPTION_OF))})(?!\w|\.\w)")
_ACKS = re.compile(r"(?<![\w.])acks\b")
"""A setting, too; but behind planning it may be the name of a topic."""


TRANSACTION_TIMEOUT_MS = 900_000
"""How long a task may write in one transaction where nobody says otherwise: as long as brokers allow where nobody says otherwise."""

_ONCE_ONLY = ("txnAppId", "txnVersion", "writeId", "kafka.transaction.timeout.ms")


class OnceOptions(Struct, frozen=True):
    """Checked options of a write that is to be there once.

    Attributes:
        application: The application that numbers its writes; None: none does.
        version: The number of the write; None as before.
        write_id: The name of this one write; None: it has none.
        timeout_ms: How long a task may write.
        planned_ends: The end offset of each partition of the topic of decisions when the write was planned; (): not planned yet.
    """

    application: str | None
    version: int | None
    write_id: str | None
    timeout_ms: int
    planned_ends: tuple[int, ...] = ()


class WriteOptions(Struct, frozen=True):
    """Checked options of one write.

    Attributes:
        bootstrap_servers: "host:port,host:port".
        topic: The topic of all rows; None: each row names its own.
        include_headers: Whether a column `headers` is written.
        producer: Settings of the producer, by the names of its keywords.
        once: How rows are there exactly once; None: they are at least once.
        security: TLS and the login; None: plain text.
        cluster_id: The id of the cluster that the write was planned with; "": not planned yet.
    """

    bootstrap_servers: str
    topic: str | None
    include_headers: bool
    producer: Mapping[str, Any]
    once: OnceOptions | None = None
    security: Security | None = None
    cluster_id: str = ""

    @property
    def brokers(self) -> Brokers:
        """Which brokers are asked, and how."""
        return Brokers(self.bootstrap_servers, self.security)


def parse_write_options(options: Mapping[str, str]) -> WriteOptions:
    """Checks the options of a write.  Names are case-insensitive, values are as the user wrote them.

    Raises:
        ConfigError: An option is unknown, missing, doubled or has a bad value, or two contradict each other.
        UnsupportedCompressionError: The library for the compression is not installed here.
    """
    given = Given({name: text for name, text in options.items() if name.lower() not in _SPARKS_OWN}, Use.WRITE)
    settings = {setting: given[name] for name, setting in _SETTINGS.items() if name in given}
    settings["acks"] = 1 if given["kafka.acks"] == "1" else "all"
    try:
        ProducerConfig(**settings)
    except ConfigError as error:
        field, reason = (_ACKS.sub("kafka.acks", in_options(text)) for text in (error.field, error.reason))
        raise ConfigError(field, error.value, reason) from None
    return WriteOptions(
        which_servers(given),
        given["topic"],
        given["includeHeaders"],
        settings,
        _once_options(given),
        which_security(given),
    )


def refuse_names_in_stream(options: WriteOptions) -> None:
    """Refuses what says which write this is where a stream does: a query, and the number of the micro-batch.

    Raises:
        ConfigError: The options name it.
    """
    once = options.once
    if once is None:
        return
    for name, value in (("txnAppId", once.application), ("txnVersion", once.version), ("writeId", once.write_id)):
        if value is not None:
            raise ConfigError(
                name,
                value,
                f'option "{name}" is one of a batch write, and this is a stream, whose batches have names: leave it out',
            )


def _once_options(given: Given) -> OnceOptions | None:
    if not given["delivery"]:
        for name in _ONCE_ONLY:
            if name in given:
                raise ConfigError(
                    name,
                    given.text(name),
                    f'option "{name}" needs "delivery" "exactlyOnce": give that, or leave it out',
                )
        return None
    for name, refused in (("kafka.acks", "1"), ("kafka.enable.idempotence", False)):
        if given[name] == refused:
            raise ConfigError(
                name,
                given.text(name),
                f'{name} is "{given.text(name)}", which "delivery" "exactlyOnce" cannot do with: leave it out',
            )
    _check_names(given)
    timeout_ms = given["kafka.transaction.timeout.ms"]
    return OnceOptions(
        given["txnAppId"],
        given["txnVersion"],
        given["writeId"],
        TRANSACTION_TIMEOUT_MS if timeout_ms is None else timeout_ms,
    )


def _check_names(given: Given) -> None:
    for name, other in (("txnAppId", "txnVersion"), ("txnVersion", "txnAppId")):
        if name in given and other not in given:
            raise ConfigError(
                other, None, f'option "{name}" needs "{other}": give both, the application and the number of its write'
            )
    if "writeId" in given and "txnAppId" in given:
        raise ConfigError(
            "writeId", given.text("writeId"), 'give either "writeId" or "txnAppId" with "txnVersion", not both'
        )


def in_options(text: str) -> str:
    """Returns what a producer says of its settings, topics and records with the names of the options that set the first."""
    return _SETTING.sub(lambda found: _OPTION_OF[found[1]], text)
