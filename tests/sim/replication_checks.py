"""What must hold of the replicas of one partition while a simulated cluster runs: looked at after every step of a leader
or follower, and after every committed change of metadata.

======== ===============================================================================================================
R1       a send that is acknowledged lies below a high watermark
R2       a replica holds what was committed, as far as it knows a high watermark, and knows none that no leader has had
R3, R4   a leader, and every running member of ISR and ELR, holds everything that was committed
R5       what a leader waits for (its maximal ISR) contains the ISR that the controller has committed in its epoch
R6       the high watermark does not fall within a leader epoch, and moves only with an ISR of min.insync.replicas; what it
         passes is on so many replicas (`flush.policy=always`: on so many disks)
R7       one process appends in one leader epoch: one on the broker that was elected to it
R8       no follower cuts below the high watermark that it knows
R9       who joins the ISR is the incarnation whose fetches its leader has seen; more in `committed_partition`
R10      see `committed_partition`
R13      see `committed_partition`
R14      at the end all replicas are equal byte for byte from the highest log start on, all are in the ISR, nobody is in
         the ELR
S10      no log starts above what somebody has asked to delete, nor after an orderly stop, or a move to another directory,
         below where it started before
======== ===============================================================================================================

*Committed* is what was below the high watermark of any leader.  Nothing of this holds after an unclean election; there
are none here (`data_topics` has a topic with some).  With `flush.policy=auto` it holds as long as one machine at most loses
power.

What else must hold is checked elsewhere: "Labels of what must hold" in `docs/TESTING.md`.  That a cluster gets on again is
checked at the end, and told as "stuck" (`data_cluster_simulation`).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from uuid import UUID

from replog.broker.replicas.replica import Replica
from replog.broker.replicas.stepper import ReplicaStepper
from replog.controller.messages import CommittedRecords
from replog.log import Log
from replog.metadata.registrations import PartitionRegistration
from replog.replication.leader import Leader
from replog.replication.messages import LeaderMessage
from replog.testing.simulated_cluster import SimulatedCluster
from tests.sim.committed_partition import CommittedPartition
from tests.sim.replica_watch import Batch, LogMirror, common_prefix, is_append, stored_batches


@dataclass(slots=True, eq=False)
class Watched:
    """The replica of one node, as its last process to open it has it.

    Attributes:
        life: of the node.
        agreed_count: so many of its first batches are committed ones.
    """

    node_id: int
    life: int
    replica: Replica
    mirror: LogMirror
    agreed_count: int = 0

    @property
    def log(self) -> Log:
        return self.replica.log

    @property
    def agreed_end(self) -> int:
        """Up to this offset (exclusive) it holds what was committed, from its start on."""
        mirror = self.mirror
        return mirror.batches[self.agreed_count - 1].next_offset if self.agreed_count else mirror.start_offset

    def update(self) -> None:
        """Reads what is new."""
        if self.mirror.update():
            self.agreed_count = 0

    def compare(self, committed: list[Batch]) -> None:
        batches = self.mirror.batches
        first = bisect_left(committed, self.mirror.start_offset, key=lambda batch: batch.base_offset)
        count = min(self.agreed_count, len(batches))
        while count < min(len(batches), len(committed) - first) and batches[count] == committed[first + count]:
            count += 1
        self.agreed_count = count


class ReplicationChecks:
    """Checks one partition.

    Args:
        topic: with one partition.
        min_isr: min.insync.replicas of it, until it is altered.
        is_flushed: acknowledgements wait for the disks (`flush.policy=always`).
        keeps_membership: see `CommittedPartition`.
        report: told what must not be.

    Attributes:
        metadata: what has committed about the partition.
        deletable_end: records below it may be deleted: somebody has asked for it.
        moved: so often a replica was opened in another log directory of its node.
    """

    def __init__(
        self,
        topic: str,
        report: Callable[[str], None],
        *,
        min_isr: int,
        is_flushed: bool,
        keeps_membership: bool,
    ) -> None:
        self.metadata = CommittedPartition(
            topic, report, self._was_unclean, keeps_membership=keeps_membership, min_isr=min_isr
        )
        self.deletable_end = 0
        self.moved = 0
        self._topic = topic
        self._report = report
        self._is_flushed = is_flushed
        self._cluster: SimulatedCluster | None = None
        self._committed: list[Batch] = []
        self._lost_end = 0
        self._watched: dict[int, Watched] = {}
        self._appending: dict[int, tuple[int, int]] = {}  # leader epoch -> node and life

    @property
    def committed_end(self) -> int:
        """Everything below was below a leader's high watermark."""
        return self._committed[-1].next_offset if self._committed else 0

    def begin(self, cluster: SimulatedCluster) -> None:
        self._cluster = cluster

    def metadata_committed(self, batch: CommittedRecords) -> None:
        """A node has taken a committed batch."""
        before = self.metadata.partition
        if self.metadata.take(batch):
            self._check_joined(before)
            self._check_members()
            for watched in self._watched.values():
                self._check_maximal_isr(watched)

    def acknowledged(self, offset: int) -> None:
        """A producer was told that its record is at `offset`, with acks=all."""
        if offset >= self.committed_end:
            self._report(f"R1 offset {offset} is acknowledged, committed is [0, {self.committed_end})")

    def lose_power(self) -> None:
        """All machines have just lost power: from now on what the disk of any member has kept counts as committed."""
        kept = [
            len(common_prefix(stored_batches(watched.log), self._committed))
            for node_id, watched in self._watched.items()
            if node_id in self.metadata.members
        ]
        self._lost_end = self.committed_end
        del self._committed[max(kept, default=0) :]
        self._watched.clear()

    def may_delete(self, offset: int) -> None:
        """Somebody is about to ask for the deletion of what lies below."""
        self.deletable_end = max(self.deletable_end, offset)

    def disk_is_lost(self, node_id: int) -> None:
        """A machine is about to get an empty disk: it must prove everything anew.  What it said before may still arrive."""
        self.metadata.lost_disks[node_id] = self.metadata.brokers[node_id].log_dirs

    def check_end(self) -> None:
        """After healing, once nothing is sent any more (R14)."""
        partition = self.metadata.partition
        if partition is None or set(partition.isr) != set(partition.replicas) or partition.elr:
            self._report(f"R14 not all replicas are in sync: {partition}")
        replicas = () if partition is None else partition.replicas
        members = {node_id: watched for node_id, watched in self._watched.items() if node_id in replicas}
        # a deletion that a leader has begun, and lost its leadership over, stays with its log
        start_offset = max((watched.log.log_start_offset for watched in members.values()), default=0)
        contents = {node_id: watched.mirror.content(start_offset) for node_id, watched in members.items()}
        if len(contents) < len(replicas):
            self._report(f"R14 replicas {replicas}, but {sorted(contents)} alone have ever held something")
        if len(set(contents.values())) > 1:
            lengths = {node_id: len(content) for node_id, content in contents.items()}
            self._report(f"R14 replicas differ: {lengths} bytes on node")

    @property
    def log_end_offsets(self) -> dict[int, int]:
        """Of all nodes."""
        return {watched.node_id: watched.log.log_end_offset for watched in self._watched.values()}

    def replica_on(self, node_id: int) -> Watched | None:
        """As the node's last process to open it has it; None: no process has."""
        return self._watched.get(node_id)

    # ---- told by the replica managers ------------------------------------------------------------------------------------

    def took_role(self, stepper: ReplicaStepper, replica: Replica) -> None:
        if replica.topic == self._topic:
            self._look(stepper, replica)

    def leader_stepped(
        self, stepper: ReplicaStepper, replica: Replica, message: LeaderMessage, high_watermark_before: int
    ) -> None:
        role = replica.role
        if replica.topic != self._topic or not isinstance(role, Leader):
            return
        where = f"node {stepper.config.node_id} in leader epoch {role.leader_epoch}"
        after = role.high_watermark
        if after < high_watermark_before:
            self._report(f"R6 the high watermark falls from {high_watermark_before} to {after}, {where}")
        min_isr = self.metadata.least_min_isr(stepper.image.end_offset)
        if after > high_watermark_before and len(role._isr.committed_isr) < min_isr:
            isr = list(role._isr.committed_isr)
            self._report(f"R6 the high watermark moves to {after} with the ISR {isr}, {where}")
        watched = self._look(stepper, replica)
        if is_append(message):
            self._check_appender(watched, role)

    def _least_min_isr(self, leader: Watched) -> int:
        node = self._cluster_or_raise.nodes[leader.node_id].node
        return self.metadata.least_min_isr(0 if node is None else node.image.end_offset)

    def follower_stepped(self, stepper: ReplicaStepper, replica: Replica, high_watermark_before: int) -> None:
        if replica.topic != self._topic:
            return
        watched = self._look(stepper, replica)
        if watched.log.log_end_offset < high_watermark_before and not self._is_outdated(watched, high_watermark_before):
            self._report(
                f"R8 node {watched.node_id} cuts its log to {watched.log.log_end_offset}, below its high watermark"
                f" {high_watermark_before}"
            )

    # ---- one replica -----------------------------------------------------------------------------------------------------

    def _look(self, stepper: ReplicaStepper, replica: Replica) -> Watched:
        """Takes in what a step has changed."""
        watched = self._take(stepper, replica)
        watched.update()
        watched.compare(self._committed)
        role = replica.role
        if isinstance(role, Leader):
            if role.high_watermark > self.committed_end:
                self._commit(watched, role)
            self._check_maximal_isr(watched)
        start_offset = watched.log.log_start_offset
        if start_offset > self.deletable_end:
            self._report(
                f"S10 node {watched.node_id} starts at {start_offset}, nobody has asked to delete what is above"
                f" {self.deletable_end}"
            )
        known = replica.high_watermark
        if self._is_outdated(watched, known):
            pass
        elif known > self.committed_end:
            self._report(
                f"R2 node {watched.node_id} knows a high watermark {known}, no leader had one above {self.committed_end}"
            )
        elif watched.agreed_end < known:
            self._report(f"R2 node {watched.node_id} with high watermark {known} {self._difference(watched)}")
        self._check_members()
        return watched

    def _is_outdated(self, watched: Watched, high_watermark: int) -> bool:
        """Whether a replica that nobody counts on may know it from before all machines lost power, and more than they kept."""
        return high_watermark <= self._lost_end and watched.node_id not in self.metadata.members

    def _take(self, stepper: ReplicaStepper, replica: Replica) -> Watched:
        node_id = stepper.config.node_id
        watched = self._watched.get(node_id)
        if watched is None or watched.log is not replica.log:
            life = self._cluster_or_raise.nodes[node_id].lives
            if watched is not None and watched.life == life - 1:
                self._check_restarted_log(stepper, watched, replica.log)
            elif watched is not None and watched.life == life and watched.log.directory != replica.log.directory:
                self._check_moved_log(watched, replica.log)
            watched = self._watched[node_id] = Watched(node_id, life, replica, LogMirror(replica.log))
        watched.replica = replica
        return watched

    def _check_restarted_log(self, stepper: ReplicaStepper, before: Watched, log: Log) -> None:
        if log.log_end_offset < before.log.log_end_offset:
            return  # it was damaged, and begins anew
        home = stepper.trouble._logs.home_of(self._topic, before.replica.partition_id)
        if home is not None and home.was_clean and log.log_start_offset < before.log.log_start_offset:
            self._report(
                f"S10 node {before.node_id} starts at {log.log_start_offset} after an orderly stop, before it at"
                f" {before.log.log_start_offset}"
            )

    def _check_moved_log(self, before: Watched, log: Log) -> None:
        if log.log_end_offset < before.log.log_end_offset:
            return  # it was deleted, or damaged, and made anew
        self.moved += 1
        if log.log_start_offset < before.log.log_start_offset:
            self._report(
                f"S10 node {before.node_id} starts at {log.log_start_offset} in another directory, before it at"
                f" {before.log.log_start_offset}"
            )

    def _commit(self, leader: Watched, role: Leader) -> None:
        """The high watermark of a leader has passed what no leader had committed before."""
        if leader.agreed_end < self.committed_end:
            self._report(f"R3 leader {leader.node_id} of epoch {role.leader_epoch} {self._difference(leader)}")
            return
        for batch in leader.mirror.batches[leader.agreed_count :]:
            if batch.next_offset <= role.high_watermark:
                self._committed.append(batch)
        for watched in self._watched.values():
            watched.compare(self._committed)
        holders = [w.node_id for w in self._watched.values() if self._holds(w, self.committed_end)]
        if len(holders) < self._least_min_isr(leader):
            self._report(
                f"R6 only {holders} hold [0, {self.committed_end}), which leader {leader.node_id} of epoch"
                f" {role.leader_epoch} has committed"
            )

    def _holds(self, watched: Watched, end_offset: int) -> bool:
        """Whether the node has committed records up to `end_offset`, or had when it was last seen."""
        if watched.agreed_end < end_offset:
            return False
        return not self._is_flushed or watched.log.flushed_offset >= end_offset

    def _difference(self, watched: Watched) -> str:
        count = watched.agreed_count
        expected = self._committed[bisect_right(self._committed, watched.agreed_end, key=lambda b: b.next_offset)]
        if count < len(watched.mirror.batches):
            return f"has {watched.mirror.batches[count]} where {expected} was committed"
        return f"ends at {watched.log.log_end_offset}, {expected} was committed"

    # ---- all of them -----------------------------------------------------------------------------------------------------

    def _check_members(self) -> None:
        partition = self.metadata.partition
        for member in self.metadata.members:
            watched = self._watched.get(member)
            if watched is None or watched.agreed_end >= self.committed_end or not self._is_running(watched):
                continue
            leads = partition is not None and partition.leader == member
            kind = "R3 leader" if leads else "R4 member"
            isr, elr = ([], []) if partition is None else (list(partition.isr), list(partition.elr))
            self._report(f"{kind} {member} of ISR {isr}, ELR {elr} {self._difference(watched)}")

    def _is_running(self, watched: Watched) -> bool:
        """The process that opened the log runs; and it is the one that is a member, where another may have lost something."""
        node = self._cluster_or_raise.nodes[watched.node_id]
        if not node.is_running or node.lives != watched.life:
            return False
        registered = self.metadata.brokers.get(watched.node_id)
        is_member = registered is not None and node.node is not None
        return self._is_flushed or (is_member and registered.incarnation_id == node.node.incarnation_id)

    def _check_maximal_isr(self, watched: Watched) -> None:
        role, partition = watched.replica.role, self.metadata.partition
        if not isinstance(role, Leader) or partition is None or not self._is_running(watched):
            return
        if (partition.leader, partition.leader_epoch) != (watched.node_id, role.leader_epoch):
            return
        if not set(partition.isr) <= set(role._isr.maximal_isr):
            self._report(
                f"R5 leader {watched.node_id} of epoch {role.leader_epoch} waits for {list(role._isr.maximal_isr)},"
                f" committed is the ISR {list(partition.isr)}"
            )

    def _check_joined(self, before: PartitionRegistration | None) -> None:
        """Who joins the ISR does so as the incarnation whose fetches the leader has seen."""
        after = self.metadata.partition
        if before is None or after is None or before.leader_epoch != after.leader_epoch:
            return
        leader = self._watched.get(after.leader)
        if leader is None or not isinstance(leader.replica.role, Leader) or not self._is_running(leader):
            return
        replicas = leader.replica.role._replicas
        for member in after.isr:
            if member in before.isr or member not in replicas or leader.replica.role.leader_epoch != after.leader_epoch:
                continue
            fetched_as, registered_as = replicas[member].broker_epoch, self.metadata.brokers[member].broker_epoch
            if fetched_as != registered_as:
                self._report(
                    f"R9 broker {member} joins the ISR with broker epoch {registered_as}, leader {after.leader} knows the"
                    f" fetches of {fetched_as}"
                )

    def _check_appender(self, watched: Watched, role: Leader) -> None:
        process = (watched.node_id, watched.life)
        first = self._appending.setdefault(role.leader_epoch, process)
        elected = self.metadata.leaders.get(role.leader_epoch)
        if first != process or elected != watched.node_id:
            self._report(
                f"R7 node {watched.node_id} (life {watched.life}) appends in leader epoch {role.leader_epoch}, to which"
                f" {elected} was elected; node {first[0]} (life {first[1]}) appended first"
            )

    def _was_unclean(self, node_id: int, incarnation_id: UUID) -> bool | None:
        node = self._cluster_or_raise.nodes[node_id].node
        if node is None or node.incarnation_id != incarnation_id:  # a registration may commit when another process runs
            return None
        return not all(directory.was_clean for directory in node.logs.directories.values())

    @property
    def _cluster_or_raise(self) -> SimulatedCluster:
        if self._cluster is None:
            raise AssertionError("`begin` was not called")
        return self._cluster
