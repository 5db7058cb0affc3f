"""The reaction of a broker to disks that fail or are full, and to replicas whose own bytes are wrong.

| what happened                                  | outcome                                                                        |
|------------------------------------------------|--------------------------------------------------------------------------------|
| a write or fsync failed                        | its log directory is offline with all replicas in it; the others go on         |
| the same, with the metadata log in it, or no other directory | the node stops                                                   |
| bytes contradict their checksum or recovery point | that replica is offline alone (quarantined); nothing of it is changed       |
| a follower's log contradicts its leader's      | the same: the folder of another partition may stand in its place               |
| a replica cannot begin as a fork               | the same: its records are counted on and are not there                         |
| the replica is repaired (see below)            | the replica is offline until the controller counts on others                  |
| the metadata lag behind the epochs of a log    | the replica is offline for a moment, and elected anew: the epoch rises         |
| the disk is full                               | producers are refused and retry, followers back off, roles are taken when there is room |

A replica that is offline leaves its role at once, answers KAFKA_STORAGE_ERROR, and is named in every heartbeat: the
controller takes it out of the ISR and elects another leader, and out of the ELR too if its acknowledged records may be
lost.  With a failed disk it stays offline until the node is started again.  A quarantined one begins anew, beside the
kept folder of the old one, once the committed metadata say that it is in neither ISR nor ELR and that another broker leads.  It is
named in the heartbeats until it has everything, so that no leader takes it into the ISR for the records it held before.  The only
replica of a partition stays offline.

A replica is *repaired* if a repair of its log gave records up.  It begins anew in the same way if another broker leads, for the
repair may have left a hole.  If no broker leads, it takes its role when the committed metadata do not count on it any more, and it
leads only by an unclean election.  The only replica of a partition leads all the same.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, MutableMapping, Sequence
from uuid import UUID

from msgspec import Struct
from msgspec.structs import replace

from replog.broker.replicas.replica import Replica, ReplicaKey
from replog.controller.requests import OfflineReplica
from replog.errors import (
    ContradictedLogError,
    CorruptCheckpointError,
    CorruptIndexError,
    CorruptRecordError,
    DiskFullError,
    ForkFailedError,
    LateLeaderEpochError,
    ReplogError,
    StorageError,
)
from replog.log import DiskState, Log, LogManager
from replog.metadata.delta import LocalPartition
from replog.metadata.image import MetadataImage
from replog.metadata.records import NO_LEADER
from replog.metadata.registrations import PartitionRegistration
from replog.rpc.node_messages import ReplicaStatus

_log = logging.getLogger(__name__)

_DAMAGE = (CorruptRecordError, CorruptIndexError, CorruptCheckpointError, ContradictedLogError, ForkFailedError)


class UnusableReplica(Struct):
    """A replica of this broker that cannot be used, and why."""

    topic: str
    topic_id: UUID
    partition_id: int
    reason: str
    registration: PartitionRegistration
    is_damaged: bool
    gave_up: bool = False
    """Whether it can be used, and only waits until no election counts on the records that a repair gave up."""
    is_late: bool = False
    """Whether it can be used, and only waits for another election: a `LateLeaderEpochError`."""
    known_offset: int | None = None
    """End of the metadata in which the controller has acted on it; None: it has not been told."""

    def status(self) -> ReplicaStatus:
        """Returns the replica's status for people; nothing is known about its offsets."""
        return ReplicaStatus(
            topic=self.topic,
            partition_id=self.partition_id,
            is_leader=False,
            leader_epoch=self.registration.leader_epoch,
            log_start_offset=-1,
            log_end_offset=-1,
            flushed_offset=-1,
            high_watermark=-1,
            isr=self.registration.isr,
            state="offline",
            reason=self.reason,
        )


class DiskTrouble:
    """The replicas of one broker that cannot be used now.  Runs on the replica driver.

    Args:
        broker_id: The broker's node id.
        logs: The log directories.
        replicas: The replicas that can be used; those that go offline are taken out.
        image: Returns the metadata in force.
        leave_role: Makes a replica leave its role.
        on_offline: Called when a replica went offline, or is usable again: the controller should know.

    Attributes:
        offline: The replicas that cannot be used.
        beginning_anew: The replicas that were quarantined, and fetch their records again.
        waiting_for_room: The replicas that could not take or keep their role because the disk is full.
    """

    def __init__(
        self,
        broker_id: int,
        logs: LogManager,
        replicas: MutableMapping[ReplicaKey, Replica],
        image: Callable[[], MetadataImage],
        leave_role: Callable[[Replica], None],
        on_offline: Callable[[], None],
    ) -> None:
        self.offline: dict[ReplicaKey, UnusableReplica] = {}
        self.beginning_anew: set[ReplicaKey] = set()
        self.waiting_for_room: dict[ReplicaKey, LocalPartition] = {}
        self._uncounted: set[ReplicaKey] = set()  # a repair gave records of them up, and no election counts on them
        self._broker_id = broker_id
        self._logs = logs
        self._replicas = replicas
        self._image = image
        self._leave_role = leave_role
        self._on_offline = on_offline

    def reason(self, key: ReplicaKey) -> str | None:
        """Returns what clients are told of a replica that is offline, without the paths of its reason; None: it is not."""
        offline = self.offline.get(key)
        if offline is None:
            return None
        return (
            f"{offline.topic}-{offline.partition_id} is offline here; `replog status` and the log of the broker say why"
        )

    def reported(self) -> tuple[OfflineReplica, ...]:
        """Returns the replicas that are offline or begin anew, as the controller must know them, in a fixed order."""
        found = {
            key: OfflineReplica(*key, is_intact=not offline.is_damaged, gave_up=offline.gave_up)
            for key, offline in self.offline.items()
        }
        found |= {key: OfflineReplica(*key) for key in self.beginning_anew}
        return tuple(found[key] for key in sorted(found))

    # ---- beginning anew -----------------------------------------------------------------------------------------------

    def controller_knows(self, reported: Sequence[OfflineReplica], metadata_offset: int) -> None:
        """Notes the offline replicas that an answered heartbeat told the controller of; see `begin_anew`.

        Args:
            reported: The replicas that the heartbeat said are offline.
            metadata_offset: The end of the metadata with the controller's changes for it.
        """
        for replica in reported:
            offline = self.offline.get((replica.topic_id, replica.partition_id))
            if offline is not None and offline.known_offset is None:
                offline.known_offset = metadata_offset

    def begin_anew(self) -> tuple[LocalPartition, ...]:
        """Makes replicas usable whose old records no election counts on any more; quarantined folders are set aside.

        Returns:
            The replicas that are to take a role again, and to fetch missing records.
        """
        found = []
        for key, offline in list(self.offline.items()):
            registration = self._image().partition(*key)
            if registration is None or self._is_counted_on(offline, registration):
                continue
            if offline.gave_up:
                self._uncounted.add(key)
                is_usable = True
            elif offline.is_late:
                is_usable = True
            else:
                is_usable = self._can_be_fetched(offline, registration) and self._is_set_aside(offline)
                if is_usable:
                    self.beginning_anew.add(key)
            if is_usable:
                del self.offline[key]
                found.append(LocalPartition(offline.topic, offline.topic_id, offline.partition_id, registration))
        return tuple(found)

    def _is_counted_on(self, offline: UnusableReplica, registration: PartitionRegistration) -> bool:
        """Whether the controller does not know yet, or its answer is not in the metadata in force."""
        counted = (*registration.isr, *registration.elr, *(registration.last_known_elr if offline.gave_up else ()))
        return (
            offline.known_offset is None
            or self._image().end_offset < offline.known_offset
            or self._broker_id in counted
            or self._broker_id not in registration.replicas
        )

    def _can_be_fetched(self, offline: UnusableReplica, registration: PartitionRegistration) -> bool:
        home = self._logs.home_of(offline.topic, offline.partition_id)
        has_other_leader = registration.leader not in {NO_LEADER, self._broker_id}
        return offline.is_damaged and has_other_leader and home is not None and home.failure is None

    def _settle_repaired(self, local: LocalPartition) -> None:
        """Ends the note about a repaired replica, once its leader is known.

        A follower is set aside first: it may have a hole in its middle, and fetches go on at its end.

        Raises:
            DiskFullError, StorageError: The note is still there.
        """
        key, place = (local.topic_id, local.partition_id), (local.topic_name, local.partition_id)
        if local.registration.leader == NO_LEADER:
            return
        if local.registration.leader != self._broker_id and self._logs.home_of(*place) is not None:
            replica = self._replicas.pop(key, None)
            if replica is not None:
                self._leave_role(replica)
            self._set_aside(*place)
            self.beginning_anew.add(key)
        self._logs.forget_given_up(*place)
        self._uncounted.discard(key)

    def _is_set_aside(self, offline: UnusableReplica) -> bool:
        """Whether the remains of a replica could be set aside."""
        try:
            self._set_aside(offline.topic, offline.partition_id)
        except (DiskFullError, StorageError) as error:
            _log.error("%s", error)
            return False
        return True

    def _set_aside(self, topic: str, partition_id: int) -> None:
        path = self._logs.set_aside_log(topic, partition_id)
        kept = (
            "nothing was left of it"
            if path is None
            else f"what was left of it is kept in {path}, remove it if it is not needed"
        )
        _log.warning("%s-%d: was damaged and is fetched again; %s", topic, partition_id, kept)

    def caught_up(self, key: ReplicaKey) -> None:
        """Notes that a replica has everything that its leader has; one that was beginning anew is whole again."""
        if key in self.beginning_anew:
            self.beginning_anew.discard(key)
            self._on_offline()

    # ---- roles --------------------------------------------------------------------------------------------------------

    def guard_role(self, local: LocalPartition, take: Callable[[], None]) -> None:
        """Lets a replica take its role, unless it is offline.

        Where its log cannot be used it goes offline or waits for room, and the other replicas go on.

        Args:
            local: The replica, as the metadata in force have it.
            take: Makes the replica take its role.

        Raises:
            StorageError: The node cannot go on without the log directory that failed.
        """
        key = (local.topic_id, local.partition_id)
        self.waiting_for_room.pop(key, None)
        offline = self.offline.get(key)
        if offline is not None:
            offline.registration = local.registration
            return
        place = local.topic_name, local.partition_id
        is_sole = local.registration.replicas == (self._broker_id,)
        gave_up = not is_sole and self._logs.gave_up(*place)
        if gave_up and key not in self._uncounted:
            self._wait_until_not_counted_on(local)
            return
        if gave_up:
            try:
                self._settle_repaired(local)
            except (DiskFullError, StorageError) as error:
                _log.error("%s", error)
                self._uncounted.discard(key)
                self._wait_until_not_counted_on(local)
                return

        def begin() -> None:
            if is_sole:
                self._logs.forget_given_up(*place)
            take()

        try:
            try:
                begin()
            except DiskFullError:
                home = self._logs.home_of(local.topic_name, local.partition_id)
                if home is None or not home.space.make_room():
                    raise
                begin()  # a leader epoch fits into the reserve: reads go on under the new leader
        except DiskFullError as error:
            self.wait_for_room(local, error)
        except StorageError as error:
            self._failed(local.topic_name, local.topic_id, local.partition_id, error)

    def _wait_until_not_counted_on(self, local: LocalPartition) -> None:
        reason = (
            "a repair gave records of it up, and the controller has not answered yet: other replicas decide what stays"
        )
        _log.warning("%s-%d: %s", local.topic_name, local.partition_id, reason)
        self.offline[local.topic_id, local.partition_id] = UnusableReplica(
            local.topic_name,
            local.topic_id,
            local.partition_id,
            reason,
            local.registration,
            is_damaged=True,
            gave_up=True,
        )
        self._on_offline()

    def wait_for_room(self, local: LocalPartition, error: DiskFullError) -> None:
        """Makes a replica whose disk is full leave its role, or not begin one, until the disk has room."""
        key = (local.topic_id, local.partition_id)
        _log.error("%s-%d: waits for room on the disk: %s", local.topic_name, local.partition_id, error)
        self._note_full(local.topic_name, local.partition_id, error)
        replica = self._replicas.get(key)
        if replica is not None:
            self._leave_role(replica)
        self.waiting_for_room[key] = local

    def roles_without_room(self) -> tuple[LocalPartition, ...]:
        """Returns the replicas that wait for room, as the metadata in force have them."""
        found = []
        for key, local in list(self.waiting_for_room.items()):
            registration = self._image().partition(*key)
            if registration is None:
                del self.waiting_for_room[key]
            else:
                found.append(replace(local, registration=registration))
        return tuple(found)

    def forget(self, key: ReplicaKey) -> bool:
        """Forgets a replica that is deleted; returns whether it was offline."""
        self.waiting_for_room.pop(key, None)
        self.beginning_anew.discard(key)
        self._uncounted.discard(key)
        return self.offline.pop(key, None) is not None

    # ---- disks that fail ----------------------------------------------------------------------------------------------

    def storage_failed(self, replica: Replica, error: StorageError) -> None:
        """Takes a replica whose log failed offline: alone, if its bytes are wrong, else with its whole log directory.

        Raises:
            StorageError: The node cannot go on without that log directory.
        """
        self._failed(replica.topic, replica.topic_id, replica.partition_id, error)

    def log_failed(self, log: Log, error: StorageError) -> None:
        """Takes a replica offline as `storage_failed` does, where only its log is known, as after an fsync in a thread.

        Raises:
            StorageError: The node cannot go on without the log directory.
        """
        replica = next((replica for replica in self._replicas.values() if replica.log is log), None)
        if replica is not None:
            self.storage_failed(replica, error)

    def directory_failed(self, path: str, error: StorageError) -> None:
        """Takes a log directory offline, with every replica in it.

        Raises:
            StorageError: It holds the metadata log, or there is no other.
        """
        if self._logs.is_essential(path):
            raise error
        gone = set(self._logs.fail_directory(path, error))
        _log.critical("log directory %s is offline with %d replicas: %s", path, len(gone), error)
        for replica in list(self._replicas.values()):
            if (replica.topic, replica.partition_id) in gone:
                self._take_offline(replica.topic, replica.topic_id, replica.partition_id, error)

    def _failed(self, topic: str, topic_id: UUID, partition_id: int, error: StorageError) -> None:
        home = self._logs.home_of(topic, partition_id)
        is_late = isinstance(error, LateLeaderEpochError)
        if home is not None and self._logs.offline_error(topic, partition_id) is None and not is_late:
            if isinstance(error, _DAMAGE):
                if (topic, partition_id) in home.logs:
                    home.quarantine((topic, partition_id), error)
            else:
                self.directory_failed(home.path, error)
        self._take_offline(topic, topic_id, partition_id, error)

    def _take_offline(self, topic: str, topic_id: UUID, partition_id: int, error: ReplogError) -> None:
        """Takes one replica offline; it leaves its role, so that nothing is acknowledged any more."""
        key = (topic_id, partition_id)
        registration = self._image().partition(topic_id, partition_id)
        if key in self.offline or registration is None:
            return
        is_late = isinstance(error, LateLeaderEpochError)
        is_damaged = is_late or isinstance(error, _DAMAGE)  # no ISR or ELR may count on it until it is elected
        self.offline[key] = UnusableReplica(
            topic, topic_id, partition_id, str(error), registration, is_damaged, is_late=is_late
        )
        self.beginning_anew.discard(key)
        self.waiting_for_room.pop(key, None)
        _log.error("%s-%d is offline: %s", topic, partition_id, error)
        replica = self._replicas.pop(key, None)
        if replica is not None:
            self._leave_role(replica)
        self._on_offline()

    # ---- disks that are full ------------------------------------------------------------------------------------------

    def disk_full(self, replica: Replica, error: DiskFullError) -> None:
        """Notes that a write found the disk full: its log directory is read-only from now on, before the next check."""
        self._note_full(replica.topic, replica.partition_id, error)

    def _note_full(self, topic: str, partition_id: int, error: DiskFullError) -> None:
        home = self._logs.home_of(topic, partition_id)
        if home is not None and home.space.state is not DiskState.READ_ONLY:
            home.space.refuse()
            _log.error("%s", error)
