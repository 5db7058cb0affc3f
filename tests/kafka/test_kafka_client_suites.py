"""A few tests of franz-go's own suite with a broker of ours; all of it and the other suites: `make test-client-suites`.

Without Go, or (the first time) the network, they skip and say why.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from suites.client_suite import SuiteUnavailableError
from suites.suite_list import SUITES, suite_list
from suites.suite_run import Served, brokers, cases, run

SUITE = "franz-go"
QUICK = list(cases(SUITE, "replog", suite_list(SUITE).quick))


@pytest.fixture(scope="module")
def served(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A broker of ours for the suite, which is ready to be run."""
    suite, side = request.param
    try:
        SUITES[suite].prepare()
    except SuiteUnavailableError as error:
        pytest.skip(f"the tests of {suite} cannot be had: {error}")
    with brokers(suite, side, tmp_path_factory.mktemp("brokers")) as running:
        yield running


@pytest.mark.parametrize("suite", SUITES)
def test_the_list_of_a_suite_is_sound(suite: str) -> None:
    assert suite_list(suite).problems() == []


@pytest.mark.parametrize(("served", "test"), QUICK, indirect=["served"])
def test_franz_go_finds_what_it_expects(served: Served, test: str, tmp_path: Path) -> None:
    run(served, test, tmp_path)
