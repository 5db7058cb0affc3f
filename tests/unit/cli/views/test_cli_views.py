"""What commands say about clusters, topics and records, without a cluster."""

from __future__ import annotations

import asyncio
import io
import json
import os
from types import SimpleNamespace
from uuid import UUID

import pytest

from replog.cli.commands.produce import LineError, LineProducer, LineSource
from replog.cli.commands.topics import Filters
from replog.cli.errors import UsageError
from replog.cli.records.pace import PACE_S, Pace
from replog.cli.records.record_lines import LineFormat, json_line, lines_of, show_of, text_line
from replog.cli.views.cluster_status import ClusterStatus, NodeStatus
from replog.client import ConsumerRecord
from replog.client.producer.producer import RECORD_BYTES_BOUND
from replog.controller.requests import ConfigEntry
from replog.records import TimestampType
from replog.rpc.metadata_messages import ClusterMetadata, PartitionInfo, TopicInfo

MESSAGE_BYTES = 1_048_588


def partition(partition_id: int, leader: int, isr: tuple[int, ...]) -> PartitionInfo:
    return PartitionInfo(partition_id, leader, 0, 0, (1, 2, 3), isr)


def topic(*partitions: PartitionInfo, **configs: str) -> TopicInfo:
    entries = tuple(ConfigEntry(name.replace("_", "."), value) for name, value in configs.items())
    return TopicInfo("flights", UUID(int=1), partitions, entries)


def status(pids: list[int | None], *topics: TopicInfo, controller_id: int = 1, answers: bool = True) -> str:
    nodes = tuple(NodeStatus(number, f"127.0.0.1:{number}", pid) for number, pid in enumerate(pids, start=1))
    metadata = ClusterMetadata("c", 1, controller_id, 1, (), topics) if answers else None
    return ClusterStatus("dir", "c", nodes, metadata).sentence()


IN_SYNC = topic(partition(0, 1, (1, 2, 3)), partition(1, 2, (1, 2, 3)))
BEHIND = topic(partition(0, 2, (2, 3)), partition(1, -1, ()))


def test_the_sentence_about_a_cluster() -> None:
    everyone = [11, 12, 13]
    assert status(everyone) == "All 3 nodes run; node 1 is the controller; no topics yet."
    assert (
        status(everyone, IN_SYNC) == "All 3 nodes run; node 1 is the controller; 2 partitions in 1 topic, all in sync."
    )
    assert status([None, 12, 13], BEHIND, controller_id=-1) == (
        "2 of 3 nodes run; no controller; 2 partitions in 1 topic, 2 under-replicated, 1 without a leader."
    )
    assert status([11], IN_SYNC).startswith("The node runs; ")
    assert status([None, None, 13], answers=False) == "1 of 3 nodes runs, and none of them answers."
    assert status([None, None], answers=False) == "The cluster is stopped: none of its 2 nodes runs."


def shown(filters: Filters, default_min_isr: int = 1, **configs: str) -> list[int]:
    mixed = topic(
        partition(0, 1, (1, 2, 3)), partition(1, 1, (1, 2)), partition(2, 3, (3,)), partition(3, -1, ()), **configs
    )
    return [found.partition_id for found in filters.chosen(mixed, default_min_isr)]


def test_partitions_are_shown_that_fit_any_filter() -> None:
    assert shown(Filters()) == [0, 1, 2, 3]
    assert shown(Filters(under_replicated=True)) == [1, 2, 3]
    assert shown(Filters(unavailable=True)) == [3]
    assert shown(Filters(under_min_isr=True)) == [3]
    assert shown(Filters(under_min_isr=True), min_insync_replicas="2") == [2, 3]
    assert shown(Filters(under_min_isr=True), default_min_isr=2) == [2, 3], "a topic that does not say it"
    assert shown(Filters(unavailable=True, under_min_isr=True), min_insync_replicas="3") == [1, 2, 3]


def test_nothing_to_show_says_what_that_means() -> None:
    assert Filters().nothing().startswith("no topics yet")
    assert Filters(unavailable=True).nothing() == "every partition has a leader"
    assert Filters(unavailable=True, under_replicated=True).nothing() == (
        "every replica is in sync, and every partition has a leader"
    )


class Acknowledged:
    """Stands for a batch."""

    is_done, error = True, None


class Sent:
    """Stands for a producer: takes records until it is full, and acknowledges each at once."""

    def __init__(self, room: int = 1_000) -> None:
        self.records: list[tuple[bytes | None, bytes | None]] = []
        self._room = room

    async def send(self, topic: str, value: bytes | None, key: bytes | None, *rest: object) -> object:
        del topic, rest
        if len(self.records) == self._room:
            await asyncio.get_running_loop().create_future()
        self.records.append((value, key))
        return SimpleNamespace(place=(Acknowledged(), 0))


async def test_what_was_acknowledged_before_ctrl_c_is_counted() -> None:
    """Goal: who goes on by the number that is told neither loses a record nor writes one again."""
    lines = LineProducer(Sent(2), "t", None, lines_of(LineFormat.TEXT, None), MESSAGE_BYTES, [0])  # type: ignore[arg-type]
    sending = asyncio.create_task(lines.send([b"a", b"b", b"c", b"d"]))
    await asyncio.sleep(0)
    sending.cancel()
    await asyncio.wait([sending])
    assert (sending.cancelled(), lines.acknowledged_count) == (True, 2)


async def test_lines_become_records() -> None:
    sent = Sent()
    await LineProducer(sent, "t", None, lines_of(LineFormat.TEXT, None), MESSAGE_BYTES, [0]).send([b"a", b"b\r", b"c"])  # type: ignore[arg-type]
    assert sent.records == [(b"a", None), (b"b", None), (b"c", None)]
    sent = Sent()
    lines = LineProducer(sent, "t", None, lines_of(LineFormat.TEXT, ":"), MESSAGE_BYTES, [0])  # type: ignore[arg-type]  # as much of one as is needed
    await lines.send([b"k:v:w"])
    with pytest.raises(LineError, match='line 3 has no ":" between key and value') as error:
        await lines.send([b":v", b"lonely", b"k:never"])
    assert sent.records == [(b"v:w", b"k"), (b"v", b"")], "what stands before the line is sent, nothing behind it"
    assert isinstance(error.value.told(2), UsageError)


async def test_a_line_that_is_too_long_is_named() -> None:
    sent = Sent()
    lines = LineProducer(sent, "t", None, lines_of(LineFormat.TEXT, None), 20_000, [0])  # type: ignore[arg-type]
    fits = 20_000 - RECORD_BYTES_BOUND
    with pytest.raises(LineError) as error:
        await lines.send([b"a", b"b" * fits, b"c" * (fits + 1), b"d"])
    assert [(value or b"")[:1] for value, _ in sent.records] == [b"a", b"b"]
    told = str(error.value.told(1_000))
    assert f"line 3 is too long: {fits + 1:,} bytes, and t takes {fits:,} (its max.message.bytes is 20,000" in told
    assert "`replog configs set --topic t max.message.bytes=20001` lets it take this line" in told
    assert "1,000 records before it acknowledged, nothing from it on sent" in told


async def test_a_line_that_no_topic_takes_is_not_told_to_raise_the_limit() -> None:
    lines = LineProducer(Sent(), "t", None, lines_of(LineFormat.TEXT, None), MESSAGE_BYTES, [0])  # type: ignore[arg-type]
    with pytest.raises(LineError, match=r"line 1 is too long: 33,554,432 bytes.*No topic can be set to take it"):
        await lines.send([bytes(32 << 20)])


@pytest.mark.parametrize("content", [b"a\n\nb\r\nc", b"a\n", b"\n", b"", b"x" * 200_000 + b"\ny\n" * 90_000])
def test_all_lines_are_read(content: bytes) -> None:
    source, read = LineSource(io.BufferedReader(io.BytesIO(content))), list[bytes]()  # type: ignore[arg-type]
    while chunk := source.next_lines():
        read += chunk
    assert read == content.split(b"\n")[: None if content and not content.endswith(b"\n") else -1]


def test_a_line_does_not_wait_for_the_next() -> None:
    reads, writes = os.pipe()
    with os.fdopen(reads, "rb") as lines, os.fdopen(writes, "wb", buffering=0) as typed:
        source = LineSource(lines)
        typed.write(b"one\ntw")
        assert source.next_lines() == [b"one"]
        typed.write(b"o\n")
        assert source.next_lines() == [b"two"]


def test_a_pace_is_kept_and_what_was_missed_is_not_made_up_for() -> None:
    pace = Pace(50, 100.0)
    assert pace.together_max == 50 * PACE_S
    assert [pace.pause_s(5, 100.0) for _ in range(3)] == pytest.approx([0, 0.1, 0.2])
    assert pace.pause_s(5, 100.29) == pytest.approx(0.01)
    assert pace.pause_s(5, 160.0) == 0
    assert pace.pause_s(5, 160.0) == pytest.approx(0.1)
    assert Pace(0.5, 0).together_max == 1


def test_records_as_text_andjson_line() -> None:
    record = ConsumerRecord("flights", 3, 7, 1700, TimestampType.CREATE_TIME, b"UA", "é".encode(), (("h", b"\xff"),))
    assert text_line(None)(record) == "é\n".encode()
    assert text_line(" -> ")(record) == "UA -> é\n".encode()
    assert text_line("=")(record._replace(key=None, value=None)) == b"=\n"
    assert json.loads(json_line(record)) == {
        "topic": "flights",
        "partition": 3,
        "offset": 7,
        "timestamp": 1700,
        "key": "UA",
        "value": "é",
        "headers": [["h", {"base64": "/w=="}]],
    }
    made = show_of(r"%t-%p/%o\t%k=%v %T 100%% \\", None, as_json=False)(record)
    assert made == "flights-3/7\tUA=é 1700 100% \\\n".encode()
    assert show_of("key-value", None, as_json=False)(record) == "UA\té\n".encode()
    assert show_of(None, None, as_json=False)(record) == show_of("value", None, as_json=False)(record) == "é\n".encode()
    assert show_of("%v", None, as_json=False)(record._replace(value=None)) == b"\n"
