"""Two workers of Kafka Connect share connectors and tasks as a group of a broker of ours; one is killed, the other goes on."""

from __future__ import annotations

import json
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from socket import create_server
from typing import Any

import pytest

import replog
from replog.client import SyncAdmin
from tests.deploy.spark_processes import dying_with_us
from tests.kafka.kafka_install import KafkaInstall, KafkaUnavailableError, install_connect

pytestmark = pytest.mark.deploy

PATIENCE_S = 180.0
GROUP, TOPIC = "connect-cluster", "lines"
LINES = [f"line {number}" for number in range(200)]
CREATION = {"topic.creation.default.replication.factor": "1", "topic.creation.default.partitions": "2"}
SOURCE = {"connector.class": "org.apache.kafka.connect.file.FileStreamSourceConnector", "topic": TOPIC, **CREATION}
SINK = {"connector.class": "org.apache.kafka.connect.file.FileStreamSinkConnector", "topics": TOPIC, "tasks.max": "2"}
CONVERTER = "org.apache.kafka.connect.storage.StringConverter"


def settings(servers: str, port: int) -> dict[str, object]:
    """The settings of a worker: times for a test, one replica of everything."""
    stores = {f"{name}.storage.topic": f"connect-{name}" for name in ("offset", "config", "status")}
    replicas = {f"{name}.storage.replication.factor": 1 for name in ("offset", "config", "status")}
    times = {
        "session.timeout.ms": 6_000,
        "heartbeat.interval.ms": 500,
        "scheduled.rebalance.max.delay.ms": 1_000,
        "offset.flush.interval.ms": 500,
    }
    converters = {"key.converter": CONVERTER, "value.converter": CONVERTER}
    place = {"bootstrap.servers": servers, "group.id": GROUP, "listeners": f"HTTP://127.0.0.1:{port}"}
    return {**place, **converters, **stores, **replicas, **times}


class Worker:
    """A worker, as a process, and what its REST interface says."""

    def __init__(self, connect: KafkaInstall, servers: str, folder: Path) -> None:
        with create_server(("127.0.0.1", 0)) as taken:
            self.port = taken.getsockname()[1]
        file = folder / f"worker-{self.port}.properties"
        file.write_text("".join(f"{name}={value}\n" for name, value in settings(servers, self.port).items()))
        command = dying_with_us(connect.command("org.apache.kafka.connect.cli.ConnectDistributed", str(file)))
        with (folder / f"worker-{self.port}.log").open("wb") as log:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def ask(self, path: str, config: dict[str, str] | None = None) -> Any:
        """What it answers; None while it does not, or has no such thing."""
        data, method = (None, "GET") if config is None else (json.dumps(config).encode(), "PUT")
        url = f"http://127.0.0.1:{self.port}{path}"
        asked = urllib.request.Request(url, data, {"Content-Type": "application/json"}, method=method)
        try:
            with urllib.request.urlopen(asked, timeout=30) as answer:
                return json.load(answer)
        except OSError:
            return None

    def end(self) -> None:
        self.process.kill()
        self.process.wait()


@pytest.fixture(scope="module")
def connect() -> KafkaInstall:
    try:
        return install_connect()
    except KafkaUnavailableError as reason:
        pytest.skip(str(reason))


@contextmanager
def ended(*workers: Worker) -> Iterator[None]:
    try:
        yield
    finally:
        for each in workers:
            each.end()


def until(condition: Callable[[], object]) -> None:
    """Waits as long as JVMs take to start on a busy machine."""
    deadline_s = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline_s, "what is waited for has not come"
        time.sleep(0.2)


def workers_of(worker: Worker, *connectors: str) -> set[str] | None:
    """The workers that run connectors and their tasks; None while something does not run."""
    found = [worker.ask(f"/connectors/{name}/status") for name in connectors]
    if not all(each and each["tasks"] for each in found):
        return None
    running = [part for each in found for part in (each["connector"], *each["tasks"])]
    return {part["worker_id"] for part in running} if all(part["state"] == "RUNNING" for part in running) else None


def members_count(admin: SyncAdmin) -> int:
    """How many workers have joined the group, which the first one makes."""
    there_is = any(each.group_id == GROUP for each in admin.list_groups())
    return len(admin.describe_groups([GROUP])[GROUP].members) if there_is else 0


def test_a_worker_is_killed_and_the_other_takes_its_tasks_over(connect: KafkaInstall, tmp_path: Path) -> None:
    source, sink = tmp_path / "source.txt", tmp_path / "sink.txt"
    source.write_text("".join(f"{line}\n" for line in LINES[:100]))
    sink.touch()
    with replog.embedded() as broker, SyncAdmin(broker.bootstrap_servers) as admin:
        killed, other = (Worker(connect, broker.bootstrap_servers, tmp_path) for _ in range(2))
        with ended(killed, other):
            until(lambda: members_count(admin) == 2)
            until(lambda: other.ask("/connectors/source/config", {**SOURCE, "file": str(source)}))
            until(lambda: TOPIC in admin.list_topics())
            until(lambda: other.ask("/connectors/sink/config", {**SINK, "file": str(sink)}))
            until(lambda: len(workers_of(other, "source", "sink") or ()) == 2)
            until(lambda: set(sink.read_text().splitlines()) == set(LINES[:100]))
            killed.end()
            with source.open("a") as file:
                file.writelines(f"{line}\n" for line in LINES[100:])
            until(lambda: workers_of(other, "source", "sink") == {f"127.0.0.1:{other.port}"})
            until(lambda: set(sink.read_text().splitlines()) == set(LINES))
            (group,) = (each for each in admin.list_groups() if each.group_id == GROUP)
            assert group.protocol_type == "connect"
            assert {each.group_id for each in admin.list_groups()} == {GROUP, "connect-sink"}
