"""Links between nodes that are cut: black holes, one way and both ways."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager

from replog.errors import InvariantViolationError
from replog.testing.machines.network import Network
from replog_chaos.fault import Fault, Scene, Target
from replog_chaos.namespaces import namespaces_are_missing


def network_of(target: Target) -> Network:
    """Returns the network of the cluster, whose links can be cut.

    Raises:
        InvariantViolationError: The cluster has none.
    """
    if target.network is None:
        raise InvariantViolationError("links are cut in a cluster whose links are fixed")
    return target.network


@asynccontextmanager
async def _isolate_leader(target: Target) -> AsyncIterator[list[int]]:
    node_id = await target.leader()
    network_of(target).isolate(node_id)
    yield [node_id]
    network_of(target).mend()


@asynccontextmanager
async def _isolate_controller(target: Target) -> AsyncIterator[list[int]]:
    node_id = await target.controller()
    network_of(target).isolate(node_id)
    yield [node_id]
    network_of(target).mend()


@asynccontextmanager
async def _mute_leader(target: Target) -> AsyncIterator[list[int]]:
    node_id = await target.leader()
    network_of(target).isolate(node_id, incoming=False, clients=False)
    yield [node_id]
    network_of(target).mend()


@asynccontextmanager
async def _deaf_leader(target: Target) -> AsyncIterator[list[int]]:
    node_id = await target.leader()
    network_of(target).isolate(node_id, outgoing=False, clients=False)
    yield [node_id]
    network_of(target).mend()


@asynccontextmanager
async def _cut_pair(target: Target) -> AsyncIterator[list[int]]:
    leader, controller_id = await target.leader(), await target.controller()
    led = next(part for part in await target.partitions() if part.leader == leader)
    follower = next(node_id for node_id in led.replicas if node_id not in {leader, controller_id})
    network_of(target).cut((leader, follower), (follower, leader))
    yield [leader, follower]
    network_of(target).mend()


_TEXTS = (
    ("isolate-leader", "a leader in a black hole: nodes and clients neither reach it nor hear it", _isolate_leader),
    ("isolate-controller", "the active controller, which leads too, in a black hole", _isolate_controller),
    ("mute-leader", "what a leader sends to other nodes does not arrive; it hears them, and clients", _mute_leader),
    ("deaf-leader", "what other nodes send to a leader does not arrive; they and clients hear it", _deaf_leader),
    ("cut-pair", "a leader and a follower do not reach each other; both reach the controller", _cut_pair),
)


def _network_faults(scene: Scene, missing: Callable[[], str]) -> dict[str, Fault]:
    return {name: Fault(text, happens, scene=scene, missing=missing) for name, text, happens in _TEXTS}


NETWORK_FAULTS: Mapping[str, Fault] = _network_faults(Scene.PROXIED, str)
NAMESPACE_FAULTS: Mapping[str, Fault] = _network_faults(Scene.NAMESPACES, namespaces_are_missing)
"""The same, under the same names, with other means."""
