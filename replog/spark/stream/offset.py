"""What Spark keeps of a stream between two batches: an offset as JSON, version 1.

Spark stores the end of each batch in its checkpoint, as text, and compares offsets as text.  The start of batch 0 it
does not store: after a crash it would ask for it anew, and "latest" would be another one by then.  So the end of every
batch carries its own start, `from`, and a batch that is planned again reads the same offsets as the first time.

::

    {
        "v": 1,
        "cluster": "pEzk...",
        "metadata": 5120,
        "from": {...},
        "to": {"rides": {"id": "6f1c...", "offsets": {"0": 123}, "epochs": {"0": 4}}},
    }

An offset is the next one to read.  The id tells a topic from a later one of the same name; the leader epoch is that of the
leader that told the offset, by which a later leader says whether it has the same records.  A broker that has just been started
tells metadata of the past: a topic that is missing there counts as deleted only when they are up to `metadata`, the metadata
offset of the time of planning; checkpoints of older versions lack it.  A batch that was planned over a loss, which
`failOnDataLoss` "false" allows, has `lost`, words for it.  An offset without `from` begins a
query: as the end of a batch it is empty.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import groupby
from typing import Any, NamedTuple, NoReturn
from uuid import UUID

from msgspec import Struct

from replog.client.types import TopicPartition
from replog.errors import ConfigError

VERSION = 1
MAX_SHOWN_CHARACTERS = 200
"""Of an offset that cannot be read, in the error."""


class Place(NamedTuple):
    """Where a stream stands in one partition: `offset` is the next one to read."""

    topic_id: UUID
    offset: int
    leader_epoch: int


Places = Mapping[TopicPartition, Place]


class StreamOffset(Struct, frozen=True):
    """The end of one batch, and its start.

    Attributes:
        cluster_id: The cluster that the places are of.
        end: The places after the batch.
        start: The places before it; None where a query begins.
        metadata_offset: The offset of the metadata by which it was planned; -1: not known.
        lost: What the batch was planned over, in words; "": nothing is lost.
    """

    cluster_id: str
    end: Places
    start: Places | None = None
    metadata_offset: int = -1
    lost: str = ""


def to_json(offset: StreamOffset) -> dict[str, Any]:
    """Returns the offset as Spark keeps it: equal offsets give equal text."""
    written: dict[str, Any] = {"v": VERSION, "cluster": offset.cluster_id}
    if offset.metadata_offset >= 0:
        written["metadata"] = offset.metadata_offset
    if offset.lost:
        written["lost"] = offset.lost
    if offset.start is not None:
        written["from"] = places_to_json(offset.start)
    return {**written, "to": places_to_json(offset.end)}


def places_to_json(places: Places) -> dict[str, Any]:
    """Returns places by topic and partition, in order."""
    written = {}
    for topic, entries in groupby(sorted(places.items()), key=lambda entry: entry[0].topic):
        members = [(str(partition.partition), place) for partition, place in entries]
        written[topic] = {
            "id": str(members[0][1].topic_id),
            "offsets": {partition: place.offset for partition, place in members},
            "epochs": {partition: place.leader_epoch for partition, place in members},
        }
    return written


def from_json(value: object) -> StreamOffset:
    """Returns the offset that Spark kept.

    Raises:
        ConfigError: It is of another version, or no offset of this data source.
    """
    if not isinstance(value, dict) or "v" not in value:
        _refuse(value, "no offset of a replog stream")
    if value["v"] != VERSION:
        raise ConfigError(
            "checkpointLocation",
            value["v"],
            f"the checkpoint has offsets of version {value['v']!r}, and this replog reads version {VERSION}. Run the query with "
            "the replog that wrote it, or give another checkpointLocation, with startingOffsets.",
        )
    cluster_id = value.get("cluster")
    if not isinstance(cluster_id, str):
        _refuse(value, "cluster is missing")
    start, end = _places(value, "from") if "from" in value else None, _places(value, "to")
    if ended := sorted((start or {}).keys() - end.keys()):
        _refuse(value, f'"from" has {ended[0]}, which "to" lacks')
    lost = value.get("lost", "")
    if not isinstance(lost, str):
        _refuse(value, '"lost" is damaged')
    return StreamOffset(cluster_id, end, start, _metadata_offset(value), lost)


def _metadata_offset(value: dict[str, Any]) -> int:
    try:
        return _number(value.get("metadata", -1))
    except ValueError as error:
        _refuse(value, f'"metadata" is damaged ({error})')


def _places(value: dict[str, Any], side: str) -> dict[TopicPartition, Place]:
    try:
        return {
            TopicPartition(topic, int(partition)): Place(
                UUID(entry["id"]), _number(offset), _number(entry["epochs"][partition])
            )
            for topic, entry in value[side].items()
            for partition, offset in entry["offsets"].items()
        }
    except (KeyError, ValueError, TypeError, AttributeError) as error:
        _refuse(value, f'"{side}" is damaged ({error!r})')


def _number(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < -1:
        raise ValueError(f"{value!r} is no offset")
    return value


def _refuse(value: object, problem: str) -> NoReturn:
    text = repr(value)
    shown = text if len(text) <= MAX_SHOWN_CHARACTERS else f"{text[:MAX_SHOWN_CHARACTERS]}..."
    raise ConfigError(
        "checkpointLocation",
        shown,
        f"the checkpoint has {shown}: {problem}. Give the query's own checkpointLocation, or a new one.",
    )
