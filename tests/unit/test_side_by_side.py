"""Which tests one process runs, and which are begun first; what is in which unit: `tests/lint/parts_of_tests.py`."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from tests.side_by_side import END, LONGEST, SHARE_NOTHING, TESTS, Scheduler, in_order, unit_of


def test_a_file_is_run_by_one_process() -> None:
    assert unit_of("tests/cluster/test_a.py::TestB::test_c[d::e]") == "tests/cluster/test_a.py"


def test_what_shares_nothing_is_run_by_a_process_of_its_own() -> None:
    assert [unit_of(f"{file}::test_it") for file in SHARE_NOTHING] == list(SHARE_NOTHING)


def test_what_takes_longest_is_begun_before_what_is_short() -> None:
    """Example: one process would still run the Spark tests while the others have nothing left."""
    short = ["tests/cluster/test_a.py", "tests/kafka/test_kafka_full_groups_alike.py", "tests/sim/test_c.py"]
    files = ["tests/spark/test_b.py", "tests/kafka/test_kafka_b_alike.py", "tests/kafka/test_kafka_tls.py"]
    files += ["tests/kafka/test_kafka_wrote_it.py", *(unit for unit in LONGEST if unit.endswith(".py"))]
    assert in_order(f"{file}::x" for file in (*short, *reversed(files))) == [*LONGEST, *short]


class Process:
    """A process for tests that runs nothing, and keeps what it was told to run."""

    shutting_down = False
    gateway = SimpleNamespace(id="gw")

    def __init__(self) -> None:
        self.told: list[int] = []

    def send_runtest_some(self, indices: list[int]) -> None:
        self.told += indices

    def shutdown(self) -> None:
        self.shutting_down = True


def test_one_process_of_four_begins_with_what_does_not_wait() -> None:
    """Example: all processes would wait for clusters at first, and at the end none of them."""
    collected = [f"tests/cluster/test_{number}.py::x" for number in range(7)]
    collected += ["tests/spark/test_a.py::x", *(f"tests/unit/test_{number}.py::x" for number in range(3))]
    config: Any = SimpleNamespace(option=SimpleNamespace(), getvalue=lambda name: ["popen"] * 4)
    scheduler, processes = Scheduler(config, None), [Process() for _ in range(4)]
    for process in processes:
        scheduler.add_node(process)
        scheduler.add_node_collection(process, collected)
    scheduler.schedule()
    assert [process.told for process in processes] == [[8, 9], [7, 2], [0, 3], [1, 4]]


def test_a_process_gets_its_next_unit_when_it_has_one_item_left() -> None:
    """Example: a unit would wait in a process for one that takes minutes, while another process has nothing to do."""
    collected = [f"tests/unit/test_{number}.py::{name}" for number in range(3) for name in (TESTS, END)]
    config: Any = SimpleNamespace(
        option=SimpleNamespace(),
        getvalue=lambda name: ["popen"],
        pluginmanager=SimpleNamespace(get_plugin=lambda name: SimpleNamespace()),
    )
    scheduler, process = Scheduler(config, None), Process()
    scheduler.add_node(process)
    scheduler.add_node_collection(process, collected)
    scheduler.schedule()
    assert process.told == [0, 1]
    scheduler.mark_test_complete(process, 0)
    assert process.told == [0, 1, 2, 3]
    scheduler.mark_test_complete(process, 1)
    assert process.told == [0, 1, 2, 3]
