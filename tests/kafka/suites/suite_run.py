"""Tests of clients' suites as tests of pytest: what is expected to fail has the mark `xfail`, with its reason."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest
from kafka_install import install
from kafka_node import KafkaNode
from served_cluster import served_cluster
from suites.client_suite import Outcome
from suites.suite_list import SUITES, suite_list

_TOLD_CHARACTERS = 3_000
_PATIENT = {"broker.session.timeout.ms": 30_000, "broker.heartbeat.interval.ms": 1_000}
"""A broker on a busy machine is not fenced: these tests are about what it answers."""


class ClientTestFailedError(Exception):
    """A test of a suite failed; the text is the end of what it printed."""


class Served(NamedTuple):
    """Brokers that a suite runs with."""

    suite: str
    side: str
    servers: str


def cases(suite: str, side: str, tests: tuple[str, ...]) -> Iterator[object]:
    """Parameters for tests of a suite: whose brokers, and which test."""
    expected = suite_list(suite)
    for test in tests:
        marks = [pytest.mark.kafka] if side == "kafka" else []
        outcome, reason = expected.of(side, test)
        if outcome is Outcome.FAILED:
            marks.append(pytest.mark.xfail(strict=True, raises=ClientTestFailedError, reason=reason))
        yield pytest.param((suite, side), test, id=f"{suite}-{side}-{test}", marks=marks)


@contextmanager
def brokers(suite: str, side: str, folder: Path) -> Iterator[Served]:
    """Runs one node, as the suite wants it, for as long as the block."""
    settings = {**_PATIENT, **suite_list(suite).broker}
    if side == "replog":
        with served_cluster(
            folder / "cluster", 1, **{key.replace(".", "_"): value for key, value in settings.items()}
        ) as cluster:
            yield Served(suite, side, cluster.bootstrap_servers)
        return
    node = KafkaNode(install(), folder / "node", settings)
    try:
        node.start()
        yield Served(suite, side, f"127.0.0.1:{node.port}")
    finally:
        node.give_up()


def run(served: Served, test: str, folder: Path) -> None:
    """Runs a test of a suite and compares how it ended with what is expected.

    Raises:
        ClientTestFailedError: it failed, expected or not.
    """
    listed = suite_list(served.suite)
    outcome, text = SUITES[served.suite].run(test, served.servers, folder, listed.limit_s)
    expected, reason = listed.of(served.side, test)
    if outcome is Outcome.FAILED:
        raise ClientTestFailedError(text[-_TOLD_CHARACTERS:])
    if expected is Outcome.SKIPPED:
        assert outcome is expected, f"expected to be skipped ({reason}), and {outcome}: {served.suite}.toml"
        pytest.skip(reason)
    assert outcome is Outcome.PASSED, f"{outcome}, and nobody expects that:\n{text[-_TOLD_CHARACTERS:]}"
