"""`replog metadata shell`: the metadata of a node's files, at any offset, and of a running cluster."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from cli_kit import Replog
from metadata_kit import FLIGHTS, STORY_END, TAXIS, MetadataDirectory
from msgspec.structs import replace

from replog.cli import common
from replog.cli.errors import CommandFailedError, UsageError
from replog.cli.metadata.log import MetadataLogFiles
from replog.cli.metadata.shell import MetadataShell
from replog.cli.metadata.sources import LiveSource, OfflineSource
from replog.controller.requests import ConfigEntry
from replog.errors import OffsetOutOfRangeError
from replog.metadata.records import NoOpRecord, PartitionChangeRecord, RemoveTopicRecord
from replog.rpc.metadata_messages import BrokerInfo, ClusterMetadata, PartitionInfo, TopicInfo


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[MetadataDirectory]:
    made = MetadataDirectory(tmp_path)
    made.story()
    yield made
    made.close()


def shell_of(directory: MetadataDirectory, at: int | None = None) -> MetadataShell:
    return MetadataShell(OfflineSource(directory.path), at, pause=lambda: None)


def answers(shell: MetadataShell, line: str) -> list[str]:
    return list(shell.answer(line))


def tree_files(path: Path) -> dict[str, bytes]:
    return {str(file): file.read_bytes() for file in sorted(path.rglob("*")) if file.is_file()}


# One command


def test_one_shot(replog: Replog, directory: MetadataDirectory) -> None:
    before = tree_files(directory.path)
    done = replog("metadata", "shell", "--data-dir", directory.path, "ls", "/topics/by-name/flights")
    assert (done.status, done.out, done.err) == (0, "topic\n0\n1\n", "")
    done = replog("metadata", "shell", "--data-dir", directory.path, "cat", "/topics/by-name/flights/0")
    assert json.loads(done.out) == {
        "replicas": [1, 2], "isr": [2], "leader": 2, "leader_epoch": 1, "partition_epoch": 1, "elr": [],
        "last_known_elr": [], "leader_recovery_state": "recovered", "adding_replicas": [], "removing_replicas": [],
        "forked_topic_id": None, "forked_end_offset": 0,
    }  # fmt: skip
    done = replog("metadata", "shell", "--data-dir", directory.log_path, "--at", 8, "find", "/topics", "leader=1")
    assert [line.split()[0] for line in done.out.splitlines()] == ["/topics/by-name/flights/0"]
    assert tree_files(directory.path) == before


@pytest.mark.parametrize(
    ("words", "status", "reason"),
    [
        (["cat", "/topics"], 1, "/topics is a folder"),
        (["cat", "/brokers/9"], 1, "there is no /brokers/9 at offset 11"),
        (["cat"], 2, "cat needs a PATH"),
        (["find", "/nowhere/", "x"], 1, "there is no /nowhere"),
        (["tree", "/", "deep"], 2, "DEPTH deep is not a number"),
        (["diff", "3"], 2, "two offsets as A..B"),
        (["diff", "3..x"], 2, "B x is not a number"),
        (["diff", "3..99"], 1, "images from offset 0 to 11, not at 99"),
        (["rm", "/"], 2, "there is no command rm"),
        (["cd", "/brokers/1"], 1, "is not a folder"),
    ],
)
def test_what_cannot_be_done_is_said_in_one_line(
    replog: Replog, directory: MetadataDirectory, words: list[str], status: int, reason: str
) -> None:
    done = replog("metadata", "shell", "--data-dir", directory.path, *words)
    assert (done.status, done.out) == (status, "")
    assert done.err.startswith("error: ")
    assert reason in done.err
    assert done.err.count("\n") == 1


def test_options_that_do_not_fit_together(replog: Replog, tmp_path: Path) -> None:
    assert replog("metadata", "shell", "--data-dir", tmp_path, "ls").status == 2
    assert replog("metadata", "shell", "--data-dir", tmp_path, "--bootstrap", "x:1", "ls").status == 2
    done = replog("metadata", "shell", "--at", 3, "ls")
    assert (done.status, "--at needs --data-dir" in done.err) == (2, True)


# Looking around


def test_the_tree(directory: MetadataDirectory) -> None:
    shell = shell_of(directory)
    assert answers(shell, "ls") == [
        "brokers/", "controllers/", "drained-brokers", "topics/", "configs/", "features/", "acls/", "users/", "delegation-tokens/",
        "producer-ids", "quorum/", "local",
    ]  # fmt: skip
    assert answers(shell, "ls /brokers /configs") == ["1", "2", "topic/", "broker/"]
    assert answers(shell, "tree /configs") == [
        "/configs/",
        "  topic/",
        '    flights {"retention.ms": "1000"}',
        "  broker/",
    ]
    assert answers(shell, "tree /topics 1") == ["/topics/", "  by-name/ (2)", "  by-id/ (2)"]
    assert answers(shell, f"cat /topics/by-id/{TAXIS}/topic") == [json.dumps({"name": "taxis", "topic_id": str(TAXIS)})]
    assert answers(shell, "ls /topics/by-name/nothing/..") == ["flights/", "taxis/"]
    assert json.loads(answers(shell, "cat /features/metadata.version")[0]) == {"level": 1}


def test_find(directory: MetadataDirectory) -> None:
    shell = shell_of(directory)

    def found(line: str) -> list[str]:
        return [answer.split()[0] for answer in answers(shell, line)]

    assert found("find taxi*") == ["/topics/by-name/taxis/topic", "/topics/by-name/taxis/0"]
    assert found("find leader=2") == ["/topics/by-name/flights/0", "/topics/by-name/flights/1"]
    assert found("find /topics/by-name isr=1 leader=1") == ["/topics/by-name/taxis/0"]
    assert found("find / fenced=false") == ["/brokers/1", "/brokers/2"]
    assert found(f"find /topics/by-id/{FLIGHTS} 0") == [f"/topics/by-id/{FLIGHTS}/0"]
    assert found("find nothing=1") == []


def test_where_one_is(directory: MetadataDirectory) -> None:
    shell = shell_of(directory)
    assert answers(shell, "cd /topics/by-name") == []
    assert answers(shell, "ls") == ["flights/", "taxis/"]
    assert answers(shell, "cd flights") == []
    assert (answers(shell, "pwd"), shell.folder) == (["/topics/by-name/flights"], "/topics/by-name/flights")
    assert len(answers(shell, "cat 0 ../taxis/0")) == 2
    assert answers(shell, "cd") == []
    assert (shell.folder, answers(shell, ""), answers(shell, "# nothing")) == ("/", [], [])
    assert "diff A..B" in answers(shell, "help")[0]
    with pytest.raises(UsageError):
        answers(shell, "cat 'unclosed")


def test_the_node_itself(directory: MetadataDirectory) -> None:
    snapshot = directory.snapshot()
    shell = shell_of(directory)
    local = json.loads(answers(shell, "cat /local")[0])
    assert (local["cluster_id"], local["node_id"], local["image_offset"]) == ("a-cluster", 1, STORY_END)
    assert json.loads(answers(shell, "cat /quorum/state")[0])["leader_epoch"] == 1
    assert json.loads(answers(shell, "cat /quorum/log")[0])["end_offset"] == STORY_END
    assert answers(shell, "ls /quorum/snapshots") == [snapshot.stem]
    assert json.loads(answers(shell, f"cat /quorum/snapshots/{snapshot.stem}")[0])["end_offset"] == STORY_END
    with pytest.raises(CommandFailedError):
        answers(shell, "cat /quorum/snapshots/x")


def test_voters_are_those_of_the_newest_record(directory: MetadataDirectory) -> None:
    assert json.loads(answers(shell_of(directory), "cat /quorum/voters")[0]) == {"voters": [1]}


# Through time


def test_every_offset_has_its_image(directory: MetadataDirectory) -> None:
    shell = shell_of(directory)
    assert answers(shell, "at 4") == ["at offset 4"]
    assert answers(shell, "ls /topics/by-name") == []
    assert answers(shell, "at 6") == ["at offset 6"]  # within a batch
    assert answers(shell, "ls /topics/by-name/flights") == ["topic", "0"]
    with pytest.raises(OffsetOutOfRangeError):
        answers(shell, "at 12")
    assert shell.offset == 6
    assert answers(shell, "at") == ["at offset 11"]


def test_diff(directory: MetadataDirectory) -> None:
    shell = shell_of(directory)
    assert answers(shell, "diff 7..9") == [
        "~ /topics/by-name/flights/0 isr: [1, 2] -> [2], leader: 1 -> 2, leader_epoch: 0 -> 1, partition_epoch: 0 -> 1",
        '+ /configs/topic/flights {"retention.ms": "1000"}',
    ]
    assert [line[:30] for line in answers(shell, "diff 9.. /topics/by-name")] == [
        "+ /topics/by-name/taxis/topic ",
        '+ /topics/by-name/taxis/0 {"re',
    ]
    assert [line[:26] for line in answers(shell, "diff 11..9")] == [
        "- /topics/by-name/taxis/to",
        "- /topics/by-name/taxis/0 ",
    ]
    assert answers(shell, "diff 5..5") == []
    assert answers(shell, "diff ..1") == []


def test_images_come_from_snapshots_once_the_log_is_cut(tmp_path: Path) -> None:
    directory = MetadataDirectory(tmp_path, segment_bytes=256)
    directory.story()
    directory.snapshot()
    directory.append(RemoveTopicRecord(TAXIS))
    directory.append(NoOpRecord())
    directory.close()
    whole = MetadataLogFiles(tmp_path)
    directory.cut_below(STORY_END)
    assert len(list(directory.log_path.glob("*.log"))) < 4
    cut = MetadataLogFiles(tmp_path)
    assert (cut.first_offset, cut.log_start_offset, cut.end_offset) == (STORY_END, STORY_END, STORY_END + 2)
    for offset in range(STORY_END, STORY_END + 3):
        assert cut.image_at(offset) == whole.image_at(offset)
    with pytest.raises(OffsetOutOfRangeError):
        cut.image_at(STORY_END - 1)


def test_a_hole_between_snapshot_and_log_is_no_image(tmp_path: Path) -> None:
    directory = MetadataDirectory(tmp_path)
    directory.story()
    directory.snapshot(end_offset=40)  # fetched; the crash came before the log was emptied
    directory.close()
    files = MetadataLogFiles(tmp_path)
    assert files.image_at(40).end_offset == 40
    assert files.image_at(STORY_END).end_offset == STORY_END
    with pytest.raises(OffsetOutOfRangeError, match="there is no image at 20"):
        files.image_at(20)


def test_watch_shows_what_a_running_node_appends(directory: MetadataDirectory) -> None:
    changes = [PartitionChangeRecord(0, FLIGHTS, leader=-1, isr=()), PartitionChangeRecord(1, FLIGHTS, isr=(2,))]
    steps = iter([lambda: None, *(partial(directory.append, change) for change in changes)])

    def pause() -> None:
        next(steps)()

    watching = MetadataShell(OfflineSource(directory.path), pause=pause).answer("watch /topics")
    assert next(watching).startswith("@12 ~ /topics/by-name/flights/0 isr: [2] -> [], leader: 2 -> -1")
    assert next(watching) == "@13 ~ /topics/by-name/flights/1 isr: [2, 1] -> [2], partition_epoch: 0 -> 1"


# At a prompt


def test_lines_from_a_pipe(replog: Replog, directory: MetadataDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("cd /brokers\nls\nexit\nls\n"))
    done = replog("metadata", "shell", "--data-dir", directory.path)
    assert (done.status, done.out, done.err) == (0, "1\n2\n", "")
    monkeypatch.setattr("sys.stdin", io.StringIO("cat /x\nls\n"))
    done = replog("metadata", "shell", "--data-dir", directory.path)
    assert (done.status, done.out) == (1, "")


def test_a_person_may_err(replog: Replog, directory: MetadataDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    stdin = io.StringIO("cat /x\nls /brokers\n")
    monkeypatch.setattr(stdin, "isatty", lambda: True)
    monkeypatch.setattr("sys.stdin", stdin)
    done = replog("metadata", "shell", "--data-dir", directory.path)
    assert done.status == 0
    assert done.out == "/ @11> / @11> 1\n2\n/ @11> "
    assert done.err == "error: there is no /x at offset 11\n"


# A running cluster

LIVE = ClusterMetadata(
    "a-cluster",
    metadata_offset=70,
    controller_id=1,
    controller_epoch=3,
    brokers=(BrokerInfo(1, "localhost", 9000, 5, fenced=False),),
    topics=(
        TopicInfo("flights", FLIGHTS, (PartitionInfo(0, 1, 0, 0, (1, 2), (1,)),), (ConfigEntry("retention.ms", "5"),)),
    ),
)


@pytest.fixture
def live(monkeypatch: pytest.MonkeyPatch) -> list[ClusterMetadata]:
    """What the cluster answers, one after another, the last one again and again."""
    answers_to_come = [LIVE]

    def ask(_bootstrap_servers: str, _work: object) -> ClusterMetadata:
        return answers_to_come.pop(0) if len(answers_to_come) > 1 else answers_to_come[0]

    monkeypatch.setattr(common, "ask", ask)
    return answers_to_come


def test_a_running_cluster(live: list[ClusterMetadata], replog: Replog) -> None:
    done = replog("metadata", "shell", "-b", "localhost:1", "tree", "/")
    assert done.status == 0
    assert (
        '      flights {"retention.ms": "5"}' in done.out.splitlines()
        or '    flights {"retention.ms": "5"}' in done.out
    )
    shell = MetadataShell(LiveSource("localhost:1"))
    assert answers(shell, "ls /topics/by-name/flights") == ["topic", "0"]
    assert json.loads(answers(shell, "cat /topics/by-name/flights/0")[0])["isr"] == [1]
    assert shell.offset == 70


@pytest.mark.parametrize("line", ["diff 1..2", "at 3"])
def test_a_running_cluster_has_no_past(live: list[ClusterMetadata], line: str) -> None:
    with pytest.raises(UsageError, match="--data-dir"):
        answers(MetadataShell(LiveSource("localhost:1")), line)


def test_what_a_running_cluster_does_not_show_is_said(live: list[ClusterMetadata]) -> None:
    with pytest.raises(CommandFailedError, match="use --data-dir for more"):
        answers(MetadataShell(LiveSource("localhost:1")), "ls /features")


def test_watching_a_running_cluster(live: list[ClusterMetadata]) -> None:
    live += [LIVE, replace(LIVE, metadata_offset=71, topics=())]
    watching = MetadataShell(LiveSource("localhost:1"), pause=lambda: None).answer("watch /topics/by-name")
    assert next(watching).startswith("@71 - /topics/by-name/flights/topic")


def test_nobody_listens(replog: Replog) -> None:
    for option in ("--bootstrap", "--bootstrap-servers", "-b"):
        done = replog("metadata", "shell", option, "127.0.0.1:1", "ls")
        assert done.status == 1
        assert done.err.startswith("error: nothing listens on 127.0.0.1:1")
