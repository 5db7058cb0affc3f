"""What `replog transactions` prints: lines and tables for people, lines of JSON for scripts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from replog.cli import common
from replog.cli.views.groups import partitions_text, shown
from replog.cli.views.reassignments import time_text
from replog.client.admin.transactions import OPEN_STATES
from replog.coordinator.transactions.state import NO_TIMEOUT_MS
from replog.spark.sink.once.names import attempt_of

if TYPE_CHECKING:
    from rich.console import RenderableType

    from replog.client import HangingTransaction, TransactionDetails, TransactionListing
    from replog.spark.sink.once.settling import Ended


def listed(transactions: Sequence[TransactionListing]) -> Iterator[str]:
    """Describes transactional ids, one a line under a heading; plain text, since there may be many thousands."""
    rows = [("transactional id", "producer", "coordinator", "state")]
    rows += [
        (shown(each.transactional_id), str(each.producer_id), str(each.coordinator_id), shown(each.state))
        for each in transactions
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    for name, producer, coordinator, state in rows:
        yield f"{name:{widths[0]}}  {producer:>{widths[1]}}  {coordinator:>{widths[2]}}  {state}"


def described(found: TransactionDetails, now_ms: int) -> Iterator[str]:
    """Describes a transactional id, and the partitions of its transaction where it has any.

    Args:
        found: The transactional id.
        now_ms: The time in milliseconds since 1970.
    """
    words = [
        f"{shown(found.transactional_id)}: {shown(found.state)}",
        f"producer {found.producer_id} of epoch {found.producer_epoch}",
        f"coordinated by broker {found.coordinator_id}",
    ]
    if found.state in OPEN_STATES and found.start_ms >= 0:
        words.insert(1, f"open for {time_text(max(0, now_ms - found.start_ms) / 1000)}")
    is_prepared = found.state == "Ongoing" and found.timeout_ms == NO_TIMEOUT_MS
    end = "prepared: no time-out ends it" if is_prepared else f"aborted after {time_text(found.timeout_ms / 1000)}"
    yield ", ".join([*words, end])
    attempt = attempt_of(found.transactional_id)
    if attempt is not None:
        writer = shown(attempt.version.writer)
        yield f"  written by Spark, as version {attempt.version.number} of {writer}; `replog transactions abort --query {writer}` ends what it has open"
    if found.partitions:
        yield f"  {common.counted(len(found.partitions), 'partition')}: {partitions_text(found.partitions)}"


def as_json(found: TransactionDetails) -> str:
    """Returns a transactional id as one line of JSON."""
    partitions = [{"topic": each.topic, "partition": each.partition} for each in found.partitions]
    return common.json_line(found, partitions=partitions)


def aborted(found: TransactionDetails) -> str:
    """Says what has become of the transaction of a transactional id that was taken over."""
    count = common.counted(len(found.partitions), "partition")
    return f"the transaction of {shown(found.transactional_id)} in {count} is aborted; its producer is fenced: start that program anew"


def ended(writer: str, found: Ended) -> Iterator[str]:
    """Says what became of what a write of Spark's had left open."""
    if found.finished is not None:
        yield f"{found.finished} had been decided: all its rows are there now"
    versions = sorted({each.version.number for each in found.aborted})
    if versions:
        count = common.counted(len(found.aborted), "transaction")
        numbers = ", ".join(map(str, versions))
        yield (
            f"{count} of version {numbers} of {shown(writer)} aborted, which nobody had decided for: nothing of it is there. "
            "Whoever starts it again writes it anew"
        )
    if found.finished is None and not versions:
        yield f"{shown(writer)} has left nothing open"


def ended_json(writer: str, found: Ended) -> str:
    """Returns the same as one line of JSON."""
    finished = None if found.finished is None else found.finished.number
    return common.json_line(
        found, finished=finished, aborted=[each.transactional_id for each in found.aborted], writer=writer
    )


def hanging_table(found: Sequence[HangingTransaction]) -> RenderableType:
    """Renders hanging transactions."""
    from replog.cli.terminal.grid import Grid

    rows = [
        [
            f"{each.topic}-{each.partition}",
            f"{each.first_offset:,}",
            str(each.producer_id),
            str(each.producer_epoch),
            time_text(each.silent_ms / 1000),
            shown(each.transactional_id) or "-",
        ]
        for each in found
    ]
    headers = ("partition", ">start offset", ">producer", ">epoch", ">silent for", "transactional id")
    return Grid(headers, rows)


def abort_command(each: HangingTransaction) -> str:
    """Returns the command that ends a hanging transaction."""
    return f"replog transactions abort --partition {each.topic}-{each.partition} --start-offset {each.first_offset}"
