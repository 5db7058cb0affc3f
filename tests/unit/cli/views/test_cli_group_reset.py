"""Where `groups reset` puts a group: arithmetic, clamping, and words that cannot be understood."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from cli_kit import Replog

from replog.cli.errors import UsageError
from replog.cli.views.group_reset import (
    KnownOffsets,
    OffsetChange,
    Target,
    Where,
    change_of,
    chosen_partitions,
    committed_partitions,
    duration_ms,
    read_offsets,
    time_ms,
)
from replog.client import TopicPartition
from replog.errors import InvalidRequestError, UnknownTopicOrPartitionError

ONE = TopicPartition("t", 0)
PAST, BEFORE = "{} is past the end of the log", "{} is before the start of the log"
MINUTE_MS = 60_000


@pytest.mark.parametrize(
    ("target", "found", "new", "note"),
    [
        (Target(Where.EARLIEST), KnownOffsets(7, 5, 90), 5, ""),
        (Target(Where.LATEST), KnownOffsets(None, 5, 90), 90, ""),
        (Target(Where.OFFSET, 17), KnownOffsets(7, 5, 90), 17, ""),
        (Target(Where.OFFSET, 90), KnownOffsets(7, 5, 90), 90, ""),
        (Target(Where.OFFSET, 91), KnownOffsets(7, 5, 90), 90, PAST.format(91)),
        (Target(Where.OFFSET, 4), KnownOffsets(7, 5, 90), 5, BEFORE.format(4)),
        (Target(Where.SHIFT, -2), KnownOffsets(7, 5, 90), 5, ""),
        (Target(Where.SHIFT, -3), KnownOffsets(7, 5, 90), 5, BEFORE.format(4)),
        (Target(Where.SHIFT, 2**63 - 1), KnownOffsets(7, 5, 90), 90, PAST.format(2**63 + 6)),
        (Target(Where.SHIFT, 0), KnownOffsets(95, 5, 90), 90, PAST.format(95)),
        (Target(Where.TIME, 1), KnownOffsets(7, 5, 90, 33), 33, ""),
        (Target(Where.TIME, 1), KnownOffsets(7, 5, 90, None), 90, "no record is that late"),
        (Target(Where.FILE, offsets={ONE: 0}), KnownOffsets(7, 5, 90), 5, BEFORE.format(0)),
        (Target(Where.OFFSET, 3), KnownOffsets(None, 0, 0), 0, PAST.format(3)),
    ],
)
def test_where_a_group_goes(target: Target, found: KnownOffsets, new: int, note: str) -> None:
    assert change_of(ONE, target, found) == OffsetChange("t", 0, found.current, new, note)


def test_what_has_no_offset_cannot_be_shifted() -> None:
    with pytest.raises(UsageError, match="t-0 has no committed offset"):
        change_of(ONE, Target(Where.SHIFT, 1), KnownOffsets(None, 0, 9))


def test_the_difference_is_signed_and_there_is_none_without_an_offset() -> None:
    assert OffsetChange("t", 0, 7, 5, "").difference == -2
    assert OffsetChange("t", 0, None, 5, "").difference is None


@pytest.mark.parametrize(
    ("text", "minutes"),
    [("60s", 1), ("90m", 90), ("1h30m", 90), ("7d", 7 * 1440), ("PT1H30M", 90), ("P1DT1M", 1441), ("p1d", 1440)],
)
def test_durations(text: str, minutes: int) -> None:
    assert duration_ms(text) == minutes * MINUTE_MS


@pytest.mark.parametrize("text", ["", "P", "PT", "T", "5", "5w", "-5s", "5s5m", "1.5h", "²s", "9" * 5000 + "s"])
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(UsageError, match="is no duration"):
        duration_ms(text)


def test_times_have_a_zone() -> None:
    assert time_ms("1970-01-01T00:01:00Z") == time_ms("1970-01-01T02:01:00+02:00") == MINUTE_MS
    for text in ("1970-01-01T00:01:00", "1969-12-31T00:00:00Z", "yesterday", ""):
        with pytest.raises(UsageError, match="is no time"):
            time_ms(text)


def test_a_file_of_offsets(tmp_path: Path) -> None:
    path = tmp_path / "offsets.csv"
    path.write_text('"flights",0,17\n\n trains , 3 ,0\n')
    assert read_offsets(path) == {("flights", 0): 17, ("trains", 3): 0}
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())  # as Excel writes it
    assert read_offsets(path) == {("flights", 0): 17, ("trains", 3): 0}


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "has no line"),
        ("t,0,1\nt,0,2\n", "line 2 names t-0 twice"),
        ("t,0\n", "line 1 is not TOPIC,PARTITION,OFFSET"),
        ("t,0,1,g\n", "line 1 is not"),
        ("t,0,-1\n", "line 1 is not"),
        ("t,x,1\n", "line 1 is not"),
        (",0,1\n", "line 1 is not"),
        (f"t,{2**31},1\n", "line 1 is not"),
        (f"t,0,{2**63}\n", "line 1 is not"),
        (f"t,0,{'9' * 5000}\n", "line 1 is not"),
        (f"t,0,{'9' * 200_000}\n", "field larger"),
        ("\xff", "is no file of"),
    ],
)
def test_a_file_that_is_none(tmp_path: Path, text: str, complaint: str) -> None:
    path = tmp_path / "offsets.csv"
    path.write_text(text, encoding="latin-1")
    with pytest.raises(UsageError, match=complaint):
        read_offsets(path)


COUNTS = {"t": 3, "u": 1}
KEPT = [TopicPartition("t", 2), TopicPartition("gone", 0), TopicPartition("u", 5)]


def test_partitions_are_named_by_topic_or_by_number() -> None:
    assert chosen_partitions(["t:2,0", "u"], COUNTS, KEPT, all_topics=False) == [("t", 0), ("t", 2), ("u", 0)]
    assert chosen_partitions([], COUNTS, KEPT, all_topics=True) == [("t", 2)]
    for text, error in (("v", "no topic"), ("t:3", "no partition 3"), ("v:0", "no topic")):
        with pytest.raises(UnknownTopicOrPartitionError, match=error):
            chosen_partitions([text], COUNTS, KEPT, all_topics=False)
    for text in ("", "t:", "t:x", "t:-1", ":0", "t:1,"):
        with pytest.raises(UsageError, match="is not TOPIC"):
            chosen_partitions([text], COUNTS, KEPT, all_topics=False)


def test_offsets_of_topics_that_are_gone_can_be_named() -> None:
    assert committed_partitions(["gone", "t:2"], KEPT) == [("gone", 0), ("t", 2)]
    for text in ("gon", "t:1", "t:2,1"):
        with pytest.raises(InvalidRequestError, match="committed nothing of"):
            committed_partitions([text], KEPT)


@pytest.mark.parametrize(
    "words",
    [
        "",
        "--to-latest",
        "--topic t",
        "--topic t --to-latest --to-earliest",
        "--topic t --all-topics --to-latest",
        "--topic t --to-offset -1",
        "--topic t --shift-by x",
        f"--topic t --to-offset {2**63}",
        "--topic t --to-offset 1 --shift-by 0",
        "--topic t --by-duration soon",
        "--topic t --to-time soon",
        "--topic t --from-file offsets.csv",
    ],
)
def test_options_that_say_too_little_or_too_much(replog: Replog, words: str, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "offsets.csv").write_text("t,0,1\n")
    done = replog("groups", "reset", "g", *words.split())
    assert (done.status, done.out, done.err.count("\n")) == (2, "", 1)
    assert done.err.startswith("error: ")
