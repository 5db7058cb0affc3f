"""One call for one record: where it goes, when somebody has to look first, and that both implementations do the same."""

from __future__ import annotations

import random
from types import ModuleType
from typing import Any

import pytest

from replog.errors import InvalidRecordError
from replog.records import _codec_py, decode_batch
from replog.records.key_hash import murmur2
from tests.records_codecs import IMPLEMENTATIONS, compiled, needs_compiled

NOW_MS = 1_700_000_000_000
OVERHEAD = 97

pytestmark = pytest.mark.parametrize("codec", IMPLEMENTATIONS)


class Kit:
    """A topic of three partitions with open batches in the first two."""

    def __init__(self, codec: ModuleType, *, max_bytes: int = 10_000, has_sticky: bool = True) -> None:
        class Place(codec.RecordPlace):  # type: ignore[name-defined,misc]  # of either implementation
            __slots__ = ()

        self.kind = Place
        self.meter = codec.ByteMeter()
        self.sticky = codec.StickyPartition(1_000)
        self.places = codec.OpenBatches(self.sticky if has_sticky else None)
        self.builders = [codec.BatchBuilder(max_bytes=max_bytes, meter=self.meter) for _ in range(2)]
        for number in range(3):
            self.places.add_partition()
            if number < 2:
                self.places.put(number, f"batch {number}", self.builders[number])
        self.appender = codec.Appender(
            Place,
            self.meter,
            lambda: NOW_MS * 1_000_000 + 999_999,
            limit_bytes=5_000,
            record_bytes_max=2_000,
            overhead_bytes=OVERHEAD,
            topics={"t": self.places},
        )
        self.appender.turn_bytes = 100_000

    def append(self, value: Any = b"v", key: Any = None, partition: Any = None, **other: Any) -> Any:
        topic, timestamp_ms, headers = (other.get(name, default) for name, default in DEFAULTS)
        place = self.appender.append(topic, value, key, partition, timestamp_ms, headers)
        assert place is None or type(place) is self.kind
        return None if place is None else (place._batch, place._relative_offset, place._timestamp_ms)


DEFAULTS = (("topic", "t"), ("timestamp_ms", None), ("headers", ()))


def test_a_record_goes_to_the_batch_of_its_partition(codec: ModuleType) -> None:
    kit = Kit(codec)
    assert kit.append(partition=1) == ("batch 1", 0, NOW_MS)
    assert kit.append(None, b"k", partition=1, timestamp_ms=-1) == ("batch 1", 1, -1)
    assert kit.append() is None, "no partition was chosen for records without a key"
    kit.sticky.begin(0)
    assert kit.append(b"w") == ("batch 0", 0, NOW_MS)
    by_key = {bytes((i,)): (murmur2(bytes((i,))) & 0x7FFFFFFF) % 3 for i in range(20)}
    for key, number in by_key.items():
        place = kit.append(key=key)
        assert (place is None) if number == 2 else (place[0] == f"batch {number}"), "none is open in partition 2"
    assert kit.meter.held_bytes == sum(builder.size_bytes - 61 for builder in kit.builders)
    first, second = decode_batch(kit.builders[1].build())[:2]
    assert (first.key, first.value, second.key, second.value) == (None, b"v", b"k", None)


@pytest.mark.parametrize(
    "record",
    [
        {"topic": "u"},
        {"topic": ["t"]},
        {"value": bytearray(b"v")},
        {"value": "v"},
        {"value": b"v" * 2_000},
        {"key": "k"},
        {"partition": 2},
        {"partition": 3},
        {"partition": -1},
        {"partition": True},
        {"partition": 2**70},
        {"timestamp_ms": -2},
        {"timestamp_ms": 2**63},
        {"timestamp_ms": 1.5},
        {"headers": [["h", b"1"]]},
        {"headers": [("h",)]},
        {"headers": [("h", "1")]},
        {"headers": [(b"h", b"1")]},
        {"headers": [("h" * 500, None)]},
        {"headers": {"h": b"1"}},
        {"headers": iter(())},
        {"headers": None},
    ],
)
def test_what_is_unusual_is_left_to_the_caller(codec: ModuleType, record: dict[str, Any]) -> None:
    kit = Kit(codec)
    kit.sticky.begin(0)
    assert kit.append(**record) is None
    assert (kit.meter.held_bytes, kit.appender.turn_bytes, kit.sticky.left_bytes) == (0, 100_000, 2_000)
    assert [builder.records_count for builder in kit.builders] == [0, 0]


@pytest.mark.parametrize("headers", [[("h", b"1"), ("é", None)], (("h", b"1"), ("é", None)), []])
def test_headers_go_with_the_record(codec: ModuleType, headers: Any) -> None:
    kit = Kit(codec)
    assert kit.append(partition=0, headers=headers) == ("batch 0", 0, NOW_MS)
    assert kit.append(partition=0) == ("batch 0", 1, NOW_MS)
    assert kit.meter.held_bytes == kit.builders[0].size_bytes - 61
    assert kit.appender.turn_bytes == 100_000 - 2 * (OVERHEAD + 1) - (2 * 10 + 2 * 4 + 1 if headers else 0)
    assert [record.headers for record in decode_batch(kit.builders[0].build())] == [tuple(headers), ()]


def test_a_header_name_that_is_not_unicode_changes_nothing(codec: ModuleType) -> None:
    kit = Kit(codec)
    with pytest.raises(InvalidRecordError, match="not valid Unicode"):
        kit.append(partition=0, headers=[("\udcff", b"1")])
    assert (kit.meter.held_bytes, kit.appender.turn_bytes, kit.builders[0].records_count) == (0, 100_000, 0)


def test_somebody_has_to_look_where_a_bound_is_reached(codec: ModuleType) -> None:
    kit = Kit(codec)
    kit.appender.blocked_count = 1
    assert kit.append(partition=0) is None
    kit.appender.blocked_count = 0
    kit.appender.turn_bytes = OVERHEAD + 3
    assert kit.append(b"four", partition=0) is None
    assert kit.append(b"abc", partition=0) is not None
    assert kit.appender.turn_bytes == 0
    kit.appender.turn_bytes = 100_000
    kit.meter.held_bytes = 5_000 - OVERHEAD
    assert kit.append(b"a", partition=0) is None
    assert kit.append(b"", partition=0) is not None


def test_a_full_batch_takes_nothing(codec: ModuleType) -> None:
    kit = Kit(codec, max_bytes=200)
    assert kit.append(b"x" * 100, partition=0) is not None
    before = kit.meter.held_bytes
    assert kit.append(b"x" * 100, partition=0) is None
    assert (kit.meter.held_bytes, kit.builders[0].records_count) == (before, 1)
    kit.places.put(0, None, None)
    assert kit.append(b"", partition=0) is None
    with pytest.raises(IndexError, match="no partition 3 among 3"):
        kit.places.put(3, None, None)


def test_without_a_sticky_partition_only_a_given_one_is_known(codec: ModuleType) -> None:
    kit = Kit(codec, has_sticky=False)
    assert kit.append() is None
    assert kit.append(key=b"k") is None
    assert kit.append(partition=0) is not None


def test_the_sticky_partition_is_left_at_the_end_of_a_batch(codec: ModuleType) -> None:
    kit = Kit(codec)
    kit.sticky.begin(0)
    kit.append(b"x" * 700)
    kit.places.put(1, None, None)
    assert kit.sticky.left_bytes > 0, "the end of another partition's batch"
    kit.places.put(0, "next", kit.builders[1])
    assert kit.sticky.left_bytes > 0, "less than three quarters of 1,000 bytes went there"
    kit.append(b"x" * 50)
    kit.places.put(0, None, None)
    assert (kit.sticky.left_bytes, kit.append()) == (0, None)


def test_a_key_has_the_hash_that_kafka_gives_it(codec: ModuleType) -> None:
    rng = random.Random(4711)
    keys = [rng.randbytes(size) for size in range(100)]
    assert [codec.murmur2(key) for key in keys] == [murmur2(key) for key in keys]

    class Text(bytes):
        pass

    assert codec.murmur2(Text(b"foobar")) == codec.murmur2(b"foobar")
    assert codec.murmur2(bytearray(b"foobar")) == codec.murmur2(memoryview(b"foobar")) == -790332482 & 0xFFFFFFFF


@needs_compiled
def test_both_do_the_same(codec: ModuleType) -> None:
    rng = random.Random(4711)
    assert compiled is not None
    kits = [Kit(_codec_py, max_bytes=3_000), Kit(compiled, max_bytes=3_000)]
    for kit in kits:
        kit.sticky.begin(0)
    for _ in range(300):
        record = {
            "value": rng.choice([None, b"", b"v" * rng.randrange(300)]),
            "key": rng.choice([None, b"", rng.randbytes(rng.randrange(12))]),
            "partition": rng.choice([None, None, 0, 1, 2]),
            "timestamp_ms": rng.choice([None, 0, rng.randrange(2**62)]),
            "headers": rng.choice(
                [(), [], [("h" * rng.randrange(9), rng.choice([None, b"", b"1"]))] * rng.randrange(3)]
            ),
        }
        assert kits[0].append(**record) == kits[1].append(**record)
        assert kits[0].meter.held_bytes == kits[1].meter.held_bytes
        assert kits[0].sticky.left_bytes == kits[1].sticky.left_bytes
        assert kits[0].appender.turn_bytes == kits[1].appender.turn_bytes
    assert [builder.build() for builder in kits[0].builders] == [builder.build() for builder in kits[1].builders]
