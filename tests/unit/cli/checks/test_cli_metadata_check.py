"""`replog metadata check` finds what is wrong with a metadata log, and says at which offset."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from cli_kit import Replog
from metadata_kit import FLIGHTS, STORY_END, TAXIS, MetadataDirectory
from msgspec.structs import replace

from replog.cli.metadata.log import MetadataBatch, MetadataLogFiles
from replog.metadata.records import (
    NoOpRecord,
    PartitionChangeRecord,
    RegisterControllerRecord,
    RemoveTopicRecord,
    SupportedFeature,
)
from replog.rpc.metadata_records import encode_metadata_record


def checked(replog: Replog, path: Path, status: int) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """(findings, last row)."""
    done = replog("metadata", "check", path, "--json")
    assert (done.status, done.err) == (status, "")
    *findings, last = [json.loads(line) for line in done.out.splitlines()]
    assert (last["kind"], last["findings"]) == ("checked", len(findings))
    return findings, last


def test_a_sound_log(replog: Replog, tmp_path: Path) -> None:
    directory = MetadataDirectory(tmp_path)
    directory.append(NoOpRecord())
    directory.snapshot()
    directory.story()
    directory.snapshot()
    directory.close()
    before = {file: file.read_bytes() for file in directory.log_path.iterdir()}
    findings, last = checked(replog, tmp_path, 0)
    assert findings == []
    assert {name: last[name] for name in ("snapshots", "batches", "records", "end_offset")} == {
        "snapshots": 2, "batches": 7, "records": STORY_END, "end_offset": STORY_END + 1,
    }  # fmt: skip
    assert "first_bad_offset" not in last
    assert {file: file.read_bytes() for file in directory.log_path.iterdir()} == before
    assert replog("metadata", "check", directory.log_path).out.startswith("  checked  path=")


def test_a_log_that_begins_with_a_snapshot(replog: Replog, tmp_path: Path) -> None:
    directory = MetadataDirectory(tmp_path, segment_bytes=256)
    directory.story()
    directory.snapshot()
    directory.append(RemoveTopicRecord(TAXIS))
    directory.append(NoOpRecord())
    directory.snapshot()
    directory.close()
    directory.cut_below(STORY_END)
    findings, last = checked(replog, tmp_path, 0)
    assert (findings, last["records"], last["end_offset"]) == ([], 2, STORY_END + 2)


def no_kind(directory: MetadataDirectory) -> None:
    directory.append_values([encode_metadata_record(NoOpRecord()), b"\x80\xfa\x07\x00"])


def another_system(directory: MetadataDirectory) -> None:
    directory.append_values([b"\x01\x14\x00\x00"])


def contradiction(directory: MetadataDirectory) -> None:
    directory.append_values([encode_metadata_record(PartitionChangeRecord(7, FLIGHTS, leader=1))])
    directory.append_values([encode_metadata_record(RemoveTopicRecord(FLIGHTS))])  # nothing is said about what follows


def leader_outside_the_isr(directory: MetadataDirectory) -> None:
    directory.append(PartitionChangeRecord(1, FLIGHTS, isr=(1,)))


def isr_outside_the_replicas(directory: MetadataDirectory) -> None:
    directory.append(NoOpRecord(), PartitionChangeRecord(1, FLIGHTS, leader=-1, isr=(3,)))


def other_snapshot(directory: MetadataDirectory) -> None:
    image = directory.image
    directory.append(RemoveTopicRecord(TAXIS))
    directory.snapshot(image)


def snapshot_within_a_batch(directory: MetadataDirectory) -> None:
    directory.snapshot(end_offset=STORY_END - 1)


def half_a_snapshot(directory: MetadataDirectory) -> None:
    path = directory.log_path / f"{directory.snapshot().stem}.checkpoint"
    path.write_bytes(path.read_bytes()[:-20])


@pytest.mark.parametrize(
    ("spoil", "problem", "offset", "reason"),
    [
        (no_kind, "record", STORY_END + 1, "of a kind this version does not know"),
        (another_system, "record", STORY_END, "written by another system"),
        (contradiction, "record", STORY_END, "PartitionChangeRecord: change of the unknown partition flights-7"),
        (leader_outside_the_isr, "image", STORY_END, "partition flights-1: its leader 2 is not in the ISR [1]"),
        (
            isr_outside_the_replicas,
            "image",
            STORY_END,
            "partition flights-1: isr has [3], which are not among the replicas",
        ),
        (other_snapshot, "snapshot", STORY_END + 1, "is not what the log says: topics_by_"),
        (snapshot_within_a_batch, "snapshot", STORY_END - 1, "does not end where a batch ends"),
        (half_a_snapshot, "snapshot", STORY_END, "at byte"),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_what_is_wrong_is_found(
    replog: Replog,
    tmp_path: Path,
    spoil: Callable[[MetadataDirectory], None],
    problem: str,
    offset: int,
    reason: str,
) -> None:
    directory = MetadataDirectory(tmp_path)
    directory.story()
    spoil(directory)
    directory.close()
    findings, last = checked(replog, tmp_path, 1)
    assert {(finding["problem"], finding["offset"]) for finding in findings} == {(problem, offset)}
    assert reason in findings[0]["reason"]
    assert last["first_bad_offset"] == offset


def test_a_flipped_byte(replog: Replog, tmp_path: Path) -> None:
    directory = MetadataDirectory(tmp_path)
    directory.story()
    directory.close()
    segment = directory.log_path / "00000000000000000000.log"
    data = bytearray(segment.read_bytes())
    data[data.index(b"flights")] ^= 1
    segment.write_bytes(data)
    findings, last = checked(replog, tmp_path, 1)
    assert findings[0]["problem"] == "damaged"
    assert last["first_bad_offset"] == 4


def test_a_snapshot_with_a_broken_partition(replog: Replog, tmp_path: Path) -> None:
    directory = MetadataDirectory(tmp_path, segment_bytes=256)
    directory.story()
    leader_outside_the_isr(directory)
    directory.snapshot()
    directory.append(NoOpRecord())
    directory.close()
    directory.cut_below(STORY_END + 1)
    findings, _ = checked(replog, tmp_path, 1)
    assert [(finding["problem"], finding["offset"]) for finding in findings] == [("snapshot", STORY_END + 1)]
    assert "partition flights-1: its leader 2 is not in the ISR [1]" in findings[0]["reason"]


def test_a_cut_log_without_its_snapshot(replog: Replog, tmp_path: Path) -> None:
    directory = MetadataDirectory(tmp_path, segment_bytes=256)
    directory.story()
    directory.close()
    directory.cut_below(9)
    findings, _ = checked(replog, tmp_path, 1)
    assert [(finding["problem"], finding["offset"]) for finding in findings] == [("snapshot", 9)]


def test_what_stands_between_the_start_and_the_first_snapshot_is_left_out(replog: Replog, tmp_path: Path) -> None:
    directory = MetadataDirectory(tmp_path, segment_bytes=256)
    directory.story()
    directory.snapshot()
    directory.append(NoOpRecord())
    directory.close()
    directory.cut_below(7)
    findings, last = checked(replog, tmp_path, 1)
    assert [(finding["problem"], finding["offset"]) for finding in findings] == [("snapshot", 7)]
    assert (last["records"], last["end_offset"]) == (1, STORY_END + 1)


def test_offsets_and_epochs_of_batches(replog: Replog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The log itself refuses to write such; another hand may have."""
    directory = MetadataDirectory(tmp_path)
    directory.append(NoOpRecord())
    directory.append(NoOpRecord())
    directory.close()
    whole = MetadataLogFiles.batches

    def batches(files: MetadataLogFiles, offset: int) -> Iterator[MetadataBatch]:
        first, _, last = whole(files, offset)
        yield replace(first, epoch=3)
        yield replace(last, epoch=2)

    monkeypatch.setattr(MetadataLogFiles, "batches", batches)
    findings, _ = checked(replog, tmp_path, 1)
    assert [(finding["problem"], finding["offset"]) for finding in findings] == [("gap", 1), ("epoch", 2)]


def test_no_metadata_log(replog: Replog, tmp_path: Path) -> None:
    done = replog("metadata", "check", tmp_path)
    assert (done.status, done.out) == (2, "")
    assert "holds no metadata log" in done.err


def test_dump_shows_a_snapshot(replog: Replog, tmp_path: Path) -> None:
    directory = MetadataDirectory(tmp_path)
    directory.append(RegisterControllerRecord(1, FLIGHTS, "host", 1, (SupportedFeature("metadata.version", 1, 2),)))
    path = directory.log_path / f"{directory.snapshot().stem}.checkpoint"
    directory.close()
    done = replog("log", "dump", path, "--deep", "--json")
    rows = [json.loads(line) for line in done.out.splitlines()]
    assert done.status == 0
    assert [row["control"] for row in rows if "control" in row] == ["snapshot_header", "snapshot_footer"]
    (record,) = (row for row in rows if row.get("record") == "RegisterControllerRecord")
    assert record["supported_features"] == [{"name": "metadata.version", "min_level": 1, "max_level": 2}]
