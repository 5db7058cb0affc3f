"""The example of docs/SIMULATION.md runs as it stands there, and the kit keeps what the page promises."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import replog.testing
from replog.client import Admin, Consumer, Producer
from replog.testing import SimulatedCluster, SimulationError, simulate

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "SIMULATION.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)
ENVIRONMENT = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT}/timeline:{ROOT}/quorum:{ROOT}/checkpoints"}


def test_the_example_runs_in_a_pytest_of_its_own(tmp_path: Path) -> None:
    (example,) = EXAMPLES
    (tmp_path / "test_orders.py").write_text(example)
    ran = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            "-p",
            "no:asyncio",
            "-W",
            "error",
            "test_orders.py",
        ],
        cwd=tmp_path,
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "4 passed" in ran.stdout


def test_what_the_page_names_is_there() -> None:
    """Every call in its table, on a cluster that nobody starts."""
    calls = [
        call for row in re.findall(r"^\| `(.*?)\|", PAGE, flags=re.MULTILINE) for call in re.findall(r"[\w.\[\]]+", row)
    ]
    names = {call.split("[")[0].split(".")[0] for call in calls}
    named = {
        "crash",
        "start",
        "stop",
        "pause",
        "resume",
        "isolate",
        "cut",
        "cut_client",
        "mend_all",
        "network",
        "nodes",
    }
    named |= {"leader_of", "running", "is_settled", "wait_until"}
    assert named <= names

    async def look(cluster: SimulatedCluster) -> list[str]:
        return [name for name in sorted(named) if not hasattr(cluster, name)]

    assert simulate(look, seed=0, controllers=(1,), brokers=(1,)) == []


def test_importing_the_kit_does_not_load_the_broker() -> None:
    code = "import sys, replog.testing; print('replog.broker' in sys.modules, 'grpc' in sys.modules)"
    ran = subprocess.run(
        [sys.executable, "-c", code], env=ENVIRONMENT, capture_output=True, text=True, check=True, timeout=60
    )
    assert ran.stdout.split() == ["False", "False"]


def test_every_public_name_is_there_and_says_what_it_is() -> None:
    for name in replog.testing.__all__:
        assert getattr(replog.testing, name).__doc__, name
    with pytest.raises(AttributeError, match="nonsense"):
        _ = replog.testing.nonsense


def test_what_a_scenario_raises_names_its_seed() -> None:
    async def fails(_: SimulatedCluster) -> None:
        raise ValueError("the scenario's own")

    with pytest.raises(ValueError, match="the scenario's own") as raised:
        simulate(fails, seed=17, controllers=(1,), brokers=(1,))
    assert raised.value.__notes__ == ["simulated with seed 17"]


def test_an_exception_that_nobody_takes_is_told() -> None:
    async def background() -> None:
        raise ValueError("unheard")

    async def leaves_it_alone(_: SimulatedCluster) -> None:
        task = asyncio.ensure_future(background())
        await asyncio.sleep(0.1)
        del task

    with pytest.raises(SimulationError, match="unheard"):
        simulate(leaves_it_alone, seed=1, controllers=(1,), brokers=(1,))


def test_clients_draw_alike_for_one_seed() -> None:
    async def drawn(cluster: SimulatedCluster) -> tuple[float, float, float]:
        app, admin = cluster.transport("app"), cluster.transport("admin")
        async with (
            Producer(cluster.bootstrap_servers, transport=app) as first,
            Producer(cluster.bootstrap_servers, transport=app) as second,
            Admin(cluster.bootstrap_servers, transport=admin) as third,
        ):
            return first._view.rng.random(), second._view.rng.random(), third._view.rng.random()

    one = {"controllers": (1,), "brokers": (1,)}
    assert simulate(drawn, seed=1, **one) == simulate(drawn, seed=1, **one) != simulate(drawn, seed=2, **one)
    assert len(set(simulate(drawn, seed=1, **one))) == 3


def test_members_of_groups_have_the_same_ids_for_one_seed() -> None:
    """Assignors sort them, so that they decide on who reads what."""

    async def joined(cluster: SimulatedCluster) -> tuple[str, ...]:
        transport = cluster.transport("app")
        async with Admin(cluster.bootstrap_servers, transport=transport) as admin:
            await admin.create_topic("orders", num_partitions=1)
        ids = []
        for _ in range(2):
            async with Consumer(cluster.bootstrap_servers, group_id="g", transport=transport) as consumer:
                await consumer.subscribe(["orders"])
                assert consumer._group is not None
                ids.append(consumer._group.member.member_id)
        return tuple(ids)

    one = {"controllers": (1,), "brokers": (1,)}
    ids = simulate(joined, seed=1, **one)
    assert ids == simulate(joined, seed=1, **one) != simulate(joined, seed=2, **one)
    assert len(set(ids)) == len(ids)
