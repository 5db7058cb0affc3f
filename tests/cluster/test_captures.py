"""Slices of topics: written by `replog capture`, loaded by `replog.embedded(load=...)`."""

from __future__ import annotations

import asyncio
import time
import zipfile
from pathlib import Path

import pytest

import replog
from replog.cli.app import run
from replog.client import ConsumerRecord, SyncAdmin, SyncConsumer, SyncProducer
from replog.cluster import capture as captures
from replog.errors import InvalidRequestError, UnknownTopicOrPartitionError

LARGE = bytes(2 << 20)


def read_all(servers: str, topic: str) -> list[tuple[object, ...]]:
    with SyncConsumer(servers) as consumer:
        ends = consumer.end_offsets(consumer.assign_topic(topic))
        found: list[ConsumerRecord] = []
        while any(consumer.position(partition) < end for partition, end in ends.items()):
            found += consumer.poll(timeout_ms=100)
    found.sort(key=lambda each: (each.partition, each.offset))
    return [(r.partition, r.timestamp, r.key, r.value, tuple(r.headers)) for r in found]


@pytest.fixture
def captured(tmp_path: Path) -> tuple[Path, list[tuple[object, ...]]]:
    """A capture of a topic with keys, tombstones, headers, old times and a large record, and what was in it."""
    file = tmp_path / "flights.replog"
    with replog.embedded() as broker:
        servers = broker.bootstrap_servers
        with SyncAdmin(servers) as admin, SyncProducer(servers, max_request_bytes=4 << 20) as producer:
            admin.create_topic("flights", 3, configs={"max.message.bytes": 4 << 20})
            for number in range(600):
                value = None if number % 7 == 0 else b"%d" % number
                headers = [("n", b"%d" % number), ("empty", None)] if number % 3 == 0 else []
                producer.send("flights", value, b"k%d" % (number % 11), number % 2, 1_000_000 + number, headers)
            producer.send("flights", LARGE, None, 0, 5)
            producer.flush()
        before = read_all(servers, "flights")
        assert run(["capture", "--topic", "flights", "-o", str(file), "-b", servers]) == 0
        assert run(["capture", "--topic", "flights", "-o", str(file), "-b", servers]) == 0, "what is there is replaced"
    return file, before


def test_what_was_captured_is_there_in_another_broker(captured: tuple[Path, list[tuple[object, ...]]]) -> None:
    file, before = captured
    with replog.embedded(load=file) as broker:
        assert read_all(broker.bootstrap_servers, "flights") == before
    assert [path.name for path in file.parent.iterdir()] == [file.name]
    with pytest.raises(InvalidRequestError, match="no whole capture: Bad CRC-32"):
        load_damaged(file, "1.batches")


def load_damaged(file: Path, member: str) -> None:
    with zipfile.ZipFile(file) as archive:
        info = archive.getinfo(member)
    damaged = bytearray(file.read_bytes())
    damaged[info.header_offset + 30 + len(member) + info.compress_size // 2] ^= 1
    other = file.with_name("damaged.replog")
    other.write_bytes(damaged)
    with replog.embedded(load=[other]):
        pass


def test_a_slice_begins_at_its_place(tmp_path: Path) -> None:
    file = tmp_path / "slice.replog"
    with replog.embedded() as broker:
        servers = broker.bootstrap_servers
        now_ms = time.time_ns() // 1_000_000
        with SyncAdmin(servers) as admin, SyncProducer(servers) as producer:
            admin.create_topic("t", 2)
            for number in range(10):
                producer.send("t", b"%d" % number, partition=0, timestamp_ms=now_ms - 600_000 + number)
            producer.send("t", b"new", partition=0, timestamp_ms=now_ms)
            producer.flush()

        def values(**choice: object) -> list[object]:
            found = asyncio.run(captures.write_capture(servers, "t", file, **choice))  # type: ignore[arg-type]
            with replog.embedded(load=[file]) as other:
                read = [value for _, _, _, value, _ in read_all(other.bootstrap_servers, "t")]
            assert len(read) == found.records_count
            return read

        assert values(start="-1m") == [b"new"]
        assert values(start="latest-3") == [b"8", b"9", b"new"]
        assert values(start="earliest+2", max_records=2) == [b"2", b"3"]
        assert values(partitions=[1]) == []
        with pytest.raises(UnknownTopicOrPartitionError, match="there is no partition 2"):
            values(partitions=[2])
        file.write_bytes(b"kept")
        with pytest.raises(UnknownTopicOrPartitionError):
            asyncio.run(captures.write_capture(servers, "missing", file))
        assert file.read_bytes() == b"kept"


@pytest.mark.parametrize("content", [b"", b"PK", b"text\n" * 100])
def test_a_file_that_is_no_capture_is_refused_by_name(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "other.replog"
    file.write_bytes(content)
    with pytest.raises(InvalidRequestError, match=r"other\.replog is no whole capture: .*replog capture"):
        replog.embedded(load=file).__enter__()


def test_times_that_lie_ahead_are_kept(tmp_path: Path) -> None:
    file = tmp_path / "ahead.replog"
    ahead_ms = time.time_ns() // 1_000_000 + 7 * 86_400_000
    with replog.embedded() as broker:
        servers = broker.bootstrap_servers
        with SyncAdmin(servers) as admin, SyncProducer(servers) as producer:
            admin.create_topic("t", configs={"message.timestamp.after.max.ms": 30 * 86_400_000})
            producer.send("t", b"later", timestamp_ms=ahead_ms)
            producer.flush()
        asyncio.run(captures.write_capture(servers, "t", file))
    with replog.embedded(load=file, config={"log.message.timestamp.type": "LogAppendTime"}) as broker:
        assert [time_ms for _, time_ms, *_ in read_all(broker.bootstrap_servers, "t")] == [ahead_ms]


def test_a_manifest_that_unpacks_to_too_much_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "bomb.replog"
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("capture.json", b" " * (64 << 20))
    with pytest.raises(
        InvalidRequestError, match=r"bomb\.replog is no whole capture: capture\.json has 67108864 bytes"
    ):
        replog.embedded(load=file).__enter__()
