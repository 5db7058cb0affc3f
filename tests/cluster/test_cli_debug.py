"""`replog debug bundle` of a local cluster: while it runs, and while no node does."""

from __future__ import annotations

import asyncio
import json
import re
import socket
import zipfile
from pathlib import Path

import pytest
from cli_runs import replog_here

import replog
from replog import Admin, Producer
from replog.cli.checks import bundle
from replog.cluster import LocalCluster

pytestmark = pytest.mark.cluster


def made(file: Path, *arguments: object) -> dict[str, bytes]:
    done = replog_here("debug", "bundle", "-o", file, *arguments)
    assert (done.status, done.err) == (0, "")
    assert f"{file}: " in done.out
    with zipfile.ZipFile(file) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
    return port


async def test_a_bundle_has_what_its_readme_says_and_no_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REPLOG_TOKEN", "hush")
    listener = f"127.0.0.1:{free_port()}"
    folder = tmp_path / "c"
    async with await LocalCluster.start(folder, nodes=1, config={"metrics.listener": listener}) as cluster:
        async with Admin(cluster.bootstrap_servers) as admin, Producer(cluster.bootstrap_servers) as producer:
            await admin.create_topic("flights", 1, 1)
            await producer.send_and_wait("flights", b"the value of a record")
        found = await asyncio.to_thread(made, tmp_path / "running.zip", "--dir", folder)
    in_readme = {line.split()[0] for line in bundle.README.splitlines() if re.match(r"[\w-]+\.(json|txt) ", line)}
    assert {name.replace("node-1", "node-N") for name in found} == {"README.txt", *in_readme}
    told = {name: json.loads(data) for name, data in found.items() if name.endswith(".json")}
    assert told["versions.json"]["replog"] == replog.__version__
    assert told["versions.json"]["variables"]["REPLOG_TOKEN"] == bundle.HIDDEN
    assert told["health.json"]["answer"]["topics_count"] == 1
    assert told["node-1-configs.json"]["metrics.listener"] == listener
    assert b"flights" in found["metadata.json"]
    assert b"replog_leaders" in found["node-1-metrics.txt"]
    assert found["node-1-log.txt"]
    assert not any(b"the value of a record" in data or b"hush" in data for data in found.values())
    stopped = await asyncio.to_thread(made, tmp_path / "stopped.zip", "--dir", folder)
    assert stopped.keys() == {"README.txt", "versions.json", "node-1-log.txt"}
    again = await asyncio.to_thread(replog_here, "debug", "bundle", "-o", tmp_path / "stopped.zip", "--dir", folder)
    assert (again.status, "File exists" in again.err) == (1, True)


def test_the_metrics_of_another_machine_are_not_asked_of_this_one() -> None:
    """Trap: 127.0.0.1 of a node's configuration is its machine, and 0.0.0.0 none."""
    assert str(bundle.reachable_metrics("127.0.0.1:9404", "localhost:9092")) == "127.0.0.1:9404"
    assert str(bundle.reachable_metrics("0.0.0.0:9404", "10.0.0.7:9092")) == "10.0.0.7:9404"
    assert str(bundle.reachable_metrics("10.0.0.9:9404", "10.0.0.7:9092")) == "10.0.0.9:9404"
    with pytest.raises(ValueError, match=r"on the machine of 10\.0\.0\.7:9092 only"):
        bundle.reachable_metrics("127.0.0.1:9404", "10.0.0.7:9092")


def test_each_file_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bundle, "LOG_BYTES_MAX", 100)
    monkeypatch.setattr(bundle, "PART_BYTES_MAX", 10)
    log = tmp_path / "server.log"
    log.write_text("".join(f"line {number}\n" for number in range(1_000)))
    assert bundle._last_bytes(log).startswith(b"line 9")
    assert len(bundle._last_bytes(log)) < 100
    assert bundle._cut(bytes(11)).endswith(b"(cut: 11 bytes, of which 10 are here)\n")
