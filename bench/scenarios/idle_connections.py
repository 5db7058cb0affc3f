"""What do a thousand clients cost a broker that are connected and ask for nothing?"""

from __future__ import annotations

import contextlib
import socket
import struct
import time
from collections.abc import Sequence
from pathlib import Path

import psutil

from bench.meter import Meter
from bench.model import Measured, Metric, Params, Scenario, System
from bench.systems.replog_brokers import ReplogBrokers
from bench.systems.shared_brokers import SharedBrokers
from bench.systems.tls_door import TlsDoor

CONNECTIONS = 1_000
SETTLE_S = 3.0
IDLE_S = 20.0
TIMEOUT_S = 60.0

RSS_MIB = Metric("idle_rss_mib", "MiB")
CPU_PERCENT = Metric("idle_cpu_percent", "%")

API_VERSIONS = struct.pack(">ihhih", 10, 18, 0, 1, -1)
"""The request with which clients begin: its size, API, version, correlation id, and no client id."""


class OneNode(System):
    """One broker, in a process of its own.

    Args:
        brokers: The broker; by default one of ours.
    """

    def __init__(self, brokers: SharedBrokers | None = None) -> None:
        self._brokers = brokers or ReplogBrokers(nodes_count=1)
        self.name = self._brokers.name

    def missing(self) -> str | None:
        return self._brokers.missing()

    def start(self, directory: Path) -> None:
        self._brokers.start(directory)

    def stop(self) -> None:
        self._brokers.stop()

    def process_ids(self) -> Sequence[int]:
        return self._brokers.process_ids()

    @property
    def bootstrap_servers(self) -> str:
        """Where clients are served."""
        return self._brokers.kafka_servers

    @property
    def tls_door(self) -> TlsDoor:
        """Where clients are served over TLS."""
        return self._brokers.tls_door


class IdleConnectionsScenario(Scenario[OneNode]):
    """Opens connections to one broker, asks once over each, and leaves them alone.

    `idle_rss_mib` is the resident memory that the broker has more with all of them than before the first time (it keeps
    some for the next time), `idle_cpu_percent` the part of a core that it uses meanwhile: what it uses without them is in it.

    Args:
        settle_s: How long the broker is left alone before it is weighed.
        idle_s: How long its processor time is taken.
        connections: How many there are.
        systems: By default all there are.
    """

    name = "idle-connections"
    question = "What do a thousand idle clients cost a broker, in memory and in processor time?"

    def __init__(
        self,
        settle_s: float = SETTLE_S,
        idle_s: float = IDLE_S,
        connections: int = CONNECTIONS,
        systems: Sequence[OneNode] | None = None,
    ) -> None:
        self._settle_s = settle_s
        self._idle_s = idle_s
        self._connections = connections
        self._systems = [OneNode()] if systems is None else systems
        self._empty_bytes: dict[int, int] = {}

    def systems(self) -> Sequence[OneNode]:
        return self._systems

    def cases(self) -> Sequence[Params]:
        return [{"connections": 0}, {"connections": self._connections}]

    def measure(self, system: OneNode, params: Params, meter: Meter) -> Measured:  # noqa: ARG002 -- our own processor time does not count
        (process_id,) = system.process_ids()
        broker = psutil.Process(process_id)
        time.sleep(self._settle_s)
        empty_bytes = self._empty_bytes.setdefault(process_id, broker.memory_info().rss)
        with contextlib.ExitStack() as clients:
            for _ in range(int(params["connections"])):
                clients.enter_context(_connected(system.bootstrap_servers))
            time.sleep(self._settle_s)
            begun_s, used_s = time.perf_counter(), _used_s(broker)
            time.sleep(self._idle_s)
            part = (_used_s(broker) - used_s) / (time.perf_counter() - begun_s)
            more_bytes = max(0, broker.memory_info().rss - empty_bytes)
            return {RSS_MIB: more_bytes / 2**20, CPU_PERCENT: part * 100}


def _used_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return times.user + times.system


def _connected(address: str) -> socket.socket:
    """Returns a connection over which one answer came."""
    host, _, port = address.rpartition(":")
    connection = socket.create_connection((host, int(port)), TIMEOUT_S)
    ask_once(connection)
    return connection


def ask_once(connection: socket.socket) -> None:
    """Asks for the versions of the APIs, and returns when the answer is there."""
    connection.sendall(API_VERSIONS)
    with connection.makefile("rb") as answers:
        (size,) = struct.unpack(">i", answers.read(4))
        answers.read(size)


SCENARIO = IdleConnectionsScenario()
