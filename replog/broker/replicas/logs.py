"""The logs of this broker's replicas on its disks: found, created, or taken out of the way."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Sequence
from uuid import UUID

from replog.broker.clock import Clock
from replog.broker.replicas.topic_settings import TopicSettings
from replog.config.server import ServerConfig
from replog.errors import CorruptCheckpointError, DiskFullError, ForkFailedError, StorageError
from replog.log import METADATA_TOPIC, CreateJob, Log, LogConfig, LogDirectory, LogManager
from replog.log.directories.creation import NewReplica
from replog.log.file_names import partition_dir_name
from replog.metadata.delta import LocalPartition
from replog.metadata.image import MetadataImage
from replog_checkpoints import PARTITION_METADATA_FILE, uuid_to_text

METADATA_TOPIC_ID = UUID(int=1)

_log = logging.getLogger(__name__)


class ReplicaLogs:
    """The logs that metadata images ask for.  Runs on the replica manager's driver."""

    def __init__(self, logs: LogManager, config: ServerConfig, clock: Clock) -> None:
        self._logs = logs
        self._config = config
        self._clock = clock

    def home_of(self, place: tuple[str, int]) -> LogDirectory | None:
        """Returns the log directory that holds a replica; None: none does, or one that could not be opened."""
        return self._logs.home_of(*place)

    def prepare(self, before: MetadataImage, image: MetadataImage, local: LocalPartition) -> CreateJob | None:
        """Prepares a job that creates a replica's log; None where there is one, or an error that `open` meets again.

        None, too, where a repair gave the old one up and the controller may not know: a new one ends its note.

        Args:
            before: The image before `image`.
            image: The image in force.
            local: The replica as `image` has it.
        """
        place = local.topic_name, local.partition_id
        if self._logs.home_of(*place) is not None or self._logs.gave_up(*place):
            return None
        leads = local.registration.leader == self._config.node_id
        if local.registration.forked_topic_id is not None:
            job = self._prepare_fork(before, image, local)
            if job is not None or self._is_whole_fork(local):
                return job
        with contextlib.suppress(DiskFullError, StorageError):
            return self._logs.prepare_create(
                local.topic_name,
                local.partition_id,
                local.topic_id,
                TopicSettings(local.topic_name, image, self._config).log_config(),
                now_ms=self._clock.wall_ms(),
                is_new=is_new_replica(before, local, self._config.node_id),
                leader_epoch=local.registration.leader_epoch if leads else None,
            )
        return None

    def _prepare_fork(self, before: MetadataImage, image: MetadataImage, local: LocalPartition) -> CreateJob | None:
        """Prepares a job that creates a replica with the records of its source; see `replog.log.directories.fork`.

        None: it cannot.  Where the records are counted on here, the replica is offline then.
        """
        registration, broker_id = local.registration, self._config.node_id
        place, source_id = (local.topic_name, local.partition_id), registration.forked_topic_id
        source = None
        if source_id is not None:
            source = image.topics_by_id.get(source_id) or before.topics_by_id.get(source_id)
        is_new, is_whole = is_new_replica(before, local, broker_id), self._is_whole_fork(local)
        config = TopicSettings(local.topic_name, image, self._config).log_config()
        why: object = "not all of its records are on this broker"
        try:
            if source is not None:
                job = self._logs.prepare_fork(
                    (source.name, local.partition_id),
                    source.topic_id,
                    registration.forked_end_offset,
                    NewReplica(place, local.topic_id, config),
                    now_ms=self._clock.wall_ms(),
                    is_new=is_new,
                    is_whole=is_whole,
                )
                if job is not None:
                    return job
        except (DiskFullError, StorageError) as error:
            why = error
        if is_whole:
            with contextlib.suppress(StorageError):  # `open` meets it again
                self._lose(local, why, is_new=is_new)
        return None

    def _is_whole_fork(self, local: LocalPartition) -> bool:
        """Whether a replica has to begin with all records of its source, as elections count on them here."""
        registration = local.registration
        return registration.forked_topic_id is not None and registration.counts_on(self._config.node_id)

    def _lose(self, local: LocalPartition, why: object, *, is_new: bool) -> None:
        place = local.topic_name, local.partition_id
        error = ForkFailedError(
            f"{partition_dir_name(*place)} cannot be forked: {why}. It is fetched from another replica; where there is none, delete "
            "the topic and fork again"
        )
        self._logs.lose(place, error, is_new=is_new)

    def forget_given_up(self, place: tuple[str, int]) -> None:
        """Ends the note of a repair about a replica that is deleted, and has no folder: it would meet the next of its name."""
        with contextlib.suppress(DiskFullError, StorageError):
            self._logs.forget_given_up(*place)

    def complete(self, jobs: Sequence[CreateJob]) -> None:
        """Takes over the logs that those jobs created."""
        for job in jobs:
            self._logs.complete_create(job)

    def open(self, local: LocalPartition, config: LogConfig, *, is_new: bool) -> Log:
        """Opens the replica's log; one left over from an earlier topic of the same name is set aside first.

        Raises:
            DiskFullError: There is no room to create it.
            ForkFailedError: It is a fork that is counted on, and was not made: an empty log must not stand for it.
            StorageError: It is offline, may be on a disk that is, or the disk failed.
        """
        name, partition_id = local.topic_name, local.partition_id
        found = self._logs.topic_id(name, partition_id)
        error = self._logs.offline_error(name, partition_id)
        is_usable = error is None or isinstance(error, DiskFullError)  # there was no room to set it aside
        if found is not None and found != local.topic_id and is_usable:
            tell_set_aside((name, partition_id), self._logs.set_aside_log(name, partition_id))
            is_new = True
        if self._logs.home_of(name, partition_id) is None and self._is_whole_fork(local):
            self._lose(local, "its records are not on this broker", is_new=is_new)
        return self._logs.open_log(
            name, partition_id, local.topic_id, config, now_ms=self._clock.wall_ms(), is_new=is_new
        )

    def strays(self, image: MetadataImage) -> list[tuple[tuple[str, int], UUID | None]]:
        """Finds replicas that this broker no longer has, with their topic ids: deleted, or moved, while it was down.

        Replicas that cannot be opened are among them: otherwise a new topic of the same name would be offline because of them.
        If the folder is gone, or has no topic id, the id is unknown: the replica is one of these if no topic of its name has a
        replica here.
        Call it with an image that holds this broker's own registration: everything older is in it.
        """
        found: list[tuple[tuple[str, int], UUID | None]] = []
        offline = self._logs.offline
        for place in self._logs.replicas:
            topic_id = self._logs.topic_id(*place)
            if place[0] == METADATA_TOPIC or (topic_id is None and place not in offline):
                continue
            topic = image.topics_by_name.get(place[0])
            is_its = topic is not None and topic_id in {None, topic.topic_id}
            known = topic.partitions.get(place[1]) if topic is not None and is_its else None
            if known is None or self._config.node_id not in known.replicas:
                found.append((place, topic_id))
        return found

    def was_clean(self, place: tuple[str, int]) -> bool:
        """Whether the last stop of the directory that holds a replica was in order."""
        home = self._logs.home_of(*place)
        return home is not None and home.was_clean

    def quarantine_of_another(self, place: tuple[str, int], image: MetadataImage) -> None:
        """Takes a replica offline whose folder carries the id of another topic, unless it is offline already."""
        home, topic = self._logs.home_of(*place), image.topics_by_name.get(place[0])
        found = self._logs.topic_id(*place)
        if home is None or topic is None or found is None or self._logs.offline_error(*place) is not None:
            return
        folder = f"{home.path}/{partition_dir_name(*place)}"
        reason = (
            f"the topic id is {uuid_to_text(found)}, that of {place[0]} is {uuid_to_text(topic.topic_id)}, and this broker may "
            "have held records of that: an older copy of the folder or of this file stands here, or one of another topic. "
            "Nothing was changed; where the partition has other replicas, this one is fetched from its leader again. Else "
            "stop the broker, and if the records in this folder are those of the topic, write its id here and remove the "
            "lines behind it; if they are not, restore the folder, or move this one away and run `replog log "
            f"repair {folder} --accept-loss`"
        )
        self._logs.quarantine(*place, CorruptCheckpointError(f"{folder}/{PARTITION_METADATA_FILE}", 2, reason))


def tell_set_aside(place: tuple[str, int], path: str | None, topic_id: UUID | None = None) -> None:
    """Writes to the log where a replica is kept that the metadata do not name.

    Args:
        place: Topic and partition.
        path: Its folder now; None: it is gone.
        topic_id: The topic id in the folder; None: it has none, or it does not matter.
    """
    kept = "its folder is gone" if path is None else f"its data is kept in {path}, remove it if it is not needed"
    of_topic = "" if topic_id is None else f" (of the topic with the id {uuid_to_text(topic_id)})"
    _log.warning("%s-%d: this broker has no such replica any more%s; %s", *place, of_topic, kept)


def is_new_replica(before: MetadataImage, local: LocalPartition, broker_id: int) -> bool:
    """Whether the replica came to this broker with the image after `before`: then no disk can hold it yet.

    The first image does not tell: it holds all changes of the past.
    """
    if not before.brokers:
        return False
    known = before.partition(local.topic_id, local.partition_id)
    return known is None or broker_id not in known.replicas
