"""What a broker does about disks that fail or are full, and about replicas whose own bytes are wrong.

| what happened                                  | outcome                                                                        |
|------------------------------------------------|--------------------------------------------------------------------------------|
| a write or fsync failed                        | its log directory is offline with all replicas in it; the others go on         |
| the same, with the metadata log in it, or no other directory | the node stops                                                   |
| bytes contradict their checksum or recovery point | that replica is offline alone (quarantined); nothing of it is changed       |
| the disk is full                               | producers are refused and retry, followers back off, roles are taken when there is room |

A replica that is offline leaves its role at once, answers KAFKA_STORAGE_ERROR, and is named in every heartbeat: the
controller takes it out of ISR and ELR and elects another leader.  It stays offline until the node is started again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING
from uuid import UUID

from replog.broker.replica import Replica, ReplicaKey
from replog.controller.messages import OfflineReplica as ReportedReplica
from replog.errors import (
    CorruptCheckpointError,
    CorruptIndexError,
    CorruptRecordError,
    DiskFullError,
    ReplogError,
    StorageError,
)
from replog.log import DiskState, Log, LogManager
from replog.metadata.delta import LocalPartition
from replog.metadata.registrations import PartitionRegistration
from replog.rpc.messages import ReplicaStatus

if TYPE_CHECKING:
    from replog.broker.replica_manager import ReplicaManager

_log = logging.getLogger(__name__)

_DAMAGE = (CorruptRecordError, CorruptIndexError, CorruptCheckpointError)


@dataclass(slots=True)
class OfflineReplica:
    """A replica of this broker that cannot be used, and why."""

    topic: str
    topic_id: UUID
    partition_id: int
    reason: str
    registration: PartitionRegistration

    def status(self) -> ReplicaStatus:
        """For people; nothing is known about its offsets."""
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
    """The replicas of one broker that cannot be used now.  Runs on the replica manager's driver.

    Args:
        manager: of the replicas.
        logs: the log directories.

    Attributes:
        offline: cannot be used until the next start.
        waiting_for_room: could not take or keep their role because the disk is full.
        on_offline: called when a replica went offline: the controller should know.
    """

    def __init__(self, manager: ReplicaManager, logs: LogManager) -> None:
        self.offline: dict[ReplicaKey, OfflineReplica] = {}
        self.waiting_for_room: dict[ReplicaKey, LocalPartition] = {}
        self.on_offline: Callable[[], None] = _nobody_listens
        self._manager = manager
        self._logs = logs

    def reason(self, key: ReplicaKey) -> str | None:
        """Why a replica cannot be used; None: it is not offline."""
        offline = self.offline.get(key)
        return None if offline is None else f"{offline.topic}-{offline.partition_id} is offline here: {offline.reason}"

    def reported(self) -> tuple[ReportedReplica, ...]:
        """What the controller must know, in a fixed order."""
        return tuple(ReportedReplica(*key) for key in sorted(self.offline))

    # ---- roles --------------------------------------------------------------------------------------------------------

    def guard_role(self, local: LocalPartition, take: Callable[[], None]) -> None:
        """Has a replica take its role; where its log cannot be used it is offline or waits, and the others go on."""
        key = (local.topic_id, local.partition_id)
        self.waiting_for_room.pop(key, None)
        offline = self.offline.get(key)
        if offline is not None:
            offline.registration = local.registration
            return
        try:
            try:
                take()
            except DiskFullError:
                home = self._logs.home_of(local.topic_name, local.partition_id)
                if home is None or not home.space.make_room():
                    raise
                take()  # a leader epoch fits into the reserve: reads go on under the new leader
        except DiskFullError as error:
            self.wait_for_room(local, error)
        except StorageError as error:
            self._failed(local.topic_name, local.topic_id, local.partition_id, error)

    def wait_for_room(self, local: LocalPartition, error: DiskFullError) -> None:
        """A role cannot begin or go on: it is taken again when the disk has room."""
        key = (local.topic_id, local.partition_id)
        _log.error("%s-%d: waits for room on the disk: %s", local.topic_name, local.partition_id, error)
        self._note_full(local.topic_name, local.partition_id, error)
        replica = self._manager.replicas.get(key)
        if replica is not None:
            self._manager.leave_role(replica)
        self.waiting_for_room[key] = local

    def retry_roles(self) -> None:
        """Replicas that wait for room try to take their roles."""
        for key, local in list(self.waiting_for_room.items()):
            registration = self._manager.image.partition(*key)
            if registration is None:
                del self.waiting_for_room[key]
            else:
                self._manager.take_role(replace(local, registration=registration), is_new=True)

    def forget(self, key: ReplicaKey) -> bool:
        """The replica is deleted; whether it was offline."""
        self.waiting_for_room.pop(key, None)
        return self.offline.pop(key, None) is not None

    # ---- disks that fail ----------------------------------------------------------------------------------------------

    def storage_failed(self, replica: Replica, error: StorageError) -> None:
        """A log of ours failed: alone, if its bytes are wrong, else with its whole directory.

        Raises:
            StorageError: the node cannot go on without that directory.
        """
        self._failed(replica.topic, replica.topic_id, replica.partition_id, error)

    def log_failed(self, log: Log, error: StorageError) -> None:
        """The same for a log that is known only as such, after an fsync in a thread."""
        replica = next((replica for replica in self._manager.replicas.values() if replica.log is log), None)
        if replica is not None:
            self.storage_failed(replica, error)

    def directory_failed(self, path: str, error: StorageError) -> None:
        """A log directory goes offline, with every replica in it.

        Raises:
            StorageError: it holds the metadata log, or there is no other.
        """
        if self._logs.is_essential(path):
            raise error
        gone = set(self._logs.fail_directory(path, error))
        _log.critical("log directory %s is offline with %d replicas: %s", path, len(gone), error)
        for replica in list(self._manager.replicas.values()):
            if (replica.topic, replica.partition_id) in gone:
                self._take_offline(replica.topic, replica.topic_id, replica.partition_id, error)

    def _failed(self, topic: str, topic_id: UUID, partition_id: int, error: StorageError) -> None:
        home = self._logs.home_of(topic, partition_id)
        if home is not None and self._logs.offline_error(topic, partition_id) is None:
            if isinstance(error, _DAMAGE):
                if (topic, partition_id) in home.logs:
                    home.quarantine((topic, partition_id), error)
            else:
                self.directory_failed(home.path, error)
        self._take_offline(topic, topic_id, partition_id, error)

    def _take_offline(self, topic: str, topic_id: UUID, partition_id: int, error: ReplogError) -> None:
        """Leaves the role, so that nothing is acknowledged any more."""
        key = (topic_id, partition_id)
        registration = self._manager.image.partition(topic_id, partition_id)
        if key in self.offline or registration is None:
            return
        self.offline[key] = OfflineReplica(topic, topic_id, partition_id, str(error), registration)
        self.waiting_for_room.pop(key, None)
        _log.error("%s-%d is offline: %s", topic, partition_id, error)
        replica = self._manager.replicas.pop(key, None)
        if replica is not None:
            self._manager.leave_role(replica)
        self.on_offline()

    # ---- disks that are full ------------------------------------------------------------------------------------------

    def disk_full(self, replica: Replica, error: DiskFullError) -> None:
        """A write found the disk full: the directory is read-only from now on, before anybody looks at it again."""
        self._note_full(replica.topic, replica.partition_id, error)

    def _note_full(self, topic: str, partition_id: int, error: DiskFullError) -> None:
        home = self._logs.home_of(topic, partition_id)
        if home is not None and home.space.state is not DiskState.READ_ONLY:
            home.space.refuse()
            _log.error("%s", error)

    # ---- deletion -----------------------------------------------------------------------------------------------------

    def delete_logs(self, keys: Sequence[tuple[str, int]]) -> list[Callable[[], None]]:
        """Deletes logs and their checkpoint lines; returns what removes the files, for a thread."""
        by_directory: dict[str, list[tuple[str, int]]] = {}
        for key in keys:
            home = self._logs.home_of(*key)
            if home is not None:
                by_directory.setdefault(home.path, []).append(key)
        found: list[Callable[[], None]] = []
        for path, gone in by_directory.items():  # a disk fails alone
            try:
                found += [job.run for job in self._logs.delete_logs(gone)]
            except StorageError as error:
                self.directory_failed(path, error)
        return found


def _nobody_listens() -> None:
    return
