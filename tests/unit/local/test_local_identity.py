"""A damaged `meta.properties`: a repair makes that of a local log anew, and never takes a broker's directory for one."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import pytest
from local_kit import PATH, open_simulated, values
from power_cuts import Once
from test_local_repair import FOLDER, killed, write_file

import replog_checkpoints as checkpoints
from replog.errors import CorruptCheckpointError, ForeignDirectoryError, ReplogError
from replog.log import LogConfig, LogDirectory
from replog.log.directories.identity import LOCAL_CLUSTER_ID
from replog.log.repair.repair import repair_log
from replog.records import encode_batch
from replog.testing import SimulatedFileSystem

META = f"{PATH}/meta.properties"
T0 = 1_700_000_000_000


def stopped(*, is_clean: bool) -> tuple[SimulatedFileSystem, list[bytes | None]]:
    """A local log in two segments, and what is in it."""
    fs, _ = killed(is_checkpointed=False, records=6)
    with open_simulated(fs.copied()) as log:
        found = values(log)
    if is_clean:
        open_simulated(fs).close()
    return fs, found


def flips(data: bytes) -> Iterator[bytes]:
    for position in range(len(data)):
        for bit in range(8):
            yield data[:position] + bytes([data[position] ^ 1 << bit]) + data[position + 1 :]


def some_flips(data: bytes) -> Iterator[bytes]:
    """One bit in each byte, another one in the next."""
    return (changed for number, changed in enumerate(flips(data)) if number % 8 == number // 8 % 8)


def other_flips(data: bytes) -> Iterator[bytes]:
    """Another bit in each byte: of digits and letters one of the low ones, so that most are legible."""
    return (changed for number, changed in enumerate(flips(data)) if number % 8 == (number // 8 + 1) % 4)


def cuts(data: bytes) -> Iterator[bytes]:
    yield from (data[:size] for size in range(len(data)))


def zeros(data: bytes) -> Iterator[bytes]:
    yield from (data[:size] + bytes(len(data) - size) for size in range(len(data)))
    yield data + bytes(100)


def mended(fs: SimulatedFileSystem) -> None:
    """Does what the error says, where there is one."""
    try:
        open_simulated(fs).close()
    except CorruptCheckpointError as error:
        told, path, before = str(error), error.path, fs.image()
        assert path == META
        assert f"`replog log repair {FOLDER}` makes it anew" in told
        report = repair_log(fs, FOLDER, accept_loss=False, now_ms=1)
        assert ([finding.path for finding in report.found], report.left, report.given_up) == ([META], (), ())
        after = fs.image()
        assert {path for path in before if before[path] != after[path]} <= {META}


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("damage", "is_clean"),
    [
        pytest.param(flips, True, marks=pytest.mark.campaign),
        (other_flips, True),
        (some_flips, False),
        *((damage, stop) for damage in (cuts, zeros) for stop in (False, True)),
    ],
)
def test_a_damaged_identity_is_made_anew(damage: Callable[[bytes], Iterator[bytes]], *, is_clean: bool) -> None:
    """Note: what is legible of it has nothing to do with how the log was stopped: some bits after each, all in campaigns."""
    pristine, wanted = stopped(is_clean=is_clean)
    data = pristine.image()[META]
    mended_disks = Once()
    for changed in damage(data):
        fs = pristine.copied()
        write_file(fs, META, changed)
        try:
            mended(fs)
        except ForeignDirectoryError as error:  # a later version's, for all that is known
            told = str(error)
            assert damage in {flips, some_flips, other_flips}
            assert any(f"replog.format={digit})" in told for digit in "359")
            continue
        if mended_disks.is_first(fs):
            with open_simulated(fs) as log:
                assert values(log) == wanted


def test_what_is_legible_of_the_directory_id_is_kept() -> None:
    fs, _ = stopped(is_clean=True)
    before = checkpoints.read_meta_properties(fs, META)
    write_file(fs, META, fs.image()[META].replace(b"node.id=0", b"node.id=8"))
    mended(fs)
    assert checkpoints.read_meta_properties(fs, META) == before


@pytest.mark.parametrize("is_clean", [False, True], ids=["killed", "closed"])
def test_a_missing_identity_is_made_anew(*, is_clean: bool) -> None:
    fs, wanted = stopped(is_clean=is_clean)
    fs.remove(META)
    mended(fs)
    with open_simulated(fs) as log:
        assert values(log) == wanted


def broker(topics: tuple[str, ...] = ("log",), *, is_closed: bool = True) -> SimulatedFileSystem:
    """The log directory of a broker whose topics happen to be called as those of `open_log`."""
    fs = SimulatedFileSystem()
    directory = LogDirectory.open(fs, PATH, cluster_id="a" * len(LOCAL_CLUSTER_ID), node_id=0, now_ms=T0)
    for topic in topics:
        log = directory.open_log(topic, 0, directory.meta.directory_id, LogConfig(), now_ms=T0)
        log.append_as_leader(encode_batch([(T0, None, b"v", ())]), leader_epoch=0, now_ms=T0)
        log.flush()
    directory.checkpoint_recovery_points()
    if is_closed:
        directory.close(now_ms=T0, broker_epoch=7)
    fs.kill()
    return fs


@pytest.mark.parametrize("damage", [pytest.param(flips, marks=pytest.mark.campaign), some_flips, other_flips, cuts])
def test_the_identity_of_a_broker_is_never_touched(damage: Callable[[bytes], Iterator[bytes]]) -> None:
    for fs in (broker(), broker(("log", "other"), is_closed=False)):
        data = fs.image()[META]
        for changed in damage(data):
            damaged = fs.copied()
            write_file(damaged, META, changed)
            with contextlib.suppress(ForeignDirectoryError):  # a digit that may be that of a later version
                repair_log(damaged, FOLDER, accept_loss=False, now_ms=1)
            assert damaged.image()[META] == changed


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b"node.id=0", b"node.id=33"),
        (b"replog-open-log", b"replog-open-lag-2"),
        (b"replog-open-log", b"MkU3OEVBNTcwNTJ"),
        (b"cluster.id=replog-open-log\nreplog.format=1\n", b"clusters=2\n"),
    ],
)
def test_what_may_be_anothers_is_left_alone(old: bytes, new: bytes) -> None:
    fs, _ = stopped(is_clean=False)
    text = fs.image()[META].replace(old, new)
    write_file(fs, META, text)
    assert repair_log(fs, FOLDER, accept_loss=False, now_ms=1).found == ()
    assert fs.image()[META] == text
    with pytest.raises(ReplogError, match="Nothing was changed: "):
        open_simulated(fs)


@pytest.mark.parametrize("later", [b"2", b"3", b"9"])
def test_a_folder_of_a_later_version_is_neither_repaired_nor_opened(later: bytes) -> None:
    fs, _ = stopped(is_clean=False)
    text = fs.image()[META].replace(b"replog.format=1", b"replog.format=" + later)
    write_file(fs, META, text)
    before = fs.image()
    for use in (open_simulated, lambda it: repair_log(it, FOLDER, accept_loss=False, now_ms=1)):
        with pytest.raises(ForeignDirectoryError, match=r"put replog\.format=1 back into .*meta\.properties"):
            use(fs)
    assert fs.image() == before | {path: b"" for path in fs.image() if path.endswith(".lock")}


def test_a_partition_folder_that_stands_alone_gets_no_identity() -> None:
    pristine, _ = stopped(is_clean=True)
    fs = SimulatedFileSystem()
    fs.make_dirs(FOLDER)
    for path, data in pristine.image().items():
        if path.startswith(f"{FOLDER}/") and not path.endswith("/"):
            write_file(fs, path, data)
    repair_log(fs, FOLDER, accept_loss=False, now_ms=1)
    assert META not in fs.image()
