"""Your own client code against a whole cluster in virtual time: one call, in any test.

::

    async def survives_a_power_cut(cluster: SimulatedCluster) -> None:
        async with Producer(cluster.bootstrap_servers, transport=cluster.transport("app")) as producer:
            cluster.crash(1)
            await (await producer.send("orders", b"one"))


    simulate(survives_a_power_cut, seed=4711)
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping, Sequence
from random import Random
from typing import Any, TypeVar

from replog.testing.simulated_cluster import SimulatedCluster
from replog.testing.simulated_network import NetworkConditions
from replog.testing.simulated_node import ClusterObserver
from replog.testing.virtual_loop import STEPS_MAX, SimulationError, VirtualLoop

T = TypeVar("T")

NO_RESERVE: Mapping[str, object] = {"log.dir.reserve.bytes": 0}
"""Simulated disks are memory."""


def simulate(
    scenario: Callable[[SimulatedCluster], Coroutine[Any, Any, T]],
    *,
    seed: int,
    controllers: Sequence[int] = (1, 2, 3),
    brokers: Sequence[int] = (1, 2, 3),
    settings: Mapping[str, object] | None = None,
    conditions: NetworkConditions | None = None,
    observer: ClusterObserver | None = None,
    steps_max: int = STEPS_MAX,
) -> T:
    """Runs `scenario` on a cluster that is up, and returns what it returns.

    Everything runs in this thread, on a `VirtualLoop` of its own: no test of it may run inside another event loop, and
    `asyncio.sleep` costs nothing.  The same seed is the same run, as long as the scenario draws and reads nothing for
    itself that is not the same: random numbers, the time of day, real files or sockets.

    Args:
        scenario: An async function of the cluster; it makes its clients with `cluster.transport`.
        seed: The seed of delays, faults of disks, ids and what clients draw.
        controllers: The ids of the voters.
        brokers: The ids of the brokers; a node in both has both roles.
        settings: The settings of every node, by Kafka's dotted names.
        conditions: The faults of the network; None: delays of a few milliseconds, and nothing is lost.
        observer: The observer that is told what the nodes learn.
        steps_max: The most steps of the loop; more are a failure.

    Raises:
        SimulationError: The scenario waits for what never comes, never rests, or an exception of a task reached nobody.
        Exception: The scenario raised it; it has a note that names the seed.
    """
    rng = Random(seed)  # noqa: S311 -- repeatable
    loop = VirtualLoop(Random(rng.getrandbits(64)), steps_max=steps_max)  # noqa: S311 -- repeatable
    cluster = SimulatedCluster(
        loop,
        rng,
        controllers=controllers,
        brokers=brokers,
        settings={**NO_RESERVE, **(settings or {})},
        observer=observer,
        conditions=conditions,
        client_seed=seed,
    )
    try:
        result = loop.run(_run(cluster, scenario))
        _check_unheard(loop)
    except Exception as error:
        error.add_note(f"simulated with seed {seed}")
        raise
    return result


def _check_unheard(loop: VirtualLoop) -> None:
    if loop.problems:
        raise SimulationError(f"an exception that reached nobody: {loop.problems[0]}")


async def _run(cluster: SimulatedCluster, scenario: Callable[[SimulatedCluster], Coroutine[Any, Any, T]]) -> T:
    for node_id in cluster.nodes:
        cluster.start(node_id)
    await cluster.wait_until(cluster.is_settled)
    return await scenario(cluster)
