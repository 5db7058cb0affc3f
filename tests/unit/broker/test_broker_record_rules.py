"""A topic's rules for records, from its configuration to what is appended and answered."""

from __future__ import annotations

import pytest
from broker_kit import TOPIC, Rig, batch, registered, rig, server_config, topic

from replog.broker.replicas.topic_settings import TopicSettings
from replog.errors import ErrorCode
from replog.metadata.delta import MetadataDelta
from replog.metadata.image import MetadataImage
from replog.metadata.records import ConfigRecord, ResourceType
from replog.records import RecordRules, TimestampType, decode_records, encode_batch

HOUR_MS = 3_600_000


async def ready(it: Rig, **configs: str) -> None:
    """One replica of a topic with these configurations, `_` for `.`."""
    records = [ConfigRecord(ResourceType.TOPIC, TOPIC, key.replace("_", "."), text) for key, text in configs.items()]
    await it.apply(registered(1), *topic(), *records)


def stored(it: Rig) -> list[int]:
    log = it.replica.log
    data = log.read(0, max_bytes=1 << 20, end_offset=log.log_end_offset, min_one_batch=True)
    return [record.timestamp for record in decode_records(data)]


def test_the_defaults_are_kafkas() -> None:
    settings = TopicSettings(TOPIC, MetadataDelta(MetadataImage()).apply(1, 1), server_config())
    assert settings.record_rules() == RecordRules(timestamp_after_max_ms=HOUR_MS)
    assert settings.log_config().message_timestamp_type is TimestampType.CREATE_TIME


@pytest.mark.parametrize("server", [{}, {"log_message_timestamp_type": "LogAppendTime"}])
async def test_append_time_is_stored_answered_and_read(server: dict[str, str]) -> None:
    async with rig(**server) as it:
        await ready(it, **({} if server else {"message_timestamp_type": "LogAppendTime"}))
        now_ms = it.clock.wall_clock_ms
        answered = await it.produce(batch(b"a", b"b", timestamp_ms=5))
        assert (answered.error, answered.append_time_ms) == (ErrorCode.NONE, now_ms)
        it.clock.wall_clock_ms += 10
        assert (await it.produce(batch(b"c", timestamp_ms=2**62))).append_time_ms == now_ms + 10
        assert stored(it) == [now_ms, now_ms, now_ms + 10]


async def test_a_retry_is_told_the_append_time_of_its_first_try() -> None:
    async with rig() as it:
        await ready(it, message_timestamp_type="LogAppendTime")
        sent = batch(b"a", producer_id=7, base_sequence=0)
        first = await it.produce(sent)
        it.clock.wall_clock_ms += 10
        assert (await it.produce(sent)).append_time_ms == first.append_time_ms
        assert stored(it) == [first.append_time_ms]


async def test_create_time_is_the_producers_and_is_not_answered() -> None:
    async with rig() as it:
        await ready(it)
        assert (await it.produce(batch(b"a", timestamp_ms=5))).append_time_ms == -1
        assert stored(it) == [5]


async def test_the_type_may_change_while_the_topic_is_in_use() -> None:
    async with rig() as it:
        await ready(it)
        sent_ms = it.clock.wall_clock_ms - 5
        await it.produce(batch(b"a", timestamp_ms=sent_ms))
        await it.apply(ConfigRecord(ResourceType.TOPIC, TOPIC, "message.timestamp.type", "LogAppendTime"))
        await it.produce(batch(b"b", timestamp_ms=sent_ms))
        assert stored(it) == [sent_ms, sent_ms + 5]


@pytest.mark.parametrize(
    ("distance_ms", "error"), [(HOUR_MS, ErrorCode.NONE), (HOUR_MS + 1, ErrorCode.INVALID_TIMESTAMP)]
)
async def test_a_timestamp_from_the_future_is_refused(distance_ms: int, error: ErrorCode) -> None:
    async with rig() as it:
        await ready(it)
        answered = await it.produce(batch(b"a", timestamp_ms=it.clock.wall_clock_ms + distance_ms))
        assert answered.error is error
        assert it.replica.log.log_end_offset == (1 if error is ErrorCode.NONE else 0)


async def test_a_timestamp_from_the_past_is_refused_where_the_topic_says_so() -> None:
    async with rig() as it:
        await ready(it, message_timestamp_before_max_ms="1000")
        now_ms = it.clock.wall_clock_ms
        assert (await it.produce(batch(b"a", timestamp_ms=now_ms - 1000))).error is ErrorCode.NONE
        refused = await it.produce(batch(b"a", timestamp_ms=now_ms - 1001))
        assert refused.error is ErrorCode.INVALID_TIMESTAMP
        assert "message.timestamp.before.max.ms is 1000" in refused.message


async def test_a_compacted_topic_refuses_records_without_keys() -> None:
    async with rig() as it:
        await ready(it, cleanup_policy="compact")
        assert (await it.produce(batch(b"no key"))).error is ErrorCode.INVALID_RECORD
        assert (await it.produce(encode_batch([(1, b"k", b"v", ())]))).error is ErrorCode.NONE
