"""A log directory that comes back after a start without it: which of two copies of a replica is the older one."""

from __future__ import annotations

from uuid import UUID

import pytest
from log_test_kit import T0, TINY, append

from replog.errors import ForeignDirectoryError, StorageError
from replog.log import LogManager
from replog.log.disk_space import NO_LIMITS
from replog.testing.simulated_faults import Operation, PowerCutError
from replog.testing.simulated_filesystem import SimulatedFileSystem
from replog_checkpoints import MetaProperties

TOPIC, AGAIN = UUID(int=77), UUID(int=78)
PATHS = ("/a", "/b", "/c")


class Node:
    """Three directories, a replica `t-0` with three records in the second."""

    def __init__(self) -> None:
        self.fs = SimulatedFileSystem()
        self.logs = self.start()
        self.write("/b", 3)
        self.stop()

    def start(self, *without: str) -> LogManager:
        """Starts while these directories cannot be read."""
        self.fs.faults.clear()
        for path in without:
            self.fs.faults.fail_always(Operation.OPEN, path_part=f"{path}/meta.properties")
        return self.open()

    def open(self) -> LogManager:
        self.logs = LogManager.open(self.fs, PATHS, cluster_id="c", node_id=1, now_ms=T0, config=TINY, limits=NO_LIMITS)
        return self.logs

    def stop(self) -> None:
        self.logs.close(now_ms=T0, broker_epoch=1)

    def write(self, directory: str, count: int, topic_id: UUID = TOPIC) -> None:
        log = self.logs.open_log("t", 0, topic_id, now_ms=T0, directory=directory)
        append(log, count)
        log.flush()

    def made_anew(self, topic_id: UUID) -> None:
        """In the third directory, while the second is missing."""
        self.start("/b")
        self.write("/c", 5, topic_id)
        self.stop()

    @property
    def found(self) -> tuple[str, UUID | None, int]:
        home = self.logs.home_of("t", 0)
        assert home is not None
        return home.path, self.logs.topic_id("t", 0), self.logs.logs["t", 0].log_end_offset


@pytest.mark.parametrize("topic_id", [TOPIC, AGAIN], ids=["moved away and back", "its topic was created again"])
def test_the_copy_that_was_made_later_stays(topic_id: UUID) -> None:
    node = Node()
    node.made_anew(topic_id)
    logs = node.start()
    assert node.found == ("/c", topic_id, 5)
    (kept,) = logs.set_aside
    assert kept.startswith("/b/t-0.")
    assert kept.endswith("-stray")
    assert node.fs.exists(f"{kept}/00000000000000000000.log")
    node.stop()
    node.start()
    assert (node.found, node.logs.set_aside) == (("/c", topic_id, 5), ())


def test_it_stays_after_several_starts_without_the_other() -> None:
    node = Node()
    node.made_anew(TOPIC)
    for missing in (("/b",), ("/a", "/b"), ("/b",)):
        node.start(*missing)
        node.stop()
    node.start()
    assert node.found == ("/c", TOPIC, 5)


def test_where_each_was_open_without_the_other_nobody_knows() -> None:
    node = Node()
    node.made_anew(TOPIC)
    node.start("/c")
    assert node.found == ("/b", TOPIC, 3)
    node.stop()
    before = node.fs.image()
    with pytest.raises(ForeignDirectoryError, match=r"replica t-0 is in /b and in /c\. Nothing was changed"):
        node.start()
    assert node.fs.image() == before


@pytest.mark.parametrize("topic_id", [TOPIC, AGAIN])
def test_a_crash_at_any_step_of_that_start_changes_nothing_about_it(topic_id: UUID) -> None:
    node = Node()
    node.made_anew(topic_id)
    cuts = 0
    for count in range(200):
        node.fs.faults.clear()
        node.fs.faults.cut_power_after(count)
        try:
            node.open()
        except PowerCutError:
            cuts += 1
            node.fs.kill()
        else:
            break
    else:
        raise AssertionError("it never got to its end")
    assert cuts > 5
    assert node.found == ("/c", topic_id, 5)


def test_what_is_missing_may_come_back() -> None:
    node = Node()
    assert node.start().missing_directories == 0
    node.stop()
    assert node.start("/b").missing_directories == 1
    node.stop()
    assert node.start("/b", "/c").missing_directories == 2
    node.logs.fail_directory("/a", StorageError("burnt"))
    assert node.logs.missing_directories == 3


def test_what_is_missing_when_another_one_comes_back_is_not_counted_on() -> None:
    """The one that is back may hold an older copy of what is in the other."""
    node = Node()
    node.start("/b")
    node.stop()
    assert node.start("/c").missing_directories == 0
    node.stop()
    assert node.start("/c").missing_directories == 1, "these two were open together"


def test_a_directory_that_has_always_been_alone_is_not_changed() -> None:
    """A start that is refused for another reason must leave everything as it was."""
    fs = SimulatedFileSystem()

    def start(*paths: str) -> MetaProperties:
        logs = LogManager.open(fs, paths, cluster_id="c", node_id=1, now_ms=T0, config=TINY, limits=NO_LIMITS)
        logs.close(now_ms=T0, broker_epoch=1)
        return logs.directories["/a"].meta

    assert start("/a").extra == {"replog.format": "1"}
    assert start("/a", "/b").extra["replog.opened.with"].count(",") == 1
    assert start("/a").extra["replog.opened.with"].count(",") == 0, "it knows better now"


def test_a_directory_whose_older_copy_cannot_be_set_aside_is_offline() -> None:
    node = Node()
    node.made_anew(TOPIC)
    node.fs.faults.clear()
    node.fs.faults.fail_next(Operation.RENAME, path_part="/b/t-0")
    node.open()
    assert (list(node.logs.unopened), node.logs.set_aside) == (["/b"], ())
    assert node.found == ("/c", TOPIC, 5)
    node.stop()
    assert len(node.start().set_aside) == 1


def test_a_directory_that_cannot_take_note_is_offline() -> None:
    node = Node()
    node.start("/b")
    node.stop()
    node.fs.faults.clear()
    node.fs.faults.fail_next(Operation.SYNC, path_part="/c/meta.properties")
    node.open()
    assert (list(node.logs.unopened), node.logs.missing_directories) == (["/c"], 0)
    assert node.found == ("/b", TOPIC, 3)
    node.stop()
    assert node.start().missing_directories == 0
