"""A tenant that takes all it can get: a program of its own that produces and asks for metadata without a pause, until its input ends.

It prints how many bytes of values were acknowledged.
"""

from __future__ import annotations

import sys
import threading
import time

from confluent_kafka import KafkaException, Message, Producer

CLIENT_ID = "tenant"
VALUE = b"x" * 1_000
TIMEOUT_S = 60.0


def main(servers: str, topic: str) -> None:
    """Floods the brokers."""
    acknowledged_bytes = 0
    has_ended = threading.Event()
    producer = Producer({"bootstrap.servers": servers, "client.id": CLIENT_ID, "linger.ms": 5, "acks": "all"})

    def note(error: object, _message: Message) -> None:
        nonlocal acknowledged_bytes
        if error is None:
            acknowledged_bytes += len(VALUE)

    def ask() -> None:
        asking = Producer({"bootstrap.servers": servers, "client.id": CLIENT_ID})
        while not has_ended.is_set():
            try:
                asking.list_topics(topic, timeout=TIMEOUT_S)
            except KafkaException:  # a throttled request may take longer than librdkafka waits
                time.sleep(0.1)

    def produce() -> None:
        while not has_ended.is_set():
            try:
                producer.produce(topic, VALUE, on_delivery=note)
            except BufferError:
                producer.poll(0.05)

    workers = [threading.Thread(target=each, daemon=True) for each in (ask, produce)]
    for worker in workers:
        worker.start()
    sys.stdin.read()
    has_ended.set()
    workers[1].join()
    producer.poll(0)
    producer.purge()
    sys.stdout.write(f"{acknowledged_bytes}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
