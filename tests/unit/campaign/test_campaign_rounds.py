"""A campaign gets to each kind, ends in time with nothing left, and writes down what it finds."""

from __future__ import annotations

import shlex
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.campaign.kinds import Kind, kinds, make_job
from tests.campaign.rounds import Campaign, repeated, virtual_s
from tests.campaign.running_jobs import Ended, RunningJob, end_all

SIMULATION = Kind("toy", ("toy", "--first", "{seed}", "--seeds", "{count}"), 0.5, repeat=("toy", "--seed", "{seed}"))


def python(code: str, *arguments: str, name: str = "toy", draws: bool = True, grace_s: float = 30.0) -> Kind:
    return Kind(name, (sys.executable, "-c", code, *arguments), 0.01, draws=draws, grace_s=grace_s)


def campaign(tmp_path: Path, *those: Kind, duration_s: float = 60.0, processes: int = 2) -> Campaign:
    return Campaign(
        those, duration_s=duration_s, processes=processes, finds=tmp_path / "finds", seed=1, say=lambda _: None
    )


def test_a_job_has_as_many_units_as_fit() -> None:
    assert make_job(SIMULATION, 7, 10.0, Path("/nowhere")).command == ("toy", "--first", "7", "--seeds", "20")
    assert make_job(SIMULATION, 7, 0.1, Path("/nowhere")).count == 1


def test_choices_are_drawn_and_the_same_for_one_seed() -> None:
    kind = Kind("toy", ("{choices}",), 5.0, choices=("a", "b", "c"))
    drawn = {make_job(kind, seed, 10.0, Path("/nowhere")).command[0] for seed in range(50)}
    assert drawn == {"a,b", "b,a", "a,c", "c,a", "b,c", "c,b"}
    assert make_job(kind, 3, 100.0, Path("/nowhere")) == make_job(kind, 3, 100.0, Path("/nowhere"))
    assert make_job(kind, 3, 100.0, Path("/nowhere")).count == 3


def test_what_draws_nothing_runs_once_and_each_kind_in_turn(tmp_path: Path) -> None:
    once = [python("", name=f"once {number}", draws=False) for number in range(3)]
    it = campaign(tmp_path, *once)
    it.run()
    assert [tally.runs for tally in it.tallies.values()] == [1, 1, 1]
    assert it.finds == []


def test_a_find_has_its_message_and_what_repeats_it(tmp_path: Path) -> None:
    code = "import sys; print('R3 made up [seed 4711, more]'); sys.exit(1)"
    it = campaign(tmp_path, python(code, "{seed}", draws=False), python("", name="fine", draws=False))
    it.run()
    (find,) = it.finds
    said = find.read_text()
    assert "R3 made up" in said
    assert "exit status 1" in said
    assert f"{shlex.quote(sys.executable)} -c" in said
    assert str(find) in it.summary()
    assert [tally.runs for tally in it.tallies.values()] == [1, 1]


def test_the_one_seed_that_failed_is_repeated_alone() -> None:
    job = make_job(SIMULATION, 1000, 10.0, Path("/nowhere"))
    assert repeated(job, "FAILED: R3 leader 6 [seed 1004, Swarm()]").endswith(" toy --seed 1004")
    assert repeated(job, "Traceback").endswith(" toy --first 1000 --seeds 20")


@pytest.fixture
def nothing_is_left() -> Iterator[None]:
    """Looks for processes that the test has begun and left."""
    before = set(psutil.Process().children())
    yield
    assert set(psutil.Process().children()) <= before


@pytest.mark.usefixtures("nothing_is_left")
def test_the_end_cuts_what_runs_which_is_no_find(tmp_path: Path) -> None:
    it = campaign(tmp_path, python("import time; print('begun', flush=True); time.sleep(600)"), duration_s=2.0)
    it.run()
    assert it.tallies["toy"].cut >= 1
    assert (it.tallies["toy"].runs, it.finds) == (0, [])


@pytest.mark.usefixtures("nothing_is_left")
def test_it_is_stopped_in_order(tmp_path: Path) -> None:
    sleeping, failing = python("import time; time.sleep(600)"), python("import sys; sys.exit(1)", name="failing")
    it = Campaign(
        (sleeping, failing),
        duration_s=600.0,
        processes=2,
        finds=tmp_path / "finds",
        seed=1,
        say=lambda _: it.stop(),  # at the first find
    )
    it.run()
    assert it.tallies["toy"].cut == 1
    assert len(it.finds) == 1


def test_what_does_not_end_by_itself_is_killed_with_its_children(tmp_path: Path) -> None:
    code = """
import signal, subprocess, sys
signal.signal(signal.SIGINT, signal.SIG_IGN)
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
print(child.pid, flush=True)
child.wait()
"""
    running = RunningJob(make_job(python(code, grace_s=0.0), 1, 1.0, tmp_path), tmp_path)
    while not (tmp_path / "output").read_text():
        assert running.poll() is None
    (ended,) = end_all([running])
    assert isinstance(ended, Ended)
    assert ended.was_cut
    psutil.wait_procs([psutil.Process(int(ended.output))] if psutil.pid_exists(int(ended.output)) else [], timeout=30)
    assert not psutil.pid_exists(int(ended.output))


def test_what_repeats_a_find_writes_where_there_is_a_folder(tmp_path: Path) -> None:
    job = make_job(Kind("toy", ("toy", "--report", "{folder}/page.html"), 1.0), 1, 1.0, tmp_path)
    assert job.command[-1] == f"{tmp_path}/page.html"
    assert repeated(job, "").endswith(f" toy --report {tempfile.gettempdir()}/page.html")


def test_virtual_seconds_are_read_from_what_simulations_say() -> None:
    assert virtual_s("      812  steps\n       90  virtual seconds\nno violation\n") == 90
    assert virtual_s("1 passed") == 0


def test_the_kinds_have_names_of_their_own() -> None:
    all_kinds = kinds()
    assert len({kind.name for kind in all_kinds}) == len(all_kinds)
    assert "data_cluster_simulation" in {kind.name for kind in all_kinds}
    assert "sim/test_replication_ablations.py" in {kind.name for kind in all_kinds}


def test_each_simulation_of_the_tests_is_a_kind() -> None:
    from tests.sim.simulations import SIMULATIONS

    assert {simulation.name for simulation in SIMULATIONS} <= {kind.name for kind in kinds()}
