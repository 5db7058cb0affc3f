"""Quorum state: what a node of the metadata quorum may not forget, one file in `__cluster_metadata-0/`.

Why: a node that forgets its vote can vote twice in one epoch, and then two leaders can be elected (Raft 5.2).  The file
is written and fsynced before the reply that depends on it is sent.

A complete file `quorum-state`, version 1 (voters are in the log, KIP-853): one line, no newline at the end::

    {
        "leaderId": -1,
        "leaderEpoch": 6,
        "votedId": 2,
        "votedDirectoryId": "AQIDBAUGBwgREhMUFRYXGA",
        "data_version": 1,
        "checksum": "1c291ca3",
    }

(the checksum is ours, because a digit that flips in an epoch makes another one: CRC-32 of what Kafka would write; Kafka's
reader passes over a field that it does not know, and a file without the field is believed)

A node that has known of other voters says so, in a field of ours before `data_version`: `"otherVoters": 1`.  What is left of a log that was
cut may name none.

and version 0 (voters are configured; `clusterId` and `appliedOffset` are always empty and 0)::

    {
        "clusterId": "",
        "leaderId": 1,
        "leaderEpoch": 5,
        "votedId": -1,
        "appliedOffset": 0,
        "currentVoters": [{"voterId": 1}],
        "data_version": 0,
    }

-1 and the all-zero uuid mean "none".

| crash                                            | what the next start finds                               |
|--------------------------------------------------|---------------------------------------------------------|
| before the rename                                | the old file: nothing that needed the new one was sent  |
| after the rename, before the fsync of the folder | old or new, both complete; still nothing was sent       |
| after the fsync of the folder                    | the new file                                            |

Absent means "never took part in an election"; damaged means the node must not start.  Source: docs/KAFKA.md 1.11, 5.1.
"""

from __future__ import annotations

import re
import zlib
from typing import Final
from uuid import UUID

from msgspec import Struct

from replog_checkpoints.atomic_file import read_file, replace_file
from replog_checkpoints.entry_lines import INT32_MAX
from replog_checkpoints.filesystem import FileSystem
from replog_checkpoints.json_object import JSON_SIZE_BYTES_MAX, JsonObject, format_object
from replog_checkpoints.uuid_text import ZERO_UUID, uuid_from_text, uuid_to_text

QUORUM_STATE_FILE: Final = "quorum-state"
_NONE_ID: Final = -1
_VERSION_MAX: Final = 1
_OTHERS: Final = "otherVoters"
_CHECKSUM: Final = re.compile(rb'(?s)(.*),"checksum":"([0-9a-f]{8})"\}')


class QuorumState(Struct, frozen=True):
    """Leader, epoch and vote of one node.

    Attributes:
        leader_id: Leader of `leader_epoch`, None while unknown.
        leader_epoch: The highest epoch this node has seen, from 0.
        voted_id: The voter that this node voted for in `leader_epoch`.  May be set together with `leader_id`.
        voted_directory_id: The log directory of that voter (version 1 only), None where unknown.
        current_voters: The configured voters (version 0 only), in the order they are written.
        data_version: The shape of the file, 0 or 1.
        names_others: Whether the log has named another voter (version 1 only).

    Raises:
        ValueError: A field is out of range, or the version cannot hold it.
    """

    leader_id: int | None
    leader_epoch: int
    voted_id: int | None
    voted_directory_id: UUID | None = None
    current_voters: tuple[int, ...] = ()
    data_version: int = _VERSION_MAX
    names_others: bool = False

    def __post_init__(self) -> None:
        _check_range("leader_epoch", self.leader_epoch, INT32_MAX)
        _check_range("data_version", self.data_version, _VERSION_MAX)
        for node_id in (self.leader_id, self.voted_id, *self.current_voters):
            if node_id is not None:
                _check_range("node id", node_id, INT32_MAX)
        if self.data_version == 0 and self.voted_directory_id is not None:
            raise ValueError("version 0 has no voted_directory_id")
        if self.data_version == 1 and self.current_voters:
            raise ValueError("version 1 has no current_voters")
        if self.voted_directory_id is not None and (self.voted_id is None or self.voted_directory_id == ZERO_UUID):
            raise ValueError("voted_directory_id needs a voted_id, and is None rather than zero")
        if len(set(self.current_voters)) != len(self.current_voters):
            raise ValueError(f"current_voters names a voter twice: {self.current_voters}")


def read_quorum_state(fs: FileSystem, path: str) -> QuorumState | None:
    """Reads the state, of either version; returns None when there is no file.

    Raises:
        CorruptCheckpointError: The file is damaged, or of a version newer than 1.
    """
    data = read_file(fs, path, JSON_SIZE_BYTES_MAX)
    if data is None:
        return None
    document = JsonObject(path, data)
    if document.has("checksum") and not _is_whole(data):
        raise document.corrupt("its checksum is wrong")
    data_version = document.number("data_version", 0, INT32_MAX)
    if data_version > _VERSION_MAX:
        raise document.corrupt(f"data_version {data_version} is not supported, only 0 and 1")
    try:
        return QuorumState(
            leader_id=_id_or_none(document, "leaderId"),
            leader_epoch=document.number("leaderEpoch", 0, INT32_MAX),
            voted_id=_id_or_none(document, "votedId"),
            voted_directory_id=_voted_directory_id(document) if data_version == 1 else None,
            current_voters=_voters(document) if data_version == 0 else (),
            data_version=data_version,
            names_others=document.has(_OTHERS),
        )
    except ValueError as error:  # a bad uuid, or fields that contradict each other
        raise document.corrupt(str(error)) from error


def write_quorum_state(fs: FileSystem, path: str, state: QuorumState) -> None:
    """Replaces the file; when this returns, the state survives a power cut."""
    leader_id = _NONE_ID if state.leader_id is None else state.leader_id
    voted_id = _NONE_ID if state.voted_id is None else state.voted_id
    fields: dict[str, object] = {"leaderId": leader_id, "leaderEpoch": state.leader_epoch, "votedId": voted_id}
    if state.data_version == 0:
        voters = [{"voterId": voter_id} for voter_id in state.current_voters]
        fields = {"clusterId": "", **fields, "appliedOffset": 0, "currentVoters": voters}
    else:
        fields["votedDirectoryId"] = uuid_to_text(state.voted_directory_id or ZERO_UUID)
        if state.names_others:
            fields[_OTHERS] = 1
    data = format_object({**fields, "data_version": state.data_version})
    replace_file(fs, path, data if state.data_version == 0 else _with_checksum(data))


def _with_checksum(data: bytes) -> bytes:
    return data[:-1] + b',"checksum":"%08x"}' % zlib.crc32(data)


def _is_whole(data: bytes) -> bool:
    match = _CHECKSUM.fullmatch(data)
    return match is not None and int(match[2], 16) == zlib.crc32(match[1] + b"}")


def _check_range(name: str, value: int, value_max: int) -> None:
    if not 0 <= value <= value_max:
        raise ValueError(f"{name} {value} is not from 0 to {value_max}")


def _id_or_none(document: JsonObject, name: str) -> int | None:
    value = document.number(name, _NONE_ID, INT32_MAX)
    return None if value == _NONE_ID else value


def _voted_directory_id(document: JsonObject) -> UUID | None:
    directory_id = uuid_from_text(document.text("votedDirectoryId"))
    return None if directory_id == ZERO_UUID else directory_id


def _voters(document: JsonObject) -> tuple[int, ...]:
    voters = document.objects("currentVoters")
    return tuple(document.as_number("voterId", voter.get("voterId"), 0, INT32_MAX) for voter in voters)
