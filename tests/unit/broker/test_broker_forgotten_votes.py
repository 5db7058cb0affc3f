"""Voters of the metadata quorum that lost what they had promised while they were stopped: they do not start, and do not vote."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from broker_kit import wait_until
from node_kit import node

from replog.errors import CorruptCheckpointError, CorruptRecordError, ErrorCode
from replog.log.repair.repair import repair_log
from replog.rpc.node_messages import AddVoterRequest
from replog.testing.simulated_cluster import LOG_DIRECTORY, SimulatedCluster
from replog.testing.simulated_filesystem import SimulatedFileSystem
from replog.testing.simulated_node import ClusterObserver, SimulatedNode
from replog.testing.virtual_loop import VirtualLoop
from replog_checkpoints import (
    META_PROPERTIES_FILE,
    QuorumState,
    read_meta_properties,
    read_quorum_state,
    write_quorum_state,
)

FOLDER = f"{LOG_DIRECTORY}/__cluster_metadata-0"
STATE = f"{FOLDER}/quorum-state"


class Failures(ClusterObserver):
    def __init__(self) -> None:
        self.errors: list[BaseException] = []

    def failed(self, node: SimulatedNode, error: BaseException) -> None:
        self.errors.append(error)


def remove_log(fs: SimulatedFileSystem) -> None:
    fs.remove_tree(FOLDER)


def remove_state(fs: SimulatedFileSystem) -> None:
    fs.remove(STATE)


def put_an_older_state_back(fs: SimulatedFileSystem) -> None:
    write_quorum_state(fs, STATE, QuorumState(None, 0, None))


def flip_a_bit(fs: SimulatedFileSystem) -> None:
    fs.flip_bit(STATE, fs.image()[STATE].index(b'"leaderEpoch":') + 14)


def run(changes: dict[int, Callable[[SimulatedFileSystem], None]], *, kills: bool = False) -> list[BaseException]:
    """Starts a cluster, stops all of it, changes some disks, starts all again; returns the errors of those that do not start."""
    ids = (1, 2, 3)
    loop, failures = VirtualLoop(random.Random(1), steps_max=2_000_000), Failures()
    settings = {"log.dir.reserve.bytes": 0}
    cluster = SimulatedCluster(
        loop, random.Random(2), controllers=ids, brokers=ids, settings=settings, observer=failures
    )

    async def main() -> None:
        for node_id in ids:
            cluster.start(node_id)
        await cluster.wait_until(cluster.is_settled)
        for node_id in ids:
            if kills:
                cluster.crash(node_id, power_cut=False)
            else:
                await cluster.stop(node_id)
        for node_id, change in changes.items():
            change(cluster.nodes[node_id].fs)
        for node_id in ids:
            cluster.start(node_id)
        await cluster.wait_until(lambda: len(failures.errors) == len(changes))

    loop.run(main())
    return failures.errors


@pytest.mark.parametrize("kills", [False, True])
@pytest.mark.parametrize("change", [remove_state, put_an_older_state_back, flip_a_bit])
def test_a_voter_whose_votes_are_forgotten_does_not_start(
    change: Callable[[SimulatedFileSystem], None], *, kills: bool
) -> None:
    (error,) = run({2: change}, kills=kills)
    assert isinstance(error, CorruptCheckpointError)
    assert "vote twice" in str(error)


@pytest.mark.parametrize("kills", [False, True])
def test_a_voter_whose_metadata_log_is_gone_does_not_start(*, kills: bool) -> None:
    """Killed in its first minute too: the checkpoint names the log before anybody votes."""
    (error,) = run({2: remove_log}, kills=kills)
    assert isinstance(error, CorruptRecordError)
    assert "must not vote again" in str(error)


def flip_a_record_and_repair(fs: SimulatedFileSystem) -> None:
    path = f"{FOLDER}/{0:020d}.log"
    fs.flip_bit(path, len(fs.image()[path]) // 2)
    assert repair_log(fs, FOLDER, accept_loss=True, now_ms=0).offsets_given_up


def test_a_voter_whose_metadata_log_a_repair_has_cut_does_not_start() -> None:
    (error,) = run({2: flip_a_record_and_repair})
    assert isinstance(error, CorruptRecordError)
    assert "could forget what was committed" in str(error)


async def test_the_only_voter_goes_on_with_what_a_repair_has_left() -> None:
    fs = SimulatedFileSystem()
    async with node(fs):
        pass
    path = "/data/__cluster_metadata-0/00000000000000000000.log"
    fs.flip_bit(path, len(fs.image()[path]) - 20)
    assert repair_log(fs, "/data/__cluster_metadata-0", accept_loss=True, now_ms=0).offsets_given_up
    async with node(fs):
        pass
    async with node(fs):
        pass


async def test_a_partition_whose_leader_epochs_were_given_up_is_elected_until_they_rise(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The node stopped with `leader epoch 2 after epoch 6 in the same log`, a few starts long."""
    fs, folder = SimulatedFileSystem(), "/data/__cluster_metadata-0"
    path = f"{folder}/{0:020d}.log"
    async with node(fs) as it:
        topic = await it.create()
        size_bytes = fs.size(path)
    for _ in range(3):
        async with node(fs) as it:
            await wait_until(lambda: it._leads(topic))
            assert (await it.produce(topic)).error is ErrorCode.NONE
    fs.flip_bit(path, size_bytes + 70)
    assert repair_log(fs, folder, accept_loss=True, now_ms=0).offsets_given_up
    async with node(fs) as it:
        await wait_until(lambda: it._leads(topic))
        assert (await it.produce(topic)).base_offset == 3
        assert await it.fetch(topic)
    assert "the metadata log has lost its end" in caplog.text


async def test_who_has_followed_another_leader_is_not_the_only_voter_whatever_is_left_of_its_log() -> None:
    """The voters may have been named behind the cut: one that took itself for the only one led alone, beside the others."""
    fs = SimulatedFileSystem()
    async with node(fs):
        pass
    folder = "/data/__cluster_metadata-0"
    path = f"{folder}/{0:020d}.log"
    fs.flip_bit(path, len(fs.image()[path]) - 20)
    assert repair_log(fs, folder, accept_loss=True, now_ms=0).offsets_given_up
    write_quorum_state(fs, f"{folder}/quorum-state", QuorumState(2, 9, None))
    for _ in range(2):
        with pytest.raises(CorruptRecordError, match="under a new directory id"):
            async with node(fs):
                pass


def test_a_quorum_that_grew_from_one_voter_outlives_the_cut_of_that_ones_log() -> None:
    """What was left of its log named no other, nor did its configuration: it led alone, beside the two others."""
    loop, failures = VirtualLoop(random.Random(1), steps_max=2_000_000), Failures()
    settings = {"log.dir.reserve.bytes": 0, "controller.quorum.voters": ["1@127.0.0.1:19001"]}
    cluster = SimulatedCluster(loop, random.Random(2), controllers=(1, 2, 3), settings=settings, observer=failures)
    grown = [1]

    async def main() -> None:
        for node_id in cluster.nodes:
            cluster.start(node_id)
        await cluster.wait_until(cluster.is_settled)
        for voter in cluster.running[1:]:
            node_id = voter.config.node_id
            grown.append(node_id)
            request = AddVoterRequest(node_id, voter.directory_id, cluster.nodes[node_id].address)
            await cluster.client("admin").connection(1).call(request, timeout_ms=5_000)
            await cluster.wait_until(
                lambda: all(len(each.quorum_status.voters) == len(grown) for each in cluster.running)
            )
        assert cluster.running[0].quorum_status.leader_id == 1
        cluster.crash(1, power_cut=False)
        fs = cluster.nodes[1].fs
        fs.flip_bit(f"{FOLDER}/{0:020d}.log", 100)
        assert repair_log(fs, FOLDER, accept_loss=True, now_ms=0).offsets_given_up
        cluster.start(1)
        await cluster.wait_until(lambda: failures.errors or cluster.nodes[1].node)
        (error,) = failures.errors
        assert "with the vote of this node a quorum could forget what was committed" in str(error)

    loop.run(main())


def test_two_voters_that_have_forgotten_all_elect_nobody() -> None:
    errors = run({1: remove_log, 3: remove_log})
    assert [type(error) for error in errors] == [CorruptRecordError] * 2


async def test_the_only_voter_may_forget_what_it_has_promised_to_itself() -> None:
    fs = SimulatedFileSystem()
    async with node(fs):
        pass
    path = "/data/__cluster_metadata-0/quorum-state"
    before = read_quorum_state(fs, path)
    fs.remove(path)
    async with node(fs):
        pass
    after = read_quorum_state(fs, path)
    assert before is not None
    assert after is not None
    assert after.leader_epoch > before.leader_epoch  # the log told it which epochs there were


def test_a_lost_voter_comes_back_under_another_directory_id() -> None:
    ids: list[object] = []

    def lose_and_repair(fs: SimulatedFileSystem) -> None:
        def directory_id() -> object:
            meta = read_meta_properties(fs, f"{LOG_DIRECTORY}/{META_PROPERTIES_FILE}")
            assert meta is not None
            return meta.directory_id

        ids.append(directory_id())
        remove_log(fs)
        repair_log(fs, FOLDER, accept_loss=True, now_ms=0)
        ids.append(directory_id())

    loop = VirtualLoop(random.Random(1), steps_max=2_000_000)
    settings = {"log.dir.reserve.bytes": 0}
    cluster = SimulatedCluster(loop, random.Random(2), controllers=(1, 2, 3), brokers=(1, 2, 3), settings=settings)

    async def main() -> None:
        for node_id in cluster.nodes:
            cluster.start(node_id)
        await cluster.wait_until(cluster.is_settled)
        await cluster.stop(2)
        lose_and_repair(cluster.nodes[2].fs)
        cluster.start(2)
        await cluster.wait_until(cluster.is_settled)

    loop.run(main())
    assert ids[0] != ids[1]
