"""The tagged fields that replog adds to messages of Kafka's: whoever does not know them skips them (KIP-482).

Kafka's own tags count up from 0.  Each struct that has some begins at `FIRST_TAG`.
"""

from __future__ import annotations

from typing import Any

FIRST_TAG = 10_000

_TEXT = ("ErrorMessage", "string", "")
_REQUEST_CODE = ("RequestErrorCode", "int16", 0)
_TOPIC_ID = ("TopicId", "uuid", None)
_TIMEOUT = ("TimeoutMs", "int32", 0)
_NAMED_TOPIC_ID = ("NamedTopicId", "uuid", None)
"""Beside a name, where a later version has an id in its place."""

PRIVATE_FIELDS: dict[str, dict[str, tuple[tuple[str, str, Any], ...]]] = {
    "RequestHeader": {"": (("ClusterId", "string", "null"),)},
    "ApiVersionsResponse": {"": (_TEXT,)},
    "MetadataResponse": {"": (_TEXT,)},
    "FetchRequest": {"": (("OffsetsOnly", "bool", "false"),)},
    "FetchResponse": {
        "PartitionData": (_TEXT, ("StartOffset", "int64", -1), ("EndOffset", "int64", -1), ("SizeBytes", "int64", -1))
    },
    "ListOffsetsRequest": {"ListOffsetsTopic": (_TOPIC_ID,), "ListOffsetsPartition": (("FromOffset", "int64", 0),)},
    "ListOffsetsResponse": {"ListOffsetsPartitionResponse": (_TEXT,)},
    "OffsetForLeaderEpochRequest": {"OffsetForLeaderTopic": (_TOPIC_ID,)},
    "OffsetForLeaderEpochResponse": {"EpochEndOffset": (_TEXT,)},
    "DeleteRecordsRequest": {"DeleteRecordsTopic": (_TOPIC_ID,)},
    "DeleteRecordsResponse": {"DeleteRecordsPartitionResult": (_TEXT,)},
    "InitProducerIdResponse": {"": (_TEXT,)},
    "IncrementalAlterConfigsRequest": {"": (_TIMEOUT,)},
    "AlterConfigsRequest": {"": (_TIMEOUT,)},
    "AlterReplicaLogDirsResponse": {"AlterReplicaLogDirPartitionResult": (_TEXT,)},
    "ElectLeadersResponse": {"": (_TEXT,)},
    "UnregisterBrokerRequest": {"": (_TIMEOUT,)},
    "RemoveRaftVoterRequest": {"": (_TIMEOUT,)},
    "OffsetCommitRequest": {"OffsetCommitRequestTopic": (_NAMED_TOPIC_ID,)},
    "OffsetCommitResponse": {"": (_REQUEST_CODE, _TEXT), "OffsetCommitResponsePartition": (_TEXT,)},
    "OffsetFetchRequest": {"OffsetFetchRequestTopics": (_NAMED_TOPIC_ID, ("IsAnyTopic", "bool", "false"))},
    "OffsetFetchResponse": {
        "OffsetFetchResponseGroup": (_TEXT,),
        "OffsetFetchResponseTopics": (_NAMED_TOPIC_ID,),
        "OffsetFetchResponsePartitions": (("CommitTimestamp", "int64", 0),),
    },
    "DeleteGroupsResponse": {"DeletableGroupResult": (_TEXT, ("MayBeDone", "bool", "false"))},
    "ListGroupsResponse": {"": (_TEXT,)},
}
"""By message and struct ("": the message itself): name, type and default of each field, in the order of their tags."""


def add_private_fields(found: dict[str, Any]) -> None:
    """Adds the fields to definitions by name, in place.  Raises: KeyError: Kafka has no such message or struct."""
    for message, structs in PRIVATE_FIELDS.items():
        definition = found[message]
        for struct, fields in structs.items():
            place = _struct_fields(definition["fields"], struct) if struct else definition["fields"]
            if place is None:
                raise KeyError(f"{message} has no struct {struct}")
            flexible = definition["flexibleVersions"]
            for tag, (name, kind, default) in enumerate(fields, FIRST_TAG):
                field = {"name": name, "type": kind, "versions": flexible, "taggedVersions": flexible, "tag": tag}
                if default == "null":
                    field["nullableVersions"] = flexible
                place.append(field if default is None else field | {"default": default})


def _struct_fields(fields: list[dict[str, Any]], struct: str) -> list[dict[str, Any]] | None:
    for each in fields:
        if "fields" in each:
            if each["type"].removeprefix("[]") == struct:
                inner: list[dict[str, Any]] = each["fields"]
                return inner
            if (found := _struct_fields(each["fields"], struct)) is not None:
                return found
    return None
