"""Topics and partitions, and who leads them: the state, its replay, and the changes that brokers' fates bring.

Every leader election of the cluster starts here: a broker goes (`changes_without`), comes back (`changes_with`), tells
how far its replicas reach (`changes_after_reports`), or the configuration changes (`changes_under`).  The rule of one
partition is `partition_change`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias
from uuid import UUID

from replog.controller.broker_registry import BrokerRegistry
from replog.controller.configuration import ConfigurationControl
from replog.controller.messages import ReplicaEnd
from replog.controller.partition_change import ElectionRules, ReplicaReport, partition_change, recovered_change
from replog.errors import InvariantViolationError
from replog.metadata.records import (
    NO_LEADER,
    ConfigRecord,
    ElectionType,
    PartitionChangeRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from replog.metadata.registrations import PartitionRegistration
from replog_timeline import SnapshotRegistry, TimelineHashMap, TimelineHashSet, TimelineLong

PartitionKey: TypeAlias = tuple[UUID, int]


@dataclass(frozen=True, slots=True)
class TopicState:
    """A topic; its partitions are numbered from 0 to `partitions_count` - 1."""

    name: str
    topic_id: UUID
    partitions_count: int = 0


class ReplicationControl:
    """All topics and partitions, changed by `replay_*` only.

    `_reports` and `_offline` are not part of the replicated state: they are what brokers told this controller during its
    term.

    Invariants:
        - `_memberships[b]` is exactly the partitions with b in ISR or ELR; a leader is always in its ISR;
        - `_leaderless` is exactly the partitions with leader -1;
        - reports are kept only for partitions that await them.
    """

    def __init__(self, registry: SnapshotRegistry, brokers: BrokerRegistry, configs: ConfigurationControl) -> None:
        self._registry = registry
        self._brokers = brokers
        self._configs = configs
        self.topics: TimelineHashMap[UUID, TopicState] = TimelineHashMap(registry)
        self.topic_ids: TimelineHashMap[str, UUID] = TimelineHashMap(registry)
        self.partitions: TimelineHashMap[PartitionKey, PartitionRegistration] = TimelineHashMap(registry)
        self.elections = {election_type: TimelineLong(registry) for election_type in ElectionType}
        self._leaderless: TimelineHashSet[PartitionKey] = TimelineHashSet(registry)
        self._memberships: dict[int, TimelineHashSet[PartitionKey]] = {}
        self._reports: dict[PartitionKey, dict[int, ReplicaReport]] = {}
        self._offline: dict[int, frozenset[PartitionKey]] = {}

    # ---- questions --------------------------------------------------------------------------------------------------

    @property
    def leaderless_count(self) -> int:
        """Partitions without a leader."""
        return len(self._leaderless)

    def leads_any(self, broker_id: int) -> bool:
        """Whether the broker leads a partition."""
        return any(self.partitions[key].leader == broker_id for key in self._memberships.get(broker_id, ()))

    def rules(
        self,
        key: PartitionKey,
        partition: PartitionRegistration,
        is_acceptable: Callable[[int], bool] | None = None,
        pending: Sequence[ConfigRecord] = (),
    ) -> ElectionRules:
        """The rules for a partition; `pending` are configuration records of the same batch."""
        topic_name = self.topics[key[0]].name
        is_active = is_acceptable or self._brokers.is_active
        return ElectionRules(
            is_acceptable=lambda broker_id: is_active(broker_id) and key not in self._offline.get(broker_id, ()),
            min_isr=self._configs.min_isr(topic_name, len(partition.replicas), pending),
            unclean_allowed=self._configs.unclean_election_allowed(topic_name, pending),
        )

    # ---- what brokers' fates change ---------------------------------------------------------------------------------

    def changes_without(
        self, broker_id: int, *, restarted_uncleanly: bool = False, keeps_log_dirs: bool = True
    ) -> Iterator[PartitionChangeRecord]:
        """The broker is fenced, shutting down, or a new incarnation of it registers: it leaves ISRs and leaderships.

        Args:
            broker_id: who leaves.
            restarted_uncleanly: it cannot prove what it holds, so it leaves the ELRs too, except where its acknowledgements
                were on its disk (`flush.policy=always`).
            keeps_log_dirs: it still has every disk that made those acknowledgements.
        """
        for key in sorted(self._memberships.get(broker_id, ())):
            partition = self.partitions[key]
            topic_name = self.topics[key[0]].name
            keeps_membership = keeps_log_dirs and self._configs.always_flushes(topic_name)
            change = partition_change(
                *key,
                partition,
                self.rules(key, partition, lambda other: other != broker_id and self._brokers.is_active(other)),
                target_isr=tuple(member for member in partition.isr if member != broker_id),
                restarted_uncleanly=(broker_id,) if restarted_uncleanly and not keeps_membership else (),
            )
            if change is not None:
                yield change

    def changes_for_offline(self, broker_id: int, offline: Sequence[PartitionKey]) -> Iterator[PartitionChangeRecord]:
        """The broker tells which of its replicas it cannot use, all of them: they leave ISR and ELR, and lead nothing.

        What such a replica held counts as lost until it proves otherwise: a failed disk may have dropped what it had
        acknowledged, and damaged bytes are no better.

        Args:
            broker_id: who tells.
            offline: the replicas.
        """
        self._offline[broker_id] = frozenset(offline)
        for key in offline:
            partition = self.partitions.get(key)
            if partition is None or broker_id not in {*partition.isr, *partition.elr}:
                continue
            change = partition_change(
                *key,
                partition,
                self.rules(key, partition),
                target_isr=tuple(member for member in partition.isr if member != broker_id),
                restarted_uncleanly=(broker_id,),
            )
            if change is not None:
                yield change

    def changes_with(self, broker_id: int) -> Iterator[PartitionChangeRecord]:
        """The broker becomes active: partitions without a leader that may have one now get it."""
        keys = [key for key in self._leaderless if broker_id in self.partitions[key].replicas]
        return self._elections(keys, lambda other: other == broker_id or self._brokers.is_active(other))

    def changes_under(self, records: Sequence[ConfigRecord]) -> Iterator[PartitionChangeRecord]:
        """The configuration changes by `records`.

        A lower min.insync.replicas empties the ELR where the ISR is large enough now (its leader will commit without the
        members of the ELR); allowing unclean elections elects where nobody leads.
        """
        names = {record.resource_name for record in records}
        for key in sorted(self.partitions):
            partition = self.partitions[key]
            topic_name = self.topics[key[0]].name
            if "" not in names and topic_name not in names:
                continue
            change = partition_change(*key, partition, self.rules(key, partition, pending=records))
            if change is not None:
                yield change

    def changes_after_reports(
        self, broker_id: int, broker_epoch: int, ends: Sequence[ReplicaEnd]
    ) -> Iterator[PartitionChangeRecord]:
        """Keep what the broker tells about partitions that wait for it; elect where it was the last to be waited for."""
        keys: set[PartitionKey] = set()
        for end in ends:
            key = (end.topic_id, end.partition_id)
            partition = self.partitions.get(key)
            if partition is None or not partition.awaits_reports or broker_id not in partition.last_known_elr:
                continue  # it has been elected, or deleted, since the broker looked
            report = ReplicaReport(broker_epoch, end.last_epoch, end.log_end_offset)
            self._reports.setdefault(key, {})[broker_id] = report
            keys.add(key)
        return self._elections(keys, self._brokers.is_active)

    def forget_reports(self) -> None:
        """Leadership is lost: the next active controller asks again."""
        self._reports.clear()
        self._offline.clear()

    def _elections(
        self, keys: Iterable[PartitionKey], is_acceptable: Callable[[int], bool]
    ) -> Iterator[PartitionChangeRecord]:
        for key in sorted(keys):
            partition = self.partitions[key]
            change = partition_change(
                *key, partition, self.rules(key, partition, is_acceptable)
            ) or self._recovered_or_none(key, partition, is_acceptable)
            if change is not None:
                yield change

    def _recovered_or_none(
        self, key: PartitionKey, partition: PartitionRegistration, is_acceptable: Callable[[int], bool]
    ) -> PartitionChangeRecord | None:
        reports = self._reports.get(key, {})
        if not partition.awaits_reports:
            return None
        for member in partition.last_known_elr:
            report, registration = reports.get(member), self._brokers.get(member)
            if registration is None or report is None or report.broker_epoch != registration.broker_epoch:
                return None
            if not is_acceptable(member):
                return None
        return recovered_change(*key, partition, reports)

    # ---- replay -----------------------------------------------------------------------------------------------------

    def replay_topic(self, record: TopicRecord) -> None:
        """A topic without partitions yet.

        Raises:
            InvariantViolationError: the name or the id exists.
        """
        if record.name in self.topic_ids or record.topic_id in self.topics:
            raise InvariantViolationError(f'topic "{record.name}" is created twice')
        self.topics[record.topic_id] = TopicState(record.name, record.topic_id)
        self.topic_ids[record.name] = record.topic_id

    def replay_remove_topic(self, record: RemoveTopicRecord) -> str:
        """The topic and its partitions are gone; returns its name.

        Raises:
            InvariantViolationError: no such topic.
        """
        topic = self._topic_or_raise(record.topic_id)
        for partition_id in range(topic.partitions_count):
            key = (record.topic_id, partition_id)
            self._index(key, self.partitions.pop(key), None)
        del self.topics[record.topic_id]
        del self.topic_ids[topic.name]
        return topic.name

    def replay_partition(self, record: PartitionRecord) -> None:
        """The next partition of a topic.

        Raises:
            InvariantViolationError: no such topic, or not its next partition.
        """
        topic = self._topic_or_raise(record.topic_id)
        if record.partition_id != topic.partitions_count:
            raise InvariantViolationError(f"partition {topic.name}-{record.partition_id} is not the next one")
        self.topics[record.topic_id] = replace(topic, partitions_count=topic.partitions_count + 1)
        self._put((record.topic_id, record.partition_id), PartitionRegistration.from_record(record))

    def replay_partition_change(self, record: PartitionChangeRecord) -> None:
        """A partition changes.

        Raises:
            InvariantViolationError: no such partition.
        """
        topic = self._topic_or_raise(record.topic_id)
        key = (record.topic_id, record.partition_id)
        partition = self.partitions.get(key)
        if partition is None:
            raise InvariantViolationError(f"change of the unknown partition {topic.name}-{record.partition_id}")
        self._put(key, partition.merge(record))
        if record.election_type is not None:
            self.elections[record.election_type].increment()

    def _topic_or_raise(self, topic_id: UUID) -> TopicState:
        topic = self.topics.get(topic_id)
        if topic is None:
            raise InvariantViolationError(f"topic {topic_id} does not exist")
        return topic

    def _put(self, key: PartitionKey, partition: PartitionRegistration) -> None:
        self._index(key, self.partitions.get(key), partition)
        self.partitions[key] = partition

    def _index(self, key: PartitionKey, old: PartitionRegistration | None, new: PartitionRegistration | None) -> None:
        old_members = set[int]() if old is None else {*old.isr, *old.elr}
        new_members = set[int]() if new is None else {*new.isr, *new.elr}
        for broker_id in old_members - new_members:
            self._memberships[broker_id].discard(key)
        for broker_id in new_members - old_members:
            self._memberships.setdefault(broker_id, TimelineHashSet(self._registry)).add(key)
        if new is not None and new.leader == NO_LEADER:
            self._leaderless.add(key)
        else:
            self._leaderless.discard(key)
        if new is None or not new.awaits_reports:
            self._reports.pop(key, None)
