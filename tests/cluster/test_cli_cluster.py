"""The `replog` command as a user runs it, against a cluster that it started itself; what only asks runs in this process."""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO

import pytest
from cli_runs import PATIENCE_S, Done, command, replog, replog_here

pytestmark = pytest.mark.cluster

QUICK = (
    "broker.session.timeout.ms=2000",
    "broker.heartbeat.interval.ms=300",
    "controller.quorum.fetch.timeout.ms=1000",
)


def good(*arguments: object, stdin: str = "") -> str:
    """The output of a command that must succeed without a word on stderr."""
    done = replog(*arguments, stdin=stdin)
    assert (done.status, done.err) == (0, ""), done
    return done.out


def good_here(*arguments: object, stdin: str = "") -> str:
    """The same, without a process of its own."""
    done = replog_here(*arguments, stdin=stdin)
    assert (done.status, done.err) == (0, ""), done
    return done.out


def until(condition: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline_s, "the condition did not come true"
        time.sleep(0.1)


def settings() -> list[str]:
    return [argument for pair in QUICK for argument in ("--set", pair)]


def pids(directory: Path) -> list[int]:
    nodes = json.loads((directory / "cluster.json").read_text())["nodes"]
    return [node["process"]["pid"] for node in nodes if node["process"]]


def ports(directory: Path) -> list[int]:
    return [node["port"] for node in json.loads((directory / "cluster.json").read_text())["nodes"]]


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The directory of a running cluster whose nodes are in the background."""
    directory = tmp_path_factory.mktemp("a cluster") / "c"
    started = good("cluster", "start", "--dir", directory, "--port", 0, *settings())
    assert started.startswith("All 3 nodes run; node ")
    try:
        yield directory
    finally:
        replog("cluster", "kill", "--dir", directory)


@pytest.fixture
def servers(cluster: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The cluster's bootstrap servers, also in the environment of every command."""
    text = ",".join(f"127.0.0.1:{port}" for port in ports(cluster))
    monkeypatch.setenv("REPLOG_BOOTSTRAP_SERVERS", text)
    return text


@pytest.mark.usefixtures("servers")
class TestTopicsAndRecords:
    """Commands for users of a cluster."""

    def test_the_life_of_a_topic(self) -> None:
        created = good("topics", "create", "life", "--partitions", 2, "--replication-factor", 3)
        assert created == "created life: 2 partitions, 3 replicas each\n"
        assert "life" in good("topics", "list").splitlines()
        assert good("topics", "describe", "life").startswith("life: 2 partitions, id ")
        assert good("topics", "describe", "life", "--under-replicated") == "every replica is in sync\n"
        assert good("topics", "delete", "life") == "deleted life\n"
        assert "life" not in good("topics", "list").splitlines()

    def test_records_go_in_and_come_out(self, tmp_path: Path) -> None:
        good_here("topics", "create", "records", "--partitions", 3, "--replication-factor", 3)
        lines = "".join(f"key-{number % 7}:value {number}\n" for number in range(2_000))
        produced = good_here("produce", "records", "--key-separator", ":", stdin=lines)
        assert produced == "2,000 records acknowledged\n"
        consumed = good_here("consume", "records", "--key-separator", ":")
        assert sorted(consumed.splitlines()) == sorted(lines.splitlines())
        for key in range(7):  # in order within a key
            mine = [line for line in lines.splitlines() if line.startswith(f"key-{key}:")]
            assert [line for line in consumed.splitlines() if line.startswith(f"key-{key}:")] == mine
        file = tmp_path / "more"
        file.write_text("last\n")
        assert good_here("produce", "records", "--file", file, "--partition", 2) == "1 record acknowledged\n"
        rows = [json.loads(row) for row in good_here("consume", "records", "--partition", 2, "--json").splitlines()]
        assert (rows[-1]["value"], rows[-1]["key"], rows[-1]["offset"]) == ("last", None, len(rows) - 1)
        tail = good_here("consume", "records", "--partition", 2, "--from", len(rows) - 1)
        assert tail == "last\n"
        assert len(good_here("consume", "records", "--max", 5).splitlines()) == 5
        assert good_here("consume", "records", "--from", "latest") == ""

    def test_a_topic_is_put_where_it_is_wanted(self) -> None:
        created = good_here("topics", "create", "placed", "--assign", "2:1,3:2")
        assert created == "created placed: 2 partitions, 2 replicas each\n"
        (topic,) = map(json.loads, good_here("topics", "describe", "placed", "--json").splitlines())
        assert [each["replicas"] for each in topic["partitions"]] == [[2, 1], [3, 2]]

    def test_follow_waits_for_more(self) -> None:
        good_here("topics", "create", "followed")
        arguments = command("consume", "followed", "--follow", "--from", "earliest")
        with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True) as follower:
            try:
                for value in ("one", "two"):
                    good_here("produce", "followed", stdin=f"{value}\n")
                    assert read_line(follower.stdout) == f"{value}\n"
            finally:
                follower.send_signal(signal.SIGINT)
            assert follower.wait(PATIENCE_S) == 130

    def test_looking_into_the_metadata(self, cluster: Path) -> None:
        """Of the running cluster, and of the files of each node, under its nose."""
        good_here("topics", "create", "looked-at", "--partitions", 2, "--replication-factor", 3)
        assert good_here("metadata", "shell", "ls", "/topics/by-name/looked-at") == "topic\n0\n1\n"
        brokers = good_here("metadata", "shell", "find", "/brokers", "fenced=false").splitlines()
        assert [line.split()[0] for line in brokers] == ["/brokers/1", "/brokers/2", "/brokers/3"]
        for node in (1, 2, 3):
            data_dir = cluster / f"node-{node}" / "data"
            shell = ("metadata", "shell", "--data-dir", data_dir)
            until(lambda shell=shell: "looked-at/" in good_here(*shell, "ls", "/topics/by-name").splitlines())  # type: ignore[misc] # bound now
            assert json.loads(good_here(*shell, "cat", "/topics/by-name/looked-at/0"))["partition_epoch"] >= 0
            assert "+ /topics/by-name/looked-at/topic" in good_here(*shell, "diff", "0..", "/topics/by-name")
            until(lambda data_dir=data_dir: replog_here("metadata", "check", data_dir).status == 0)  # type: ignore[misc] # a batch may be half written

    def test_output_that_nobody_reads_any_more(self) -> None:
        good_here("topics", "create", "long")
        good_here("produce", "long", stdin="".join(f"line {number}\n" for number in range(50_000)))
        with subprocess.Popen(
            command("consume", "long"), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as consumer:
            assert read_line(consumer.stdout) == "line 0\n"
            assert consumer.stdout is not None
            assert consumer.stderr is not None
            consumer.stdout.close()
            assert consumer.stderr.read() == ""
        assert consumer.returncode == 141

    @pytest.mark.parametrize(
        ("arguments", "status", "text"),
        [
            (["topics", "describe", "missing"], 1, 'topic "missing" does not exist'),
            (["topics", "delete", "missing"], 1, "missing"),
            (["consume", "missing"], 1, 'topic "missing" does not exist'),
            (["produce", "missing"], 1, 'topic "missing" does not exist'),
            (["topics", "create", "no spaces"], 1, "no spaces"),
            (["topics", "create", "wide", "--replication-factor", "4"], 1, "more than the 3 usable brokers"),
            (["topics", "create", "none", "--partitions", "0"], 1, "at least 1 partition, not 0"),
            (["topics", "create", "t", "--config", "retention.mss=1"], 2, 'Did you mean "retention.ms"?'),
            (["topics", "create", "t", "--config", "min.insync.replicas=0"], 2, "1 to 2,147,483,647"),
        ],
    )
    def test_what_brokers_refuse_is_one_line(self, arguments: list[str], status: int, text: str) -> None:
        done = replog_here(*arguments, stdin="a line\n")
        assert (done.status, done.out) == (status, "")
        assert done.err.startswith("error: ")
        assert done.err.count("\n") == 1
        assert text in done.err

    def test_partitions_and_offsets_that_do_not_exist(self) -> None:
        good_here("topics", "create", "small")
        good_here("produce", "small", stdin="a\n")
        assert "there is no partition 4" in replog_here("consume", "small", "--partition", 4).err
        done = replog_here("consume", "small", "--partition", 0, "--from", 9)
        assert (done.status, done.err) == (1, "error: small-0 ends at offset 1; there is no offset 9 yet\n")
        good_here("topics", "create", "several", "--partitions", 3)
        good_here("produce", "several", "--partition", 1, stdin="a\nb\n")
        assert good_here("consume", "several", "--from", 1) == "b\n"
        done = replog_here("consume", "several", "--from", 99_999)
        told = "error: several-1 ends at offset 2, and the other partitions before that; there is no offset 99999 yet\n"
        assert (done.status, done.out, done.err) == (1, "", told)

    def test_a_topic_to_which_nothing_is_written_is_not_its_leaders_fault(self) -> None:
        good_here("topics", "create", "idle")
        done = replog_here("consume", "idle", "--follow", "--timeout", "0.1")
        told = "error: no record of idle came for 0.1 s: all that was in it has been read\n"
        assert (done.status, done.out, done.err) == (1, "", told)


def read_line(stream: IO[str] | None) -> str:
    assert stream is not None
    return stream.readline()


def test_kill_status_and_restart(cluster: Path, servers: str) -> None:
    good(
        "topics", "create", "watched", "--partitions", 3, "--replication-factor", 3, "--config", "min.insync.replicas=2"
    )
    (pid, *_) = pids(cluster)
    assert good("cluster", "kill", 1, "--dir", cluster) == "killed node 1\n"
    assert not is_alive(pid)
    until(lambda: "under-replicated" in good("cluster", "status", "--dir", cluster))
    status = good("cluster", "status", "--dir", cluster)
    assert status.startswith("2 of 3 nodes run; ")
    assert re.search(r"^ *1 +stopped ", status, re.MULTILINE)
    behind = good("topics", "describe", "watched", "--under-replicated")
    assert len([line for line in behind.splitlines() if "1,2" in line or "2,3" in line or "3,1" in line]) == 3
    enough = good("topics", "describe", "watched", "--under-min-isr")
    assert enough == "every partition has the in-sync replicas it needs\n"
    assert replog("cluster", "kill", 1, "--dir", cluster).err.startswith("error: node 1 does not run in ")
    assert replog("cluster", "stop", 7, "--dir", cluster).status == 2
    assert good("produce", "watched", stdin="while one is down\n") == "1 record acknowledged\n"
    assert good("cluster", "restart", 1, "--dir", cluster) == "restarted node 1\n"
    until(lambda: ", all in sync." in " ".join(good("cluster", "status", "--dir", cluster).split()))  # lines are broken
    assert good("consume", "watched") == "while one is down\n"


def test_a_cluster_is_not_started_over(cluster: Path) -> None:
    before = pids(cluster)
    done = replog("cluster", "start", "--dir", cluster)
    assert done.status == 2
    assert "holds a cluster already" in done.err
    assert pids(cluster) == before


def test_a_foreground_cluster_ends_with_its_command(tmp_path: Path) -> None:
    arguments = command(
        "cluster", "start", "--dir", tmp_path / "c", "--nodes", 1, "--foreground", "--port", 0, *settings()
    )
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True) as process:
        while "Ctrl-C" not in (line := read_line(process.stdout)):
            assert line, "it ended early"
        (pid,) = pids(tmp_path / "c")
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE_S) == 0
    assert not is_alive(pid)
    assert (tmp_path / "c/node-1/data/.kafka_cleanshutdown").exists()
    assert good("cluster", "status", "--dir", tmp_path / "c").startswith(
        "The cluster is stopped: none of its 1 node runs"
    )


def test_nodes_of_a_killed_foreground_command_die_with_it(tmp_path: Path) -> None:
    arguments = command(
        "cluster", "start", "--dir", tmp_path / "c", "--nodes", 1, "--foreground", "--port", 0, *settings()
    )
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True) as process:
        while "Ctrl-C" not in (line := read_line(process.stdout)):
            assert line, "it ended early"
        process.kill()
    (pid,) = pids(tmp_path / "c")
    until(lambda: not is_alive(pid))


def test_kafkas_clients_are_told_where_they_are_served(tmp_path: Path) -> None:
    directory = tmp_path / "c"
    started = good("cluster", "start", "--dir", directory, "--nodes", 1, "--port", 0, *settings())
    try:
        (line,) = [line for line in started.splitlines() if line.startswith("For Kafka's clients: ")]
        servers = line.removeprefix("For Kafka's clients: bootstrap.servers=")
        assert started.splitlines()[-1].startswith("export "), "scripts read the last line"
        good("cluster", "restart", "--dir", directory)
        assert json.loads(good("cluster", "status", "--dir", directory, "--json"))["bootstrap_servers"] == servers
        (broker,) = json.loads(good("status", "--dir", directory, "--json"))["brokers"]
        assert broker["address"] == servers
        socket.create_connection(("127.0.0.1", int(servers.rpartition(":")[2])), timeout=PATIENCE_S).close()
    finally:
        replog("cluster", "kill", "--dir", directory)


class Server:
    """A directory with a server.toml, formatted or not."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.config = directory / "server.toml"
        self.data = directory / "data"
        self.write()

    def write(self, listeners: Sequence[str] = ("127.0.0.1:0",), cluster_id: str = "cluster-a", more: str = "") -> None:
        lines = ['"node.id" = 1', f'"cluster.id" = "{cluster_id}"', f'"log.dirs" = ["{self.data}"]']
        self.config.write_text("\n".join([*lines, f'"listeners" = {json.dumps(list(listeners))}', more]))

    def format(self) -> None:
        replog("storage", "format", "--config", self.config)

    def start(self) -> Done:
        return replog("server", "start", "--config", self.config)

    def files(self) -> dict[str, bytes]:
        return {
            str(file): file.read_bytes()
            for file in sorted(self.data.rglob("*"))
            if file.is_file() and file.name != ".lock"
        }


@pytest.fixture
def server(tmp_path: Path) -> Server:
    return Server(tmp_path)


def refused(server: Server, text: str) -> None:
    """The start fails with one line that says why, and changes nothing."""
    before = server.files()
    done = server.start()
    errors = [line for line in done.err.splitlines() if line.startswith("error: ")]
    assert done.status == 2, done
    assert len(errors) == 1, done.err
    assert text in errors[0]
    assert "Traceback" not in done.err
    assert server.files() == before


def test_an_unknown_key(server: Server) -> None:
    server.write(more='"replica.lag.max.ms" = 5')
    refused(server, 'unknown key "replica.lag.max.ms". Did you mean "replica.lag.time.max.ms"?')


def test_an_address_that_others_can_reach(server: Server) -> None:
    server.write(listeners=["0.0.0.0:9092"])
    refused(server, "allow.insecure = true")


def test_a_directory_of_another_cluster(server: Server) -> None:
    server.format()
    server.write(cluster_id="cluster-b")
    refused(server, "belongs to cluster cluster-a, this node to cluster-b")


def test_a_damaged_identity(server: Server) -> None:
    server.format()
    (server.data / "meta.properties").write_text("version=1\nnode.id=x\n")
    refused(server, f"{server.data}/meta.properties")


def test_a_damaged_checkpoint(server: Server) -> None:
    server.format()
    (server.data / "replication-offset-checkpoint").write_text("0\n1\nflights 0 many\n")
    refused(server, f"{server.data}/replication-offset-checkpoint line 3")


def test_a_port_that_is_taken(server: Server) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        server.write(listeners=[f"127.0.0.1:{port}"])
        server.format()
        refused(server, str(port))


def test_a_server_runs_locks_its_directory_and_stops_at_ctrl_c(server: Server) -> None:
    server.format()
    with subprocess.Popen(
        command("server", "start", "--config", server.config), stderr=subprocess.PIPE, text=True
    ) as process:
        while "listens on" not in (line := read_line(process.stderr)):
            assert line, "it ended early"
        address = line.partition("listens on ")[2].split()[0]
        try:
            done = server.start()
            assert done.status == 2
            assert "is in use by another process" in done.err
            assert "Traceback" not in done.err
            created = good("topics", "create", "here", "--bootstrap-servers", address)
            assert created == "created here: 1 partition, 1 replica each\n"
        finally:
            process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE_S) == 0
    rows = good("log", "dump", server.data / "__cluster_metadata-0", "--deep", "--json").splitlines()
    assert {"TopicRecord", "PartitionRecord", "RegisterBrokerRecord"} <= {json.loads(row).get("record") for row in rows}
    assert "clean_shutdown" in good("log", "dump", server.data)
