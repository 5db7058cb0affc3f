"""Where the metadata shell gets its trees from: the files of a node, or a running one.

What only files have: images of the past, the quorum's own state, snapshots.  A running node answers clients with its
newest image, and leaves out what clients have no use for (log directories, incarnations, controllers, features).
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import replog_checkpoints as checkpoints
from replog.cli import common
from replog.cli.errors import CommandFailedError, UsageError
from replog.cli.metadata.log import MetadataLogFiles
from replog.log.snapshots.files import read_context
from replog.metadata.tree import Folder, Leaf, Node, folder, image_tree, plain, record_leaf
from replog.records import ControlRecordType, control_record_type, decode_leader_change, decode_voters
from replog.rpc.metadata_messages import ClusterMetadata, PartitionInfo, TopicInfo
from replog_checkpoints import OsFileSystem


class Source(Protocol):
    """Gives trees.

    Attributes:
        hint: The words to add where something is looked for that is not there; may be empty.
    """

    hint: str

    def refresh(self) -> None:
        """Looks again: what is newest may have changed."""

    def newest_offset(self) -> int:
        """Returns the offset of the newest image."""

    def tree(self, offset: int | None) -> Node:
        """Returns the tree at an offset; None: the newest.

        Raises:
            ReplogError: There is no tree at the offset, or it cannot be read.
        """


class OfflineSource:
    """The files of one node, running or not."""

    hint = ""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._files = MetadataLogFiles(path)

    def refresh(self) -> None:
        self._files = MetadataLogFiles(self._path)

    def newest_offset(self) -> int:
        return self._files.end_offset

    def tree(self, offset: int | None) -> Node:
        files = self._files
        children = image_tree(files.image_at(offset))
        children["quorum"] = _quorum(files)
        children["local"] = _local(files, offset)
        return folder(children)


class LiveSource:
    """The newest image of whichever of the brokers answers."""

    hint = ". A running node shows what clients are told: brokers, topics and their configs; use --data-dir for more"

    def __init__(self, bootstrap_servers: str) -> None:
        self._bootstrap_servers = bootstrap_servers
        self.refresh()

    def refresh(self) -> None:
        self._metadata = common.ask(self._bootstrap_servers, lambda admin: admin.describe_cluster())

    def newest_offset(self) -> int:
        return self._metadata.metadata_offset

    def tree(self, offset: int | None) -> Node:
        if offset is not None:
            raise UsageError(
                "OFFSET", offset, "a running node shows its newest image only: use --data-dir for the past and for diff"
            )
        return folder(cluster_tree(self._metadata))


def cluster_tree(metadata: ClusterMetadata) -> dict[str, Node]:
    """Makes a tree of what clients are told; what is in `replog.metadata.tree.image_tree` too has its paths."""
    configs: dict[str, Node] = {
        topic.name: {entry.name: entry.value for entry in topic.configs} for topic in metadata.topics if topic.configs
    }
    quorum: Leaf = {"controller_id": metadata.controller_id, "controller_epoch": metadata.controller_epoch}
    return {
        "brokers": folder({str(broker.broker_id): record_leaf(broker) for broker in metadata.brokers}),
        "topics": folder(
            {
                "by-name": folder({topic.name: _topic(topic) for topic in metadata.topics}),
                "by-id": folder({str(topic.topic_id): _topic(topic) for topic in metadata.topics}),
            }
        ),
        "configs": folder({"topic": folder(configs)}),
        "quorum": folder({"state": quorum}),
        "local": {"cluster_id": metadata.cluster_id, "metadata_offset": metadata.metadata_offset},
    }


def _topic(topic: TopicInfo) -> Folder:
    own: Leaf = {"name": topic.name, "topic_id": str(topic.topic_id)}
    partitions = sorted(topic.partitions, key=lambda partition: partition.partition_id)
    return folder({"topic": own} | {str(partition.partition_id): _without_id(partition) for partition in partitions})


def _without_id(partition: PartitionInfo) -> Leaf:
    return {name: value for name, value in record_leaf(partition).items() if name != "partition_id"}


def _quorum(files: MetadataLogFiles) -> Folder:
    makers: dict[str, Callable[[], Node | None]] = {
        "state": lambda: _quorum_state(files),
        "log": lambda: _log(files),
        "voters": lambda: _voters(files),
        "snapshots": lambda: _snapshots(files),
    }

    def child(name: str) -> Node | None:
        return makers[name]() if name in makers else None

    return Folder(lambda: makers, child)


def _quorum_state(files: MetadataLogFiles) -> Leaf:
    try:
        state = checkpoints.read_quorum_state(OsFileSystem(), str(files.directory / checkpoints.QUORUM_STATE_FILE))
    except checkpoints.DamagedCheckpointError as error:
        raise CommandFailedError(str(error)) from error
    return {} if state is None else record_leaf(state)


def _log(files: MetadataLogFiles) -> Leaf:
    return {
        "log_start_offset": files.log_start_offset,
        "end_offset": files.end_offset,
        "first_image_offset": files.first_offset,
    }


def _voters(files: MetadataLogFiles) -> Leaf:
    """Returns the voters of the newest control record that names any, committed or not, as for the quorum itself."""
    found: Any = ()
    if files.snapshots:
        found = read_context(OsFileSystem(), files.snapshot_path(files.snapshots[-1])).voters
    for batch in files.batches(files.snapshots[-1].end_offset if files.snapshots else 0):
        for record in batch.records if batch.is_control else ():
            match control_record_type(record):
                case ControlRecordType.KRAFT_VOTERS:
                    found = decode_voters(record)
                case ControlRecordType.LEADER_CHANGE if not found:
                    found = decode_leader_change(record).voters
                case _:
                    pass
    return {"voters": plain(found)}


def _snapshots(files: MetadataLogFiles) -> Folder:
    by_name = {snapshot.stem: snapshot for snapshot in files.snapshots}

    def child(name: str) -> Node | None:
        snapshot = by_name.get(name)
        if snapshot is None:
            return None
        context = read_context(OsFileSystem(), files.snapshot_path(snapshot))
        return {
            "end_offset": snapshot.end_offset,
            "epoch": snapshot.epoch,
            "size_bytes": files.snapshot_size_bytes(snapshot),
            "last_contained_timestamp_ms": context.last_contained_timestamp_ms,
        }

    return Folder(lambda: by_name, child)


def _local(files: MetadataLogFiles, offset: int | None) -> Leaf:
    found: dict[str, Any] = {
        "directory": str(files.directory),
        "image_offset": files.end_offset if offset is None else offset,
    }
    try:
        path = files.directory.parent / checkpoints.META_PROPERTIES_FILE
        meta = checkpoints.read_meta_properties(OsFileSystem(), str(path))
    except checkpoints.DamagedCheckpointError as error:
        return found | {"meta_properties": str(error)}
    if meta is not None:
        found |= {name: plain(value) for name, value in record_leaf(meta).items() if name != "extra"}
    return found
