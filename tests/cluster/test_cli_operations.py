"""`replog quorum`, `brokers`, `configs` and what `topics` does to a running cluster; the commands run in this process."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from cli_runs import Done, replog, replog_here
from test_cli_cluster import ports, settings, until

from replog.client import SyncAdmin
from replog.cluster import LocalCluster

pytestmark = pytest.mark.cluster

Run: TypeAlias = Callable[..., Done]


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Of a cluster of three nodes in the background."""
    path = tmp_path_factory.mktemp("operations") / "cluster"
    started = replog("cluster", "start", "--nodes", 3, "--dir", path, "--port", 0, *settings())
    assert started.status == 0, started
    yield path
    replog("cluster", "stop", "--dir", path)


@pytest.fixture
def run(directory: Path) -> Run:
    """A command on that cluster; it returns when all nodes know what it has changed.

    In this process the next command comes within milliseconds, and may ask a node that has not heard of it yet.
    """
    servers = ",".join(f"127.0.0.1:{port}" for port in ports(directory))

    def call(*arguments: object, stdin: str = "") -> Done:
        done = replog_here(*arguments, stdin=stdin, env={"REPLOG_BOOTSTRAP_SERVERS": servers})
        with SyncAdmin(servers) as admin:
            until(lambda: len({admin.describe_node(node_id).quorum_high_watermark for node_id in (1, 2, 3)}) == 1)
        return done

    return call


def good(run: Run, *arguments: object) -> str:
    done = run(*arguments)
    assert (done.status, done.err) == (0, ""), done
    return done.out


def test_the_quorum_is_described(run: Run) -> None:
    until(lambda: json.loads(run("quorum", "describe", "--json").out or "{}").get("is_dynamic", False))
    quorum = json.loads(good(run, "quorum", "describe", "--json"))
    assert [member["node_id"] for member in quorum["members"]] == [1, 2, 3]
    assert all(member["is_voter"] and member["directory_id"] for member in quorum["members"])
    text = good(run, "quorum", "describe")
    assert f"leader {quorum['leader_id']}, epoch {quorum['leader_epoch']}, voters in the log" in text
    assert text.count("127.0.0.1:") == 3


def test_a_voter_is_removed_and_added_again(run: Run) -> None:
    until(lambda: json.loads(run("quorum", "describe", "--json").out or "{}").get("is_dynamic", False))
    leader = json.loads(good(run, "quorum", "describe", "--json"))["leader_id"]
    voter = next(node_id for node_id in (1, 2, 3) if node_id != leader)
    assert run("quorum", "add-voter", voter).err, "it votes already: there is nobody to add"
    assert good(run, "quorum", "remove-voter", voter) == f"node {voter} no longer votes\n"
    assert "observer" in good(run, "quorum", "describe")
    assert good(run, "quorum", "add-voter", voter) == f"node {voter} votes\n"
    assert "observer" not in good(run, "quorum", "describe")


def test_voters_that_are_none(run: Run) -> None:
    done = run("quorum", "remove-voter", 77)
    assert (done.status, done.out) == (1, "")
    assert "77" in done.err
    done = run("quorum", "add-voter", 77)
    assert done.status == 1
    assert "does not follow the metadata log" in done.err


def test_brokers_are_listed_drained_and_not_unregistered_alive(run: Run) -> None:
    good(run, "topics", "create", "drained", "--partitions", 6, "--replication-factor", 2)
    assert [json.loads(line)["broker_id"] for line in good(run, "brokers", "list", "--json").splitlines()] == [1, 2, 3]
    assert "0 replicas left" in good(run, "brokers", "drain", 3, "--wait")
    (three,) = [line.split() for line in good(run, "brokers", "list").splitlines() if line.strip().startswith("3 ")]
    assert three[:3] == ["3", "0", "0"]
    assert "drained" in three
    assert run("brokers", "unregister", 3).status == 1
    assert good(run, "brokers", "drain", 3, "--undo") == "broker 3 is used again\n"
    assert run("brokers", "drain", 99).status == 1
    good(run, "topics", "create", "everywhere", "--replication-factor", 3)
    for wait in ([], ["--wait"]):
        done = run("brokers", "drain", 3, *wait)
        assert (done.status, done.out) == (1, "")
        assert "error: broker 3 stays marked as drained, but 1 replica of it can go nowhere" in done.err
    good(run, "brokers", "drain", 3, "--undo")
    good(run, "topics", "delete", "everywhere")


def test_a_node_says_all_that_it_goes_by(run: Run, directory: Path) -> None:
    good(run, "configs", "set", "--broker", 3, "log.roll.ms=777")
    wanted = ("node.id", "log.roll.ms", "broker.session.timeout.ms", "log.segment.bytes")
    said = (
        "node.id=3  (node)\nlog.roll.ms=777  (broker)\nbroker.session.timeout.ms=2000  (node)\n"
        "log.segment.bytes=1073741824  (default)\n"
    )
    assert good(run, "configs", "describe", "--node", 3, *wanted) == said
    assert replog_here("configs", "describe", "--dir", directory, "--node", 3, *wanted) == (0, said, "")
    found = [json.loads(line) for line in good(run, "configs", "describe", "--node", 2, "--json").splitlines()]
    assert {"name": "log.dirs", "value": str(directory / "node-2" / "data"), "source": "node"} in found
    assert good(run, "configs", "set", "--broker", 3, "log.roll.ms=") == "log.roll.ms removed\n"


def test_nodes_that_are_none(run: Run, directory: Path) -> None:
    done = run("configs", "describe", "--node", 9)
    assert (
        done.status,
        "no broker 9 is registered, and the metadata quorum has no such voter. There are brokers: 1, 2, 3;" in done.err,
    ) == (
        1,
        True,
    )
    done = replog_here("configs", "describe", "--node", 9, "--dir", directory)
    assert (done.status, done.err) == (2, f"error: there is no node 9 in {directory}; its nodes are 1, 2, 3\n")
    done = run("configs", "describe", "--node", 1, "log.segment.byte")
    assert (done.status, 'Did you mean "log.segment.bytes"?' in done.err) == (2, True)


def test_partitions_are_added_moved_and_led_by_their_first_replica(run: Run, tmp_path: Path) -> None:
    good(run, "topics", "create", "moving", "--partitions", 2, "--replication-factor", 2)
    assert good(run, "topics", "alter", "moving", "--partitions", 4) == "moving has 4 partitions\n"
    plan = tmp_path / "plan.json"

    def generate() -> dict[int, list[int]]:
        plan.write_text(good(run, "topics", "reassign", "--generate", "--topics", "moving", "--brokers", "1,3"))
        return {entry["partition"]: entry["replicas"] for entry in json.loads(plan.read_text())["partitions"]}

    until(lambda: len(generate()) == 4)  # the node that is asked may be behind the one that alter has asked
    wanted = generate()
    assert all(sorted(replicas) == [1, 3] for replicas in wanted.values())
    assert good(run, "topics", "reassign", "--execute", plan, "--throttle", 1_000_000).count("moves") == 4
    assert good(run, "configs", "get").count("replication.throttled.rate=1000000  (cluster)") == 2, "given and taken"
    assert "moving-0: done\n" in good(run, "topics", "reassign", "--verify", "--watch", plan)
    assert json.loads(good(run, "topics", "reassign", "--verify", "--json", plan))["is_done"] is True
    assert "throttled.rate=1000000" not in good(run, "configs", "get"), "both removed with the last move"
    good(run, "topics", "elect-leaders", "--topic", "moving")
    described = good(run, "topics", "describe", "moving").splitlines()[2:]
    for line in described:
        partition, leader, _, replicas, *_ = line.split()
        assert [int(replica) for replica in replicas.split(",")] == wanted[int(partition)]
        assert int(leader) == wanted[int(partition)][0]
    nothing = run("topics", "reassign", "--cancel", plan)
    assert nothing.status == 1
    assert nothing.err.count("moving-") == 4, "nothing is under way"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("reassign",), "say one of"),
        (("reassign", "--execute"), "name the file"),
        (("reassign", "--generate", "--topics", "nowhere"), 'there is no topic "nowhere"'),
        (("reassign", "--generate", "--brokers", "1,two"), "not a list of node ids"),
        (("reassign", "--generate", "--brokers", "1,99"), "there is no broker 99"),
        (("alter", "nowhere", "--partitions", 3), "nowhere"),
        (("elect-leaders", "--topic", "nowhere"), "nowhere"),
    ],
)
def test_moves_that_are_none(run: Run, arguments: tuple[object, ...], words: str) -> None:
    done = run("topics", *arguments)
    assert done.status in {1, 2}
    assert words in done.err


def test_a_plan_that_is_none_is_named(run: Run, tmp_path: Path) -> None:
    for text in ("", "[]", '{"partitions": [{"topic": "t"}]}', '{"partitions": 7}'):
        plan = tmp_path / "plan.json"
        plan.write_text(text)
        done = run("topics", "reassign", "--execute", plan)
        assert (done.status, done.out) == (2, "")
        assert "is no plan" in done.err


def test_a_node_of_another_cluster_is_not_formatted_over_its_peers(directory: Path, run: Run, tmp_path: Path) -> None:
    cluster = LocalCluster.load(directory)
    cluster_id, peer = cluster.cluster_id, cluster.nodes[1].peer_address
    file = tmp_path / "server.toml"
    file.write_text(f'"node.id" = 9\n"log.dirs" = ["{tmp_path}/data"]\n"controller.quorum.voters" = ["1@{peer}"]\n')
    done = run("storage", "format", "--config", file, "--cluster-id", "abcdefghijklmnopqrstuv")
    assert done.status == 2
    assert f"belongs to cluster {cluster_id}" in done.err
    assert not (tmp_path / "data").exists()
    assert run("storage", "format", "--config", file, "--cluster-id", cluster_id).status == 0


def test_log_directories_are_described_and_a_move_to_none_of_them_is_refused(run: Run, directory: Path) -> None:
    good(run, "topics", "create", "placed", "--partitions", 1, "--replication-factor", 3)
    path = str(directory / "node-2" / "data")

    def described() -> Any:
        (one,) = [json.loads(line) for line in good(run, "log-dirs", "describe", "--broker", 2, "--json").splitlines()]
        return one

    until(lambda: "placed" in [replica["topic"] for replica in described()["replicas"]])  # a follower may make it later
    one = described()
    assert (one["broker_id"], one["path"], one["error"], one["moves"]) == (2, path, "", [])
    assert f"broker 2: {path}: " in good(run, "log-dirs", "describe")
    for to, words in ((path, "is in"), ("/nowhere", "has no log directory /nowhere")):
        done = run("log-dirs", "move", "placed", 0, "--broker", 2, "--to", to)
        assert done.status in {1, 2}
        assert words in done.err
