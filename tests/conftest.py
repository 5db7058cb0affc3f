"""For all tests: what the way they were started must not change, what would slow all of them down, and who runs which."""

from __future__ import annotations

import gc
import json
import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from bench.bytecode import keep_bytecode
from tests import short_lived_java
from tests.campaign.marks import CampaignMarks
from tests.collecting import CollectsInTurn, collects_in_turn
from tests.report_bytes import ReportBytes
from tests.run_costs import Costs, Processes
from tests.run_report import RunReport

if TYPE_CHECKING:
    from tests.side_by_side import Scheduler


def pytest_configure(config: pytest.Config) -> None:
    _take_interrupts()
    _keep_bytecode(config)
    config.pluginmanager.register(CampaignMarks(), "campaign marks")
    config.pluginmanager.register(ReportBytes(), ReportBytes.__name__)
    _measure_costs(config)


def _take_interrupts() -> None:
    """A shell ignores SIGINT for commands in the background, and children inherit that; tests interrupt theirs."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _keep_bytecode(config: pytest.Config) -> None:
    """Keeps bytecode in pytest's cache: tests start a thousand processes."""
    cache = getattr(config, "cache", None)
    if cache is not None:
        keep_bytecode(cache.mkdir("bytecode"))


def _measure_costs(config: pytest.Config) -> None:
    """Measures where tests are run, and reports where people look: in one process, or (`pytest -n 3`) in several."""
    is_worker = hasattr(config, "workerinput")
    runs_tests = is_worker or config.getoption("dist", "no") == "no"
    costs = Costs(Processes()) if runs_tests else None
    if costs is not None:
        config.pluginmanager.register(costs, Costs.__name__)
    if is_worker and collects_in_turn(config):
        config.pluginmanager.register(CollectsInTurn(costs), CollectsInTurn.__name__)
    if not is_worker:
        config.pluginmanager.register(RunReport(costs), RunReport.__name__)


@pytest.hookimpl(tryfirst=True)
def pytest_collection() -> None:
    """Looks for no garbage meanwhile: what is collected stays."""
    gc.disable()


def pytest_collection_finish() -> None:
    """Modules and thousands of tests stay: no look for garbage needs to walk over them again."""
    gc.enable()
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="module", autouse=True)
def _garbage_of_its_own() -> Iterator[None]:
    """Looks for garbage at the end of each file.

    An error in what the garbage collector ends, such as a coroutine or a socket, fails the test that runs then: it is to be
    one of the file that has left it, whichever files come before and after.

    What stays for good, such as modules that a file was the first to load, would be walked over by each later look: what has
    survived one is spared the next ones.
    """
    yield
    gc.collect()
    gc.freeze()


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown() -> None:
    """Empties the index cache of the process.

    Logs that a test leaves open, as a killed machine does, stay in it with their simulated disks: half a million objects in some
    files, and each look for garbage walks over them.
    """
    from replog.log.segments.index_cache import (
        INDEX_CACHE,
    )  # of the product nothing is loaded before its bytecode is kept

    INDEX_CACHE._copies.clear()
    INDEX_CACHE._maps.clear()


@pytest.fixture(scope="session", autouse=True)
def java_temporary_folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Has every Java that tests start be quick to start and keep its files here: Spark's, libraries that Kafka unpacks."""
    folder = tmp_path_factory.mktemp("java")
    inherited = os.environ.get(short_lived_java.VARIABLE, "")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(short_lived_java.VARIABLE, short_lived_java.java_options(folder, inherited))
        yield folder
    request.config.pluginmanager.get_plugin(Costs.__name__).java_count = short_lived_java.started_count(folder)
    shutil.rmtree(folder, ignore_errors=True)  # Spark's own Java may be writing: it ends with this process


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Scheduler:
    """Says which tests may run side by side (`pytest -n 3`, as `make test` does)."""
    from tests.side_by_side import Scheduler

    scheduler = Scheduler(config, log)
    config.pluginmanager.register(scheduler, Scheduler.__name__)
    return scheduler


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Writes into the results for which cells of docs/KAFKA_CLIENTS.md a test stands (tools/kafka_clients.py reads them)."""
    for item in items:
        parameters = getattr(getattr(item, "callspec", None), "params", {})
        if parameters.get("broker") != "kafka":  # with Apache Kafka itself tests prove nothing of ours
            for mark in item.iter_markers("served"):
                client = mark.kwargs.get("client") or parameters["client"]
                cell = [client, *mark.args, mark.kwargs.get("told")]
                item.user_properties.append(("served", json.dumps(cell)))
