"""Nodes of Apache Kafka 4.1.1, each broker and controller, in processes of their own."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from bench.systems.child_processes import dying_with_us
from bench.systems.maven import jars, program

NODES = 3
CLUSTER_ID = "MkU3OEVBNTcwNTJENDM2Qk"
START_TIMEOUT_S = 300.0
POLL_S = 0.02
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

TLS_CONFIG = """\
listeners=PLAINTEXT://127.0.0.1:{broker},SSL://127.0.0.1:{tls},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{broker},SSL://127.0.0.1:{tls}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,SSL:SSL,CONTROLLER:PLAINTEXT
ssl.keystore.type=PEM
ssl.keystore.location={key_file}
"""
"""Behind the others: the last line of a key counts."""


class KafkaCluster:
    """Some nodes; a topic that nobody has created comes into being when it is first written to.

    Args:
        directory: where their files go.
        partitions: of each topic.
        nodes_count: how many nodes there are.
        config: The keys of the nodes, beside those that all have.
        key_file: The private key and certificate (PEM) by which the nodes serve TLS, too; None: they do not.
    """

    def __init__(
        self,
        directory: Path,
        partitions: int,
        *,
        nodes_count: int = NODES,
        config: Mapping[str, object] | None = None,
        key_file: Path | None = None,
    ) -> None:
        self._directory = directory
        ports = _free_ports(3 * nodes_count)
        self._brokers, controllers, self._tls = (
            ports[:nodes_count],
            ports[nodes_count:-nodes_count],
            ports[-nodes_count:],
        )
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
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
            if key_file is not None:
                text += TLS_CONFIG.format(
                    broker=broker, tls=self._tls[number], controller=controller, key_file=key_file
                )
            more = "".join(f"{key}={value}\n" for key, value in (config or {}).items())
            self._config(number + 1).write_text(text + more)

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(f"127.0.0.1:{port}" for port in self._brokers)

    @property
    def tls_servers(self) -> str:
        """Where clients are served over TLS, if they are."""
        return ",".join(f"127.0.0.1:{port}" for port in self._tls)

    @property
    def node_ids(self) -> list[int]:
        return list(range(1, len(self._brokers) + 1))

    def process_ids(self) -> Sequence[int]:
        return [process.pid for process in self._processes.values()]

    def format(self) -> None:
        """Makes the folders of all nodes; a node does not start without."""
        made = [
            self._run("kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", str(self._config(node)))
            for node in self.node_ids
        ]
        for process in made:
            if process.wait(START_TIMEOUT_S):
                raise OSError(f"a folder of Kafka could not be formatted: {self._last_words()}")

    def start(self) -> None:
        """Starts the nodes, and waits until they listen."""
        for node in self.node_ids:
            self._processes[node] = self._run("kafka.Kafka", str(self._config(node)))
        for node in self.node_ids:
            self._wait_until_it_listens(node)

    def start_node(self, node: int) -> None:
        """Starts one that was killed, and waits until it listens."""
        self._processes[node] = self._run("kafka.Kafka", str(self._config(node)))
        self._wait_until_it_listens(node)

    def kill(self, node: int) -> None:
        """Ends a node with SIGKILL."""
        process = self._processes.pop(node)
        process.kill()
        process.wait()

    def stop(self) -> None:
        """Kills the nodes: nobody wants their files, and the last of a quorum would wait for the others."""
        for process in self._processes.values():
            process.kill()
        for process in self._processes.values():
            process.wait()
        self._processes = {}

    def _wait_until_it_listens(self, node: int) -> None:
        process, port = self._processes[node], self._brokers[node - 1]
        deadline = time.monotonic() + START_TIMEOUT_S
        while not _listens(port):
            if process.poll() is not None or time.monotonic() > deadline:
                raise OSError(f"a Kafka node did not start: {self._last_words()}")
            time.sleep(POLL_S)

    def _last_words(self) -> str:
        return " ".join(path.read_text(errors="replace")[-1_000:] for path in sorted(self._directory.glob("*.log")))

    def _config(self, node: int) -> Path:
        return self._directory / f"node-{node}" / "server.properties"

    def _run(self, main_class: str, *arguments: str) -> subprocess.Popen[bytes]:
        class_path = os.pathsep.join(map(str, jars("kafka")))
        command = dying_with_us(program("java"), *JVM, "-cp", class_path, main_class, *arguments)
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
