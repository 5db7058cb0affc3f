"""Every scenario that needs no broker, at a small size: it runs, checks its systems, and leaves nothing behind."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import bench.scenarios.controller
from bench import cli, harness
from bench.model import Scenario, WrongResultError
from bench.scenarios.acl_checks import AclChecksScenario
from bench.scenarios.codec import CodecScenario
from bench.scenarios.compaction import CompactionScenario
from bench.scenarios.controller import ControllerScenario
from bench.scenarios.controller_steps import ControllerStepsScenario
from bench.scenarios.coordinator_load import CoordinatorLoadScenario
from bench.scenarios.deadlines import DeadlinesScenario
from bench.scenarios.log_append import LogAppendScenario
from bench.scenarios.log_lookup import LogLookupScenario
from bench.scenarios.log_partitions import LogPartitionsScenario
from bench.scenarios.log_recovery import LogRecoveryScenario
from bench.scenarios.log_scan import LogScanScenario
from bench.scenarios.log_sustained import LogSustainedScenario
from bench.scenarios.metadata_image import MetadataImageScenario
from bench.scenarios.open_log import OpenLogScenario
from bench.scenarios.table_scan import TableScanScenario
from bench.scenarios.timeline import TimelineScenario
from bench.systems.codecs import ReplogCodec
from bench.systems.logs import PlainFile

SMALL_BYTES = 256 * 1024


@pytest.mark.parametrize(
    "scenario",
    [
        CodecScenario(at_least_s=0),
        LogAppendScenario(SMALL_BYTES),
        LogScanScenario(SMALL_BYTES),
        OpenLogScenario(scale=0.001),
        TableScanScenario(SMALL_BYTES),
    ],
    ids=lambda scenario: scenario.name,
)
def test_small_run(scenario: Scenario[Any], tmp_path: Path) -> None:
    result = harness.run(scenario, repeat=1, directory=tmp_path)
    present = {system.name for system in scenario.systems()} - set(result.missing)
    assert {row.system for row in result.rows} == present
    assert len({str(row.params) for row in result.rows}) == len(scenario.cases())
    assert {"records_per_s", "mb_per_s", "cpu_s_per_gb"} <= {row.metric for row in result.rows}
    assert all(row.median > 0 for row in result.rows if row.unit in {"1/s", "MB/s"})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("scenario", "metrics"),
    [
        (LogRecoveryScenario(SMALL_BYTES), {"mb_per_s", "cpu_s_per_gb"}),
        (LogSustainedScenario(SMALL_BYTES), {"mb_per_s", "appended_mb_per_s", "cpu_s_per_gb"}),
        (CompactionScenario(SMALL_BYTES), {"mb_per_s", "cpu_s_per_gb", "peak_memory_mib"}),
        (ControllerStepsScenario(partitions=20), {"step_ms"}),
        (AclChecksScenario(entries=300, checks=10), {"check_cpu_us"}),
        (LogLookupScenario(segments=4, lookups=10), {"lookup_us", "cpu_us"}),
        (LogPartitionsScenario(partitions=3), {"open_ms", "memory_kib_per_partition", "descriptors"}),
        (
            MetadataImageScenario(partitions=200, changes=5),
            {"build_s", "publish_ms", "publish_max_ms", "memory_mib"},
        ),
        (ControllerScenario(pipelined_count=40, naive_count=3), {"requests_per_s", "cpu_us_per_request"}),
        (DeadlinesScenario(operations=300, waiting=(10, 100)), {"operation_ns"}),
        (CoordinatorLoadScenario(records=1_200), {"cpu_us_per_record", "records_per_s"}),
        (TimelineScenario(entries=50), {"write_ns", "read_ns", "revert_us", "bytes_per_changed_key"}),
    ],
    ids=lambda each: getattr(each, "name", None),
)
def test_small_run_of_stored_logs(scenario: Scenario[Any], metrics: set[str], tmp_path: Path) -> None:
    result = harness.run(scenario, repeat=1, directory=tmp_path)
    assert {row.metric for row in result.rows} == metrics
    assert {row.system for row in result.rows} == {system.name for system in scenario.systems()}
    assert list(tmp_path.iterdir()) == []


def test_a_codec_that_loses_a_record_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(ReplogCodec, "decode", lambda _self, _batch: 1)
    with pytest.raises(WrongResultError, match="does not read back"):
        harness.run(CodecScenario(at_least_s=0), repeat=1, directory=tmp_path)


def test_a_log_that_loses_a_batch_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(PlainFile, "append", lambda _self, _batch: None)
    with pytest.raises(WrongResultError, match="plain-file"):
        harness.run(LogAppendScenario(SMALL_BYTES), repeat=1, directory=tmp_path)


def test_a_controller_that_refuses_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(bench.scenarios.controller, "BROKERS", 0)
    with pytest.raises(WrongResultError, match="INVALID_REPLICATION_FACTOR"):
        harness.run(ControllerScenario(pipelined_count=3, naive_count=3), repeat=1, directory=tmp_path)


def test_a_codec_that_is_not_there_says_why() -> None:
    assert "replog.records._none" in str(ReplogCodec("none", "_none").missing())


def test_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["list"]) == 0
    assert "log-scan" in capsys.readouterr().out
    assert cli.main(["run", "no-such"]) == 2
    assert "no scenario no-such; there are" in capsys.readouterr().err
    for wrong in (["run", "codec", "--repeat", "0"], []):
        with pytest.raises(SystemExit):
            cli.main(wrong)
