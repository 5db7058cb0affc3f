"""The logs of this broker's replicas on its disks: found, created, or taken out of the way."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Sequence
from uuid import UUID

from replog.broker.clock import Clock
from replog.broker.config import ServerConfig
from replog.broker.topic_settings import TopicSettings
from replog.errors import DiskFullError, StorageError
from replog.log import CreateJob, Log, LogConfig, LogManager
from replog.metadata.delta import LocalChanges, LocalPartition
from replog.metadata.image import MetadataImage

METADATA_TOPIC_ID = UUID(int=1)

_log = logging.getLogger(__name__)


class ReplicaLogs:
    """The logs that metadata images ask for.  Runs on the replica manager's driver."""

    def __init__(self, logs: LogManager, config: ServerConfig, clock: Clock) -> None:
        self._logs = logs
        self._config = config
        self._clock = clock

    def prepare(self, before: MetadataImage, image: MetadataImage, changes: LocalChanges) -> list[CreateJob]:
        """Jobs that create the logs which `image` asks for and no disk has; an error is met again by `open`.

        Args:
            before: the image in force.
            image: the next one.
            changes: what it changes here.
        """
        jobs: list[CreateJob] = []
        now_ms = self._clock.wall_ms()
        for local in (*changes.leaders, *changes.followers):
            settings = TopicSettings(local.topic_name, image, self._config).log_config()
            is_new = is_new_replica(before, local, self._config.node_id)
            with contextlib.suppress(DiskFullError, StorageError):
                leads = local.registration.leader == self._config.node_id
                job = self._logs.prepare_create(
                    local.topic_name,
                    local.partition_id,
                    local.topic_id,
                    settings,
                    now_ms=now_ms,
                    is_new=is_new,
                    leader_epoch=local.registration.leader_epoch if leads else None,
                )
                jobs += [] if job is None else [job]
        return jobs

    def complete(self, jobs: Sequence[CreateJob]) -> None:
        """Takes what those jobs made."""
        for job in jobs:
            self._logs.complete_create(job)

    def open(self, local: LocalPartition, config: LogConfig, *, is_new: bool) -> Log:
        """The replica's log; one left over from an earlier topic of the same name makes way first.

        Raises:
            DiskFullError: there is no room to create it.
            StorageError: it is offline, may be on a disk that is, or the disk failed.
        """
        name, partition_id = local.topic_name, local.partition_id
        found = self._logs.topic_id(name, partition_id)
        if found is not None and found != local.topic_id and self._logs.offline_error(name, partition_id) is None:
            self._set_aside(name, partition_id)
            is_new = True
        return self._logs.open_log(
            name, partition_id, local.topic_id, config, now_ms=self._clock.wall_ms(), is_new=is_new
        )

    def set_strays_aside(self, image: MetadataImage) -> None:
        """Takes replicas out of the way that this broker no longer has: deleted, or moved, while it was down.

        Those that cannot be opened too: else a new topic of the same name would be offline for what was another's.  They are
        renamed, not deleted: a broker whose metadata log was lost would otherwise delete everything it has.
        Call it with an image that holds this broker's own registration: everything older is in it.
        """
        for topic, partition_id in self._logs.replicas:
            topic_id = self._logs.topic_id(topic, partition_id)
            if topic_id is None or topic_id == METADATA_TOPIC_ID:
                continue
            known = image.partition(topic_id, partition_id)
            if known is None or self._config.node_id not in known.replicas:
                try:
                    self._set_aside(topic, partition_id)
                except StorageError as error:  # it stays where it is, and nobody uses it
                    _log.error("%s", error)

    def _set_aside(self, topic: str, partition_id: int) -> None:
        path = self._logs.set_aside_log(topic, partition_id)
        _log.warning(
            "%s-%d: this broker has no such replica any more; its data is kept in %s, remove it if it is not needed",
            topic, partition_id, path,
        )  # fmt: skip


def is_new_replica(before: MetadataImage, local: LocalPartition, broker_id: int) -> bool:
    """Whether the replica came to this broker with the image after `before`: then no disk can hold it yet.

    The first image says nothing about that: it is everything since ever.
    """
    if not before.brokers:
        return False
    known = before.partition(local.topic_id, local.partition_id)
    return known is None or broker_id not in known.replicas
