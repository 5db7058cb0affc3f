"""Members of groups in the simulation: processes that read, handle and commit, and are killed, paused, slow, or leave and come back.

`ConsumerMember` is our `Consumer` as it is shipped, with `subscribe`; members of the classic protocol are in `classic_members`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from random import Random
from typing import TYPE_CHECKING, Any

from replog.client import AssignmentListener, Consumer, ConsumerRecord
from replog.client.consumer import group_member
from replog.client.consumer.group_commits import GroupCommits
from replog.client.consumer.group_member import GroupMember
from replog.client.consumer.group_openings import Openings
from replog.client.groups.membership import PUT_OUT, State
from replog.client.groups.messages import Answered, Ask, Failed, Message, Told
from replog.client.protocol.connection import _LinkedBroker
from replog.client.types import TopicPartition
from replog.coordinator.assignors import partitions_of
from replog.coordinator.classic.requests import (
    ClassicHeartbeatResponse,
    JoinGroup,
    JoinGroupResponse,
    LeaveGroup,
    SyncGroupResponse,
)
from replog.coordinator.classic.subscription import assigned_partitions
from replog.coordinator.consumers.requests import ConsumerHeartbeat, ConsumerHeartbeatResponse
from replog.errors import (
    CommitStaleError,
    LeaderNotAvailableError,
    RebalanceInProgressError,
    RequestTimedOutError,
    UnknownTopicOrPartitionError,
)
from replog.testing.simulated_process import SimulatedProcess
from replog.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from tests.sim.group_checks import Seat
from tests.sim.group_log import Author
from tests.sim.metadata_cluster_checks import Violation

if TYPE_CHECKING:
    from tests.sim.group_simulation import GroupSimulation

TOPIC = "orders"
LEFT_WITHIN_S = 30.0
POLL_MS = 200
BACKOFF_S = 0.1
MAX_POLL_MS = 2_500
CLASSIC_SESSION_MS, CLASSIC_INTERVAL_MS = 1_500, 300


class Member:
    """One member over all its lives.

    Args:
        simulation: the run.
        group_id: its group.
        number: among all members.

    Attributes:
        name: of its machine.
        is_stopping: it leaves when it is done with what it has in hand.
        slow_s: how long the next record takes.
    """

    def __init__(self, simulation: GroupSimulation, group_id: str, number: int) -> None:
        self.name = f"{group_id}-{number}"
        self.group_id = group_id
        self.rng = Random(f"member {self.name} of {simulation.seed}")
        self.simulation = simulation
        self.checks = simulation.groups
        self.cluster = simulation.cluster
        self.host = simulation.cluster.internet.host(self.name)
        self.seat: Seat | None = None
        self.is_stopping = False
        self.slow_s = 0.0
        self._process: SimulatedProcess | None = None
        self._ended = asyncio.Event()
        self._lives = 0

    # ---- its lives -------------------------------------------------------------------------------------------------------

    async def live(self) -> None:
        """Until the faults are over; then it runs, and goes on."""
        rng, shape = self.rng, self.simulation.shape
        await asyncio.sleep(rng.uniform(0, shape.late_s))
        self.start()
        while not self.simulation.is_healed:
            await asyncio.sleep(rng.uniform(0.2, 2.5))
            if self.simulation.is_healed or rng.random() >= shape.member_fault:
                continue
            match rng.choice(shape.member_faults):
                case "kill":
                    self.kill()
                    await self._stay_away()
                case "pause":
                    await self._pause(rng.choice((0.5, 4.0)))
                case "leave":
                    await self.leave()
                    await self._stay_away()
                case _:
                    self.slow_s = rng.choice((0.5, 1.5 * MAX_POLL_MS / 1000))

    def start(self) -> None:
        """A new process."""
        self._lives += 1
        self.is_stopping = False
        self._ended = asyncio.Event()
        self.note(f"starts, life {self._lives}")
        self.seat = self.checks.new_seat(self.name, self.group_id)
        self._process = process = self.simulation.loop.new_process(f"{self.name}.{self._lives}")
        process.on_kill.append(self.host.tcp.lose_process)
        process.create_task(self._run(self.seat, self._ended), name=self.name)

    def kill(self) -> None:
        """As kill -9."""
        if self._process is not None and self.seat is not None:
            self.note("is killed")
            self.simulation.seen["member killed"] += 1
            self.checks.dies(self.seat)
            self._process.kill()
            self._process = self.seat = None

    async def leave(self) -> None:
        """In order, as an application that ends."""
        self.note("leaves")
        self.simulation.seen["member leaves"] += 1
        self.is_stopping = True
        await self.end()

    async def end(self) -> None:
        """Waits until it has left.  Raises: Violation: it does not."""
        try:
            async with asyncio.timeout(LEFT_WITHIN_S):
                await self._ended.wait()
        except TimeoutError:
            raise Violation(f"G10 {self.name} does not leave within {LEFT_WITHIN_S:g} s") from None
        self._process = self.seat = None

    async def _stay_away(self) -> None:
        await asyncio.sleep(self.rng.choice((0.05, 0.5, 3.0)))
        self.start()

    async def _pause(self, duration_s: float) -> None:
        if self._process is not None:
            self.note(f"is paused for {duration_s:g} s")
            self.simulation.seen["member paused"] += 1
            self._process.pause()
            await asyncio.sleep(duration_s)
            self._process.resume()

    def note(self, text: str) -> None:
        self.simulation.events.note("member", f"{self.name} {text}")

    async def _run(self, seat: Seat, ended: asyncio.Event) -> None:
        try:
            await self.serve(seat)
        except Exception as error:
            if not seat.is_dead:  # what a killed process meets as its coroutines are ended is no error of anybody's
                self.simulation.checker.report(f"G10 {self.name} ends with {error!r}")
            raise
        finally:
            if not seat.is_dead:
                self.checks.leaves(seat)
                ended.set()

    async def serve(self, seat: Seat) -> None:
        """One life, until `is_stopping`."""
        raise NotImplementedError

    # ---- its work --------------------------------------------------------------------------------------------------------

    async def handle(self, seat: Seat, record: ConsumerRecord) -> None:
        """Works on a record."""
        slow_s, self.slow_s = self.slow_s, 0.0
        if slow_s or self.rng.random() < 0.3:
            await asyncio.sleep(slow_s or self.rng.uniform(0, 0.01))
        self.checks.handled(seat, record.partition, record.offset)


class _Listener(AssignmentListener):
    """Tells the checks what the member has in hand."""

    def __init__(self, member: ConsumerMember, seat: Seat, consumer: Consumer) -> None:
        self._member = member
        self._seat = seat
        self._consumer = consumer

    async def on_assigned(self, partitions: Collection[TopicPartition]) -> None:
        for each in partitions:
            try:
                position = self._consumer.position(each)
            except LeaderNotAvailableError:  # nothing is committed: it begins at the start, once somebody leads
                position = 0
            self._member.checks.begins(self._seat, each.partition, position)

    async def on_revoked(self, partitions: Collection[TopicPartition]) -> None:
        if self._member.rng.random() < 0.2:
            await asyncio.sleep(self._member.rng.uniform(0, 0.3))
        self._member.checks.ends(self._seat, [each.partition for each in partitions], "was asked to give back")

    async def on_lost(self, partitions: Collection[TopicPartition]) -> None:
        self._member.checks.ends(self._seat, [each.partition for each in partitions], "was put out")


class ConsumerMember(Member):
    """Our `Consumer`, a member of KIP-848, or of the classic protocol where brokers are older."""

    async def serve(self, seat: Seat) -> None:
        rng = self.rng
        is_static = self.simulation.shape.is_static
        seat.rebalance_s, seat.is_static = MAX_POLL_MS / 1000, is_static
        commits_itself = rng.random() < 0.5
        consumer = Consumer(
            self.cluster.bootstrap_servers,
            group_id=self.group_id,
            group_instance_id=self.name if is_static else None,
            auto_offset_reset="earliest",
            enable_auto_commit=commits_itself,
            auto_commit_interval_ms=rng.choice((100, 1_000)),
            max_poll_interval_ms=MAX_POLL_MS,
            request_timeout_ms=5_000,
            connect_timeout_ms=120_000,
            client_id=self.name,
            transport=self.cluster.transport(self.name),
        )
        async with consumer:
            await self._subscribe(consumer, _Listener(self, seat, consumer))
            group = consumer._group
            assert group is not None
            self.simulation.seat_of[group.member] = seat
            seat.member_id = group.member.member_id
            while not self.is_stopping:
                await self._work(seat, consumer, commits=not commits_itself)

    async def _subscribe(self, consumer: Consumer, listener: _Listener) -> None:
        """A broker that is cut off may not have heard of the topic."""
        while True:
            try:
                await consumer.subscribe([TOPIC], listener=listener)
            except UnknownTopicOrPartitionError:
                await asyncio.sleep(BACKOFF_S)
            else:
                return

    async def _work(self, seat: Seat, consumer: Consumer, *, commits: bool) -> None:
        """One read, and what comes of it."""
        records = await consumer.poll(self.rng.choice((1, 5, 100)), POLL_MS)
        self.checks.handed_out(seat, {record.partition for record in records})
        for record in records:
            await self.handle(seat, record)
        if commits and self.rng.random() < 0.5:
            await self._commit(seat, consumer)

    async def _commit(self, seat: Seat, consumer: Consumer) -> None:
        offsets = {each: offset for each, offset in seat.reads.items() if offset}  # one of 0 may have no leader yet
        try:
            await consumer.commit()
        except (CommitStaleError, RequestTimedOutError) as error:
            self.note(f"commits {offsets}: {error}")
            self.simulation.seen[f"commit: {type(error).__name__}"] += 1
        else:
            self.checks.kept(seat, offsets)


# ---- what members say, heard on the way ----------------------------------------------------------------------------------

_SAY, _REQUEST, _KEEP_REQUEST = GroupMember._say, GroupCommits._request, Openings._request


def heard(simulation: GroupSimulation) -> list[tuple[Any, str, Any]]:
    """Substitutes that tell the checks what our members are told, and put their names beside the offsets they commit."""

    def signed(author: Author, offsets: Any) -> Any:
        return {each: offset._replace(metadata=str(author)) for each, offset in offsets.items()}

    async def say(self: GroupMember, asked: Ask) -> Message:
        request = asked.request
        if not (isinstance(request, ConsumerHeartbeat) or simulation.is_older):
            simulation.checker.report(f"G10 {self.member_id} speaks the classic protocol for nothing: {request}")
        seat, sent_at = simulation.seat_of.get(self), simulation.loop.time()
        if seat is not None:
            seat.is_leaving = isinstance(request, LeaveGroup) or getattr(request, "member_epoch", 0) < 0
            if isinstance(request, JoinGroup):
                simulation.groups.joins(seat)
            if seat.is_leaving and self._core.state is State.LEAVING:
                simulation.groups.begins_to_leave(seat)
        answer = await _SAY(self, asked)
        if seat is not None and isinstance(answer, Answered):
            take_in(seat, answer.response, getattr(request, "generation", 0), sent_at)
        if seat is not None and isinstance(answer, Failed):
            seat.has_heard |= bool(seat.reads) and isinstance(answer.error, (RebalanceInProgressError, *PUT_OUT))
        return answer

    def take_in(seat: Seat, response: Told, generation: int, sent_at: float) -> None:
        match response:
            case ConsumerHeartbeatResponse(_, epoch, _, told) if not seat.is_leaving:
                numbers = None if told is None else frozenset(number for _, number in partitions_of(told))
                simulation.groups.told(seat, epoch, numbers, sent_at)
            case JoinGroupResponse():
                seat.member_id = response.member_id
            case SyncGroupResponse():
                given = frozenset(number for _, number in assigned_partitions(response.assignment))
                simulation.groups.told(seat, generation, given, sent_at)
                simulation.seen["ours: assigned by a member"] += 1
            case ClassicHeartbeatResponse():
                seat.heard_at = sent_at

    async def offers(self: _LinkedBroker, api_key: int) -> bool:
        return api_key != ConsumerGroupHeartbeatRequest.API_KEY and api_key in self._link.versions

    def of_commits(self: GroupCommits, offsets: Any, epoch: int) -> Any:
        return _REQUEST(self, signed(Author(self._holder.member_id, epoch), offsets), epoch)

    def of_openings(self: Openings, offsets: Any, ids: Any, member_id: str, epoch: int) -> Any:
        return _KEEP_REQUEST(self, signed(Author(member_id, epoch), offsets), ids, member_id, epoch)

    older = [
        (_LinkedBroker, "offers", offers),
        (group_member, "SESSION_TIMEOUT_MS", CLASSIC_SESSION_MS),
        (group_member, "HEARTBEAT_INTERVAL_MS", CLASSIC_INTERVAL_MS),
    ]
    return [
        (GroupMember, "_say", say),
        (GroupCommits, "_request", of_commits),
        (Openings, "_request", of_openings),
        *(older if simulation.is_older else ()),
    ]
