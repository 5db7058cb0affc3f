"""The options of a write, of a DataFrame or of a stream, checked."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from replog.client.producer.config import ProducerConfig
from replog.errors import ConfigError
from replog.spark.options.reading import which_servers
from replog.spark.options.table import Given
from replog.spark.options.uses import Use

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


class WriteOptions(Struct, frozen=True):
    """Checked options of one write.

    Attributes:
        bootstrap_servers: "host:port,host:port".
        topic: The topic of all rows; None: each row names its own.
        include_headers: Whether a column `headers` is written.
        producer: Settings of the producer, by the names of its keywords.
    """

    bootstrap_servers: str
    topic: str | None
    include_headers: bool
    producer: Mapping[str, Any]


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
    return WriteOptions(which_servers(given), given["topic"], given["includeHeaders"], settings)


def in_options(text: str) -> str:
    """Returns what a producer says of its settings, topics and records with the names of the options that set the first."""
    return _SETTING.sub(lambda found: _OPTION_OF[found[1]], text)
