"""Brokers in the process of the test: `replog.embedded`."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import pytest

from replog import embedded
from replog.client import Admin, Consumer, Producer, SyncAdmin, SyncProducer
from replog.errors import BrokerClosedError, ConfigError, DirectoryLockedError, InvalidRequestError
from replog.rpc.messages import LATEST_TIMESTAMP
from replog.wire.messages.metadata import MetadataRequest, MetadataResponse
from tests.kafka.raw_client import raw_client


@pytest.fixture(autouse=True)
def _temporary_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))


def threads() -> set[str]:
    """The names of the threads beside gRPC's own, which stays."""
    return {thread.name for thread in threading.enumerate() if "_poll_wrapper" not in thread.name}


def test_one_broker_serves_both_kinds_of_clients_and_leaves_nothing(tmp_path: Path) -> None:
    before = threads()
    with embedded() as broker:
        with SyncAdmin(broker.bootstrap_servers) as admin:
            admin.create_topic("flights")
        with SyncProducer(broker.bootstrap_servers) as producer:
            assert producer.send("flights", b"HAM").result().offset == 0
        with raw_client(broker.bootstrap_servers) as client:
            found = client.ask(MetadataRequest(None), 12, MetadataResponse)
            assert [topic.name for topic in found.topics] == ["flights"]
            assert len(list((tmp_path / "temporary").iterdir())) == 1
    assert threads() <= before  # one that another test has left may have ended
    assert list((tmp_path / "temporary").iterdir()) == []
    with pytest.raises(BrokerClosedError, match="no broker runs"):
        _ = broker.bootstrap_servers


FORGETFUL = """
import os, sys
from replog.client import SyncProducer

producer = SyncProducer(sys.argv[1].replace("127.0.0.1", "localhost"), compression="gzip")
for number in range(1_000):
    producer.send("flights", b"%d" % number)
sys.exit(7 if os.fork() else 0)  # the child has nothing to send and nothing to tell
"""


def test_a_process_that_closes_no_producer_loses_nothing() -> None:
    """It needs threads for it when no new ones can be had any more: for compression, and to look up a name."""
    with embedded() as broker, SyncAdmin(broker.bootstrap_servers) as admin:
        admin.create_topic("flights")
        command = [sys.executable, "-W", "ignore", "-c", FORGETFUL, broker.bootstrap_servers]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (7, "")
        offsets = admin.list_offsets({("flights", 0): LATEST_TIMESTAMP})
        assert [found.offset for found in offsets.values()] == [1_000]


async def test_three_brokers_replicate(tmp_path: Path) -> None:
    before = asyncio.all_tasks()
    async with embedded(brokers=3, config={"min.insync.replicas": 2}) as cluster:
        assert len(cluster.bootstrap_servers.split(",")) == 3
        async with Admin(cluster.bootstrap_servers) as admin, Producer(cluster.bootstrap_servers) as producer:
            await admin.create_topic("flights", 3, 3)
            sent = [await (await producer.send("flights", b"%d" % n, partition=n % 3)) for n in range(30)]
            assert {record.partition for record in sent} == {0, 1, 2}
    assert asyncio.all_tasks() == before
    assert list((tmp_path / "temporary").iterdir()) == []


@pytest.mark.parametrize(("config", "delay_ms"), [({}, 0), ({"group.initial.rebalance.delay.ms": 7}, 7)])
async def test_a_group_waits_for_nobody_unless_asked_to(config: dict[str, int], delay_ms: int) -> None:
    """Goal: a test that subscribes does not begin with seconds of silence."""
    async with embedded(config=config) as cluster:
        (node,) = cluster.nodes
        assert node.config.group_initial_rebalance_delay_ms == delay_ms


async def test_a_folder_that_is_given_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for number in range(3):
        async with embedded("data") as broker:
            async with Admin(broker.bootstrap_servers) as admin, Producer(broker.bootstrap_servers) as producer:
                if number == 0:
                    await admin.create_topic("flights")
                delivery = await producer.send("flights", b"%d" % number)
                assert (await delivery).offset == number
            async with Consumer(broker.bootstrap_servers) as consumer:
                await consumer.assign_topic("flights")
                records = [await anext(aiter(consumer)) for _ in range(number + 1)]
            assert [record.value for record in records] == [b"%d" % n for n in range(number + 1)]
    assert (tmp_path / "data" / "flights-0").is_dir()


async def test_several_at_once_know_nothing_of_each_other() -> None:
    async with embedded() as one, embedded() as other:
        async with Admin(one.bootstrap_servers) as admin:
            await admin.create_topic("flights")
        async with Admin(other.bootstrap_servers) as admin:
            assert (await admin.list_topics()) == []


async def test_with_serves_inside_of_a_loop_too() -> None:
    with embedded() as broker:
        async with Admin(broker.bootstrap_servers) as admin:
            assert (await admin.create_topic("flights")).name == "flights"


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"brokers": 0}, "1 to 9 can run"),
        ({"brokers": 10}, "1 to 9 can run"),
        ({"brokers": "3"}, "1 to 9 can run"),
        ({"brokers": 1.5}, "1 to 9 can run"),
        ({"brokers": True}, "1 to 9 can run"),
        ({"path": ""}, "path is empty"),
        ({"config": ["log.dirs"]}, "is no mapping"),
        ({"brokers": 3, "path": "data"}, "use LocalCluster"),
        ({"path": "data", "config": {"log.dirs": ["elsewhere"]}}, "as path"),
    ],
)
def test_what_cannot_be_is_refused(arguments: dict[str, object], reason: str) -> None:
    with pytest.raises(InvalidRequestError, match=reason):
        embedded(**arguments)  # type: ignore[arg-type]


async def test_a_start_that_fails_leaves_nothing(tmp_path: Path) -> None:
    before = threads()
    with pytest.raises(ConfigError, match=r"min\.insync\.replica"), embedded(config={"min.insync.replica": 2}):
        raise AssertionError("it must not start")
    async with embedded(tmp_path / "data"):
        with pytest.raises(DirectoryLockedError):
            await embedded(tmp_path / "data").__aenter__()
    assert list((tmp_path / "temporary").iterdir()) == []
    assert threads() <= before | {thread for thread in threads() if thread.startswith("asyncio_")}


async def test_the_same_one_is_not_started_twice() -> None:
    async with embedded() as broker:
        with pytest.raises(InvalidRequestError, match="run already"):
            await broker.__aenter__()
        assert len(broker.nodes) == 1
    async with broker:
        assert len(broker.nodes) == 1


async def test_of_two_starts_at_once_one_is_refused() -> None:
    before = asyncio.all_tasks()
    broker = embedded()
    outcomes = await asyncio.gather(broker.__aenter__(), broker.__aenter__(), return_exceptions=True)
    await broker.__aexit__(None, None, None)
    assert [type(outcome) for outcome in outcomes] == [type(broker), InvalidRequestError]
    assert asyncio.all_tasks() == before


def test_a_block_within_the_same_ones_block_is_refused_and_ends_nothing() -> None:
    with embedded() as broker:
        with pytest.raises(InvalidRequestError, match="run already"), broker:
            raise AssertionError("it must not start")
        with SyncAdmin(broker.bootstrap_servers) as admin:
            admin.create_topic("flights")
    with broker:
        assert len(broker.nodes) == 1


async def test_a_start_that_is_given_up_leaves_nothing(tmp_path: Path) -> None:
    """At whichever await it is."""
    before = asyncio.all_tasks()
    for turns in (1, 3, 10, 30, 100):
        starting = asyncio.create_task(embedded().__aenter__())
        for _ in range(turns):
            await asyncio.sleep(0)
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting
        assert list((tmp_path / "temporary").iterdir()) == []
        assert asyncio.all_tasks() == before


@pytest.mark.parametrize("end", ["pass", "sys.exit(0)"])
def test_a_forked_child_leaves_the_brokers_to_its_parent(end: str) -> None:
    """Also one that leaves the block, or runs what is to run at a program's end."""
    program = f"""
import os, sys, replog, replog.client
with replog.embedded() as broker:
    with replog.client.SyncAdmin(broker.bootstrap_servers) as admin:
        admin.create_topic("flights")
    child = os.fork()
    if child == 0:
        {end}
    else:
        _, status = os.waitpid(child, 0)
        kept = os.path.isdir(broker.nodes[0].config.log_dirs[0])
        with replog.client.SyncProducer(broker.bootstrap_servers) as producer:
            print(status, kept, producer.send("flights", b"HAM").result().offset)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout) == (0, "0 True 0\n"), done.stderr


def test_a_program_prints_nothing_but_its_own() -> None:
    program = """
import replog
with replog.embedded() as broker:
    with replog.client.SyncAdmin(broker.bootstrap_servers) as admin:
        admin.create_topic("flights")
    print("done")
"""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", "import replog.client\n" + program],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "")


INTERRUPTED = """
import sys, threading, replog

def names():
    return {thread.name for thread in threading.enumerate() if "_poll_wrapper" not in thread.name}

before = names()
try:
    with replog.embedded(sys.argv[1] or None) as broker:
        with replog.client.SyncAdmin(broker.bootstrap_servers) as admin:
            admin.create_topic("flights")
        with replog.client.SyncProducer(broker.bootstrap_servers) as producer:
            while True:
                offset = producer.send("flights", b"HAM").result().offset
                print(offset, flush=True)
finally:
    print("left", *sorted(names() - before), flush=True)
"""


@pytest.mark.parametrize("folder", ["data", ""], ids=["given", "temporary"])
def test_ctrl_c_ends_a_plain_script_with_its_brokers(folder: str, tmp_path: Path) -> None:
    """It is a KeyboardInterrupt and nothing else; what was acknowledged is there the next time."""
    command = [
        sys.executable,
        "-W",
        "error",
        "-c",
        "import replog.client\n" + INTERRUPTED,
        folder and str(tmp_path / folder),
    ]
    env = {**os.environ, "TMPDIR": str(tmp_path / "temporary")}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env) as process:
        assert process.stdout is not None
        acknowledged = [int(process.stdout.readline()) for _ in range(50)][-1]
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    *more, left = out.splitlines()
    assert left == "left"
    assert process.returncode == -signal.SIGINT
    assert err.startswith("Traceback (most recent call last):\n")
    assert [line for line in err.splitlines() if not line.startswith(" ")][1:] == ["KeyboardInterrupt"]
    assert list((tmp_path / "temporary").iterdir()) == []
    if folder:
        with embedded(tmp_path / folder) as broker, SyncAdmin(broker.bootstrap_servers) as admin:
            (found,) = admin.list_offsets({("flights", 0): LATEST_TIMESTAMP}).values()
        assert found.offset > max([acknowledged, *map(int, more)])
