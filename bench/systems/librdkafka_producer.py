"""A program that produces by librdkafka and prints the records per second, as Kafka's own producer-perf-test does.

It is a process of its own: what the client costs is not the brokers' cost.
"""

from __future__ import annotations

import sys
import time

from confluent_kafka import Producer

QUEUE_RECORDS_MAX = 1_000_000
POLL_EACH = 1_000
FLUSH_S = 300.0


def main(bootstrap_servers: str, topic: str, acks: str, record_bytes: int, count: int) -> float:
    """Sends so many records; returns how many a second were acknowledged.  Raises: RuntimeError: Some were not."""
    producer = Producer(
        {
            "bootstrap.servers": bootstrap_servers,
            "acks": acks,
            "enable.idempotence": acks == "all",
            "linger.ms": 5,
            "batch.size": 1_000_000,
            "queue.buffering.max.messages": QUEUE_RECORDS_MAX,
            "queue.buffering.max.kbytes": 1 << 20,
        }
    )
    outcomes = {"acknowledged": 0, "refused": 0}

    def told(error: object, _message: object) -> None:
        outcomes["acknowledged" if error is None else "refused"] += 1

    producer.list_topics(topic, timeout=30)  # it knows the leaders before the clock starts
    value = bytes(range(256)) * (record_bytes // 256 + 1)
    value = value[:record_bytes]
    began = time.perf_counter()
    for number in range(count):
        while True:
            try:
                producer.produce(topic, value, on_delivery=told)
                break
            except BufferError:
                producer.poll(0.01)
        if number % POLL_EACH == 0:
            producer.poll(0)
    left = producer.flush(FLUSH_S)
    took_s = time.perf_counter() - began
    if left or outcomes != {"acknowledged": count, "refused": 0}:
        raise RuntimeError(f"of {count} records {outcomes}, {left} without an answer")
    return count / took_s


if __name__ == "__main__":
    servers, name, wanted, size, records = sys.argv[1:]
    print(f"{main(servers, name, wanted, int(size), int(records)):.1f} records/sec")
