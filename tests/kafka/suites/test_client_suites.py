"""The public test suites of Kafka's clients, unchanged, with a broker of ours and with Apache Kafka (`make test-client-suites`)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from suites.suite_list import SIDES, SUITES, suite_list
from suites.suite_run import Served, brokers, cases, run

ALL = [case for suite in SUITES for side in SIDES for case in cases(suite, side, suite_list(suite).tests)]


@pytest.fixture(scope="module")
def served(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Brokers of one kind for one suite, which is ready to be run."""
    suite, side = request.param
    SUITES[suite].prepare()
    with brokers(suite, side, tmp_path_factory.mktemp("brokers")) as running:
        yield running


@pytest.mark.parametrize("suite", SUITES)
def test_each_test_of_the_source_is_listed(suite: str) -> None:
    listed = suite_list(suite)
    SUITES[suite].prepare()
    assert {test.partition("/")[0] for test in (*listed.tests, *listed.left_out)} == SUITES[suite].names()


@pytest.mark.parametrize(("served", "test"), ALL, indirect=["served"])
def test_it_ends_as_expected(served: Served, test: str, tmp_path: Path) -> None:
    run(served, test, tmp_path)
