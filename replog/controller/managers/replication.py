"""What the fates of brokers and the configuration change about partitions: who leads, who is in sync, who is eligible.

A broker goes (`changes_without`), comes back (`changes_with`), cannot use a replica (`changes_for_offline`), tells how far
its replicas reach (`changes_after_reports`), or the configuration changes (`changes_under`).  The rule of one partition is
`partitions.change`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import TypeAlias
from uuid import UUID

from msgspec import Struct

from replog.controller.events.offset_control import OffsetControl
from replog.controller.partitions.change import (
    ElectionRules,
    ReplicaReport,
    last_known_change,
    nobody,
    partition_change,
    recovered_change,
)
from replog.controller.requests import (
    AlterConfigs,
    AlterConfigsResource,
    AlterConfigsResponse,
    AlterConfigsResult,
    LongResult,
    OfflineReplica,
    ReplicaEnd,
    Result,
)
from replog.controller.state.broker_registry import BrokerRegistry
from replog.controller.state.configuration import ConfigurationControl
from replog.controller.state.partition_map import PartitionKey
from replog.controller.state.replication import ReplicationState, in_order
from replog.errors import ErrorCode, InvalidRequestError, ReplogError, UnknownTopicOrPartitionError
from replog.metadata.config_keys import CONTROLLER_KEYS, MIN_INSYNC_REPLICAS, UNCLEAN_LEADER_ELECTION_ENABLE
from replog.metadata.records import ConfigRecord, MetadataRecord, PartitionChangeRecord, ResourceType
from replog.metadata.registrations import PartitionRegistration

_ELECTION_KEYS = {MIN_INSYNC_REPLICAS.name, UNCLEAN_LEADER_ELECTION_ENABLE.name}


Made: TypeAlias = tuple[MetadataRecord, ...] | Iterator[MetadataRecord | None]
"""The records of a change: made already, or one by one where that takes more than one step (`LongResult`)."""


def only_changes(made: Iterable[MetadataRecord | None]) -> tuple[MetadataRecord, ...]:
    """Returns the records of a change that is made at once."""
    return tuple(record for record in made if record is not None)


class Changes(Struct, frozen=True):
    """What becomes of some partitions, each of them decided when its change is asked for.

    Attributes:
        count: How many partitions are looked at.
        changes: What becomes of each, in order; None: it stays as it is.
    """

    count: int
    changes: Iterator[PartitionChangeRecord | None]


_NONE: Mapping[UUID, Collection[int]] = {}

_Replicas: TypeAlias = dict[UUID, set[int]]
"""Partitions by topic, of which a broker has a replica."""


class ReplicationControl:
    """Makes the changes; the state itself is `ReplicationState`'s.

    `_reports`, `_offline`, `_arriving` and `_heard` are not part of the replicated state: they are what brokers told this controller
    during its term.

    Invariants:
        - reports are kept only for partitions that await them.
    """

    def __init__(self, state: ReplicationState, brokers: BrokerRegistry, configs: ConfigurationControl) -> None:
        self._state = state
        self._brokers = brokers
        self._configs = configs
        self._reports: dict[UUID, dict[int, dict[int, ReplicaReport]]] = {}  # by topic, partition and broker
        self._offline: dict[int, _Replicas] = {}
        self._arriving: dict[int, _Replicas] = {}  # of brokers that have not told all yet
        self._heard: set[int] = set()  # brokers that have told what they cannot use
        state.notify(self._drop_reports, lambda topic_id: self._reports.pop(topic_id, None))

    def rules(
        self,
        key: PartitionKey,
        is_acceptable: Callable[[int], bool] | None = None,
        pending: Sequence[ConfigRecord] = (),
        *,
        unclean_allowed: bool | None = None,
    ) -> ElectionRules:
        """Returns the rules for a partition.

        Args:
            key: The key of the partition.
            is_acceptable: The function that says whether a broker may lead, where that is about to change.
            pending: The configuration records of the same batch.
            unclean_allowed: Whether somebody allowed an unclean leader for this one election; None for what is
                configured.
        """
        settings = self._configs.election_settings(self._state.topics[key[0]], pending)
        is_active = is_acceptable or self._brokers.is_active

        def has_usable_replica(broker_id: int) -> bool:
            return is_active(broker_id) and not self.is_offline(broker_id, key)

        return ElectionRules(
            has_usable_replica if self._offline else is_active,
            settings.min_isr,
            settings.unclean_allowed if unclean_allowed is None else unclean_allowed,
            self._brokers.is_drained if self._brokers.drained else nobody,
            self.has_told,
        )

    def has_told(self, broker_id: int) -> bool:
        """Whether the broker has told this controller which replicas it cannot use.

        Before, none of its replicas joins an ISR, nor is one made the only copy by its election: what a leader knows of one
        may be older than the loss of the disk, and the controller that was told of that gone.
        """
        return broker_id in self._heard

    def is_offline(self, broker_id: int, key: PartitionKey) -> bool:
        """Whether the broker has told that it cannot use its replica."""
        replicas = self._offline.get(broker_id)
        return replicas is not None and key[1] in replicas.get(key[0], ())

    def can_do_without(self, broker_id: int, present: Collection[int]) -> bool:
        """Whether each ISR that the broker leaves keeps a member of `present`, or has no other member."""
        others = set(present) - {broker_id}
        checked: set[tuple[int, ...]] = set()  # nearly all partitions have the ISR of another one
        for partition in self._state.partitions_on(broker_id):
            isr = partition.isr
            if isr in checked:
                continue
            if broker_id in isr and len(isr) > 1 and others.isdisjoint(isr):
                return False
            checked.add(isr)
        return True

    def changes_without(
        self,
        broker_id: int,
        *,
        leaves_in_order: bool = False,
        restarted_uncleanly: bool = False,
        keeps_log_dirs: bool = True,
    ) -> Iterator[PartitionChangeRecord | None]:
        """Yields for each replica of a broker what changes when it is fenced, shuts down or registers anew: it leaves ISRs and leaderships.

        None stands for a replica whose partition stays as it is.

        Args:
            broker_id: The broker that leaves.
            leaves_in_order: Whether it stops, or starts again after a stop, with all that it has acknowledged.
            restarted_uncleanly: Whether it cannot prove what it holds, so that it leaves the ELRs too, except where its
                acknowledgements were on its disk (`flush.policy=always`).
            keeps_log_dirs: Whether it still has every disk that made those acknowledgements; if not, nobody waits for
                it either.
        """
        is_acceptable = (self._brokers.active() - {broker_id}).__contains__
        for key in self._state.hosted(broker_id):
            partition = self._state.partitions[key]
            is_waited_for = not keeps_log_dirs and broker_id in partition.last_known_elr
            if not _is_member(broker_id, partition) and not is_waited_for:
                yield None
                continue
            settings = self._configs.election_settings(self._state.topics[key[0]])
            keeps_membership = keeps_log_dirs and settings.always_flushes
            yield partition_change(
                *key,
                partition,
                self.rules(key, is_acceptable),
                target_isr=_without(partition.isr, broker_id),
                restarted_uncleanly=(broker_id,) if restarted_uncleanly and not keeps_membership else (),
                lost_disks=() if keeps_log_dirs else (broker_id,),
                leaves_in_order=leaves_in_order,
            )

    def changes_for_offline(
        self, broker_id: int, offline: Sequence[OfflineReplica], *, more_follow: bool = False
    ) -> Changes:
        """Notes all replicas that a broker cannot use, and returns what that changes.

        What such a replica held counts as lost until it proves otherwise, and it leaves the ELR too: damaged bytes are lost, a
        failed disk may have dropped what was not flushed.  Where acknowledgements wait for the disk (`flush.policy=always`) a
        failed disk has what it acknowledged.  Elections do not wait for a replica whose repair gave records up, nor for one
        whose disk is gone.  Where a replica is usable again and nobody leads, it may be elected; so it
        may where it tells this controller for the first time: the one before may have heard of a replica that is usable now.

        Args:
            broker_id: The broker that tells.
            offline: The replicas, or some of them.
            more_follow: Whether the next call names more of them; until the last one everything told before holds, too.

        Returns:
            The elections where a replica is usable again, and for each offline replica what changes since it leaves the ISR, and
                leads nothing.
        """
        arriving = self._arriving.pop(broker_id, {})
        for one in offline:
            arriving.setdefault(one.topic_id, set()).add(one.partition_id)
        known = self._offline.get(broker_id, {})
        is_first = broker_id not in self._heard
        if more_follow:
            self._arriving[broker_id] = arriving
            told = {
                topic_id: known.get(topic_id, set()) | arriving.get(topic_id, set()) for topic_id in known | arriving
            }
        else:
            self._heard.add(broker_id)
            told = arriving
        self._offline.pop(broker_id, None)
        if told:
            self._offline[broker_id] = told
        leaves = [replica for replica in offline if self._must_leave(broker_id, replica)]
        elections = self._after_repairs(broker_id, known, told, is_first=is_first)
        changes = (self._offline_change(broker_id, replica) for replica in leaves)
        return Changes(elections.count + len(leaves), chain(elections.changes, changes))

    def _after_repairs(self, broker_id: int, known: _Replicas, told: _Replicas, *, is_first: bool) -> Changes:
        """Returns the elections where a broker has a replica that it could not use before, or where it tells for the first time."""
        if broker_id not in self._heard:
            return Changes(0, iter(()))
        if is_first:
            return self._elections_on(broker_id, self._brokers.is_active, without=told)
        leaderless = self._state.leaderless.current
        usable_again = [
            (topic_id, number)
            for topic_id in known
            if topic_id in leaderless
            for number in (known[topic_id] - told.get(topic_id, set())) & leaderless[topic_id].keys()
        ]
        return self._elections(usable_again, self._brokers.is_active)

    def _must_leave(self, broker_id: int, replica: OfflineReplica) -> bool:
        """Whether something changes since a replica cannot be used."""
        partition = self._state.partitions.get((replica.topic_id, replica.partition_id))
        if partition is None:
            return False
        return _is_member(broker_id, partition) or (replica.gave_up and broker_id in partition.last_known_elr)

    def _offline_change(self, broker_id: int, replica: OfflineReplica) -> PartitionChangeRecord | None:
        key = (replica.topic_id, replica.partition_id)
        if not self._must_leave(broker_id, replica):
            return None  # it has left, since the replica is named twice
        partition = self._state.partitions[key]
        settings = self._configs.election_settings(self._state.topics[key[0]])
        keeps_membership = replica.is_intact and settings.always_flushes
        return partition_change(
            *key,
            partition,
            self.rules(key),
            target_isr=_without(partition.isr, broker_id),
            restarted_uncleanly=() if keeps_membership else (broker_id,),
            lost_disks=(broker_id,) if replica.gave_up else (),
        )

    def changes_with(self, broker_id: int) -> Changes:
        """Returns the elections when a broker becomes active: partitions without a leader that may have one now get it."""
        return self._elections_on(broker_id, (self._brokers.active() | {broker_id}).__contains__)

    def _elections_on(
        self, broker_id: int, is_acceptable: Callable[[int], bool], without: Mapping[UUID, Collection[int]] = _NONE
    ) -> Changes:
        """Returns the elections where nobody leads and a broker has a replica, but for those of some partitions."""
        partitions, leaderless = self._state.partitions, self._state.leaderless
        return Changes(
            len(leaderless),
            (
                self._elected(key, is_acceptable)
                if broker_id in partitions[key].replicas and key[1] not in without.get(key[0], ())
                else None
                for key in leaderless.in_order()
            ),
        )

    def changes_under(self, records: Sequence[ConfigRecord]) -> Changes:
        """Returns the changes when `records` change the configuration.

        Allowing unclean elections elects where nobody leads.  A lower min.insync.replicas changes nothing here: a leader that
        wants to commit without the members of the ELR says so.  A higher one ends the waiting for those who restarted uncleanly
        before others could commit without them: they may lack that, and by the new minimum nobody could tell.
        """
        records = [record for record in records if record.name in _ELECTION_KEYS]
        by_name: dict[str, list[ConfigRecord]] = {}
        for record in records:
            by_name.setdefault(record.resource_name, []).append(record)
        count, keys = self._keys_under(set(by_name))
        return Changes(count, (self._change_under(key, by_name) for key in keys))

    def _change_under(
        self, key: PartitionKey, by_name: Mapping[str, Sequence[ConfigRecord]]
    ) -> PartitionChangeRecord | None:
        partition = self._state.partitions[key]
        pending = (*by_name.get(self._state.topics[key[0]], ()), *by_name.get("", ()))
        rules = self.rules(key, pending=pending)
        change = partition_change(*key, partition, rules)
        if change is None and partition.last_known_elr:
            change = last_known_change(*key, partition, self.rules(key).min_isr, rules.min_isr)
        return change

    def _keys_under(self, names: set[str]) -> tuple[int, Iterable[PartitionKey]]:
        """Returns the partitions of topics, and how many there are; of "", all, each of them when it is asked for."""
        state = self._state
        if "" in names:
            return len(state.partitions), state.partitions.in_order()
        keys = [key for name in sorted(names) for key in state.partitions_of(state.topic_ids[name])]
        return len(keys), keys

    # ---- reports ----------------------------------------------------------------------------------------------------

    def changes_after_reports(self, broker_id: int, broker_epoch: int, ends: Sequence[ReplicaEnd]) -> Changes:
        """Keeps what a broker tells about partitions that wait for it; elects where it was the last one waited for."""
        keys: set[PartitionKey] = set()
        for end in ends:
            key = (end.topic_id, end.partition_id)
            partition = self._state.partitions.get(key)
            if partition is None or not partition.awaits_reports or broker_id not in partition.last_known_elr:
                continue  # it has been elected, or deleted, since the broker looked
            report = ReplicaReport(broker_epoch, end.last_epoch, end.log_end_offset)
            self._reports.setdefault(end.topic_id, {}).setdefault(end.partition_id, {})[broker_id] = report
            keys.add(key)
        return self._elections(keys, self._brokers.is_active)

    def forget_reports(self) -> None:
        """Forgets what brokers have told: leadership is lost, and the next active controller asks again."""
        self._reports.clear()
        self._offline.clear()
        self._arriving.clear()
        self._heard.clear()

    def _drop_reports(self, key: PartitionKey, partition: PartitionRegistration) -> None:
        if self._reports and not partition.awaits_reports:  # there are none, as a rule, and each change comes here
            self._reports.get(key[0], {}).pop(key[1], None)

    def _elections(self, keys: Iterable[PartitionKey], is_acceptable: Callable[[int], bool]) -> Changes:
        ordered = in_order(keys)
        return Changes(len(ordered), (self._elected(key, is_acceptable) for key in ordered))

    def _elected(self, key: PartitionKey, is_acceptable: Callable[[int], bool]) -> PartitionChangeRecord | None:
        partition = self._state.partitions[key]
        rules = self.rules(key, is_acceptable)
        return partition_change(*key, partition, rules) or self._recovered_or_none(key, partition, rules.is_acceptable)

    def _recovered_or_none(
        self, key: PartitionKey, partition: PartitionRegistration, is_acceptable: Callable[[int], bool]
    ) -> PartitionChangeRecord | None:
        reports = self._reports.get(key[0], {}).get(key[1], {})
        if not partition.awaits_reports:
            return None
        for member in partition.last_known_elr:
            report, registration = reports.get(member), self._brokers.get(member)
            if registration is None or report is None or report.broker_epoch != registration.broker_epoch:
                return None
            if not is_acceptable(member):
                return None
        return recovered_change(*key, partition, reports)


def _is_member(broker_id: int, partition: PartitionRegistration) -> bool:
    return broker_id in partition.isr or broker_id in partition.elr


def _without(members: tuple[int, ...], broker_id: int) -> tuple[int, ...]:
    return tuple(member for member in members if member != broker_id)


_TIMED = {key.cluster_name for key in CONTROLLER_KEYS}


class AlterConfigsControl:
    """Makes the records of configuration requests."""

    def __init__(
        self,
        offsets: OffsetControl,
        configs: ConfigurationControl,
        state: ReplicationState,
        replication: ReplicationControl,
        brokers: BrokerRegistry,
    ) -> None:
        self._offsets = offsets
        self._configs = configs
        self._state = state
        self._replication = replication
        self._brokers = brokers

    def alter(self, request: AlterConfigs) -> Result | LongResult:
        """Alters configurations: one result per resource, in order; all that succeed are one atomic change."""
        times = Counter((resource.resource_type, resource.resource_name) for resource in request.resources)
        records: list[ConfigRecord] = []
        results: list[AlterConfigsResult] = []
        for resource in request.resources:
            code, message = ErrorCode.NONE, ""
            try:
                if times[resource.resource_type, resource.resource_name] > 1:
                    raise InvalidRequestError(f'resource "{resource.resource_name}" is given more than once')
                records += self._records(resource)
            except ReplogError as error:
                code, message = error.code, str(error)
            results.append(AlterConfigsResult(resource.resource_type, resource.resource_name, code, message))
        response = AlterConfigsResponse(tuple(results))
        if request.validate_only or not records:
            return Result((), response)
        wakes = ("no-op", "balance") if any(record.name in _TIMED for record in records) else ()
        follows = self._replication.changes_under(records)
        made = chain(records, follows.changes)
        if self._offsets.needs_steps(follows.count):
            return LongResult(made, lambda _end_offset: response, wakes)
        return Result(only_changes(made), response, wakes)

    def _records(self, resource: AlterConfigsResource) -> tuple[ConfigRecord, ...]:
        name = resource.resource_name
        if resource.resource_type is ResourceType.TOPIC and name not in self._state.topic_ids:
            raise UnknownTopicOrPartitionError(f'topic "{name}" does not exist')
        records = self._configs.change(resource.resource_type, name, resource.configs, replaces=resource.replaces)
        if resource.resource_type is ResourceType.BROKER and name:
            self._brokers.known_or_raise(int(name))
        return records
