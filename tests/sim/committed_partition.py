"""One partition as the metadata log says it, record by record as they commit, and what must hold there.

======== ===============================================================================================================
R9       members of the ISR are neither fenced nor shutting down, and the leader is one of them
R10      ISR and ELR have no member in common; who has just started is not in the ISR, nor in the ELR if the process before it
         ended uncleanly, or its disk is another one
R13      a replica goes only when all that stay are in the ISR; one that is being added may be given up before
======== ===============================================================================================================
"""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

from replog.controller.messages import CommittedRecords
from replog.metadata.records import (
    NO_LEADER,
    BrokerRegistrationChangeRecord,
    ConfigRecord,
    ElectionType,
    MetadataRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    TopicRecord,
)
from replog.metadata.registrations import BrokerRegistration, PartitionRegistration


class CommittedPartition:
    """The first partition of one topic.  Committed batches are taken in once, in order, whoever tells them first.

    Args:
        topic: its name.
        report: told what must not be.
        was_unclean: whether this incarnation of a broker found that the process before it had not stopped in order; None:
            it does not run any more.
        keeps_membership: a broker that restarts uncleanly stays eligible: all that it acknowledged was on its disk, and
            the controller knows that.
        min_isr: of the topic, until it is altered.

    Attributes:
        partition: None before the topic exists.
        brokers: the newest registration of each.
        leaders: leader epoch -> who was elected.
        elections: how often somebody was elected in which way.
        topic_id: None before it exists.
        lost_disks: brokers that come back with an empty disk, and have not registered with it yet: the directories that
            are gone.
    """

    def __init__(
        self,
        topic: str,
        report: Callable[[str], None],
        was_unclean: Callable[[int, UUID], bool | None],
        *,
        keeps_membership: bool,
        min_isr: int = 1,
    ) -> None:
        self.partition: PartitionRegistration | None = None
        self.brokers: dict[int, BrokerRegistration] = {}
        self.leaders: dict[int, int] = {}
        self.lost_disks: dict[int, tuple[UUID, ...]] = {}
        self.elections: dict[ElectionType, int] = dict.fromkeys(ElectionType, 0)
        self._topic = topic
        self._report = report
        self._was_unclean = was_unclean
        self._keeps_membership = keeps_membership
        self.topic_id: UUID | None = None
        self._min_isr: list[tuple[int, int]] = [(0, min_isr)]
        self._end_offset = 0

    @property
    def members(self) -> tuple[int, ...]:
        """Everybody who may be elected cleanly: of the ISR and the ELR."""
        return () if self.partition is None else (*self.partition.isr, *self.partition.elr)

    @property
    def min_isr(self) -> int:
        """Of the topic, as committed last."""
        return self._min_isr[-1][1]

    def least_min_isr(self, since_offset: int) -> int:
        """The lowest that somebody may go by who knows the metadata up to this offset (exclusive), or more of it."""
        known = max(place for place, (offset, _) in enumerate(self._min_isr) if offset == 0 or offset < since_offset)
        return min(value for _, value in self._min_isr[known:])

    def take(self, batch: CommittedRecords) -> bool:
        """Whether the batch was news, as far as it is about brokers or the partition."""
        if batch.base_offset > self._end_offset:
            self._report(f"metadata [{self._end_offset}, {batch.base_offset}) committed, and nobody was told")
        skipped = max(0, self._end_offset - batch.base_offset)
        records = batch.records[skipped:]
        self._end_offset = max(self._end_offset, batch.end_offset)
        for offset, record in enumerate(records, batch.end_offset - len(records)):
            self._replay(record, offset)
        if records:
            self._check(records)
        return bool(records)

    def _replay(self, record: MetadataRecord, offset: int) -> None:
        match record:
            case RegisterBrokerRecord():
                self.brokers[record.broker_id] = BrokerRegistration.from_record(record)
            case BrokerRegistrationChangeRecord():
                self.brokers[record.broker_id] = self.brokers[record.broker_id].merge(record)
            case TopicRecord() if record.name == self._topic:
                self.topic_id = record.topic_id
            case ConfigRecord(resource_name=self._topic, name="min.insync.replicas") if record.value is not None:
                self._min_isr.append((offset, int(record.value)))
            case PartitionRecord() if record.topic_id == self.topic_id:
                self.partition = PartitionRegistration.from_record(record)
                self.leaders[record.leader_epoch] = record.leader
            case PartitionChangeRecord() if record.topic_id == self.topic_id and self.partition is not None:
                before, self.partition = self.partition, self.partition.merge(record)
                self._check_replicas(before, self.partition)
                if record.leader is not None:
                    self.leaders[self.partition.leader_epoch] = record.leader
                if record.election_type is not None:
                    self.elections[record.election_type] += 1
            case _:
                pass

    def _check(self, records: tuple[MetadataRecord, ...]) -> None:
        partition = self.partition
        if partition is None:
            return
        for member in partition.isr:
            if not self.brokers[member].is_active:
                self._report(f"R9 broker {member} is fenced or shutting down, and in the ISR {list(partition.isr)}")
        if set(partition.isr) & set(partition.elr):
            self._report(f"R10 ISR {list(partition.isr)} and ELR {list(partition.elr)} have a member in common")
        if partition.leader != NO_LEADER and partition.leader not in partition.isr:
            self._report(f"R9 leader {partition.leader} is not in the ISR {list(partition.isr)}")
        if self.elections[ElectionType.UNCLEAN]:
            self._report("unclean_election: nobody has allowed one")
        for record in records:
            if isinstance(record, RegisterBrokerRecord):
                self._check_restarted(record, partition)

    def _check_restarted(self, record: RegisterBrokerRecord, partition: PartitionRegistration) -> None:
        """A new incarnation has proven nothing yet, and after an unclean end it may have lost what the one before had."""
        broker_id = record.broker_id
        if broker_id in partition.isr:
            self._report(f"R10 broker {broker_id} has just started, and is in the ISR {list(partition.isr)}")
        if (
            self.lost_disks.get(broker_id, record.log_dirs) != record.log_dirs
        ):  # else it is late, of a process before the loss
            del self.lost_disks[broker_id]
            if broker_id in partition.elr:
                self._report(f"R10 broker {broker_id} has another disk, and is in the ELR {list(partition.elr)}")
        if (
            broker_id in partition.elr
            and not self._keeps_membership
            and self._was_unclean(broker_id, record.incarnation_id)
        ):
            self._report(f"R10 broker {broker_id} has restarted uncleanly, and is in the ELR {list(partition.elr)}")

    def _check_replicas(self, before: PartitionRegistration, after: PartitionRegistration) -> None:
        """A reassignment whose additions are in the ISR already begins and ends in one record."""
        gone = set(before.replicas) - set(after.replicas) - set(before.adding_replicas)
        missing = set(after.replicas) - set(after.isr)
        if gone and missing:
            self._report(
                f"R13 {sorted(gone)} of the replicas {list(before.replicas)} make place for {list(after.replicas)}, of which"
                f" {sorted(missing)} are not in the ISR {list(after.isr)}"
            )
