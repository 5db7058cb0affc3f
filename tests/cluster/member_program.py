"""A member of a group, as a program: `python member_program.py SERVERS GROUP TOPIC` prints partition and offset of each record."""

from __future__ import annotations

import sys

from replog.client import SyncConsumer


def main(servers: str, group_id: str, topic: str) -> None:
    config = {"auto_commit_interval_ms": 20, "max_poll_interval_ms": 60_000}
    with SyncConsumer(servers, group_id=group_id, auto_offset_reset="earliest", **config) as consumer:  # type: ignore[arg-type]
        consumer.subscribe([topic])
        try:
            for record in consumer:
                print(record.partition, record.offset, flush=True)
        except KeyboardInterrupt:
            print("leaves", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
