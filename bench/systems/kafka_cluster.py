"""Nodes of Apache Kafka 4.1.1, each broker and controller, in processes of their own."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from bench.systems.maven import jars, program

NODES = 3
CLUSTER_ID = "MkU3OEVBNTcwNTJENDM2Qk"
START_TIMEOUT_S = 300.0
STOP_TIMEOUT_S = 60.0
JVM = ("-Xms512m", "-Xmx1g", "-Xshare:auto")
"""A gigabyte is Kafka's own default."""

CONFIG = """\
process.roles=broker,controller
node.id={node}
controller.quorum.voters={voters}
controller.listener.names=CONTROLLER
listeners=PLAINTEXT://127.0.0.1:{broker},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{broker}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
log.dirs={data}
auto.create.topics.enable=true
num.partitions={partitions}
default.replication.factor={nodes}
min.insync.replicas={in_sync}
offsets.topic.replication.factor={nodes}
transaction.state.log.replication.factor={nodes}
transaction.state.log.min.isr={in_sync}
"""


class KafkaCluster:
    """Some nodes; a topic that nobody has created comes into being when it is first written to.

    Args:
        directory: where their files go.
        partitions: of each topic.
        nodes_count: how many nodes there are.
    """

    def __init__(self, directory: Path, partitions: int, *, nodes_count: int = NODES) -> None:
        self._directory = directory
        ports = _free_ports(2 * nodes_count)
        self._brokers, controllers = ports[:nodes_count], ports[nodes_count:]
        self._processes: list[subprocess.Popen[bytes]] = []
        voters = ",".join(f"{number + 1}@127.0.0.1:{port}" for number, port in enumerate(controllers))
        for number, (broker, controller) in enumerate(zip(self._brokers, controllers, strict=True)):
            folder = directory / f"node-{number + 1}"
            folder.mkdir(parents=True)
            text = CONFIG.format(
                node=number + 1,
                voters=voters,
                broker=broker,
                controller=controller,
                data=folder / "data",
                partitions=partitions,
                nodes=nodes_count,
                in_sync=min(2, nodes_count),
            )
            self._config(number).write_text(text)

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(f"127.0.0.1:{port}" for port in self._brokers)

    def process_ids(self) -> Sequence[int]:
        return [process.pid for process in self._processes]

    def start(self) -> None:
        """Formats the folders, starts the nodes, and waits until they listen."""
        for number in range(len(self._brokers)):
            config = str(self._config(number))
            self._run("kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", config).wait(START_TIMEOUT_S)
        self._processes = [self._run("kafka.Kafka", str(self._config(number))) for number in range(len(self._brokers))]
        deadline = time.monotonic() + START_TIMEOUT_S
        for process, port in zip(self._processes, self._brokers, strict=True):
            while not _listens(port):
                if process.poll() is not None or time.monotonic() > deadline:
                    raise OSError(f"a Kafka node did not start: {self._last_words()}")
                time.sleep(0.1)

    def stop(self) -> None:
        for process in self._processes:
            process.terminate()
        for process in self._processes:
            try:
                process.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._processes = []

    def _last_words(self) -> str:
        return " ".join(path.read_text(errors="replace")[-1_000:] for path in sorted(self._directory.glob("*.log")))

    def _config(self, number: int) -> Path:
        return self._directory / f"node-{number + 1}" / "server.properties"

    def _run(self, main_class: str, *arguments: str) -> subprocess.Popen[bytes]:
        class_path = os.pathsep.join(map(str, jars("kafka")))
        setpriv = shutil.which("setpriv")
        dying_with_us = [setpriv, "--pdeathsig", "KILL"] if setpriv else []
        command = [*dying_with_us, program("java"), *JVM, "-cp", class_path, main_class, *arguments]
        with (self._directory / f"{main_class}.log").open("ab") as output:
            return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output)


def _listens(port: int) -> bool:
    with socket.socket() as connection:
        return connection.connect_ex(("127.0.0.1", port)) == 0


def _free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports
