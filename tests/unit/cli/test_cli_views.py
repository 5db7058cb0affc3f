"""What commands say about clusters, topics and records, without a cluster."""

from __future__ import annotations

import io
import json
from pathlib import Path
from uuid import UUID

import pytest

from replog.cli.cluster_status import ClusterStatus, NodeStatus
from replog.cli.consume import _as_json, _as_text
from replog.cli.errors import UsageError
from replog.cli.produce import LINES_MAX, _read_lines, _records
from replog.cli.topics import Filters
from replog.client import ConsumerRecord
from replog.records import TimestampType
from replog.rpc.metadata_messages import ClusterMetadata, ConfigEntry, PartitionInfo, TopicInfo


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


def test_lines_become_records() -> None:
    assert list(_records([b"a\n", b"b\r\n", b"c"], None, 0)) == [b"a", b"b", b"c"]
    assert list(_records([b"k:v:w\n", b":v\n"], b":", 0)) == [(b"v:w", b"k"), (b"v", b"")]
    with pytest.raises(UsageError, match='line 12 has no ":" between key and value'):
        list(_records([b"k:v\n", b"lonely\n"], b":", 10))


def test_lines_are_read_as_they_come(tmp_path: Path) -> None:
    file = tmp_path / "lines"
    file.write_bytes(b"".join(b"%d\n" % number for number in range(LINES_MAX + 5)) + b"without end")
    read: list[bytes] = []
    with file.open("rb") as lines:
        while chunk := _read_lines(lines):
            assert len(chunk) <= LINES_MAX
            read += chunk
    assert b"".join(read) == file.read_bytes()
    assert _read_lines(io.BytesIO(b"a\nb\n")) == [b"a\n"]  # cannot look ahead: a line at a time


def test_records_as_text_and_as_json() -> None:
    record = ConsumerRecord("flights", 3, 7, 1700, TimestampType.CREATE_TIME, b"UA", "é".encode(), (("h", b"\xff"),))
    assert _as_text(None)(record) == "é\n".encode()
    assert _as_text(" -> ")(record) == "UA -> é\n".encode()
    assert _as_text("=")(record._replace(key=None, value=None)) == b"=\n"
    assert json.loads(_as_json(record)) == {
        "topic": "flights",
        "partition": 3,
        "offset": 7,
        "timestamp": 1700,
        "key": "UA",
        "value": "é",
        "headers": [["h", {"base64": "/w=="}]],
    }
