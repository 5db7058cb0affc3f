"""Configurations of Kafka's topics that tools set and that are not kept here: what is named is so anyway, or an error."""

from __future__ import annotations

from collections.abc import Mapping

from replog.errors import ConfigError
from replog.metadata.config_keys import shortened

THROTTLED_REPLICAS = {"leader.replication.throttled.replicas", "follower.replication.throttled.replicas"}
"""Configurations of Kafka's topics that are accepted and not kept: here throttles always count the replicas that are being
added."""

UNCHANGEABLE: Mapping[str, str] = {
    "compression.gzip.level": "-1",
    "compression.lz4.level": "9",
    "compression.type": "producer",
    "compression.zstd.level": "3",
    "index.interval.bytes": "4096",
    "local.retention.bytes": "-2",
    "local.retention.ms": "-2",
    "preallocate": "false",
    "remote.log.copy.disable": "false",
    "remote.log.delete.on.disable": "false",
    "remote.storage.enable": "false",
    "segment.index.bytes": "10485760",
    "segment.jitter.ms": "0",
}
"""Configurations of Kafka's topics that have one value here, Kafka's default: it is accepted and not kept.

A tool that copies a topic, such as MirrorMaker 2, names all configurations that the topic has.
"""


def is_so(name: str, value: str | None) -> bool:
    """Whether a topic's configuration need not be kept: any value is accepted, or it has this one already.

    Raises:
        ConfigError: It has another value, which cannot be changed.
    """
    if name in THROTTLED_REPLICAS:
        return True
    if name not in UNCHANGEABLE:
        return False
    if value is not None and value.strip().lower() != UNCHANGEABLE[name]:
        text = f'{name} = "{shortened(value)}" cannot be served: topics here have "{UNCHANGEABLE[name]}"; leave it out'
        raise ConfigError(name, value, text)
    return True
