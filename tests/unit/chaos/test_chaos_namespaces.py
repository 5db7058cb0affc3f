"""The network namespaces of `replog chaos`: what a cut link loses, and that nothing of them is left behind."""

from __future__ import annotations

import os
import random
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from replog.testing.machines.network import CLIENT
from replog_chaos.faults import FAULTS, Links, faults_with
from replog_chaos.namespaces import ASIDE_NUMBER, SUBNETS_COUNT, Namespaces, namespaces_are_missing

COUNTER = """
import socket, sys
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as counter:
    counter.bind((sys.argv[1], 5000))
    print(flush=True)
    count = 0
    while True:
        _, asker = counter.recvfrom(9)
        count += 1
        counter.sendto(b"%d" % count, asker)
"""
"""Answers every datagram with how many have come."""

ASKER = """
import socket, sys
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asker:
    asker.settimeout(20)
    asker.sendto(b"?", (sys.argv[1], 5000))
    print(asker.recv(9).decode())
"""

ORPHAN = """
import os, signal
from replog_chaos.namespaces import Namespaces
network = Namespaces([1])
network.open()
print(f"replog{os.getpid()}", flush=True)
input()
os.kill(os.getpid(), signal.SIGKILL)
"""
DEADLINE_S = 20
SILENCE_S = 0.3


@pytest.fixture
def network() -> Iterator[Namespaces]:
    if reason := namespaces_are_missing():
        pytest.skip(reason)
    found = Namespaces([1, 2])
    found.open()
    yield found
    found.close()


@pytest.fixture
def counter(network: Namespaces) -> Iterator[str]:
    """Runs in the namespace of node 1, under its own address."""
    yield from _counting(network, network.host(1))


@pytest.fixture
def counter_aside(network: Namespaces) -> Iterator[str]:
    """The same, under its address for who goes past what is cut."""
    yield from _counting(network, network.host(ASIDE_NUMBER + 1))


def _counting(network: Namespaces, host: str) -> Iterator[str]:
    command = [*network.places()[1].launcher, sys.executable, "-c", COUNTER, host]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield host
        process.kill()


def asked(host: str, timeout_s: float = DEADLINE_S) -> int | None:
    """What the counter says to a client; None: nothing came back."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asker:
        asker.settimeout(timeout_s)
        asker.sendto(b"?", (host, 5000))
        try:
            return int(asker.recv(9))
        except TimeoutError:
            return None


def asked_by_node_2(network: Namespaces, host: str) -> int:
    command = [*network.places()[2].launcher, sys.executable, "-c", ASKER, host]
    return int(subprocess.run(command, check=True, capture_output=True, timeout=60).stdout)


def test_a_cut_link_loses_what_is_sent_in_its_direction(network: Namespaces, counter: str) -> None:
    assert asked(counter) == 1
    network.cut((CLIENT, 1))
    assert asked(counter, SILENCE_S) is None
    network.mend()
    assert asked(counter) == 2, "the question was lost"
    network.cut((1, CLIENT))
    network.cut((1, CLIENT))
    assert asked(counter, SILENCE_S) is None
    network.mend()
    assert asked(counter) == 4, "the question came, the answer was lost"


def test_links_of_others_stay_open(network: Namespaces, counter: str, counter_aside: str) -> None:
    network.cut((CLIENT, 1), (1, CLIENT))
    assert asked_by_node_2(network, counter) == 1
    network.isolate(1)
    assert asked(counter, SILENCE_S) is None
    assert asked(counter_aside) == 1
    network.mend()
    network.isolate(1, clients=False)
    assert asked(counter) == 2


def test_two_networks_at_once_have_subnets_of_their_own(network: Namespaces, monkeypatch: pytest.MonkeyPatch) -> None:
    _, high, low, _ = map(int, network.host(CLIENT).split("."))
    taken = (high - 18) * 256 + low
    drawn = iter([taken, (taken + 1) % SUBNETS_COUNT])
    monkeypatch.setattr(random, "randrange", lambda _: next(drawn))
    other = Namespaces([1, 2])
    other._device += "x"  # as of another process
    other.open()
    try:
        assert other.host(1) != network.host(1)
        assert next(drawn, None) is None, "the first subnet was refused"
    finally:
        other.close()


def test_nothing_is_left(network: Namespaces) -> None:
    device = Path(f"/sys/class/net/replog{os.getpid()}")
    assert device.exists()
    network.close()
    assert not device.exists()


def test_nothing_is_left_of_a_process_that_was_killed() -> None:
    if reason := namespaces_are_missing():
        pytest.skip(reason)
    with subprocess.Popen(
        [sys.executable, "-c", ORPHAN], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        device = Path("/sys/class/net") / process.stdout.readline().strip()
        assert device.exists()
        process.communicate("\n", timeout=DEADLINE_S)
    ends_s = time.monotonic() + DEADLINE_S
    while device.exists():
        assert time.monotonic() < ends_s, f"{device} is still there"
        time.sleep(0.01)


def test_what_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda tool: None if tool == "nsenter" else tool)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert namespaces_are_missing() == "no nsenter here"
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert faults_with(Links.NAMESPACES)["isolate-leader"].missing() == "network namespaces need root"
    assert FAULTS["isolate-leader"].missing() == "", "proxies need nothing"
