"""A program that uses a cluster, and so do its children, begun in one of the ways there are: `python forking_client.py METHOD SERVERS`."""

from __future__ import annotations

import multiprocessing
import sys

from replog.client import SyncAdmin, SyncConsumer, SyncProducer

CHILDREN = 2
RECORDS = 20


def write(servers: str, number: int) -> None:
    """Writes the records of one process, and reads back that they are there."""
    with SyncProducer(servers) as producer:
        for record in range(RECORDS):
            producer.send("t", f"{number}-{record}".encode()).result()
    with SyncConsumer(servers) as consumer:
        consumer.assign_topic("t")
        missing = {f"{number}-{record}".encode() for record in range(RECORDS)}
        while missing:
            missing -= {record.value for record in consumer.poll()}


def main(method: str, servers: str) -> None:
    with SyncAdmin(servers) as admin, SyncProducer(servers) as producer:
        admin.create_topic("t", 3, 1)
        producer.send("t", b"before").result()
        context = multiprocessing.get_context(method)
        children = [context.Process(target=write, args=(servers, number)) for number in range(CHILDREN)]
        for child in children:
            child.start()
        producer.send("t", b"meanwhile").result()
        for child in children:
            child.join()
        assert [child.exitcode for child in children] == [0] * CHILDREN
        producer.send("t", b"behind").result()
        write(servers, CHILDREN)
        assert "grpc" not in sys.modules
    print("done")


if __name__ == "__main__":
    main(*sys.argv[1:])
