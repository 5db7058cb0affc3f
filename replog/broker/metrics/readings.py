"""What a node's state says when somebody asks: plain numbers, read on the event loop.

Replicas are read a few at a time, with other work in between: a broker with thousands of them must not stop for a
scrape.  So two partitions may be from moments some milliseconds apart.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

from msgspec import Struct

from replog.access.authorizer import Authorizer
from replog.access.standard import StandardAuthorizer
from replog.broker.controller.broker_lifecycle import BrokerLifecycle, LifecycleState
from replog.broker.controller.driver import ControllerDriver
from replog.broker.coordinator.shards import Shards
from replog.broker.loop_lag import LoopLag
from replog.broker.quorum.driver import QuorumDriver
from replog.broker.replicas.open_transactions import OpenTransactions, open_transactions_of
from replog.broker.replicas.replica import Replica, ReplicaKey
from replog.broker.replicas.stepper import ReplicaStepper
from replog.broker.requests.fetch_path import FetchPath
from replog.broker.requests.produce_path import ProducePath
from replog.broker.requests.record_deletions import RecordDeletions
from replog.coordinator.describing.requests import GroupOffset, ListGroups, ReadOffsets
from replog.coordinator.rebalance_reasons import RebalanceReason
from replog.coordinator.runtime.shard import ShardState
from replog.errors import ReplogError
from replog.metadata.records import ElectionType
from replog.metadata.topic_names import OFFSETS_TOPIC
from replog.protocol.server import RequestCounts
from replog.replication.leader import Leader

TIMEOUT_MS = 1_000
"""How long a coordinator is waited for that has changes to commit before it tells its groups."""

REPLICAS_AT_ONCE = 100
"""Read in one piece; a millisecond or two."""


class FollowerReading(Struct, frozen=True):
    """How far one replica of a led partition is behind; `lag_ms` None: it never had everything under this leader."""

    replica_id: int
    lag_records: int
    lag_ms: int | None


class LeaderReading(Struct, frozen=True):
    """One partition that this broker leads; `transactions` None: none is open."""

    topic: str
    partition_id: int
    is_under_replicated: bool
    is_under_min_isr: bool
    high_watermark: int
    followers: tuple[FollowerReading, ...]
    transactions: OpenTransactions | None = None


class QuorumReading(Struct, frozen=True):
    """The metadata quorum as this node sees it.

    Attributes:
        leader_id: The id of the leader; -1 where it is unknown.
        commit_ms: The pairs (quantile, milliseconds) of the last commits of this node as leader; None for the
            milliseconds where there were none.
        voter_lags: The pairs (voter id, records it lacks) on the leader; a voter that was never heard is left out.
    """

    epoch: int
    leader_id: int
    is_leader: bool
    high_watermark: int
    log_end_offset: int
    elections: int
    election_ms: int | None
    commit_ms: tuple[tuple[float, int | None], ...]
    voter_lags: tuple[tuple[int, int], ...]


class KafkaReading(Struct, frozen=True):
    """What Kafka's clients do at one moment, and did since the broker began.

    Attributes:
        connections: The connections that there are.
        accepted: The connections that there were.
        ended: The connections that were ended from this side.
        refused: Those whose client was not believed to be who it is, by the name of the listener.
        held: Those that were taken in or ended late, by what held them up.
        throttled_s: The seconds that clients were told to wait, by the key of the quota.
        counts: The counts of their requests.
    """

    connections: int
    accepted: int
    ended: int
    refused: Mapping[str, int]
    held: Mapping[str, int]
    throttled_s: Mapping[str, float]
    counts: RequestCounts


class CoordinatorReading(Struct, frozen=True):
    """The coordinators of groups on this broker.

    Attributes:
        shards: The number of partitions of the offsets topic that are led here, by the state of their coordinator.
        open_requests: The requests that wait for an answer, joins among them.
        committed_offsets: The offsets that were committed since this node began.
        groups: The number of groups by their state, of the coordinators that serve.
        load_ms: The longest that reading a log has taken of those that serve now, in milliseconds; 0 where none does.
        rebalances: The number of rebalances since this node began, by reason.
        offsets: The offsets that groups have committed, as many as are told.
        left_out_count: The number of those that are not told.
    """

    shards: Mapping[ShardState, int]
    open_requests: int
    committed_offsets: int
    groups: Mapping[str, int]
    load_ms: int
    rebalances: Mapping[RebalanceReason, int]
    offsets: Sequence[GroupOffset]
    left_out_count: int


class AccessReading(Struct, frozen=True):
    """What the access control lists come to at one moment.

    Attributes:
        entries: The entries in force.
        denials: How often somebody was not allowed something since the node began, by its broker or by its controller.
    """

    entries: int
    denials: int


class Readings(Struct, frozen=True):
    """A node at one moment, nearly.

    Attributes:
        elections: The elections of partition leaders since this node began, as its controller has replayed them; none
            on a node that is a broker only.
        kafka: The doings of Kafka's clients; None: they are not served.
        access: Who may do what; None: everybody may do everything.
        refused_nodes: The connections of other nodes that were not believed to be nodes.
    """

    is_running: bool
    partitions_count: int
    offline_partitions_count: int
    offline_replicas_count: int
    leaders: tuple[LeaderReading, ...]
    isr_shrinks: int
    isr_expands: int
    waiting_produces: int
    waiting_fetches: int
    waiting_incremental_fetches: int
    waiting_deletions: int
    incremental_fetches: int
    unread_bytes: int
    loop_lag_ms: int
    quorum: QuorumReading
    coordinators: CoordinatorReading
    elections: Mapping[ElectionType, int]
    kafka: KafkaReading | None = None
    access: AccessReading | None = None
    refused_nodes: int = 0


class ReadParts(Struct, frozen=True):
    """Where the numbers are."""

    stepper: ReplicaStepper
    produce_path: ProducePath
    fetch_path: FetchPath
    deletions: RecordDeletions
    shards: Shards
    lifecycle: BrokerLifecycle
    quorum: QuorumDriver
    controller: ControllerDriver | None
    loop_lag: LoopLag
    authorizer: Authorizer
    read_kafka: Callable[[], KafkaReading] | None = None
    refused_nodes: Callable[[], int] = int

    async def read(self) -> Readings:
        """Reads everything, on the loop that drives the node.

        Raises:
            BrokerClosedError: The node is stopping.
        """
        stepper = self.stepper
        leaders: list[LeaderReading] = []
        leaderless_count = 0
        keys = [*stepper.replicas, *stepper.trouble.offline]
        for start in range(0, len(keys), REPLICAS_AT_ONCE):
            chunk = keys[start : start + REPLICAS_AT_ONCE]
            leaders += await stepper.driver.call(partial(read_leaders, stepper, chunk))
            leaderless_count += _leaderless_count(stepper, chunk)
        return Readings(
            is_running=self.lifecycle.state is LifecycleState.RUNNING,
            partitions_count=len(keys),
            offline_partitions_count=leaderless_count,
            offline_replicas_count=len(stepper.trouble.offline),
            leaders=tuple(leaders),
            isr_shrinks=stepper.isr_changes.shrinks,
            isr_expands=stepper.isr_changes.expands,
            waiting_produces=self.produce_path.waiting_count,
            waiting_fetches=self.fetch_path.waiting_count,
            waiting_incremental_fetches=self.fetch_path.incremental.waiting_count,
            waiting_deletions=len(self.deletions),
            incremental_fetches=len(self.fetch_path.incremental),
            unread_bytes=self.fetch_path.unread.held_bytes,
            loop_lag_ms=self.loop_lag.worst_ms(),
            quorum=read_quorum(self.quorum),
            coordinators=await read_coordinators(self.shards, stepper.config.metrics_group_offsets_max),
            elections={} if self.controller is None else self.controller.status().elections,
            kafka=None if self.read_kafka is None else self.read_kafka(),
            access=read_access(self.authorizer, self.controller),
            refused_nodes=self.refused_nodes(),
        )


def read_access(authorizer: Authorizer, controller: ControllerDriver | None) -> AccessReading | None:
    """Reads what decides who may do what; None where nothing does."""
    if not isinstance(authorizer, StandardAuthorizer):
        return None
    of_controller = 0 if controller is None else controller.denials_count
    return AccessReading(authorizer.entries_count, authorizer.denials_count + of_controller)


def read_leaders(stepper: ReplicaStepper, keys: Sequence[ReplicaKey]) -> list[LeaderReading]:
    """Reads those of the replicas that lead; it must run on the replica driver."""
    now_ms, wall_ms = stepper.clock.now_ms(), stepper.clock.wall_ms()
    found = (stepper.replicas.get(key) for key in keys)
    return [
        _read_leader(replica, replica.role, now_ms, open_transactions_of(replica, stepper.config, wall_ms))
        for replica in found
        if replica is not None and isinstance(replica.role, Leader)
    ]


def _read_leader(replica: Replica, leader: Leader, now_ms: int, transactions: OpenTransactions | None) -> LeaderReading:
    status = leader.status()
    expected = set(replica.registration.replicas) - set(replica.registration.adding_replicas)
    return LeaderReading(
        topic=replica.topic,
        partition_id=replica.partition_id,
        is_under_replicated=not expected <= set(status.isr),
        is_under_min_isr=len(status.isr) < status.min_insync_replicas,
        high_watermark=leader.high_watermark,
        followers=tuple(
            FollowerReading(one.replica_id, one.lag, one.lag_ms(now_ms))
            for one in status.replicas
            if one.replica_id != replica.registration.leader
        ),
        transactions=transactions,
    )


def _leaderless_count(stepper: ReplicaStepper, keys: Iterable[ReplicaKey]) -> int:
    """Counts the partitions of this broker that nobody leads; one that was just deleted is left out."""
    known = (stepper.image.partition(*key) for key in keys)
    return sum(partition is not None and partition.leader < 0 for partition in known)


async def read_coordinators(shards: Shards, offsets_max: int) -> CoordinatorReading:
    """Reads the coordinators of groups, one after the other."""
    groups: Counter[str] = Counter()
    offsets: list[GroupOffset] = []
    left_out_count = 0
    for key, host in shards.hosts_of(OFFSETS_TOPIC).items():
        if host.shard.state is ShardState.ACTIVE:
            with contextlib.suppress(ReplogError):  # it has just moved
                groups.update(each.state for each in (await shards.submit(key, ListGroups(), TIMEOUT_MS)).groups)
                found = await shards.submit(key, ReadOffsets(offsets_max - len(offsets)), TIMEOUT_MS)
                offsets += found.offsets
                left_out_count += found.left_out_count
    hosts = shards.hosts_of(OFFSETS_TOPIC).values()
    return CoordinatorReading(
        shards=Counter(host.shard.state for host in hosts),
        open_requests=shards.open_requests,
        committed_offsets=shards.committed_offsets,
        groups=groups,
        load_ms=max((host.load_ms or 0 for host in hosts), default=0),
        rebalances=shards.rebalances,
        offsets=offsets,
        left_out_count=left_out_count,
    )


def read_quorum(driver: QuorumDriver) -> QuorumReading:
    """Reads the node's part in the metadata quorum."""
    status, times = driver.status(), driver.times
    end_offset = driver.log.log_end_offset
    return QuorumReading(
        epoch=status.epoch,
        leader_id=-1 if status.leader_id is None else status.leader_id,
        is_leader=status.role == "Leader",
        high_watermark=status.high_watermark,
        log_end_offset=end_offset,
        elections=times.elections,
        election_ms=times.election_ms,
        commit_ms=tuple((quantile, times.commit_ms(quantile)) for quantile in (0.5, 0.99)),
        voter_lags=tuple(
            (replica.replica_id, max(0, end_offset - replica.end_offset))
            for replica in status.replicas
            if replica.is_voter and replica.end_offset >= 0
        ),
    )
