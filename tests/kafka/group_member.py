"""A member of a group, by confluent-kafka, in a process of its own that a test may kill.

    python group_member.py SERVERS GROUP PROTOCOL TOPIC

PROTOCOL is "consumer", "classic", or "eager", which is the classic one with the assignors that every client has.  It prints a line for each assignment, and for each record that it has read and committed.
"""

from __future__ import annotations

import sys
from contextlib import suppress
from typing import Any

from confluent_kafka import Consumer, KafkaException, TopicPartition


def main(servers: str, group: str, protocol: str, topic: str) -> None:
    """Reads until the process is ended."""
    settings: dict[str, Any] = {
        "bootstrap.servers": servers,
        "group.id": group,
        "group.protocol": "consumer" if protocol == "consumer" else "classic",
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "reconnect.backoff.max.ms": 500,
        "topic.metadata.refresh.interval.ms": 1_000,
    }
    if protocol != "consumer":
        settings |= {
            "session.timeout.ms": 1_500,
            "heartbeat.interval.ms": 300,
            "partition.assignment.strategy": "range,roundrobin" if protocol == "eager" else "cooperative-sticky",
        }
    consumer = Consumer(settings)

    def tell(*_: Any) -> None:
        sys.stdout.write(f"assigned {sorted(each.partition for each in consumer.assignment())}\n")
        sys.stdout.flush()

    consumer.subscribe([topic])
    assigned: object = None
    while True:
        message = consumer.poll(0.1)
        if (now := consumer.assignment()) != assigned:
            assigned = now
            tell()
        if message is None or message.error() is not None:
            continue
        try:
            consumer.commit(message, asynchronous=False)
        except KafkaException as error:
            sys.stderr.write(f"{error}\n")
            with suppress(KafkaException):  # it is read again: here, or by whoever has the partition now
                consumer.seek(TopicPartition(topic, message.partition(), message.offset()))
            continue
        sys.stdout.write(f"read {message.value().decode()}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
