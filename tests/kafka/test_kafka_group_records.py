"""Kafka's own classes and tools read the records of consumer groups that we write, and write them in the same bytes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, Phase, given, settings
from kafka_dump import TOOL
from kafka_install import KafkaInstall
from message_json import differences

from replog.coordinator.group_records import GROUP_RECORDS
from replog.coordinator.records import CoordinatorRecord
from replog.log import Log, LogConfig
from replog.records import encode_batch
from replog_checkpoints import OsFileSystem
from tests.unit.coordinator import group_record_kit as kit

EXAMPLES = 5
T0 = 1_700_000_000_000


def some_records() -> list[CoordinatorRecord]:
    made: list[CoordinatorRecord] = []
    for key, value, version in kit.CASES:

        @settings(
            max_examples=EXAMPLES,
            deadline=None,
            database=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @given(kit.records(key, value, version))
        def make(record: CoordinatorRecord) -> None:
            made.append(record)

        make()
    return made


def test_the_golden_records_are_what_kafka_writes(kafka: KafkaInstall) -> None:
    golden = [line for line in kit.GOLDEN.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
    assert golden == kafka.run("GroupRecords").output.splitlines()


def test_kafka_reads_and_writes_the_same(kafka: KafkaInstall, tmp_path: Path) -> None:
    found = [GROUP_RECORDS.decode(*GROUP_RECORDS.encode(each)) for each in some_records()]
    lines = [
        " ".join("-" if part is None else part.hex() for part in GROUP_RECORDS.encode(each)) for each in found if each
    ]
    path = tmp_path / "records"
    path.write_text("\n".join(lines), encoding="utf-8")
    answers = kafka.run("GroupRecords", str(path)).output.rstrip("\n").split("\n")
    assert len(answers) == len(lines) == len(found) > 50
    wrong = []
    for record, line, answer in zip(found, lines, answers, strict=True):
        assert record is not None
        key, value, text = answer.split(" ", 2)
        wrong += [] if f"{key} {value}" == line else [f"{record}: other bytes: {line} / {answer}"]
        parts: tuple[Any, ...] = (record.key, record.value)
        for part, theirs in zip(parts, text.split("\t"), strict=True):
            name = type(part).__name__
            wrong += [] if part is None and theirs == "null" else differences(part, json.loads(theirs), name)
    assert wrong[:20] == []


def test_kafkas_tool_shows_offsets_and_groups(kafka: KafkaInstall, tmp_path: Path) -> None:
    """Goal: `DumpLogSegments --offsets-decoder` says of a partition of ours what it says of one of Kafka's."""
    log = Log.open(
        OsFileSystem(),
        str(tmp_path),
        LogConfig(),
        topic_partition="__consumer_offsets-0",
        recovery_point=0,
        log_start_offset=0,
        clean=True,
        now_ms=T0,
    )
    golden = dict(kit.golden_records())
    log.append_as_leader(encode_batch([(T0, *each, ()) for each in golden.values()]), leader_epoch=0, now_ms=T0)
    log.close(T0)
    (segment,) = tmp_path.glob("*.log")
    shown = kafka.run(TOOL, "--offsets-decoder", "--files", str(segment)).output
    rows = [line for line in shown.splitlines() if line.startswith("| offset: ")]
    assert len(rows) == len(golden)
    assert rows[0].endswith(
        'payload: {"version":"4","data":{"offset":42,"leaderEpoch":3,"metadata":"note",'
        '"commitTimestamp":1700000000000,"topicId":"AQIDBAUGBwgREhMUFRYXGA"}}'
    )
    assert 'key: {"type":"8","data":{"groupId":"g","memberId":"m1"}}' in rows[list(golden).index("current")]
    assert "Exception" not in shown
