"""Batches that are small, and large once they are decompressed, or that are no records at all, though their checksum is right."""

from __future__ import annotations

import struct
import threading
from typing import Any

import crc32c
import pytest
from broker_kit import TOPIC, TOPIC_ID, Rig, batch, registered, rig, topic

from replog.broker.requests import produce_path
from replog.errors import ErrorCode
from replog.log.reading import time_search
from replog.metadata.records import ConfigRecord, ResourceType
from replog.records import DECOMPRESSED_BYTES_MAX, HEADER_BYTES, Codec, encode_batch
from replog.records.compression import compress, with_section
from replog.records.produced import LEADER_DECOMPRESSED_BYTES_MAX
from replog.replication.leader import Leader
from replog.rpc.messages import LARGEST_TIMESTAMP, ListOffsetsPartition

MIB = 1 << 20


def bomb(limit_bytes: int) -> bytes:
    """A small batch with records of more bytes than that: at 50 and at 60 ms."""
    plain = encode_batch([(50, b"k", bytes(limit_bytes), ()), (60, b"k", b"v", ())])
    data = with_section(plain, Codec.GZIP, compress(Codec.GZIP, memoryview(plain)[HEADER_BYTES:]))
    assert len(data) < 256 << 10
    return data


def poison(codec: Codec) -> bytes:
    """A batch with a right checksum, whose records are garbage."""
    data = bytearray(with_section(batch(), codec, b"\x0e" + b"\xff" * 40))
    struct.pack_into(">I", data, 17, crc32c.crc32c(bytes(data[21:])))
    return bytes(data)


async def ready(it: Rig, **configs: str) -> None:
    records = [ConfigRecord(ResourceType.TOPIC, TOPIC, key.replace("_", "."), text) for key, text in configs.items()]
    await it.apply(registered(1), *topic(), *records)


async def test_a_look_up_by_time_decompresses_no_bomb_and_nothing_on_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bomb stands for the time in its header, and keeps nobody from what is behind it."""
    looks: list[tuple[int, int]] = []
    find = time_search.find_record

    def noted(data: bytes, **limits: Any) -> Any:
        looks.append((threading.get_ident(), limits["max_decompressed_bytes"]))
        return find(data, **limits | {"max_decompressed_bytes": MIB})  # else it takes seconds

    monkeypatch.setattr(time_search, "find_record", noted)
    async with rig() as it:
        await ready(it)
        assert (await it.produce(bomb(MIB))).error is ErrorCode.NONE
        assert (await it.produce(batch(timestamp_ms=70))).base_offset == 2
        for wanted_ms, found in ((50, (0, 60)), (65, (2, 70)), (LARGEST_TIMESTAMP, (2, 70))):
            result = await it.look_ups.search(ListOffsetsPartition(TOPIC_ID, 0, wanted_ms, -1))
            assert (result.error, result.offset, result.timestamp) == (ErrorCode.NONE, *found)
        assert isinstance(it.replica.role, Leader)
    assert {limit for _, limit in looks} == {DECOMPRESSED_BYTES_MAX}
    assert threading.get_ident() not in {thread for thread, _ in looks}


@pytest.mark.parametrize(
    "configs", [{"cleanup_policy": "compact"}, {"message_timestamp_before_max_ms": "9000000000000"}], ids=str
)
async def test_a_bomb_for_a_topic_whose_records_are_looked_at_is_refused_beside_the_loop(
    configs: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[int] = []
    validate = produce_path.validate_produced

    def noted(*arguments: Any, decompresses: bool = True, **rules: Any) -> Any:
        if decompresses:
            threads.append(threading.get_ident())
        return validate(*arguments, decompresses=decompresses, **rules)

    monkeypatch.setattr(produce_path, "validate_produced", noted)
    async with rig() as it:
        await ready(it, **configs)
        refused = await it.produce(bomb(LEADER_DECOMPRESSED_BYTES_MAX))
        assert refused.error is ErrorCode.INVALID_RECORD
        assert f"decompress to more than {LEADER_DECOMPRESSED_BYTES_MAX} bytes" in refused.message
        good = await it.produce(encode_batch([(it.clock.wall_clock_ms, b"k", b"v", ())], codec=Codec.GZIP))
        assert (good.error, good.base_offset) == (ErrorCode.NONE, 0)
    assert len(threads) == 2
    assert threading.get_ident() not in threads


@pytest.mark.parametrize("policy", ["delete", "compact"])
@pytest.mark.parametrize("codec", list(Codec), ids=lambda codec: codec.name)
async def test_garbage_with_a_right_checksum_is_refused_where_records_are_looked_at(codec: Codec, policy: str) -> None:
    """Plain records always are; compressed ones of other topics are kept as they came, for readers to be told of."""
    async with rig() as it:
        await ready(it, cleanup_policy=policy)
        is_kept = codec is not Codec.NONE and policy == "delete"
        answered = await it.produce(poison(codec))
        assert answered.error is (ErrorCode.NONE if is_kept else ErrorCode.INVALID_RECORD)
        assert it.replica.log.log_end_offset == is_kept
        assert (await it.produce(encode_batch([(1, b"k", b"v", ())]))).base_offset == is_kept
