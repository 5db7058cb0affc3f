"""The lines of the first table of docs/KAFKA_CLIENTS.md: what one uses a client for (tools/kafka_clients.py writes it)."""

from __future__ import annotations

PRODUCE = "produce, `acks=all`; gzip, snappy, lz4, zstd"
ACKS = "produce, `acks=1` and `acks=0`"
IDEMPOTENCE = "idempotent producer"
TOO_LARGE = "a record that is too large is refused, the next one is taken"
CONSUME = "consume assigned partitions"
SEEK = "consume from an offset"
OFFSETS = "beginning, end, offset of a time"
METADATA = "brokers, topics, partitions"
TOPICS = "create, configure, delete topics"
KILLED = "a leader is killed under a producer: nothing acknowledged is lost or doubled"
GROUPS = "subscribe: groups whose members assign (the default), commits"
ASSIGNED_GROUPS = "groups whose coordinator assigns (KIP-848)"
TRANSACTIONS = "transactions: a producer takes over its id"
