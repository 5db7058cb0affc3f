"""A member of the classic protocol in the simulation: it speaks Kafka's protocol over simulated TCP, as Java's and librdkafka's do.

An eager one gives back everything before it joins again; a cooperative one reads on while it does, gives back what it has lost
when it is told, and joins once more.  The leader assigns: evenly, and to a cooperative group what somebody still has only to that
one.  Records are read by a consumer of ours without a group.  One task does all, so a slow record costs heartbeats.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from replog.client import Consumer
from replog.coordinator.classic.subscription import assigned_partitions
from replog.errors import ErrorCode, ReplogError
from replog.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from replog.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from replog.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse
from replog.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from replog.wire.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from replog.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from replog.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from replog.wire.primitives import Reader, Writer
from tests.sim.group_checks import Seat
from tests.sim.group_log import Author
from tests.sim.group_members import TOPIC, Member
from tests.sim.kafka_connection import KafkaConnection, KafkaConnectionLostError, read
from tests.sim.kafka_view import KafkaView, within

if TYPE_CHECKING:
    from tests.sim.group_simulation import GroupSimulation

SESSION_MS = 1_500
REBALANCE_MS = 2_500
HEARTBEAT_S = 0.3
ANSWERED_S = 3.0
JOINED_S = 8.0
BACKOFF_S = 0.1
COOPERATIVE = "cooperative"
VERSIONS = {
    FindCoordinatorRequest: 4,
    JoinGroupRequest: 9,
    SyncGroupRequest: 5,
    HeartbeatRequest: 4,
    LeaveGroupRequest: 5,
    OffsetCommitRequest: 9,
    OffsetFetchRequest: 8,
}
MOVED = {
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
}
"""After these it looks for its coordinator again; one that is cut off may not have heard of a new partition."""

PUT_OUT = {ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION, ErrorCode.GROUP_ID_NOT_FOUND}
"""The last where all were silent, and the group was forgotten with its offsets."""

_short, _int = struct.Struct(">h"), struct.Struct(">i")


class _PutOutError(Exception):
    """It is no member any more, or not of this generation."""


class _RebalancedError(Exception):
    """It has to join again."""


class ClassicMember(Member):
    """See the module."""

    def __init__(self, simulation: GroupSimulation, group_id: str, number: int) -> None:
        super().__init__(simulation, group_id, number)
        self._is_cooperative = group_id == COOPERATIVE
        self._view = KafkaView(simulation.cluster, self.name, TOPIC, self.rng)
        self._begin(Seat(self.name, group_id))

    def _begin(self, seat: Seat) -> None:
        self._seat = seat
        self._link: KafkaConnection | None = None
        self._connections = 0
        self._generation = -1
        self._needs_join = True
        self._assigned: frozenset[int] = frozenset()
        self._beaten_at = 0.0
        self._partitions = 0
        self._is_leader = False

    async def serve(self, seat: Seat) -> None:
        self._begin(seat)
        consumer = Consumer(
            self.cluster.bootstrap_servers,
            auto_offset_reset="raise",
            connect_timeout_ms=120_000,
            client_id=self.name,
            transport=self.cluster.transport(self.name),
        )
        async with consumer:
            self._consumer = consumer
            while not self.is_stopping:
                await self._attend(self._go_on)
            await self._attend(self._leave)
            if self._link is not None:
                self._link.close()

    async def _attend(self, step: Any) -> None:
        """Does one thing, and what its errors ask for."""
        try:
            if self._link is None or self._link.is_lost:
                await self._connect()
            await step()
        except KafkaConnectionLostError as error:
            self.note(f"loses its connection: {error}")
            if self._link is not None:
                self._link.close()
            self._link = None
            await self._work()
            await asyncio.sleep(BACKOFF_S)
        except _RebalancedError:
            self._needs_join = True
        except _PutOutError as error:
            self.note(f"is put out: {error}")
            await self._give_up(self._seat.reads, "was put out")
            self._assigned = frozenset()
            self._generation, self._needs_join = -1, True

    async def _go_on(self) -> None:
        if self._needs_join:
            await self._join()
            return
        if missing := self._assigned - self._seat.reads.keys():
            await self._open(missing)
        await self._work()
        if self.simulation.loop.time() >= self._beaten_at + HEARTBEAT_S:
            await self._beat()

    # ---- the coordinator -------------------------------------------------------------------------------------------------

    async def _connect(self) -> None:
        request = FindCoordinatorRequest(coordinator_keys=[self.group_id])
        told = await self._view.ask_any(request, FindCoordinatorResponse, VERSIONS[FindCoordinatorRequest])
        (found,) = told.coordinators
        if found.error_code != ErrorCode.NONE:
            raise KafkaConnectionLostError(found.error_message)
        self._link = await KafkaConnection.open(self._view.tcp, found.host, found.port)
        self._connections += 1

    async def _ask(self, request: Any, answer: type[Any], *, works_on: bool = False) -> Any:
        """The answer; raises `KafkaConnectionLostError` where it does not come."""
        if self._link is None:
            raise KafkaConnectionLostError("there is no connection")
        version = VERSIONS[type(request)]
        answered, until = self._link.ask(request, version), self.simulation.loop.time() + JOINED_S
        while works_on and self._seat.reads and not answered.done() and self.simulation.loop.time() < until:
            await self._work()
            self._commit_meanwhile()
        return read(await within(answered, JOINED_S if works_on else ANSWERED_S), answer, version)

    def _check(self, code: int) -> None:
        """Raises what an error asks for."""
        if code == ErrorCode.NONE:
            return
        self.simulation.seen[f"classic: {ErrorCode(code).name}"] += 1
        if code in MOVED:
            raise KafkaConnectionLostError(ErrorCode(code).name)
        if code == ErrorCode.REBALANCE_IN_PROGRESS:
            raise _RebalancedError
        if code in {ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.GROUP_ID_NOT_FOUND}:
            self._seat.member_id = ""
        if code in PUT_OUT:
            raise _PutOutError(ErrorCode(code).name)
        raise AssertionError(f"{self.name} is told {ErrorCode(code).name}")

    async def _beat(self) -> None:
        self._beaten_at = self.simulation.loop.time()
        request = HeartbeatRequest(self.group_id, self._generation, self._seat.member_id)
        self._check((await self._ask(request, HeartbeatResponse)).error_code)
        self._seat.heard_at = self._beaten_at
        if self._is_leader and self._count() != self._partitions:
            self._needs_join = True  # the topic has grown

    def _count(self) -> int:
        """How many partitions the topic has; as many as before where that is not known."""
        topic = self._consumer._view.image.topics.get(TOPIC)
        return self._partitions if topic is None else len(topic.partitions)

    async def _join(self) -> None:
        """Meets the others in the next generation, and learns what it gets."""
        seat = self._seat
        if not self._is_cooperative:
            await self._commit(seat.reads)
            await self._give_up(seat.reads, "was asked to give back")
            self._assigned = frozenset()
        protocol = JoinGroupRequest.JoinGroupRequestProtocol(self.group_id, subscription(seat.reads))
        request = JoinGroupRequest(
            self.group_id, SESSION_MS, REBALANCE_MS, seat.member_id, None, "consumer", [protocol], ""
        )
        joined = await self._ask(request, JoinGroupResponse, works_on=True)
        if joined.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            seat.member_id = joined.member_id
            return
        self._check(joined.error_code)
        seat.member_id, self._generation = joined.member_id, joined.generation_id
        self._is_leader = joined.leader == seat.member_id
        self._partitions = self._count()
        await self._sync(self._shares(joined) if self._is_leader and not joined.skip_assignment else {})

    def _shares(self, joined: JoinGroupResponse) -> dict[str, set[int]]:
        owned = {each.member_id: owned_partitions(each.metadata) for each in joined.members}
        return shares(owned if self._is_cooperative else dict.fromkeys(owned, ()), self._partitions)

    async def _sync(self, given: Mapping[str, Collection[int]]) -> None:
        seat, sent_at = self._seat, self.simulation.loop.time()
        assignments = [
            SyncGroupRequest.SyncGroupRequestAssignment(name, assignment(each)) for name, each in given.items()
        ]
        request = SyncGroupRequest(
            self.group_id, self._generation, seat.member_id, None, "consumer", self.group_id, assignments
        )
        synced = await self._ask(request, SyncGroupResponse, works_on=True)
        self._check(synced.error_code)
        self._assigned = frozenset(number for _, number in assigned_partitions(synced.assignment))
        self.checks.told(seat, self._generation, self._assigned, sent_at)
        self._beaten_at, self._needs_join = sent_at, False
        if lost := seat.reads.keys() - self._assigned:
            await self._commit(lost)
            await self._give_up(lost, "was asked to give back")
            self._needs_join = True

    async def _leave(self) -> None:
        await self._commit(self._seat.reads)
        self.checks.ends(self._seat, list(self._seat.reads), "has left")
        self._seat.is_leaving = True
        leaving = LeaveGroupRequest.MemberIdentity(self._seat.member_id)
        await self._ask(LeaveGroupRequest(self.group_id, members=[leaving]), LeaveGroupResponse)

    # ---- partitions ------------------------------------------------------------------------------------------------------

    async def _open(self, partitions: Collection[int]) -> None:
        """Begins with them where the group has committed, or at the start."""
        topic = OffsetFetchRequest.OffsetFetchRequestTopics(TOPIC, partition_indexes=sorted(partitions))
        group = OffsetFetchRequest.OffsetFetchRequestGroup(self.group_id, topics=[topic])
        (told,) = (await self._ask(OffsetFetchRequest(groups=[group]), OffsetFetchResponse)).groups
        self._check(told.error_code)
        for each in told.topics[0].partitions:
            self._check(each.error_code)
        starts = {each.partition_index: max(each.committed_offset, 0) for each in told.topics[0].partitions}
        await self._read({**self._seat.reads, **starts})
        for partition, offset in starts.items():
            self.checks.begins(self._seat, partition, offset)

    async def _give_up(self, partitions: Iterable[int], how: str) -> None:
        gone = set(partitions)
        self.checks.ends(self._seat, gone, how)
        await self._read({each: offset for each, offset in self._seat.reads.items() if each not in gone})

    async def _read(self, positions: Mapping[int, int]) -> None:
        """Reads these from now on; a broker that is cut off may not have heard of a partition."""
        while True:
            try:
                await self._consumer.assign(
                    [(TOPIC, each) for each in positions],
                    start={(TOPIC, each): offset for each, offset in positions.items()},
                )
            except ReplogError as error:
                self.note(f"cannot read {positions} yet: {error}")
                await asyncio.sleep(BACKOFF_S)
            else:
                return

    async def _work(self) -> None:
        """Reads and handles a little; commits now and then."""
        if not self._seat.reads:
            await asyncio.sleep(BACKOFF_S)
            return
        for record in await self._consumer.poll(self.rng.choice((1, 5, 20)), 100):
            await self.handle(self._seat, record)
        if self._link is not None and not self._needs_join and self.rng.random() < 0.3:
            await self._commit(self._seat.reads)

    async def _commit(self, partitions: Iterable[int]) -> None:
        """An error that is no end of the membership is passed over: there will be another commit."""
        seat = self._seat
        offsets = {each: seat.reads[each] for each in partitions}
        if not offsets or self._generation < 0:
            return
        answer = await self._ask(self._commit_request(offsets), OffsetCommitResponse)
        for code in {each.error_code for each in answer.topics[0].partitions}:
            self._check(code)
        self.checks.kept(seat, offsets)

    def _commit_meanwhile(self) -> None:
        """Commits while the answer to a join or a sync is waited for, behind which that to the commit comes."""
        if self._link is None or self._link.is_lost or self._generation < 0:
            return
        offsets, seat, version = dict(self._seat.reads), self._seat, VERSIONS[OffsetCommitRequest]

        def hear(answered: asyncio.Future[bytes]) -> None:
            if answered.cancelled() or answered.exception() is not None or seat.is_dead:
                return
            told = read(answered.result(), OffsetCommitResponse, version)
            if all(each.error_code == ErrorCode.NONE for each in told.topics[0].partitions):
                self.checks.kept(seat, offsets)

        self._link.ask(self._commit_request(offsets), version).add_done_callback(hear)

    def _commit_request(self, offsets: Mapping[int, int]) -> OffsetCommitRequest:
        seat = self._seat
        author = str(Author(seat.member_id, self._generation, self._connections))
        parts = [
            OffsetCommitRequest.OffsetCommitRequestPartition(each, offset, -1, author)
            for each, offset in offsets.items()
        ]
        topics = [OffsetCommitRequest.OffsetCommitRequestTopic(TOPIC, partitions=parts)]
        return OffsetCommitRequest(self.group_id, self._generation, seat.member_id, None, -1, topics)


# ---- what only members understand ----------------------------------------------------------------------------------------


def subscription(owned: Collection[int]) -> bytes:
    """What a member tells the leader: the topic, and what it has; version 1 of Kafka's consumer protocol."""
    w = Writer()
    w.fixed(_short, 1)
    w.fixed(_int, 1)
    w.text(TOPIC, flexible=False)
    w.nullable_raw(None, flexible=False)
    _write_partitions(w, owned)
    return w.joined()


def assignment(partitions: Collection[int]) -> bytes:
    """What the leader tells a member."""
    w = Writer()
    w.fixed(_short, 1)
    _write_partitions(w, partitions)
    w.nullable_raw(None, flexible=False)
    return w.joined()


def _write_partitions(w: Writer, partitions: Collection[int]) -> None:
    w.fixed(_int, 1 if partitions else 0)
    if partitions:
        w.text(TOPIC, flexible=False)
        w.fixed(_int, len(partitions))
        w.numbers(sorted(partitions), "i")


def owned_partitions(metadata: bytes) -> set[int]:
    """What `subscription` says that a member has."""
    r = Reader(memoryview(metadata))
    r.fixed(_short)
    for _ in range(r.count(flexible=False, least_bytes=2)):
        r.text(flexible=False)
    r.nullable_raw(flexible=False)
    found: set[int] = set()
    for _ in range(r.count(flexible=False, least_bytes=6)):
        r.text(flexible=False)
        found.update(r.numbers(r.count(flexible=False, least_bytes=4), "i"))
    return found


def shares(owned: Mapping[str, Collection[int]], count: int) -> dict[str, set[int]]:
    """What each member gets: evenly, who has something keeps it, and what somebody else still has is given to nobody yet."""
    names = sorted(owned)
    most = -(-count // len(names))
    holders = {number: name for name in names for number in owned[name]}
    found: dict[str, set[int]] = {name: set() for name in names}
    homeless = []
    for number in range(count):
        holder = holders.get(number)
        if holder is not None and len(found[holder]) < most:
            found[holder].add(number)
        else:
            homeless.append(number)
    for number in homeless:
        least = min(names, key=lambda name: (len(found[name]), name))
        found[least].add(number)
    return {
        name: {number for number in numbers if holders.get(number, name) == name} for name, numbers in found.items()
    }
