"""Follower fetching: one stream to each leader, what has changed, and peace where there is nothing to fetch."""

from __future__ import annotations

import contextlib
import errno
import itertools
from collections.abc import AsyncIterator, Callable
from uuid import UUID

import pytest
from broker_fakes import FakeNetwork, FakeStream
from broker_kit import DIRECTORY, TOPIC, TOPIC_ID, Rig, registered, rig, topic, wait_until
from msgspec.structs import replace

from replog.broker.replicas import fetchers as fetchers_module
from replog.broker.replicas.fetchers import Fetchers
from replog.errors import ErrorCode
from replog.metadata.records import ConfigRecord, PartitionChangeRecord, RemoveTopicRecord, ResourceType
from replog.records import encode_batch
from replog.rpc.messages import DivergingEpoch, FetchRequest, FetchResponse, FetchResult, Hello
from replog.rpc.transport import ConnectionLostError
from replog.testing import Operation, SimulatedFileSystem
from tests.quiet import quiet_for

BROKERS = (registered(1), registered(2), registered(3))


class Following:
    def __init__(self, it: Rig) -> None:
        self.rig = it
        self.network = FakeNetwork()
        self.failures: list[BaseException] = []
        it.stepper.fetchers = self.fetchers = Fetchers(
            config=it.config,
            driver=it.stepper.driver,
            clock=it.clock,
            transport=self.network,  # type: ignore[arg-type]
            hello=lambda: Hello("c", 1, UUID(int=1)),
            broker_epoch=lambda: 101,
            address_of=lambda broker_id: f"broker:{broker_id}" if broker_id in it.image.brokers else None,
            step=it.stepper.step_follower,
            throttle=it.stepper.follower_throttle,
            on_failure=self.failures.append,
        )

    async def request(self, number: int = 0, stream: int = 0) -> FetchRequest:
        await wait_until(lambda: len(self.network.streams) > stream and len(self.network.streams[stream].sent) > number)
        request: FetchRequest = self.network.streams[stream].sent[number]
        return request

    async def request_of(self, positions: set[tuple[UUID, int, int]]) -> FetchRequest:
        """The newest request once all these have been said: topic, offset, leader epoch."""

        def said() -> set[tuple[UUID, int, int]]:
            asked = [p for stream in self.network.streams for request in stream.sent for p in request.partitions]
            return {(p.topic_id, p.fetch_offset, p.leader_epoch) for p in asked}

        await wait_until(lambda: positions <= said())
        newest: FetchRequest = self.stream.sent[-1]
        return newest

    @property
    def stream(self) -> FakeStream:
        return self.network.streams[-1]


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetchers_module, "RECONNECT_DELAY_S", 0.001)
    monkeypatch.setattr(fetchers_module, "THROTTLED_DELAY_S", 0.001)


@contextlib.asynccontextmanager
async def following(**config: object) -> AsyncIterator[Following]:
    async with rig(**config) as it:
        one = Following(it)
        try:
            yield one
        finally:
            await one.fetchers.stop()
        assert one.failures == []
        assert all(connection.closed for connection in one.network.connections)


def answer(request: FetchRequest, data: bytes = b"", *, error: ErrorCode = ErrorCode.NONE) -> FetchResponse:
    results = tuple(
        FetchResult(p.topic_id, p.partition_id, error, p.fetch_offset, 0, 0, p.fetch_offset + 1)
        for p in request.partitions
    )
    return FetchResponse(request.correlation_id, results, tuple(data for _ in results))


def stored(base_offset: int, *, epoch: int = 0) -> bytes:
    return encode_batch([(1, None, b"v", ())], base_offset=base_offset, partition_leader_epoch=epoch)


async def test_what_is_fetched_is_appended_and_asked_for_no_more() -> None:
    async with following() as it:
        await it.rig.apply(*BROKERS, *topic((1, 2), leader=2))
        for number in range(3):
            request = await it.request(number)
            (partition,) = request.partitions
            assert (partition.fetch_offset, request.replica_id, request.broker_epoch) == (number, 1, 101)
            it.stream.incoming.put_nowait(answer(request, stored(number)))
        await it.request(3)
        assert it.rig.replica.log.log_end_offset == 3
        assert len(it.network.connections) == 1


async def test_all_partitions_of_a_leader_share_its_stream() -> None:
    async with following() as it:
        await it.rig.apply(
            *BROKERS, *topic((1, 2), leader=2), *topic((1, 2), leader=2, name="u", topic_id=UUID(int=101))
        )
        request = await it.request()
        assert len(request.partitions) == 2
        await it.rig.apply(*topic((1, 3), leader=3, name="v", topic_id=UUID(int=102)))
        await it.request(stream=1)
        assert [connection.address for connection in it.network.connections] == ["broker:2", "broker:3"]


async def test_a_leader_that_does_not_answer_is_left_and_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async with following() as it:
        monkeypatch.setattr(it.fetchers, "config", replace(it.rig.config, replica_fetch_wait_max_ms=10))
        monkeypatch.setattr(fetchers_module, "ANSWER_GRACE_S", 0.05)
        await it.rig.apply(*BROKERS, *topic((1, 2), leader=2))
        it.stream.incoming.put_nowait(answer(await it.request(), stored(0)))
        await it.request(1)  # answered once, and never again
        await wait_until(lambda: it.network.connections[0].closed)
        await it.rig.advance(10_000)
        await it.request(stream=1)


async def test_a_position_is_said_once_and_again_when_it_has_moved() -> None:
    async with following() as it:
        await it.rig.apply(
            *BROKERS, *topic((1, 2), leader=2), *topic((1, 2), leader=2, name="u", topic_id=UUID(int=101))
        )
        first = await it.request()
        assert len(first.partitions) == 2
        assert first.incremental
        it.stream.incoming.put_nowait(FetchResponse(first.correlation_id, (), ()))
        nothing_new = await it.request(1)
        assert nothing_new.partitions == ()
        (flights,) = (p for p in first.partitions if p.topic_id == TOPIC_ID)
        data = FetchResult(TOPIC_ID, 0, ErrorCode.NONE, flights.fetch_offset, 0, 0, 1)
        it.stream.incoming.put_nowait(FetchResponse(nothing_new.correlation_id, (data,), (stored(0),)))
        assert [(p.topic_id, p.fetch_offset) for p in (await it.request(2)).partitions] == [(TOPIC_ID, 1)]


async def test_a_high_watermark_alone_leaves_the_position_where_it_is() -> None:
    async with following() as it:
        await it.rig.apply(*BROKERS, *topic((1, 2), leader=2))
        it.stream.incoming.put_nowait(answer(await it.request(), stored(0)))
        request = await it.request(1)
        news = FetchResult(TOPIC_ID, 0, ErrorCode.NONE, 1, 1, 0, 1)
        it.stream.incoming.put_nowait(FetchResponse(request.correlation_id, (news,), (b"",)))
        assert (await it.request(2)).partitions == ()
        assert it.rig.replica.high_watermark == 1


async def test_a_new_position_does_not_wait_for_the_answer_to_the_request_before() -> None:
    async with following() as it:
        await it.rig.apply(*BROKERS, *topic((1, 2), leader=2))
        await it.request()
        await it.rig.apply(*topic((1, 2), leader=2, name="u", topic_id=UUID(int=101)))
        assert [p.topic_id for p in (await it.request(1)).partitions] == [UUID(int=101)]


async def test_a_partition_that_is_followed_no_more_is_forgotten() -> None:
    async with following() as it:
        await it.rig.apply(*BROKERS, *topic((1, 2), leader=2))
        await it.request()
        await it.rig.apply(RemoveTopicRecord(TOPIC_ID))
        request = await it.request(1)
        assert [(f.topic_id, f.partition_id) for f in request.forgotten] == [(TOPIC_ID, 0)]


async def test_who_is_not_in_the_isr_says_its_position_again() -> None:
    """A leader takes a replica in when it fetches, and may have turned it away before."""
    async with following() as it:
        await it.rig.apply(*BROKERS, *topic((1, 2), isr=(2,), leader=2))
        request = await it.request()
        it.stream.incoming.put_nowait(FetchResponse(request.correlation_id, (), ()))
        request = await it.request(1)
        assert request.partitions == ()
        await it.rig.advance(it.rig.config.replica_fetch_wait_max_ms)
        it.stream.incoming.put_nowait(FetchResponse(request.correlation_id, (), ()))
        assert len((await it.request(2)).partitions) == 1


async def test_an_answer_from_before_the_position_is_dropped() -> None:
    """The leader is elected again.  It fences the position of its earlier epoch while the one of the new epoch is under way."""
    async with following() as it:
        await it.rig.apply(*BROKERS, *topic((1, 2), leader=2))
        first = await it.request()
        await it.rig.apply(PartitionChangeRecord(0, TOPIC_ID, leader=2))
        second = await it.request(1)
        assert [p.leader_epoch for p in (*first.partitions, *second.partitions)] == [0, 1]
        fenced = FetchResult(TOPIC_ID, 0, ErrorCode.FENCED_LEADER_EPOCH, 0)
        it.stream.incoming.put_nowait(FetchResponse(first.correlation_id, (fenced,), (b"",)))
        data = FetchResult(TOPIC_ID, 0, ErrorCode.NONE, 0, 0, 0, 1)
        it.stream.incoming.put_nowait(FetchResponse(second.correlation_id, (data,), (stored(0),)))
        await it.request(2)
        assert it.rig.replica.log.log_end_offset == 1


async def test_a_lost_leader_is_asked_again_after_a_pause_and_its_new_stream_begins_with_everything() -> None:
    async with following() as it:
        await it.rig.apply(*BROKERS, *topic((1, 2), leader=2))
        await it.request()
        it.stream.incoming.put_nowait(ConnectionLostError("gone"))
        await wait_until(lambda: it.network.connections[0].closed)
        await it.rig.advance(10_000)
        assert len((await it.request(stream=1)).partitions) == 1


def fails(fs: SimulatedFileSystem) -> None:
    fs.faults.fail_next(Operation.TRUNCATE, path_part=f"{TOPIC}-0/")


def is_damaged(fs: SimulatedFileSystem) -> None:
    fs.flip_bit(f"{DIRECTORY}/{TOPIC}-0/{0:020d}.log", 8, 7)


def is_full(fs: SimulatedFileSystem) -> None:
    fs.faults.fail_always(Operation.CREATE, path_part=f"{TOPIC}-0/leader-epoch", error_number=errno.ENOSPC)


@pytest.mark.parametrize(
    ("disk", "lost"),
    [(fails, {TOPIC, "beside"}), (is_damaged, {TOPIC}), (is_full, set())],
    ids=["failing", "damaged", "full"],
)
async def test_a_truncation_that_fails_leaves_the_others_alone(
    disk: Callable[[SimulatedFileSystem], None], lost: set[str]
) -> None:
    """All three are told in one answer that they diverge at 1; `other` has a disk of its own."""
    names = {TOPIC: TOPIC_ID, "other": UUID(int=101), "beside": UUID(int=102)}
    async with following(log_dirs=[DIRECTORY, "/other"]) as it:
        rig = it.rig
        for name, topic_id in names.items():
            await rig.apply(*BROKERS, *topic((1, 2), leader=2, leader_epoch=1, name=name, topic_id=topic_id))
        replicas = {name: rig.stepper.replicas[topic_id, 0] for name, topic_id in names.items()}
        for replica in replicas.values():
            replica.log.append_as_follower(stored(0) + stored(1, epoch=1) + stored(2, epoch=1), now_ms=1)
        await rig.apply(*(PartitionChangeRecord(0, topic_id, leader=2) for topic_id in names.values()))
        disk(rig.fs)
        asked = await it.request_of({(topic_id, 3, 2) for topic_id in names.values()})
        response = answer(asked)
        parting = tuple(replace(result, diverging=DivergingEpoch(0, 1)) for result in response.results)
        it.stream.incoming.put_nowait(replace(response, results=parting))
        left = set(names) - lost - {TOPIC}
        await it.request_of({(names[name], 1, 2) for name in left})
        ends = {name: replica.log.log_end_offset for name, replica in replicas.items() if name in left}
        assert ends == dict.fromkeys(left, 1)
        assert {replica.topic for replica in rig.stepper.replicas.values()} == set(names) - lost
        waiting = [local.topic_name for local in rig.stepper.trouble.waiting_for_room.values()]
        assert waiting == ([] if lost else [TOPIC])
        rig.fs.faults.clear()
        rig.has_failed = bool(lost)  # then a directory or a log is not closed in order


async def test_an_answer_for_a_partition_that_has_moved_on_is_dropped() -> None:
    async with following() as it:
        await it.rig.apply(*BROKERS, *topic((1, 2), leader=2))
        request = await it.request()
        await it.rig.apply(PartitionChangeRecord(0, TOPIC_ID, leader=1))
        it.stream.incoming.put_nowait(answer(request, stored(0)))
        await quiet_for(0.01)
        assert it.rig.replica.log.log_end_offset == 0


async def test_a_dead_leader_that_nobody_follows_is_left_alone() -> None:
    """Otherwise every broker would knock at its door ten times a second, for ever."""
    async with following() as it:
        it.network.refuses = ConnectionLostError("refused", refused=True)
        await it.rig.apply(*BROKERS, *topic((1, 2), leader=2))
        await wait_until(lambda: it.network.attempts)
        await it.rig.apply(RemoveTopicRecord(TOPIC_ID))
        await quiet_for(0.02)  # an attempt may be under way
        attempts = it.network.attempts
        await quiet_for(0.02)
        assert it.network.attempts == attempts


async def test_errors_do_not_become_a_tight_circle() -> None:
    async with following() as it:
        await it.rig.apply(*BROKERS, *topic((1, 2), leader=2))
        request = await it.request()
        it.stream.incoming.put_nowait(answer(request, error=ErrorCode.NOT_LEADER_OR_FOLLOWER))
        await quiet_for(0.01)
        assert len(it.stream.sent) == 1
        await it.rig.advance(10_000)
        await it.request(1)


async def test_an_unregistered_leader_is_waited_for() -> None:
    async with following() as it:
        await it.rig.apply(registered(1), *topic((1, 2), leader=2))
        await quiet_for(0.01)
        assert it.network.attempts == 0
        await it.rig.apply(registered(2))
        await it.rig.advance(10_000)
        await it.request()


# ---- the throttle of replicas that are being added --------------------------------------------------------------------

RATE = 1_000
OTHER_ID = UUID(int=101)


def throttled(rate: int | None = RATE, broker: str = "") -> ConfigRecord:
    text = None if rate is None else str(rate)
    return ConfigRecord(ResourceType.BROKER, broker, "follower.replication.throttled.rate", text)


def adding(topic_id: UUID, leader: int) -> PartitionChangeRecord:
    return PartitionChangeRecord(0, topic_id, isr=(leader,), adding_replicas=(1,))


async def test_replicas_that_are_being_added_take_no_more_than_the_rate_from_all_leaders_together() -> None:
    async with following() as it:
        await it.rig.apply(throttled(), *BROKERS)
        for leader, topic_id in ((2, TOPIC_ID), (3, OTHER_ID)):
            created = topic((1, leader), leader=leader, name=f"t{leader}", topic_id=topic_id)
            await it.rig.apply(*created, adding(topic_id, leader))
        logs = [replica.log for replica in it.rig.stepper.replicas.values()]
        answered: set[tuple[int, int]] = set()

        def waiting() -> list[tuple[FakeStream, FetchRequest]]:
            asked = [(stream, request) for stream in it.network.streams for request in stream.sent]
            return [one for one in asked if (id(one[0]), one[1].correlation_id) not in answered]

        taken: list[int] = []
        for _ in range(100):
            await it.rig.advance(100)
            if it.rig.stepper.follower_throttle.room_bytes() > 0:
                await wait_until(waiting)
            for stream, request in waiting():
                answered.add((id(stream), request.correlation_id))
                for position in request.partitions:
                    assert position.max_bytes <= RATE
                    stream.incoming.put_nowait(answer(request, stored(position.fetch_offset)))
                    taken.append(position.fetch_offset)
                await wait_until(lambda: sum(log.log_end_offset for log in logs) == len(taken))
        size = len(stored(0))
        assert RATE * 9 <= len(taken) * size <= RATE * 10 + 2 * size
        assert all(log.log_end_offset for log in logs)


@pytest.mark.parametrize("change", [{"isr": (1, 2), "adding_replicas": (1,)}, {"isr": (2,)}], ids=["in sync", "back"])
async def test_replicas_that_are_in_sync_or_come_back_are_not_throttled(change: dict[str, tuple[int, ...]]) -> None:
    async with following() as it:
        await it.rig.apply(throttled(1), *BROKERS)
        await it.rig.apply(*topic((1, 2), leader=2), PartitionChangeRecord(0, TOPIC_ID, **change))
        (position,) = (await it.request()).partitions
        assert position.max_bytes == it.rig.config.replica_fetch_max_bytes


async def test_a_throttled_replica_goes_on_when_the_throttle_is_lifted_and_one_in_sync_does_not_wait_with_it() -> None:
    async with following() as it:
        await it.rig.apply(throttled(broker="1"), *BROKERS)
        first, second = topic((1, 2), leader=2, topic_id=OTHER_ID, name="u")
        await it.rig.apply(*topic((1, 2), leader=2), first, second, adding(OTHER_ID, 2))
        assert [p.topic_id for p in (await it.request()).partitions] == [TOPIC_ID]
        await it.rig.apply(throttled(None, broker="1"))
        assert [p.topic_id for p in (await it.request(1)).partitions] == [OTHER_ID]


async def test_a_throttled_replica_goes_on_when_it_is_taken_into_the_isr() -> None:
    async with following() as it:
        await it.rig.apply(throttled(1), *BROKERS)
        await it.rig.apply(*topic((1, 2), leader=2), adding(TOPIC_ID, 2))
        await it.rig.apply(PartitionChangeRecord(0, TOPIC_ID, isr=(1, 2)))
        assert len((await it.request()).partitions) == 1


async def test_an_answer_for_thousands_of_partitions_is_taken_some_in_each_step(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Trap: the records of a thousand partitions were appended in one step, which held the loop for a tenth of a second."""
    monkeypatch.setattr(fetchers_module, "RESULTS_TOGETHER", 3)
    async with following() as it:
        ids = [UUID(int=200 + number) for number in range(8)]
        made = [topic((1, 2), leader=2, name=f"t{topic_id.int}", topic_id=topic_id) for topic_id in ids]
        await it.rig.apply(*BROKERS, *(record for records in made for record in records))
        request = await it.request_of({(topic_id, 0, 0) for topic_id in ids})
        call, appended = it.rig.stepper.driver.call, [0]

        def ends() -> int:
            return sum(replica.log.log_end_offset for replica in it.rig.stepper.replicas.values())

        async def counted(work: Callable[[], object]) -> object:
            done = await call(work)
            appended.append(ends())
            return done

        monkeypatch.setattr(it.rig.stepper.driver, "call", counted)
        it.stream.incoming.put_nowait(answer(request, stored(0)))
        await it.request_of({(topic_id, 1, 0) for topic_id in ids})
        assert (ends(), max(after - before for before, after in itertools.pairwise(appended))) == (8, 3)
