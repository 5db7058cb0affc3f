"""The commands of docs/OPERATIONS.md run as they stand there, from top to bottom, on one cluster.

What only a reader can know (a path, a cluster's id) is replaced, and what the page asks for in words (a node is stopped,
another has joined) is done before the block that needs it.
"""

from __future__ import annotations

import asyncio
import os
import re
import select
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import pytest
from cli_runs import PATIENCE_S, run_forked
from test_cli_cluster import until

from replog.client import SyncAdmin
from replog.cluster import LocalCluster, NodeSpec

pytestmark = pytest.mark.cluster

PAGE = Path(__file__).resolve().parents[2] / "docs" / "OPERATIONS.md"
BLOCK = re.compile(r"^## (?P<section>[^\n]+)$|^```\n(?P<block>replog .*?)^```$", flags=re.DOTALL | re.MULTILINE)
PLAIN = re.compile(r"replog (?:[\w\s./:=,@%+-]|'[^']*')*(?: #.*)?")
"""A line whose words a shell takes as `shlex` does: words, texts in single quotes, and a comment behind them."""
COMMAND = re.compile(r"(?<![\w/.-])replog (?=[a-z])")
FLIGHTS = 3_000
LISTENS_S = 1.0
MANY = 30


class Ended(NamedTuple):
    """How a command ended, with stdout and stderr together."""

    status: int
    text: str


def blocks() -> Iterator[tuple[str, list[str]]]:
    """(section, command lines) of each block of commands."""
    section = ""
    for found in BLOCK.finditer(PAGE.read_text(encoding="utf-8")):
        section = found["section"] or section
        if found["block"]:
            yield section, found["block"].splitlines()


class Reader:
    """Somebody who types what the page says, in one folder and one shell."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.fourth: NodeSpec | None = None
        self._environment = {name: value for name, value in os.environ.items() if name != "REPLOG_BOOTSTRAP_SERVERS"}

    @property
    def cluster(self) -> LocalCluster:
        return LocalCluster.load(self.home / "my-cluster")

    def types(self, line: str, *, stdin: str = "") -> Ended:
        """Runs a line until it ends: in bash where it needs one."""
        if PLAIN.fullmatch(line):
            return self._runs(shlex.split(line, comments=True)[1:], stdin)
        with self._started(line) as process:
            text, _ = process.communicate(stdin, timeout=PATIENCE_S)
        return Ended(process.returncode, text)

    def must(self, line: str, *, stdin: str = "") -> str:
        done = self.types(line, stdin=stdin)
        assert done.status == 0, (line, done)
        return done.text

    def interrupts(self, line: str) -> Ended:
        """Runs a line that does not end by itself until it says something, `watch` of a new topic, and presses Ctrl-C."""
        with self._started(f"exec {line}") as process:
            assert process.stdout is not None
            for number in range(MANY if " watch " in line else 0):
                if select.select([process.stdout], [], [], LISTENS_S)[0]:
                    break
                self.must(f"replog topics create new-{number}")
            said = process.stdout.readline()
            process.send_signal(signal.SIGINT)
            return Ended(process.wait(PATIENCE_S), said + process.stdout.read())

    def exports(self) -> None:
        """Does what the last line of `cluster status` says."""
        line = self.must("replog cluster status --dir my-cluster").splitlines()[-1]
        name, _, value = line.removeprefix("export ").partition("=")
        self._environment[name] = value

    def _runs(self, arguments: Sequence[str], stdin: str) -> Ended:
        with TemporaryDirectory() as name:
            streams = Path(name)
            status = run_forked(arguments, streams, stdin=stdin, env=self._environment, cwd=self.home)
            return Ended(status, (streams / "out").read_text("utf-8") + (streams / "err").read_text("utf-8"))

    def _started(self, line: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            ["bash", "-c", COMMAND.sub(f"{shlex.quote(sys.executable)} -m replog ", line)],
            cwd=self.home,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=self._environment,
        )


# ---- what the page asks for in words -----------------------------------------------------------------------------------


def start_it_again(reader: Reader) -> None:
    reader.must("replog cluster restart --dir my-cluster")
    reader.exports()


def write_a_configuration(reader: Reader) -> None:
    text = '"node.id" = 77\n"log.dirs" = ["alone"]\n"listeners" = ["127.0.0.1:0"]\n'
    (reader.home / "server.toml").write_text(text)


def start_a_fourth_node(reader: Reader) -> None:
    start_it_again(reader)
    cluster = reader.cluster
    reader.fourth = cluster.nodes[cluster.add_node()]
    until(lambda: "observer" in reader.types("replog quorum describe").text)
    until(lambda: "on 4 brokers" in reader.types("replog status").text)


def write_flights(reader: Reader) -> None:
    reader.must("replog topics create flights --partitions 4 --replication-factor 3")
    lines = "".join(f"flight {number}\n" for number in range(FLIGHTS))
    reader.must("replog produce flights --partition 0", stdin=lines)
    reader.must("replog topics create copy --partitions 4")
    (reader.home / "flights.csv").write_text("value,key,timestamp,partition,header.carrier\nlast,AA1,,0,AA\n")


def commit_offsets(reader: Reader) -> None:
    with SyncAdmin(reader.cluster.bootstrap_servers) as admin:
        admin.alter_group_offsets("billing", {("flights", 0): FLIGHTS, ("flights", 3): 0})


def add_a_disk(reader: Reader) -> None:
    file = reader.cluster.nodes[2].config_file
    before = file.read_text()
    file.write_text(before.replace('"log.dirs" = ["data"]', '"log.dirs" = ["data", "disk2"]'))
    assert file.read_text() != before
    reader.must("replog cluster restart 2 --dir my-cluster")
    until(lambda: reader.types("replog topics describe --under-replicated").text == "every replica is in sync\n")


def stop_node_1(reader: Reader) -> None:
    reader.must("replog cluster stop 1 --dir my-cluster")


def stop_node_3(reader: Reader) -> None:
    reader.must("replog cluster stop 3 --dir my-cluster")


BEFORE_SECTION: dict[str, Callable[[Reader], None]] = {
    "Nodes one by one": write_a_configuration,
    "The metadata quorum": start_a_fourth_node,
    "Reading and writing records": write_flights,
    "Consumer groups": commit_offsets,
    "Several disks": add_a_disk,
    "Looking into a log": stop_node_1,
    "Looking into the metadata": start_it_again,
}
BEFORE_LINE: dict[str, Callable[[Reader], None]] = {"replog brokers unregister 3": stop_node_3}
ENDLESS = re.compile(r"replog (server start|metadata shell .* watch)")
UNTIL_DONE = re.compile(r"replog topics reassign --verify")
"""Its status is 1 until everything is where it should be."""


def filled_in(line: str, reader: Reader, cluster_id: str) -> str:
    """A line with what only the reader knows in place of what stands for it."""
    replacements = {
        "--cluster-id ID": f"--cluster-id {cluster_id}",
        " PATH": " my-cluster/node-1/data/flights-0",
        "/disk2/data": f"{reader.home}/my-cluster/node-2/disk2",
        "localhost:9092": reader.cluster.nodes[2].address,
    }
    for standing_for, known in replacements.items():
        line = line.replace(standing_for, known)
    return line


def test_every_command_of_the_page_works_as_it_stands(tmp_path: Path) -> None:
    reader, sections, cluster_id = Reader(tmp_path), set[str](), ""
    try:
        for section, lines in blocks():
            BEFORE_SECTION.get(section, lambda _: None)(reader)
            sections.add(section)
            for line in lines:
                command = line.partition(" #")[0].strip()
                BEFORE_LINE.get(command, lambda _: None)(reader)
                typed = filled_in(line, reader, cluster_id) if section != "A cluster on one machine" else line
                if ENDLESS.match(command):
                    done = reader.interrupts(typed)
                    assert done.status in {0, 130}, (typed, done)
                elif UNTIL_DONE.match(command):
                    until(lambda typed=typed: reader.types(typed).status == 0)
                else:
                    said = reader.must(typed)
                    cluster_id = said.strip() if command == "replog storage random-uuid" else cluster_id
        assert set(BEFORE_SECTION) < sections, "the sections have other names now"
    finally:
        asyncio.run(reader.cluster.kill_all())
        if reader.fourth is not None and reader.fourth.child is not None:
            reader.fourth.child.wait(PATIENCE_S)
