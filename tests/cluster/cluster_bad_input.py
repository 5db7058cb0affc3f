"""What the tests of bad input share: a topic with records, bytes that are no message, and the look at what they did."""

from __future__ import annotations

import contextlib
import random
from uuid import UUID

from cluster_kit import Cluster, read_to_the_end

from replog.client import Producer
from replog.errors import UnknownTopicOrPartitionError
from replog.testing.history import History

TOPIC = "flights"
GARBAGE = [
    b"",
    b"\x00",
    b"\xff" * 40,
    b"GET / HTTP/1.1\r\n\r\n",
    b"\x0a\xff\xff\xff\xff\x7f",  # a field of 34 GB
    b"\x0a\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01",  # a length that does not end
    b"\x0a\x02\x08\x01\x7a\x05abc",  # a payload that is cut
]


async def fresh_records(cluster: Cluster, history: History) -> UUID:
    """Makes the topic anew and writes some records; returns its id."""
    with contextlib.suppress(UnknownTopicOrPartitionError):
        await cluster.admin.delete_topic(TOPIC)
    info = await cluster.admin.create_topic(TOPIC, 1, 1)
    async with Producer(cluster.bootstrap_servers) as producer:
        for number in range(20):
            send = history.send("p", b"%d" % number)
            place = await (await producer.send(TOPIC, send.value))
            send.acknowledged((place.topic, place.partition), place.offset)
    return info.topic_id


async def check_unharmed(cluster: Cluster, history: History) -> None:
    """The same process serves, everything is still there, and nothing in its log looks like a bug."""
    assert cluster.local.nodes[1].is_alive
    async with Producer(cluster.bootstrap_servers) as producer:
        send = history.send("p", b"after all")
        place = await (await producer.send(TOPIC, send.value))
        send.acknowledged((place.topic, place.partition), place.offset)
    await read_to_the_end(cluster, TOPIC, history)
    history.check_or_raise()
    log = cluster.log_text(1)
    for sign in ("Traceback", "CRITICAL", "ERROR", "bug of ours"):
        assert sign not in log


def mutate(rng: random.Random, data: bytes) -> bytes:
    changed = bytearray(data)
    match rng.randrange(4):
        case 0 if changed:
            for _ in range(rng.randrange(1, 4)):
                changed[rng.randrange(len(changed))] = rng.randrange(256)
        case 1:
            del changed[rng.randrange(len(changed) + 1) :]
        case 2:
            at = rng.randrange(len(changed) + 1)
            changed[at:at] = rng.randbytes(rng.randrange(1, 9))
        case _:
            changed += data
    return bytes(changed)
