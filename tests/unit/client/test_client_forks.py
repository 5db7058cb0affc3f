"""Forks: a child makes clients of its own, and copies of the parent's say what they are."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PARENT = """
import asyncio, gc, os, sys
import replog
from replog.client import Admin, Consumer, Producer, SyncAdmin, SyncConsumer, SyncProducer
from replog.errors import ReplogError

ADDRESS = "127.0.0.1:1"  # nobody listens there
SHORT = {"connect_timeout_ms": 100}

async def connect():
    try:
        async with Consumer(ADDRESS, **SHORT):
            pass
    except ReplogError as error:
        return str(error)

def connect_sync():
    try:
        with SyncConsumer(ADDRESS, **SHORT):
            pass
    except ReplogError as error:
        return str(error)

def told(*calls):
    for call in calls:
        try:
            call()
        except ReplogError as error:
            print("make a new client here" in str(error), flush=True)

def child():
    before()
    pid = os.fork()
    if pid == 0:
        inside()
        sys.exit(0)
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""


def run(script: str) -> list[str]:
    path = ":".join(path for path in sys.path if path)
    command = [sys.executable, "-c", f"{PARENT}\n{script}\nchild()"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True, env={"PYTHONPATH": path})
    return done.stdout.split("\n")[:-1]


@pytest.mark.parametrize("before", ["pass", "Consumer(ADDRESS)", "asyncio.run(connect())", "connect_sync()"])
def test_new_clients_in_a_child_are_like_those_of_any_process(before: str) -> None:
    connect = "assert 'connect to 127.0.0.1:1' in connect_sync() and 'connect to' in asyncio.run(connect())"
    assert run(f"def before(): {before}\ndef inside(): {connect}") == ["0"]


def test_a_client_that_was_not_used_yet_may_be_used_in_the_child() -> None:
    before = "def before():\n global sync\n connect_sync()\n sync = SyncConsumer(ADDRESS, **SHORT)"
    inside = """
def inside():
    try:
        sync.assign_topic("t")
    except ReplogError as error:
        assert "look up topic" in str(error) or "connect to" in str(error), error
        print("asked")
    sync.close()
"""
    assert run(f"{before}\n{inside}") == ["asked", "0"]


def test_clients_that_were_carried_along_are_refused_and_close() -> None:
    calls = [
        "lambda: asyncio.run(consumer.poll())",
        "lambda: asyncio.run(producer.send('t', b''))",
        "lambda: asyncio.run(admin.list_topics())",
        "lambda: sync.poll()",
        "lambda: sync.assign_topic('t')",
    ]
    before = "def before():\n    global consumer, producer, admin, sync"
    make = """
    consumer, producer, admin = Consumer(ADDRESS, **SHORT), Producer(ADDRESS), Admin(ADDRESS)
    sync = SyncConsumer(ADDRESS, **SHORT)
    async def use():
        for client in (consumer, producer, admin):
            client._view.open()
    asyncio.new_event_loop().run_until_complete(use())
    try:
        sync.assign_topic("t", timeout_ms=100)
    except ReplogError:
        pass
"""
    close = "asyncio.run(consumer.close()); asyncio.run(producer.close()); asyncio.run(admin.close()); sync.close()"
    script = f"{before}\n{make}\ndef inside():\n told({', '.join(calls)})\n {close}"
    assert run(script) == ["True"] * 5 + ["0"]


def test_a_delivery_of_the_parent_and_clients_that_were_started_there() -> None:
    """Whatever was under way in the parent goes on there: a child that waits for it is told so at once."""
    before = """
def before():
    global loop, consumer, producer, admin, delivery, bulk
    sys.path.insert(0, TESTS)
    from fake_cluster import FakeCluster
    connect_sync()
    loop = asyncio.new_event_loop()
    async def start():
        cluster = FakeCluster()
        cluster.create_topic("t")
        clients = [cls(cluster.bootstrap, transport=cluster.transport()) for cls in (Consumer, Producer, Admin)]
        await clients[0].assign([("t", 0)])
        await clients[2].list_topics()
        cluster.nodes[1].is_silent = True
        return *clients, await clients[1].send("t", b"0"), await clients[1].send_many("t", [b"1"])
    consumer, producer, admin, delivery, bulk = loop.run_until_complete(start())
"""
    calls = [
        "lambda: loop.run_until_complete(delivery)",
        "lambda: loop.run_until_complete(asyncio.wait([bulk]))",
        "lambda: asyncio.run(delivery.wait())",
        "lambda: asyncio.run(bulk.wait())",
        "lambda: asyncio.run(consumer.poll())",
        "lambda: asyncio.run(consumer.end_offsets([('t', 0)]))",
        "lambda: consumer.seek(('t', 0), 0)",
        "lambda: asyncio.run(producer.flush())",
        "lambda: asyncio.run(producer.send('t', b''))",
        "lambda: asyncio.run(admin.list_topics())",
    ]
    close = "for client in (consumer, producer, admin): asyncio.run(client.close())"
    script = f"TESTS = {str(Path(__file__).parent)!r}{before}\ndef inside():\n told({', '.join(calls)})\n {close}"
    assert run(script) == ["True"] * len(calls) + ["0"]
