"""What changed in a log directory between an orderly stop and the next start: nothing of it is taken for what the stop left."""

from __future__ import annotations

import random
from collections.abc import Callable
from uuid import UUID

import pytest
from log_test_kit import T0, TINY, append, content, read_file, write_file

import replog_checkpoints as checkpoints
from replog.errors import (
    CorruptCheckpointError,
    CorruptRecordError,
    ReplogError,
    StorageError,
    UnknownTopicOrPartitionError,
)
from replog.log import LogDirectory, LogManager
from replog.log.directories.creation import NewReplica
from replog.log.directories.directory_state import METADATA_TOPIC
from replog.log.recovery.offset_witness import GIVEN_UP_FILE
from replog.log.repair.lost_folder import lost_folder
from replog.log.repair.repair import repair_log
from replog.log.repair.verification import LogVerifier
from replog.testing.simulated_faults import PowerCutError
from replog.testing.simulated_filesystem import SimulatedFileSystem

TOPIC, OTHER = UUID(int=77), UUID(int=78)
FOLDER = "/data/t-0"
POINTS = "/data/recovery-point-offset-checkpoint"
MARKER = "/data/.kafka_cleanshutdown"
IDENTITY = f"/data/{checkpoints.META_PROPERTIES_FILE}"
EPOCH, UNKNOWN = 42, -1


def opened(fs: SimulatedFileSystem) -> LogDirectory:
    return LogDirectory.open(fs, "/data", cluster_id="c1", node_id=1, now_ms=T0, config=TINY)


def stopped(*, in_order: bool = True) -> SimulatedFileSystem:
    """Two replicas of one topic, of 20 and 12 records, and one of another, all flushed."""
    fs = SimulatedFileSystem()
    directory = opened(fs)
    for topic, partition, topic_id, count in (("t", 0, TOPIC, 20), ("t", 1, TOPIC, 12), ("u", 0, OTHER, 20)):
        append(directory.open_log(topic, partition, topic_id, now_ms=T0), count)
    if in_order:
        directory.close(now_ms=T0, broker_epoch=EPOCH)
    else:
        for log in directory.logs.values():
            log.flush()
        directory.checkpoint_recovery_points()
        fs.kill()
    return fs


def exchange(fs: SimulatedFileSystem, one: str, other: str) -> None:
    fs.rename(one, "/data/between")
    fs.rename(other, one)
    fs.rename("/data/between", other)


def remove_folder(fs: SimulatedFileSystem) -> None:
    fs.remove_tree(FOLDER)


def empty_folder(fs: SimulatedFileSystem) -> None:
    for name in fs.list_dir(FOLDER):
        fs.remove(f"{FOLDER}/{name}")


def remove_a_segment(fs: SimulatedFileSystem) -> None:
    fs.remove(f"{FOLDER}/{sorted(name for name in fs.list_dir(FOLDER) if name.endswith('.log'))[1]}")


def exchange_within_the_topic(fs: SimulatedFileSystem) -> None:
    exchange(fs, FOLDER, "/data/t-1")


def exchange_folders_of_an_older_replog(fs: SimulatedFileSystem) -> None:
    for name in ("t-0", "t-1"):
        path = f"/data/{name}/{checkpoints.PARTITION_METADATA_FILE}"
        checkpoints.write_partition_metadata(fs, path, checkpoints.PartitionMetadata(TOPIC))
    exchange_within_the_topic(fs)


def lower_recovery_point(fs: SimulatedFileSystem) -> None:
    write_file(fs, POINTS, read_file(fs, POINTS).replace(b"t 0 20", b"t 0 17"))


def remove_recovery_point(fs: SimulatedFileSystem) -> None:
    points = checkpoints.read_offset_checkpoint(fs, POINTS) or {}
    checkpoints.write_offset_checkpoint(fs, POINTS, {key: point for key, point in points.items() if key != ("t", 0)})


def test_what_an_orderly_stop_left_is_believed() -> None:
    directory = opened(stopped())
    assert directory.previous_broker_epoch == EPOCH
    assert not directory.offline


@pytest.mark.parametrize(
    "change", [remove_folder, exchange_folders_of_an_older_replog, lower_recovery_point, remove_recovery_point]
)
def test_a_stop_whose_folders_have_changed_since_was_none_in_order(
    change: Callable[[SimulatedFileSystem], None], caplog: pytest.LogCaptureFixture
) -> None:
    fs = stopped()
    change(fs)
    assert opened(fs).previous_broker_epoch == UNKNOWN
    assert "since the last stop, which was in order" in caplog.text
    assert "t-" in caplog.text


@pytest.mark.parametrize("change", [remove_folder, empty_folder, remove_a_segment, exchange_folders_of_an_older_replog])
def test_records_that_are_gone_take_their_replica_offline(change: Callable[[SimulatedFileSystem], None]) -> None:
    fs = stopped()
    change(fs)
    directory = opened(fs)
    found = directory.offline["t", 0]
    assert isinstance(found, CorruptRecordError)
    assert "--accept-loss" in str(found)
    with pytest.raises(CorruptRecordError):
        directory.open_log("t", 0, TOPIC, now_ms=T0)
    directory.close(now_ms=T0, broker_epoch=EPOCH + 1)
    assert not fs.exists(MARKER)  # the damage must be found again
    assert ("t", 0) in opened(fs).offline


@pytest.mark.parametrize("other", ["t-1", "u-0"])
def test_the_folder_of_another_partition_is_not_this_ones(other: str) -> None:
    fs = stopped()
    exchange(fs, FOLDER, f"/data/{other}")
    before = fs.image()
    directory = opened(fs)
    found = directory.offline["t", 0]
    assert isinstance(found, CorruptCheckpointError)
    assert f"this is the folder of {other}, and stands in the place of t-0" in str(found)
    assert directory.topic_id("t", 0) is None  # nobody takes it for what an older topic of that name has left
    directory.release()
    with pytest.raises(CorruptCheckpointError, match="give each folder its name back"):
        repair_log(fs, FOLDER, accept_loss=True, now_ms=T0)
    assert {path: data for path, data in fs.image().items() if path.startswith(FOLDER)} == {
        path: data for path, data in before.items() if path.startswith(FOLDER)
    }
    exchange(fs, FOLDER, f"/data/{other}")
    assert not opened(fs).offline


@pytest.mark.parametrize("written_by", ["Kafka", "replog"])
def test_a_folder_says_whose_it_is_once_it_was_open(written_by: str) -> None:
    fs = stopped()
    path = f"{FOLDER}/{checkpoints.PARTITION_METADATA_FILE}"
    if written_by == "Kafka":
        checkpoints.write_partition_metadata(fs, path, checkpoints.PartitionMetadata(TOPIC))
    opened(fs).release()
    assert checkpoints.read_partition_metadata(fs, path) == checkpoints.PartitionMetadata(TOPIC, "t-0")


def test_a_flipped_id_makes_no_other_directory() -> None:
    """A broker told the controller of other directories: partitions whose only replica it had got no leader."""
    fs = stopped()
    at = read_file(fs, IDENTITY).index(b"directory.id=") + 20
    fs.flip_bit(IDENTITY, at, 1)
    with pytest.raises(CorruptCheckpointError, match=r"replog\.checksum does not fit .* restore the file"):
        opened(fs)
    fs.flip_bit(IDENTITY, at, 1)
    assert opened(fs).previous_broker_epoch == EPOCH


def test_an_identity_of_an_older_replog_gets_its_checksum() -> None:
    fs = stopped()
    lines = read_file(fs, IDENTITY).splitlines(keepends=True)
    write_file(fs, IDENTITY, b"".join(line for line in lines if b"checksum" not in line))
    opened(fs).release()
    assert read_file(fs, IDENTITY) == b"".join(lines)


def test_a_copy_elsewhere_may_have_any_name() -> None:
    fs = stopped()
    fs.make_dirs("/elsewhere")
    for place, is_found in (("/elsewhere/copy-1", False), ("/data/copy-1", True)):
        fs.rename(FOLDER if is_found is False else "/elsewhere/copy-1", place)
        found = [finding.reason for finding in LogVerifier(fs, place, None).run()]
        assert any("this is the folder of t-0" in reason for reason in found) == is_found


def test_a_lost_folder_is_told_after_a_crash_too() -> None:
    fs = stopped(in_order=False)
    remove_folder(fs)
    assert list(opened(fs).offline) == [("t", 0)]


def test_a_replica_without_a_record_was_not_lost() -> None:
    fs = SimulatedFileSystem()
    directory = opened(fs)
    directory.open_log("t", 0, TOPIC, now_ms=T0)
    directory.close(now_ms=T0, broker_epoch=EPOCH)
    remove_folder(fs)
    directory = opened(fs)
    assert not directory.offline
    assert directory.previous_broker_epoch == EPOCH


@pytest.mark.parametrize("suffix", ["delete", "stray"])
def test_a_retirement_that_a_crash_has_interrupted_is_no_loss(suffix: str) -> None:
    fs = stopped(in_order=False)
    fs.rename(FOLDER, f"{FOLDER}.{UUID(int=5).hex}-{suffix}")
    directory = opened(fs)
    assert not directory.offline
    assert ("t", 0) not in directory.recovery_points


@pytest.mark.parametrize("is_kept", [False, True])
@pytest.mark.parametrize("topic", ["t", "t" * 249])
def test_a_retirement_is_no_loss_when_the_next_start_is_interrupted_too(topic: str, *, is_kept: bool) -> None:
    fs = SimulatedFileSystem()
    directory = opened(fs)
    append(directory.open_log(topic, 0, TOPIC, now_ms=T0), 20)
    for log in directory.logs.values():
        log.flush()
    directory.checkpoint_recovery_points()
    retired = directory.retire((topic, 0), is_kept=is_kept)
    fs.rename(retired.folder, retired.target)  # the name of a long topic is cut
    fs.kill()
    directory = LogDirectory.lock(fs, "/data", cluster_id="c1", node_id=1, config=TINY)
    assert directory.begin_load() == []
    assert not directory.offline
    fs.kill()  # before its end
    assert not opened(fs).offline


def test_a_replica_that_was_made_while_the_stop_began_is_no_change() -> None:
    fs = stopped()
    directory = opened(fs)
    directory.create([NewReplica(("new", 0), TOPIC, TINY, 0)], T0)  # nobody has taken it yet
    directory.close(now_ms=T0, broker_epoch=EPOCH)
    directory = opened(fs)
    assert directory.previous_broker_epoch == EPOCH
    assert directory.logs["new", 0].log_end_offset == 0


def test_what_is_in_another_directory_of_the_node_was_moved() -> None:
    fs = SimulatedFileSystem()

    def both() -> LogManager:
        return LogManager.open(fs, ["/data", "/more"], cluster_id="c1", node_id=1, now_ms=T0, config=TINY)

    manager = both()
    append(manager.open_log("t", 0, TOPIC, now_ms=T0, directory="/data"), 20)
    manager.close(now_ms=T0, broker_epoch=EPOCH)
    fs.rename(FOLDER, "/more/t-0")
    manager = both()
    assert not manager.offline
    assert len(content(manager.logs["t", 0])) == 20


def test_a_lost_replica_can_be_deleted_and_made_again() -> None:
    fs = stopped()
    remove_folder(fs)
    directory = opened(fs)
    assert directory.set_aside_log("t", 0) is None  # there is nothing to keep
    assert ("t", 0) not in directory.recovery_points
    assert directory.open_log("t", 0, TOPIC, now_ms=T0).log_end_offset == 0
    directory.delete_log("t", 0)
    with pytest.raises(UnknownTopicOrPartitionError):
        directory.delete_log("t", 0)


# ---- a repair that gives something up ------------------------------------------------------------------------------------


def test_a_repair_that_gives_records_up_withdraws_the_orderly_stop() -> None:
    fs = stopped()
    remove_a_segment(fs)
    report = repair_log(fs, FOLDER, accept_loss=True, now_ms=T0)
    assert report.offsets_given_up
    assert report.withdraws_clean_stop
    directory = opened(fs)
    assert not directory.offline
    assert (directory.was_clean, directory.previous_broker_epoch) == (False, UNKNOWN)


def test_a_repair_that_gives_nothing_up_leaves_it() -> None:
    fs = stopped()
    fs.remove(f"{FOLDER}/leader-epoch-checkpoint")
    assert not repair_log(fs, FOLDER, accept_loss=True, now_ms=T0).withdraws_clean_stop
    assert fs.exists(MARKER)
    assert not opened(fs).gave_up(("t", 0))


def give_records_up(fs: SimulatedFileSystem) -> None:
    remove_a_segment(fs)
    repair_log(fs, FOLDER, accept_loss=True, now_ms=T0)


def give_the_folder_up(fs: SimulatedFileSystem) -> None:
    remove_folder(fs)
    repair_log(fs, FOLDER, accept_loss=True, now_ms=T0)


@pytest.mark.parametrize("give_up", [give_records_up, give_the_folder_up])
def test_what_a_repair_gave_up_is_known_until_it_is_forgotten(give_up: Callable[[SimulatedFileSystem], None]) -> None:
    fs = stopped()
    give_up(fs)
    for _ in range(2):
        directory = opened(fs)
        directory.checkpoint_recovery_points()
        assert directory.gave_up(("t", 0))
        assert not directory.gave_up(("t", 1))
        directory.close(now_ms=T0, broker_epoch=EPOCH)
    directory = opened(fs)
    directory.forget_given_up(("t", 0))
    directory.release()
    fs.crash(random.Random(1))
    assert not opened(fs).gave_up(("t", 0))


def test_no_flipped_bit_makes_a_replica_whole_again() -> None:
    fs = stopped()
    give_records_up(fs)
    path = f"/data/{GIVEN_UP_FILE}"
    for at in range(8 * len(read_file(fs, path))):
        fs.flip_bit(path, at // 8, at % 8)
        try:
            directory = opened(fs)
        except CorruptCheckpointError:
            pass
        else:
            assert directory.gave_up(("t", 0)), at
            directory.release()
        fs.flip_bit(path, at // 8, at % 8)


def test_a_note_that_is_gone_counts_by_its_witness() -> None:
    """The repaired replica led, and the others were cut to what it had."""
    fs = stopped()
    give_records_up(fs)
    fs.remove(f"/data/{GIVEN_UP_FILE}")
    directory = opened(fs)
    assert directory.gave_up(("t", 0))
    assert not directory.gave_up(("t", 1))
    directory.forget_given_up(("t", 0))
    directory.release()
    assert not opened(fs).gave_up(("t", 0))


def test_a_topic_that_is_made_again_gave_nothing_up() -> None:
    fs = stopped()
    give_records_up(fs)
    directory = opened(fs)
    directory.delete_log("t", 0)
    directory.open_log("t", 0, OTHER, now_ms=T0)
    assert not directory.gave_up(("t", 0))


def test_a_repair_of_records_that_a_power_cut_interrupts_has_given_nothing_up_or_says_so() -> None:
    for step in range(1, 100):
        fs = stopped()
        fs.flip_bit(f"{FOLDER}/{0:020d}.log", 100)
        for path in fs.image():
            fs.sync_dir(path.rpartition("/")[0])
        fs.faults.cut_power_after(step)
        try:
            repair_log(fs, FOLDER, accept_loss=True, now_ms=T0)
        except (PowerCutError, StorageError):
            fs.crash(random.Random(step))
        else:
            assert step > 5
            return
        directory = opened(fs)
        assert directory.gave_up(("t", 0)) or directory.logs["t", 0].log_end_offset == 20, step
        directory.release()
    raise AssertionError("no repair ended")


# ---- a repair of a replica whose folder is gone ----------------------------------------------------------------------------


@pytest.mark.parametrize("change", [remove_folder, empty_folder])
def test_a_lost_replica_is_given_up_only_where_that_is_accepted(change: Callable[[SimulatedFileSystem], None]) -> None:
    fs = stopped()
    change(fs)
    with pytest.raises(CorruptRecordError, match="--accept-loss"):
        repair_log(fs, FOLDER, accept_loss=False, now_ms=T0)
    assert ("t", 0) in opened(fs).offline


@pytest.mark.parametrize("change", [remove_folder, empty_folder])
def test_a_brokers_replica_that_is_given_up_is_as_if_it_were_new(change: Callable[[SimulatedFileSystem], None]) -> None:
    fs = stopped()
    change(fs)
    report = repair_log(fs, FOLDER, accept_loss=True, now_ms=T0)
    assert (report.given_up, report.end_offset, report.withdraws_clean_stop) == (((0, 20),), 0, True)
    directory = opened(fs)
    assert not directory.offline
    assert directory.previous_broker_epoch == UNKNOWN
    assert directory.open_log("t", 0, TOPIC, now_ms=T0).log_end_offset == 0


def rename_segments(fs: SimulatedFileSystem, suffix: str, *of: str) -> None:
    for name in fs.list_dir(FOLDER):
        if name.endswith(of):
            fs.rename(f"{FOLDER}/{name}", f"{FOLDER}/{name}{suffix}")


def test_a_folder_whose_segments_are_about_to_take_their_places_is_not_given_up() -> None:
    """A crash inside of a compaction's swap leaves all records in `.swap` files."""
    fs = stopped()
    rename_segments(fs, ".swap", ".log", ".index", ".timeindex")
    with pytest.raises(StorageError, match="start first"):
        repair_log(fs, FOLDER, accept_loss=True, now_ms=T0)
    assert len(content(opened(fs).logs["t", 0])) == 20


def test_bytes_that_were_cut_outlive_a_repair_that_gives_up_the_rest() -> None:
    fs = stopped()
    rename_segments(fs, ".cut-0", ".log")
    kept = {path for path in fs.image() if ".log.cut-" in path}
    repair_log(fs, FOLDER, accept_loss=True, now_ms=T0)
    assert kept <= fs.image().keys()


def test_a_damaged_checkpoint_says_nothing_of_lost_folders() -> None:
    fs = stopped()
    remove_folder(fs)
    write_file(fs, POINTS, b"x")
    assert lost_folder(fs, FOLDER) is None
    with pytest.raises(ReplogError):
        repair_log(fs, FOLDER, accept_loss=True, now_ms=T0)


def test_a_start_inside_a_segment_is_forgotten_with_its_replica() -> None:
    fs = SimulatedFileSystem()
    directory = opened(fs)
    log = directory.open_log("t", 0, TOPIC, now_ms=T0)
    append(log, 20)
    log.flush()
    log.set_log_start_offset(3)
    directory.checkpoint_log_start_offsets()
    directory.close(now_ms=T0, broker_epoch=EPOCH)
    remove_folder(fs)
    assert repair_log(fs, FOLDER, accept_loss=True, now_ms=T0).given_up == ((3, 20),)
    log = opened(fs).open_log("t", 0, TOPIC, now_ms=T0)
    assert (log.log_start_offset, log.log_end_offset) == (0, 0)


def test_a_metadata_log_that_is_given_up_takes_the_id_of_its_directory_with_it() -> None:
    fs = SimulatedFileSystem()
    directory = opened(fs)
    directory.open_log(METADATA_TOPIC, 0, TOPIC, now_ms=T0)  # no record yet, but perhaps a vote
    before = directory.meta.directory_id
    directory.close(now_ms=T0, broker_epoch=EPOCH)
    fs.remove_tree(f"/data/{METADATA_TOPIC}-0")
    directory = opened(fs)
    with pytest.raises(CorruptRecordError, match="must not vote again"):
        directory.open_log(METADATA_TOPIC, 0, TOPIC, now_ms=T0)
    directory.release()
    repair_log(fs, f"/data/{METADATA_TOPIC}-0", accept_loss=True, now_ms=T0)
    directory = opened(fs)
    assert directory.meta.directory_id != before
    assert not directory.offline


def test_a_repair_that_a_power_cut_interrupts_is_repeated() -> None:
    for step in range(1, 100):
        fs = stopped()
        remove_folder(fs)
        fs.sync_dir("/data")
        fs.faults.cut_power_after(step)
        try:
            repair_log(fs, FOLDER, accept_loss=True, now_ms=T0)
        except (PowerCutError, StorageError):
            fs.crash(random.Random(step))
        else:
            assert step > 5
            return
        directory = opened(fs)
        assert directory.previous_broker_epoch == UNKNOWN
        directory.release()
        assert directory.offline or directory.gave_up(("t", 0))
        if directory.offline:
            repair_log(fs, FOLDER, accept_loss=True, now_ms=T0)
        assert not opened(fs).offline
    raise AssertionError("no repair ended")
