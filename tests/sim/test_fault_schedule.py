"""Faults as data: drawn alike for one seed, kept in files, performed, and ended."""

from __future__ import annotations

import asyncio
import errno
import random
from collections import Counter
from pathlib import Path

import pytest

from replog.errors import StorageError
from replog.rpc.tcp.wire import StreamKind
from replog.testing.simulated_cluster import SimulatedCluster
from replog.testing.virtual_loop import VirtualLoop
from tests.sim.cluster_swarm import Swarm
from tests.sim.data_cluster_simulation import DataSimulation
from tests.sim.event_log import EventLog
from tests.sim.fault_performer import FaultPerformer, PartitionAdministrator
from tests.sim.fault_schedule import (
    FOLLOWER,
    KILLED,
    LEADER,
    OF_THE_REPLICA,
    REPLACED,
    STOPPED,
    Fault,
    FaultDrawer,
    FaultKind,
)
from tests.sim.metadata_cluster_checks import Checker, Violation
from tests.sim.metadata_cluster_simulation import SETTINGS
from tests.sim.shrinking import Case


def drawn(seed: int) -> tuple[Fault, ...]:
    return FaultDrawer(random.Random(seed), Swarm.draw_with_data(random.Random(seed))).draw()


def test_one_seed_is_one_schedule_in_order_of_time() -> None:
    assert drawn(3) == drawn(3) != drawn(4)
    assert [fault.at_ms for fault in drawn(3)] == sorted(fault.at_ms for fault in drawn(3))


def test_every_kind_is_drawn() -> None:
    assert {fault.kind for seed in range(200) for fault in drawn(seed)} == set(FaultKind)


def test_a_controller_keeps_its_disk() -> None:
    """Its votes are on it; a voter that lost them is another voter."""
    for seed in range(200):
        controllers = Swarm.draw_with_data(random.Random(seed)).controllers
        assert not [fault for fault in drawn(seed) if fault.kind is FaultKind.WIPE and fault.node in controllers]


def test_without_fsync_one_machine_is_frail() -> None:
    """And nothing is wiped, and as many replicas as before must be in sync."""
    swarms = [Swarm.draw_with_data(random.Random(seed)) for seed in range(200)]
    unflushed = [swarm for swarm in swarms if swarm.flush_policy == "auto"]
    assert 60 < len(unflushed) < 100
    for swarm in unflushed:
        assert swarm.frail == (swarm.machine,)
        assert swarm.machine in swarm.nodes
        assert (swarm.mains, swarm.wipe, min(swarm.min_isr_values)) == (0, 0, 2)
    assert {swarm.frail for swarm in swarms if swarm.flush_policy == "always"} == {None}


def test_only_the_frail_lose_what_was_not_flushed() -> None:
    losing = {FaultKind.POWER_CUT, FaultKind.CUT_IN_WRITE, FaultKind.DISK_ERROR}
    for seed in range(50):
        swarm = Swarm.draw_with_data(random.Random(seed))
        schedule = FaultDrawer(random.Random(seed), swarm).draw(frail=(swarm.nodes[0],))
        assert {fault.node for fault in schedule if fault.kind in losing} <= {swarm.nodes[0]}


def test_a_run_is_read_back_as_it_was_written(tmp_path: Path) -> None:
    case = Case.of_seed(5, DataSimulation)
    case.write(tmp_path / "run.json")
    assert Case.read(tmp_path / "run.json") == case


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[]", "not a run"),
        ('{"seed": 1, "swarm": {}, "schedule": []}', "no swarm"),
        ('{"seed": 1, "swarm": {}, "schedule": [{"at_ms": 1}]}', "no fault"),
        ('{"seed": 1, "swarm": {}, "schedule": [{"kind": "earthquake"}]}', "earthquake"),
    ],
)
def test_another_file_is_refused(tmp_path: Path, text: str, says: str) -> None:
    (tmp_path / "run.json").write_text(text)
    with pytest.raises(ValueError, match=says):
        Case.read(tmp_path / "run.json")


# ---- performed ---------------------------------------------------------------------------------------------------------


def perform(
    schedule: list[Fault], then: str, *, at_s: float, administrator: PartitionAdministrator | None = None
) -> object:
    """What `then` says of the cluster, so long after the faults begin."""
    loop = VirtualLoop(random.Random(1))
    settings = {**SETTINGS, "log.dirs": ["/data", "/disk2"]}
    cluster = SimulatedCluster(loop, random.Random(2), controllers=(1, 2, 3), brokers=(1, 2, 3), settings=settings)
    performer = FaultPerformer(cluster, Counter(), EventLog(loop), lambda _: True)
    performer.administrator = administrator

    async def main() -> object:
        for node_id in cluster.nodes:
            cluster.start(node_id)
        await cluster.wait_until(cluster.is_settled)
        performing = asyncio.create_task(performer.perform(schedule))
        await asyncio.sleep(at_s)
        await performing
        return eval(then, {"cluster": cluster, "performer": performer})

    return loop.run(main())


def test_who_was_killed_starts_again() -> None:
    kill = [Fault(100, FaultKind.KILL, 2, for_ms=500)]
    assert perform(kill, "cluster.nodes[2].is_running", at_s=0.3) is False
    assert perform(kill, "cluster.nodes[2].is_running", at_s=0.7) is True


def test_a_cut_that_ends_leaves_the_others() -> None:
    cuts = [Fault(0, FaultKind.CUT, 1, 200, detail="both"), Fault(0, FaultKind.CUT, 2, 900, detail="in")]
    both = "cluster.network.is_cut('node-2', 'node-1'), cluster.network.is_cut('node-1', 'node-2')"
    assert perform(cuts, both, at_s=0.1) == (True, True)
    assert perform(cuts, both, at_s=0.5) == (False, True)
    assert perform(cuts, both, at_s=1.0) == (False, False)


def test_a_pair_is_cut_and_others_reach_both() -> None:
    pair = [Fault(0, FaultKind.CUT_PAIR, 1, 300, amount=2)]
    links = "[cluster.network.is_cut(f'node-{a}', f'node-{b}') for a, b in ((1, 2), (2, 1), (1, 3), (3, 2))]"
    assert perform(pair, links, at_s=0.1) == [True, True, False, False]
    assert perform(pair, links, at_s=0.5) == [False] * 4


def test_metadata_are_cut_and_data_are_not() -> None:
    cut = [Fault(0, FaultKind.CUT_METADATA, 1, 300)]
    links = f"[cluster.network.is_cut('node-2', 'node-1', kind) for kind in {[*map(int, StreamKind)]}]"
    assert perform(cut, links, at_s=0.1) == [kind is StreamKind.QUORUM for kind in StreamKind]
    assert perform(cut, links, at_s=0.5) == [False] * len(StreamKind)


class Told:
    """Knows who leads, and where a replica is."""

    def node_of(self, role: int) -> int | None:
        return {LEADER: 3}.get(role)

    def directory_on(self, node_id: int) -> str | None:
        return {2: "/disk2"}.get(node_id)

    def administer(self, _fault: Fault) -> bool:
        return True


def test_who_has_a_role_is_asked_when_it_happens() -> None:
    """Nobody knows roles here but the administrator, and without one nobody has any."""
    killed = [Fault(0, FaultKind.KILL, LEADER, 900), Fault(0, FaultKind.KILL, FOLLOWER, 900)]
    running = "[node.is_running for node in cluster.nodes.values()]"
    assert perform(killed, running, at_s=0.1, administrator=Told()) == [True, True, False]
    assert perform(killed, running, at_s=0.1) == [True] * 3


def test_a_full_disk_has_room_again() -> None:
    full = [Fault(0, FaultKind.DISK_FULL, 3, for_ms=300)]
    assert perform(full, "cluster.nodes[3].fs.capacity_bytes is None", at_s=0.1) is False
    assert perform(full, "cluster.nodes[3].fs.capacity_bytes is None", at_s=0.5) is True


def test_a_failed_fsync_ends_the_process_which_starts_again() -> None:
    failing = [
        Fault(0, FaultKind.DISK_ERROR, 1, for_ms=2_000, amount=1, detail="sync"),
        Fault(1, FaultKind.KILL, 2, 3_000),
    ]
    assert perform(failing, "cluster.nodes[1].is_running", at_s=1.8) is False
    assert perform(failing, "cluster.nodes[1].lives", at_s=2.5) == 2


@pytest.mark.parametrize("ends", [KILLED, STOPPED, REPLACED])
def test_a_directory_fails_until_its_node_starts_again(ends: str) -> None:
    failed = [Fault(0, FaultKind.DIRECTORY_ERROR, 2, 2_000, OF_THE_REPLICA, detail=ends)]
    unusable = "[d.path for d in cluster.nodes[2].node.logs.directories.values() if d.failure], cluster.nodes[2].lives"
    assert perform(failed, unusable, at_s=1.9, administrator=Told()) == (["/disk2"], 1)
    assert perform(failed, unusable, at_s=4.0, administrator=Told()) == ([], 2)


def test_a_directory_that_failed_is_another_one_where_it_is_replaced() -> None:
    ids = "cluster.nodes[2].node.logs.directory_ids"

    def found(ends: str) -> list[object]:
        failed = [Fault(1_000, FaultKind.DIRECTORY_ERROR, 2, 2_000, 1, detail=ends)]
        return [perform(failed, ids, at_s=at_s, administrator=Told()) for at_s in (0.5, 5.0)]

    before, after = found(KILLED)
    assert before == after
    before, after = found(REPLACED)
    assert isinstance(before, tuple)
    assert isinstance(after, tuple)
    assert before[0] == after[0]
    assert before[1] != after[1]


def test_a_directory_is_still_gone_when_its_node_is_killed_and_starts() -> None:
    faults = [Fault(0, FaultKind.DIRECTORY_ERROR, 2, 9_000, 1, KILLED), Fault(500, FaultKind.KILL, 2, for_ms=100)]
    then = "cluster.nodes[2].lives, list(cluster.nodes[2].node.logs.unopened)"
    assert perform(faults, then, at_s=4.0) == (2, ["/disk2"])
    assert perform(faults, then, at_s=12.0) == (3, [])


def test_a_node_that_ends_for_no_reason_is_a_violation() -> None:
    """Only a process whose disk has failed may end by itself, and only because of its disk."""
    simulation = DataSimulation(0)
    simulation.discard()
    checker, node = Checker(simulation.events), simulation.cluster.nodes[4]
    checker.troubled = {(4, 0)}
    checker.failed(node, OSError(errno.EIO, "a failed disk"))
    checker.failed(node, StorageError("the same"))
    checker.check()
    assert checker.seen["ended by a failed disk"] == 2
    checker.failed(node, ValueError("a bug"))
    with pytest.raises(Violation, match="node 4 ended by itself: ValueError"):
        checker.check()
    checker = Checker(simulation.events)
    checker.failed(node, OSError(errno.EIO, "no disk of this node has failed"))
    with pytest.raises(Violation, match="node 4 ended by itself: OSError"):
        checker.check()
