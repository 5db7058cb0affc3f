"""Segment files read without the broker: whole batches in order, and nothing that is not what the broker told of."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from uuid import UUID

import pytest
from msgspec.structs import replace

from replog.client.ranges import segment_files
from replog.client.ranges.direct_reads import DirectRead
from replog.client.ranges.offset_range import OffsetRange
from replog.client.ranges.segment_files import SpanReader, UnfitError, open_spans
from replog.records import decode_records, encode_batch, scan
from replog.rpc.node_messages import STILL_WRITTEN, LocateSegmentsResponse, SegmentSpan

EPOCH = 3
BATCHES, RECORDS = 10, 4
"""Batches of a segment, records of a batch."""


@pytest.fixture(autouse=True)
def small_frames(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segment_files, "FRAME_BYTES", 1000)
    monkeypatch.setattr(segment_files, "ROOM_BYTES_MIN", 200)


def batch(base_offset: int, *, epoch: int = EPOCH, value_bytes: int = 20) -> bytes:
    records = [(1, None, b"%d" % (base_offset + n) * value_bytes, ()) for n in range(RECORDS)]
    return encode_batch(records, base_offset=base_offset, partition_leader_epoch=epoch)


class Segments:
    """Two sealed segments and an active one, as a broker would tell of them."""

    def __init__(self, directory: Path) -> None:
        self.paths = [directory / f"{number}.log" for number in range(3)]
        for number, path in enumerate(self.paths):
            path.write_bytes(b"".join(map(self.batch, range(number * BATCHES, (number + 1) * BATCHES))))
        self.end_offset = 3 * BATCHES * RECORDS

    @staticmethod
    def batch(number: int) -> bytes:
        return batch(number * RECORDS)

    def spans(self, start_offset: int = 0) -> tuple[SegmentSpan, ...]:
        """What a broker tells from `start_offset` on."""
        first, *others = [self._span(n) for n in range(len(self.paths)) if (n + 1) * BATCHES * RECORDS > start_offset]
        skipped = (start_offset - first.base_offset) // RECORDS
        base_offset = first.base_offset + skipped * RECORDS
        position = sum(len(batch(first.base_offset + n * RECORDS)) for n in range(skipped))
        return replace(first, position=position, base_offset=base_offset), *others

    def _span(self, number: int) -> SegmentSpan:
        status = self.paths[number].stat()
        is_active = number == len(self.paths) - 1
        return SegmentSpan(
            str(self.paths[number]),
            0,
            status.st_size,
            number * BATCHES * RECORDS,
            (number + 1) * BATCHES * RECORDS,
            status.st_dev,
            status.st_ino,
            STILL_WRITTEN if is_active else status.st_mtime_ns,
        )


@pytest.fixture
def segments(tmp_path: Path) -> Segments:
    return Segments(tmp_path)


def read(
    spans: Sequence[SegmentSpan], start: int = 0, *, is_checked: bool = True, is_complete: bool = False
) -> tuple[list[int], str]:
    """Offsets that were read, and what ended it; "": the end."""
    reader = SpanReader(start, leader_epoch_max=EPOCH, is_checked=is_checked, is_complete=is_complete)
    found: list[int] = []
    with ExitStack() as files:
        try:
            for encoded in reader.read(open_spans(spans, files)):
                assert encoded.is_checked
                headers = list(scan(encoded.data))
                assert headers[-1].next_offset == reader.next_offset
                found += range(max(encoded.start_offset, headers[0].base_offset), headers[0].next_offset)
                found += [offset for each in headers[1:] for offset in range(each.base_offset, each.next_offset)]
        except UnfitError as error:
            return found, str(error)
    return found, ""


@pytest.mark.parametrize("start", [0, 1, 4, 43, 119])
def test_the_records_from_an_offset_on_in_order(segments: Segments, start: int) -> None:
    assert read(segments.spans(start), start) == (list(range(start, segments.end_offset)), "")


def test_a_batch_larger_than_a_frame_is_read_whole(segments: Segments) -> None:
    large = batch(40, value_bytes=5_000)
    segments.paths[1].write_bytes(large + batch(44))
    assert read(segments.spans()) == ([*range(48), *range(80, 120)], "")


def test_a_length_that_cannot_be_allocates_nothing(segments: Segments, monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: the length of a batch that does not fit a frame is believed within the file and the bound only."""
    monkeypatch.setattr(segment_files, "BATCH_BYTES_MAX", 3_000)
    segments.paths[0].write_bytes(batch(0, value_bytes=5_000))
    found, why = read(segments.spans())
    assert (found, "a batch of" in why) == ([], True)


def test_a_file_that_is_gone_or_another_by_now_ends_it_before_the_first_record(segments: Segments) -> None:
    spans = segments.spans()
    path = segments.paths[1]
    replaced = path.with_suffix(".swap")
    replaced.write_bytes(path.read_bytes())
    replaced.rename(path)
    assert read(spans) == ([], f"{path} is another file than the broker's")
    path.unlink()
    found, why = read(spans)
    assert (found, "No such file" in why) == ([], True)


def test_a_sealed_segment_that_was_written_to_ends_it(segments: Segments) -> None:
    """Goal: an inode number that was given to a later file says nothing."""
    spans = segments.spans()
    status = segments.paths[0].stat()
    os.utime(segments.paths[0], ns=(status.st_atime_ns, status.st_mtime_ns + 1))
    assert read(spans) == ([], f"{segments.paths[0]} was written to since")
    os.utime(segments.paths[0], ns=(status.st_atime_ns, status.st_mtime_ns))
    os.utime(segments.paths[2])  # the active one grows all the time
    assert read(spans)[1] == ""


def test_files_that_vanish_after_they_were_opened_are_read_on(segments: Segments) -> None:
    reader = SpanReader(0, leader_epoch_max=EPOCH, is_checked=True)
    with ExitStack() as files:
        spans = open_spans(segments.spans(), files)
        for path in segments.paths:
            path.unlink()
        assert sum(len(decode_records(each.data)) for each in reader.read(spans)) == segments.end_offset


@pytest.mark.parametrize("is_checked", [True, False])
def test_a_cut_after_an_unclean_election_is_found_by_its_epoch(segments: Segments, is_checked: bool) -> None:
    """Goal: the same file, cut at a batch and written anew by the next leader: none of its records is handed out."""
    spans = segments.spans()
    kept = segments.paths[2].read_bytes()[: 3 * len(segments.batch(20))]
    rewritten = b"".join(batch((23 + number) * RECORDS, epoch=EPOCH + 1) for number in range(7))
    with segments.paths[2].open("r+b") as file:
        file.write(kept + rewritten)
    found, why = read(spans, is_checked=is_checked)
    assert found[-1] < 23 * RECORDS
    assert f"leader epoch {EPOCH + 1}, the highest one is {EPOCH}" in why
    segments.paths[2].write_bytes(kept)
    found, why = read(spans, is_checked=is_checked)
    assert (found, "the file ends at byte" in why) == (list(range(found[-1] + 1)), True)


def test_damage_ends_it_unless_nobody_looks(segments: Segments) -> None:
    data = bytearray(segments.paths[1].read_bytes())
    data[-2] ^= 1
    segments.paths[1].write_bytes(data)
    found, why = read(segments.spans())
    assert (found == list(range(len(found))), "checksum" in why) == (True, True)
    assert read(segments.spans(), is_checked=False) == (list(range(segments.end_offset)), "")


def test_a_file_that_is_still_written_has_its_checksums_compared_always(segments: Segments) -> None:
    """Goal: half a batch of before a cut and half of what came after it is no record, also without `verifyCrc`."""
    data = bytearray(segments.paths[2].read_bytes())
    data[-2] ^= 1
    segments.paths[2].write_bytes(data)
    found, why = read(segments.spans(), is_checked=False)
    assert (found == list(range(len(found))), "checksum" in why) == (True, True)


def test_a_sealed_file_that_is_cut_while_it_is_read_ends_it(
    segments: Segments, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: without checksums, too, no bytes are taken that somebody may have changed in the middle of the read."""
    os.utime(segments.paths[1], (1, 1))  # sealed long ago
    spans, read_all = segments.spans(), segment_files._read_all

    def read_torn(descriptor: int, view: memoryview, position: int) -> None:
        read_all(descriptor, view, position)
        if os.fstat(descriptor).st_ino == spans[1].inode:
            with segments.paths[1].open("r+b") as file:
                file.truncate(0)
            view[len(view) // 2 :] = bytes(len(view) - len(view) // 2)

    monkeypatch.setattr(segment_files, "_read_all", read_torn)
    found, why = read(spans, is_checked=False)
    assert found == list(range(len(found)))
    assert len(found) <= BATCHES * RECORDS
    assert why == f"{segments.paths[1]} was written to while it was read"


def test_a_disk_that_fails_while_a_file_is_read_ends_it(segments: Segments, monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: also where it is the question about the file that fails; the rest is fetched, and no task fails of it."""
    spans, fstat = segments.spans(), os.fstat
    answers = iter([fstat] * (len(spans) + 1))  # each file is looked at when it is opened, then behind each read

    def fail_later(descriptor: int) -> os.stat_result:
        for answer in answers:
            return answer(descriptor)
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patched:
        patched.setattr(os, "fstat", fail_later)
        found, why = read(spans)
    assert found == list(range(len(found)))
    assert "Input/output error" in why


@pytest.mark.parametrize(
    ("shift", "why"), [(-len(batch(4)), "offsets 4 to 7 cannot follow"), (len(batch(8)), "offset 12")]
)
def test_a_batch_with_another_offset_than_told_ends_it(segments: Segments, shift: int, why: str) -> None:
    first, *others = segments.spans(8)
    found, said = read([replace(first, position=first.position + shift), *others], 8)
    assert (found, why in said) == ([], True)


@pytest.mark.parametrize("start", [0, 1, 43])
def test_a_complete_log_is_read_like_any_other(segments: Segments, start: int) -> None:
    assert read(segments.spans(start), start, is_complete=True) == (list(range(start, segments.end_offset)), "")


@pytest.mark.parametrize("number", [0, 5, 9])
def test_an_offset_that_jumps_up_is_found_where_none_may_be_missing(segments: Segments, number: int) -> None:
    """Goal: no checksum covers a base offset; where compaction was, a jump is a gap, and elsewhere it is damage."""
    kept = [segments.batch(each) for each in range(BATCHES) if each < number]
    segments.paths[0].write_bytes(b"".join(kept) + segments.batch(number + 1))
    segments.paths[1].write_bytes(b"".join(map(segments.batch, range(max(BATCHES, number + 2), 2 * BATCHES))))
    found, why = read(segments.spans(), is_complete=True)
    assert found == list(range(len(found)))
    assert len(found) <= number * RECORDS
    assert "are missing" in why
    assert read(segments.spans())[1] == ""


# ---- where a task goes on ----------------------------------------------------------------------------------------------


def located(spans: Sequence[SegmentSpan]) -> LocateSegmentsResponse:
    return LocateSegmentsResponse(tuple(spans), EPOCH, "")


def range_of(start: int, end: int, leader_epoch: int = -1) -> OffsetRange:
    return OffsetRange("t", UUID(int=1), 0, start, end, leader_epoch)


def open_descriptors() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def offsets(direct: DirectRead) -> list[int]:
    found: list[int] = []
    for encoded in direct.pieces():
        found += [each.offset for each in decode_records(encoded.data, start_offset=encoded.start_offset)]
    return found


def test_the_rest_of_bounded_answers_is_asked_for_again(segments: Segments) -> None:
    asked: list[int] = []

    def locate(offset: int) -> LocateSegmentsResponse:
        asked.append(offset)
        return located(segments.spans(offset)[:1])

    direct = DirectRead(range_of(2, segments.end_offset), locate, is_checked=True)
    assert offsets(direct) == list(range(2, segments.end_offset))
    assert (asked, direct.position) == ([2, 40, 80], segments.end_offset)


def test_what_does_not_fit_is_located_again_and_then_left_to_the_stream(segments: Segments) -> None:
    """Goal: each record once, whether from a file or fetched from where the files ended."""
    before = segments.spans()
    segments.paths[1].write_bytes(batch(40) + batch(44, epoch=EPOCH + 1))
    torn = [*before[:1], segments.spans(40)[0]]
    asked: list[int] = []

    def locate(offset: int) -> LocateSegmentsResponse:
        asked.append(offset)
        return located(torn if offset == 0 else torn[1:])

    direct = DirectRead(range_of(0, segments.end_offset), locate, is_checked=True)
    found = offsets(direct)
    assert found == list(range(direct.position))
    assert 0 < direct.position <= 44
    assert asked[0] == 0
    assert asked[-1] == direct.position  # and again, before it gives up


def test_batches_of_a_later_leader_than_the_pinned_one_are_left_to_the_stream(segments: Segments) -> None:
    """Goal: an unclean election between the plan and the task: the broker tells of its new log, and in good faith."""
    segments.paths[1].write_bytes(batch(40, epoch=EPOCH - 1) + batch(44))
    for path in segments.paths[:1]:
        path.write_bytes(b"".join(batch(n * RECORDS, epoch=EPOCH - 1) for n in range(BATCHES)))
    direct = DirectRead(range_of(0, 120, EPOCH - 1), lambda at: located(segments.spans(at)[:2]), is_checked=True)
    found = offsets(direct)
    assert (found, direct.position) == (list(range(len(found))), len(found))
    assert len(found) <= 44


@pytest.mark.parametrize("lost", [0, 1, 2])
def test_a_lost_end_of_a_segment_is_left_to_the_stream_unless_gaps_are_meant(segments: Segments, lost: int) -> None:
    """Goal: records that a log must have are not passed over: the broker says, or another replica, what became of them."""
    first = lost * BATCHES * RECORDS
    segments.paths[lost].write_bytes(segments.batch(lost * BATCHES))

    def locate(offset: int, *, is_complete: bool) -> LocateSegmentsResponse:
        return replace(located(segments.spans(offset)), is_complete=is_complete)

    direct = DirectRead(range_of(0, 120), lambda at: locate(at, is_complete=True), is_checked=True)
    found = offsets(direct)
    assert found == list(range(direct.position))
    assert direct.position <= first + RECORDS
    direct = DirectRead(range_of(0, 120), lambda at: locate(at, is_complete=False), is_checked=True)
    assert offsets(direct) == [*range(first + RECORDS), *range(first + BATCHES * RECORDS, 120)]
    assert direct.position == 120


def test_nobody_here_leaves_all_of_it_to_the_stream() -> None:
    direct = DirectRead(range_of(5, 9), lambda _: None, is_checked=True)
    assert (offsets(direct), direct.position) == ([], 5)


def test_a_task_that_stops_early_leaves_no_descriptor(segments: Segments) -> None:
    before = open_descriptors()
    pieces = DirectRead(range_of(0, 120), lambda at: located(segments.spans(at)), is_checked=True).pieces()
    next(pieces)
    assert open_descriptors() > before
    pieces.close()
    assert open_descriptors() == before
    spans = segments.spans()
    segments.paths[2].unlink()
    assert read(spans)[0] == []
    assert open_descriptors() == before
