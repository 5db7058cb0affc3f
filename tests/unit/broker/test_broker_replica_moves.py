"""Moving replicas between the log directories of a broker: what happens to it meanwhile, and afterwards."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from uuid import UUID

import pytest
from broker_kit import DIRECTORY, KEY, TOPIC, TOPIC_ID, Rig, registered, rig, topic, wait_until

from replog.broker.replicas import moves as moves_module
from replog.broker.replicas.image_queue import ImageQueue
from replog.broker.replicas.image_steps import ImageSteps
from replog.broker.replicas.moves import ReplicaMoves
from replog.controller.requests import PartitionIsrResult
from replog.errors import ErrorCode, InvalidRequestError, LogDirNotFoundError, UnknownTopicOrPartitionError
from replog.metadata.delta import MetadataDelta
from replog.metadata.records import ConfigRecord, MetadataRecord, PartitionChangeRecord, RemoveTopicRecord, ResourceType
from replog.replication.follower import Follower
from replog.replication.leader import Leader
from replog.testing.simulated_faults import Operation
from tests.work_counts import instructions_of

OTHER = "/other"
RATE = "replica.alter.log.dirs.io.max.bytes.per.second"


def throttled(rate: int | None) -> ConfigRecord:
    return ConfigRecord(ResourceType.BROKER, "", RATE, None if rate is None else str(rate))


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(moves_module, "RETRY_S", 0.001)


@contextlib.asynccontextmanager
async def moving() -> AsyncIterator[tuple[Rig, ReplicaMoves]]:
    """A leader in the first of two directories."""
    async with rig(log_dirs=[DIRECTORY, OTHER]) as it:
        moves = it.manager.moves
        try:
            await it.apply(registered(1), registered(2), *topic((1,)))
            yield it, moves
        finally:
            await moves.stop()


def home(it: Rig) -> str:
    found = it.directory.home_of(TOPIC, 0)
    return "" if found is None else found.path


async def ended(it: Rig, moves: ReplicaMoves) -> None:
    await wait_until(lambda: not moves.statuses())
    await it.settle()


def folders(it: Rig) -> list[str]:
    return [f"{path}/{name}" for path in (DIRECTORY, OTHER) for name in it.fs.list_dir(path) if name.startswith(TOPIC)]


def held_swap(moves: ReplicaMoves, monkeypatch: pytest.MonkeyPatch) -> asyncio.Event:
    """Has copies take the place of replicas only after the event that it returns."""
    gate = asyncio.Event()
    in_thread = moves._in_thread

    async def held(run):  # type: ignore[no-untyped-def]
        if moves._swapping is not None:
            await gate.wait()
        return await in_thread(run)

    monkeypatch.setattr(moves, "_in_thread", held)
    return gate


async def queue(it: Rig, images: ImageQueue, *records: MetadataRecord) -> None:
    """Queues the next image, and lets the driver do what it can."""
    delta = MetadataDelta(it.image)
    for record in records:
        delta.replay(record)
    it.image = delta.apply(it.image.end_offset + len(records), 1)
    images.submit(it.image, delta.local_changes(1), tuple(delta.changed_brokers))
    await it.settle()


async def test_a_leader_leads_on_in_the_other_directory() -> None:
    async with moving() as (it, moves):
        await it.committed(20)
        epoch = it.replica.role.leader_epoch if isinstance(it.replica.role, Leader) else -1
        to = OTHER if home(it) == DIRECTORY else DIRECTORY
        await moves.request(TOPIC, 0, to)
        await ended(it, moves)
        assert (home(it), folders(it)) == (to, [f"{to}/{TOPIC}-0"])
        role = it.replica.role
        assert isinstance(role, Leader)
        assert (role.leader_epoch, role.high_watermark, it.replica.log.log_end_offset) == (epoch, 20, 20)
        await it.committed(1)
        assert (await it.produce()).base_offset == 21


async def test_a_follower_follows_on() -> None:
    async with moving() as (it, moves):
        await it.committed(3)
        await it.apply(PartitionChangeRecord(0, TOPIC_ID, replicas=(1, 2), isr=(1, 2), leader=2))
        to = OTHER if home(it) == DIRECTORY else DIRECTORY
        await moves.request(TOPIC, 0, to)
        await ended(it, moves)
        assert home(it) == to
        assert isinstance(it.replica.role, Follower)
        assert it.replica.role.fetch_position(it.clock.now_ms()) is not None


async def test_what_is_produced_meanwhile_is_there() -> None:
    async with moving() as (it, moves):
        to = OTHER if home(it) == DIRECTORY else DIRECTORY
        await moves.request(TOPIC, 0, to)
        acknowledged = 0
        while moves.statuses() or acknowledged < 50:
            result = await asyncio.wait_for(it.produce(), 60)
            assert result.error in {ErrorCode.NONE, ErrorCode.NOT_LEADER_OR_FOLLOWER}
            acknowledged += result.error is ErrorCode.NONE
        await it.settle()
        assert home(it) == to
        assert it.replica.log.log_end_offset >= acknowledged


async def test_what_cannot_be_is_refused_with_the_reason() -> None:
    async with moving() as (it, moves):
        here = home(it)
        await it.apply(throttled(1))
        for error, name, path in (
            (UnknownTopicOrPartitionError, "nowhere", OTHER),
            (LogDirNotFoundError, TOPIC, "/nowhere"),
            (InvalidRequestError, TOPIC, here),
        ):
            with pytest.raises(error):
                await moves.request(name, 0, path)
        to = OTHER if here == DIRECTORY else DIRECTORY
        await moves.request(TOPIC, 0, to)
        with pytest.raises(InvalidRequestError, match="already"):
            await moves.request(TOPIC, 0, to)


async def test_a_refused_move_costs_the_same_however_many_replicas_there_are() -> None:
    async with moving() as (it, moves):
        alone = instructions_of(lambda: moves._take_down("nowhere", 0, OTHER))
        others = {(UUID(int=number), 0): it.replica for number in range(1_000)}
        it.stepper.replicas.update(others)
        among_many = instructions_of(lambda: moves._take_down("nowhere", 0, OTHER))
        for key in others:
            del it.stepper.replicas[key]
        assert among_many == alone


async def test_a_topic_that_is_deleted_ends_the_copy() -> None:
    async with moving() as (it, moves):
        await it.committed(5)
        await it.apply(throttled(40))
        await moves.request(TOPIC, 0, OTHER if home(it) == DIRECTORY else DIRECTORY)
        await it.advance(1_000)
        await wait_until(lambda: any(name.endswith("-future") for name in folders(it)))
        await it.apply(RemoveTopicRecord(TOPIC_ID))
        await it.apply(throttled(None))
        await ended(it, moves)
        await wait_until(lambda: not folders(it))


@pytest.mark.parametrize("change", ["follows", "recreated", "deleted", "recreated and deleted"])
async def test_metadata_that_come_during_the_swap_are_heeded_after_it(
    monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    async with moving() as (it, moves):
        await it.committed(5)
        gate = held_swap(moves, monkeypatch)
        to = OTHER if home(it) == DIRECTORY else DIRECTORY
        await moves.request(TOPIC, 0, to)
        await wait_until(lambda: moves._swapping is not None)
        assert KEY not in it.stepper.replicas
        new_id = UUID(int=77)
        images = ImageQueue(it.manager, it.executor, lambda: None, it.failures.append, lambda _: False, lambda _: False)
        if change == "follows":
            await queue(it, images, PartitionChangeRecord(0, TOPIC_ID, replicas=(1, 2), isr=(1, 2), leader=2))
        else:
            await queue(it, images, RemoveTopicRecord(TOPIC_ID))
        if "recreated" in change:
            await queue(it, images, *topic((1,), topic_id=new_id))
        if change == "recreated and deleted":
            await queue(it, images, RemoveTopicRecord(new_id))
        assert not it.stepper.replicas
        gate.set()
        await ended(it, moves)
        await wait_until(lambda: it.manager.applied_offset == it.image.end_offset)
        if change == "follows":
            assert isinstance(it.replica.role, Follower)
            assert (home(it), it.replica.log.log_end_offset) == (to, 5)
        elif change == "recreated":
            await wait_until(lambda: list(it.stepper.replicas) == [(new_id, 0)])
            assert it.stepper.replicas[new_id, 0].log.log_end_offset == 0
        else:
            assert not it.stepper.replicas
            await wait_until(lambda: not folders(it))
        await images.stop()


async def test_a_topic_of_the_same_name_waits_for_the_swap_and_the_folder_of_the_deleted_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A swap that ends between two steps of an image leaves a folder in the way: a log that is created then ends the node."""
    async with moving() as (it, moves):
        images = ImageQueue(it.manager, it.executor, lambda: None, it.failures.append, lambda _: False, lambda _: False)
        gate = held_swap(moves, monkeypatch)
        apply = ImageSteps.apply

        def apply_after_the_swap(steps, before, changes, brokers):  # type: ignore[no-untyped-def]
            gate.set()
            while moves._swapping is not None:
                yield
            yield from apply(steps, before, changes, brokers)

        await moves.request(TOPIC, 0, OTHER if home(it) == DIRECTORY else DIRECTORY)
        await wait_until(lambda: moves._swapping is not None)
        new_id = UUID(int=77)
        await queue(it, images, RemoveTopicRecord(TOPIC_ID))
        monkeypatch.setattr(ImageSteps, "apply", apply_after_the_swap)
        await queue(it, images, *topic((1,), topic_id=new_id))
        gate.set()
        await wait_until(lambda: it.failures or list(it.stepper.replicas) == [(new_id, 0)])
        assert not it.failures
        assert isinstance(it.stepper.replicas[new_id, 0].role, Leader)
        await ended(it, moves)
        await images.stop()


@pytest.fixture
def tries(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """For each attempt to swap the directories whether it was made."""
    found: list[bool] = []
    begin_swap = ReplicaMoves._begin_swap

    def counted(moves, move, work):  # type: ignore[no-untyped-def]
        job = begin_swap(moves, move, work)
        found.append(job is not None)
        return job

    monkeypatch.setattr(ReplicaMoves, "_begin_swap", counted)
    return found


async def test_a_leader_waits_for_the_answer_about_its_isr(tries: list[bool]) -> None:
    """A new role would take the answer to the old one for its own, or not know whom the controller counts."""
    async with moving() as (it, moves):
        await it.apply(PartitionChangeRecord(0, TOPIC_ID, replicas=(1, 2), isr=(1, 2)))
        await it.advance(it.config.replica_lag_time_max_ms * 2)
        await wait_until(lambda: it.proposals)
        to = OTHER if home(it) == DIRECTORY else DIRECTORY
        await moves.request(TOPIC, 0, to)
        await wait_until(lambda: len(tries) > 3)
        assert not any(tries)
        await it.apply(PartitionChangeRecord(0, TOPIC_ID, isr=(1,)))
        await ended(it, moves)
        assert home(it) == to


async def test_a_leader_waits_for_the_metadata_with_its_isr(tries: list[bool]) -> None:
    """The controller has answered: 2 is in sync and may be elected.  A role made of the metadata would not wait for it."""
    async with moving() as (it, moves):
        await it.apply(registered(2), PartitionChangeRecord(0, TOPIC_ID, replicas=(1, 2)))
        it.fetch(0, replica_id=2)
        await wait_until(lambda: it.proposals)
        leader = it.replica.role
        assert isinstance(leader, Leader)
        epochs = leader.leader_epoch, leader.partition_epoch + 1
        answer = PartitionIsrResult(*KEY, ErrorCode.NONE, 1, *epochs, (1, 2))
        await it.stepper.driver.call(lambda: it.stepper.handle_isr_answer(KEY, it.proposals[-1].proposal_id, answer))
        assert (leader.maximal_isr, leader.isr_change_pending) == ((1, 2), False)
        to = OTHER if home(it) == DIRECTORY else DIRECTORY
        await moves.request(TOPIC, 0, to)
        await wait_until(lambda: len(tries) > 3)
        assert not any(tries)
        await it.apply(PartitionChangeRecord(0, TOPIC_ID, isr=(1, 2)))
        await ended(it, moves)
        assert isinstance(it.replica.role, Leader)
        assert it.replica.role.maximal_isr == (1, 2)


async def test_a_disk_that_fails_under_the_copy_leaves_the_replica_where_it_is() -> None:
    async with moving() as (it, moves):
        await it.committed(5)
        here = home(it)
        to = OTHER if here == DIRECTORY else DIRECTORY
        it.fs.faults.fail_always(Operation.WRITE, path_part="-future")
        await moves.request(TOPIC, 0, to)
        await ended(it, moves)
        it.fs.faults.clear()
        assert (home(it), folders(it)) == (here, [f"{here}/{TOPIC}-0"])
        await it.committed(2)
