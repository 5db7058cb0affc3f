"""Dead letters go back to the topics that they came from, each once."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct, field

from replog.client import Consumer, ConsumerRecord, Producer, TopicPartition
from replog.worker.dead_letters import DeadLetter, own_headers

if TYPE_CHECKING:
    from replog.client.security.security import Security

REPLAY_GROUP: Final = "replog-dlq-replay"
"""Keeps, for each topic of dead letters, up to where they have been sent back."""

POLL_RECORDS: Final = 1_000
POLL_MS: Final = 300

TIMEOUT_S: Final = 10.0
"""How long a partition may give nothing."""

GROUP_TIMEOUT_S: Final = 60.0
"""How long another member of the group may have all partitions: a little more than the session of one that was killed."""


class Replayed(Struct):
    """What was sent back.

    Attributes:
        sent: The number of records, by the topic that they went to.
        strange_count: The number of records that were passed over, because no worker wrote them.
        silence: Why the rest was not waited for; "" where there is none.
    """

    sent: Counter[str] = field(default_factory=Counter)
    strange_count: int = 0
    silence: str = ""


async def replay(
    bootstrap_servers: str,
    topic: str,
    *,
    security: Security | None = None,
    max_records: int | None = None,
    dry_run: bool = False,
    say: Callable[[int], None] = lambda _: None,
) -> Replayed:
    """Writes dead letters back that were not before; their keys decide the partitions anew.

    What was acknowledged is committed in `REPLAY_GROUP`: whoever ends this in between sends the last of them again the next time.

    Args:
        bootstrap_servers: The brokers to ask first.
        topic: The topic of dead letters.
        security: How this client and brokers are believed by each other; None: plain text.
        max_records: The number of dead letters after which to stop; None: at the end of now.
        dry_run: Whether to count only.
        say: The function that is told how many have been read.

    Raises:
        ReplogError: A broker does not answer, or does not take them.
    """
    done = Replayed()
    settings: dict[str, Any] = {
        "security": security,
        "group_id": REPLAY_GROUP,
        "enable_auto_commit": False,
        "auto_offset_reset": "earliest",
    }
    async with (
        Consumer(bootstrap_servers, **settings) as consumer,
        Producer(bootstrap_servers, security=security) as producer,
    ):
        await consumer.subscribe([topic])
        ends: dict[TopicPartition, int] = {}
        progress_s = time.monotonic()
        while max_records is None or done.sent.total() < max_records:
            left = POLL_RECORDS if max_records is None else min(POLL_RECORDS, max_records - done.sent.total())
            records = await consumer.poll(left, POLL_MS)
            positions: dict[tuple[str, int], int] = {}
            for record in records:
                await _send(producer, record, done, dry_run=dry_run)
                positions[record.topic, record.partition] = record.offset + 1
            if positions and not dry_run:
                await producer.flush()
                await consumer.commit(positions)
            say(done.sent.total())
            if records:
                progress_s = time.monotonic()
                continue
            assigned = consumer.assignment()
            ends = ends or (await consumer.end_offsets(assigned) if assigned else {})
            unread = [each for each in assigned if consumer.position(each) < ends.get(each, 0)]
            done.silence = _silence(topic, assigned, unread, time.monotonic() - progress_s)
            if done.silence or (assigned and not unread):
                break
    return done


def _silence(
    topic: str, assigned: Collection[TopicPartition], unread: Collection[TopicPartition], silent_s: float
) -> str:
    """Returns why dead letters are waited for no longer; "" where they are.

    Args:
        topic: The topic of dead letters.
        assigned: The partitions that this member of the group reads.
        unread: Those of them that are not read up to their end.
        silent_s: The seconds since the last record.
    """
    if not assigned and silent_s > GROUP_TIMEOUT_S:
        return (
            f"another member of group {REPLAY_GROUP} has had all partitions of {topic} for {silent_s:.0f} s: "
            "another 'replog dlq replay' may be running; end it, or wait for it"
        )
    if unread and silent_s > TIMEOUT_S:
        names = ", ".join(sorted(map(str, unread))[:3]) + (" and others" if len(unread) > 3 else "")
        return (
            f"no dead letter of {names} came for {silent_s:.0f} s, and there are some: "
            f"see 'replog topics describe {topic}' for a partition without a leader, then replay again"
        )
    return ""


async def send_back(producer: Producer, record: ConsumerRecord) -> DeadLetter | None:
    """Sends one dead letter to the topic that it came from, without waiting; returns what it is, None where it is none."""
    letter = DeadLetter.from_headers(record.headers)
    if letter is not None:
        await producer.send(letter.topic, record.value, record.key, headers=own_headers(record.headers))
    return letter


async def _send(producer: Producer, record: ConsumerRecord, done: Replayed, *, dry_run: bool) -> None:
    letter = DeadLetter.from_headers(record.headers) if dry_run else await send_back(producer, record)
    if letter is None:
        done.strange_count += 1
    else:
        done.sent[letter.topic] += 1
