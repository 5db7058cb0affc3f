"""`replog perf` on a broker in this process."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import Iterator

import pytest
from cli_runs import PATIENCE_S, Done, command, replog_here

import replog
from replog.client import SyncAdmin, TopicPartition

pytestmark = pytest.mark.cluster

END = TopicPartition("endless", 0)


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with replog.embedded() as broker, SyncAdmin(broker.bootstrap_servers) as admin:
        for topic in ("t", "endless", "small"):
            admin.create_topic(topic, configs={"max.message.bytes": 2_000} if topic == "small" else {})
        yield broker.bootstrap_servers


def perf(servers: str, *arguments: object) -> Done:
    return replog_here("perf", *arguments, "-b", servers)


def test_what_was_written_is_read_and_comes_back(servers: str) -> None:
    written = json.loads(perf(servers, "produce", "t", "--records", 500, "--record-bytes", 100, "--json").out)
    read = json.loads(perf(servers, "consume", "t", "--json").out)
    both = json.loads(perf(servers, "e2e", "t", "--records", 20, "--rate", 1000, "--json").out)
    for found, records, size in ((written, 500, 50_000), (read, 500, 50_000), (both, 20, 2_000)):
        assert (found["records"], found["bytes"], found["failed"]) == (records, size, {})
        assert 0 < found["latency_ms"]["p50"] <= found["latency_ms"]["p99"] <= found["latency_ms"]["max"]
        assert found["records_per_s"] > 0
    few = perf(servers, "consume", "t", "--records", 7)
    assert (few.status, few.err) == (0, "")
    assert few.out.splitlines()[1].split() == ["records", "7"]


def test_records_that_fail_are_counted_and_make_the_status(servers: str) -> None:
    done = perf(servers, "produce", "small", "--records", 3, "--record-bytes", 3_000, "--json")
    assert (done.status, done.err) == (1, "error: 3 records failed\n")
    found = json.loads(done.out)
    assert (found["records"], found["failed"], found["latency_ms"]["p50"]) == (0, {"RecordTooLargeError": 3}, None)
    missing = perf(servers, "e2e", "nowhere")
    assert (missing.status, missing.out) == (1, "")
    assert '"nowhere" does not exist' in missing.err


def test_ctrl_c_ends_a_load_with_its_summary(servers: str) -> None:
    line = command("perf", "produce", "endless", "--seconds", 600, "--rate", 200, "-b", servers)
    with subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        deadline_s = time.monotonic() + PATIENCE_S
        with SyncAdmin(servers) as admin:
            while time.monotonic() < deadline_s and not admin.list_offsets({END: -1})[END].offset:
                time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, err) == (130, "")
    assert int(out.splitlines()[1].split()[1].replace(",", "")) > 0
