"""What a new user types first, as the README shows it: every command finds the cluster that was just started."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from cli_runs import PATIENCE_S, Done, command, replog
from test_cli_cluster import good, pids, ports, settings, until

from replog.cluster import is_free

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Of a cluster of three nodes in the background, started by its name in the working directory."""
    home = tmp_path_factory.mktemp("first steps")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(home)
        port = [] if is_free(9092) else ["--port", 0]
        started = good("cluster", "start", "--dir", "c", *port, *settings())
    servers = ",".join(f"127.0.0.1:{number}" for number in ports(home / "c"))
    assert started.endswith(f"export REPLOG_BOOTSTRAP_SERVERS={servers}\n")
    yield home / "c"
    replog("cluster", "kill", "--dir", home / "c")


@pytest.fixture(autouse=True)
def _new_shell(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("REPLOG_BOOTSTRAP_SERVERS", raising=False)


def test_commands_look_where_the_first_node_is(directory: Path) -> None:
    if ports(directory)[0] != 9092:
        pytest.skip("somebody else has port 9092")
    assert "on 3 brokers" in good("status")
    assert len(good("brokers", "list", "--json").splitlines()) == 3


def test_every_command_takes_the_directory(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REPLOG_BOOTSTRAP_SERVERS", "127.0.0.1:1")  # of another cluster: what is typed counts
    here = ["--dir", directory]
    assert good("topics", "create", "rides", *here) == "created rides: 1 partition, 3 replicas each\n"
    assert good("produce", "rides", *here, stdin="one\ntwo\n") == "2 records acknowledged\n"
    assert good("consume", "rides", *here) == "one\ntwo\n"
    (topic,) = map(json.loads, good("topics", "list", "--json", *here).splitlines())
    assert (topic["name"], topic["partitions"], topic["replicas"]) == ("rides", 1, 3)
    (described,) = map(json.loads, good("topics", "describe", "--json", *here).splitlines())
    assert sorted(described["partitions"][0]["isr"]) == [1, 2, 3]
    assert json.loads(good("cluster", "status", "--json", *here))["nodes"][2]["node_id"] == 3
    assert good("metadata", "shell", *here, "ls", "/topics/by-name").split() == ["rides/"]
    assert replog("status", *here, "-b", "127.0.0.1:2").err.startswith("error: --dir and --bootstrap-servers:")


def test_a_topic_that_one_kill_would_lose_is_told(directory: Path) -> None:
    done = replog("topics", "create", "alone", "--replication-factor", 1, "--dir", directory)
    assert done.out == "created alone: 1 partition, 1 replica each\n"
    assert "one replica each: who loses a broker loses what is on it; --replication-factor 3" in done.err


def test_ctrl_c_ends_produce_with_a_count(directory: Path) -> None:
    good("topics", "create", "typed", "--dir", directory)
    arguments = command("produce", "typed", "--dir", directory)
    with subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        if process.stdin is None:
            raise AssertionError
        process.stdin.write(b"one\ntwo\nhalf")
        process.stdin.flush()
        until(lambda: replog("consume", "typed", "--dir", directory).out == "one\ntwo\n")
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE_S) == 130
        assert process.stdout is not None
        assert process.stdout.read() == b"2 records acknowledged\n"
        assert process.stderr is not None
        assert process.stderr.read() == b""


def shell(line: str, *, stdin: str = "") -> Done:
    """A line of bash; `replog` in it is the command of this interpreter."""
    whole = f'replog() {{ {shlex.join(command())} "$@"; }}\n{line}'
    done = subprocess.run(
        ["bash", "-c", whole],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    return Done(done.returncode, done.stdout, done.stderr)


def test_streams_that_are_closed_full_or_not_read(directory: Path) -> None:
    good("topics", "create", "streams", "--dir", directory)
    here = f"streams --dir {shlex.quote(str(directory))}"
    assert shell(f"replog produce {here} <&-") == (1, "0 records acknowledged\n", "error: stdin: closed\n")
    full = "error: stdout: No space left on device\n"
    assert shell(f"replog produce {here} >/dev/full", stdin="a\nb\n") == (1, "", f"2 records acknowledged\n{full}")
    assert shell(f"replog produce {here} >&-", stdin="c\n") == (1, "", "1 record acknowledged\nerror: stdout: closed\n")
    assert shell(f"replog produce {here} 2>&-", stdin="d\n") == (0, "1 record acknowledged\n", "")
    refused = shell(f"replog produce {here} --key-separator : >/dev/full", stdin="e:1\nlonely\n")
    assert (refused.status, refused.out) == (2, "")
    assert refused.err.startswith("1 record acknowledged\nerror: line 2 has no")
    assert shell(f"replog consume {here} >&-") == (1, "", "error: stdout: closed\n")
    assert shell(f"replog consume {here} >/dev/full") == (1, "", full)
    assert shell(f"replog consume {here} --json 2>&-").out.count("\n") == 5
    assert shell(f"replog consume {here} <&-").out == "a\nb\nc\nd\n1\n"
    at = f"--dir {shlex.quote(str(directory))}"
    for looking in ("status", "cluster status", "topics describe", "brokers list", "configs describe --node 1"):
        assert shell(f"replog {looking} {at} >/dev/full") == (1, "", full)
    assert shell(f"replog status {at} >&-") == (1, "", "error: stdout: closed\n")
    assert unread("status", "--dir", directory) == (141, "", "")
    assert unread("consume", "streams", "--dir", directory) == (141, "", "")
    assert unread("produce", "streams", "--dir", directory) == (141, "", "0 records acknowledged\n")


def unread(*arguments: object) -> Done:
    """A command whose output nobody reads any more."""
    reads, writes = os.pipe()
    os.close(reads)
    with os.fdopen(writes, "wb") as stdout:
        done = subprocess.run(
            command(*arguments),
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=subprocess.PIPE,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
    return Done(done.returncode, "", done.stderr)


def test_tables_are_whole_at_any_width(directory: Path) -> None:
    good("topics", "create", "a-topic-with-a-rather-long-name", "--partitions", 3, "--dir", directory)
    for looking in ("status", "cluster status", "topics describe", "brokers list", "quorum describe"):
        wide = good(*looking.split(), "--dir", directory)
        narrow = replog(*looking.split(), "--dir", directory, env={"COLUMNS": "80"}).out
        assert "…" not in wide + narrow
        table = [line for line in narrow.splitlines() if not line.startswith(("export", "For Kafka", "log", "leader"))]
        assert max(map(len, table)) <= 80, (looking, narrow)
        assert sorted(set(re.findall(r"127.0.0.1:\d+", narrow))) == sorted(set(re.findall(r"127.0.0.1:\d+", wide)))


def test_a_partition_without_a_leader_is_told_and_the_others_are_read(directory: Path) -> None:
    here = ["--dir", directory]
    replog("topics", "create", "two", "--partitions", 3, "--replication-factor", 1, *here)
    good("produce", "two", "--partition", 0, *here, stdin="0\n")
    good("produce", "two", "--partition", 1, *here, stdin="1\n")
    partitions = json.loads(good("topics", "describe", "two", "--json", *here))["partitions"]
    victim = partitions[0]["leader"]
    replog("groups", "reset", "g", "--topic", "two", "--to-earliest", "--execute", *here)
    good("cluster", "kill", victim, *here)
    until(lambda: json.loads(good("topics", "describe", "two", "--json", *here))["partitions"][0]["leader"] < 0)
    done = replog("consume", "two", "--timeout", 5, *here)
    assert (done.status, done.out) == (1, "1\n")
    told = f"two-0 has no leader: nothing can be read until one of its brokers is back ({victim})"
    assert done.err.splitlines() == [told, f"error: no record of two came for 5 s: {told}"]
    done = replog("consume", "two", "--group", "g", "--timeout", 5, *here)
    assert (done.status, done.out) == (1, "1\n")
    assert re.fullmatch(r"waiting for two-0: .*\nerror: no record of two came for 5 s\n", done.err)
    with subprocess.Popen(
        command("consume", "two", "--partition", 0, *here), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as waiting:
        assert waiting.stderr is not None
        assert waiting.stderr.readline() == f"{told}\n"
        good("cluster", "restart", victim, *here)
        out, errors = waiting.communicate(timeout=60)
    assert (waiting.returncode, out) == (0, "0\n")
    unanswered = "two-0: broker [0-9], its leader, does not answer\n"  # elected, and not listening yet
    assert re.fullmatch(f"({unanswered})?two-0 has a leader again\n", errors)
    assert good("consume", "two", "--group", "g", *here) == "0\n"
    assert len(pids(directory)) == 3
