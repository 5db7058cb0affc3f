"""The timeline of a partition: read from the files of a metadata log on this machine, which no broker is asked for.

Clients are told the newest image only; what was before stands in the log of each node.  So there is a timeline where a broker
has started the console, or it was told the folder of one.  The last records need not be committed: a node alone cannot tell.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Final

from aiohttp import web

from replog.cli.metadata.log import MetadataLogFiles
from replog.console.asking import answered, number_of, text_of
from replog.console.context import CONTEXT
from replog.console.partition_history import PartitionHistory
from replog.errors import InvalidRequestError, UnknownTopicOrPartitionError
from replog.rpc.metadata_records import decode_metadata_record

RECORDS_MAX: Final = 500_000
"""Of the log that are looked through; of a longer one what follows a newer snapshot."""

READ_S: Final = 10.0

PARTITION_MAX: Final = 2**31 - 1


async def timeline(request: web.Request) -> web.Response:
    """Tells the changes of one partition, with their reasons, the oldest first."""
    context = request.app[CONTEXT]
    folder = context.settings.metadata_dir
    topic, partition = text_of(request, "topic"), number_of(request, "partition", high=PARTITION_MAX)
    if folder is None:
        raise InvalidRequestError(
            "this console has no metadata log to read: let a broker start it (console.listener), or name the folder of a "
            "node on this machine with --metadata-dir"
        )
    async with context.metadata_reader:
        reading = asyncio.get_running_loop().run_in_executor(None, history_of, folder, topic, partition)
        return answered(await _to_its_end(reading))


def history_of(folder: Path, topic: str, partition: int) -> dict[str, object]:
    """Reads the history of a partition; blocks for at most `READ_S` and a batch.

    Raises:
        UnknownTopicOrPartitionError: The metadata log knows no such partition.
        CorruptRecordError, InconsistentMetadataError: It cannot be read.
    """
    deadline_s = time.monotonic() + READ_S
    files = MetadataLogFiles(folder)
    found = files.image_at().topics_by_name.get(topic)
    if found is None or partition not in found.partitions:
        raise UnknownTopicOrPartitionError(f"the metadata log in {folder} knows no {topic}-{partition}")
    start = start_offset([each.end_offset for each in files.snapshots], files.log_start_offset, files.end_offset)
    history, is_late = PartitionHistory(found.topic_id, partition, files.image_at(start)), False
    for batch in files.batches(start):
        if not batch.is_control:
            history.take(
                (record.offset, record.timestamp, decode_metadata_record(record.value, offset=record.offset))
                for record in batch.records
                if record.offset >= start
            )
        if time.monotonic() > deadline_s:
            is_late = True
            break
    return {
        "topic": topic,
        "partition": partition,
        "start_offset": start,
        "end_offset": files.end_offset,
        "is_late": is_late,
        "left_out_count": history.changes_count - len(history.moments),
        "moments": list(history.moments),
    }


def start_offset(snapshots: list[int], log_start: int, log_end: int) -> int:
    """Returns the offset to begin at: as early as there is an image, and at most `RECORDS_MAX` before the end if a snapshot allows it."""
    first = [0] if log_start == 0 else []
    places = [*first, *(each for each in snapshots if each >= log_start)]
    near = [each for each in places if log_end - each <= RECORDS_MAX]
    return min(near, default=max(places, default=log_start))


async def _to_its_end(reading: asyncio.Future[dict[str, object]]) -> dict[str, object]:
    """Waits for a thread; one whose asker has gone is waited for all the same, so that there is one at a time."""
    try:
        return await asyncio.shield(reading)
    except asyncio.CancelledError:
        await asyncio.wait({reading})
        raise
