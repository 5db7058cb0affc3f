"""The log lines about partitions of a broker: elections, changes of the ISR, truncations, each with its reason.

The parts of the line are beside it, for log collectors (`log_output`).
"""

from __future__ import annotations

import logging

from replog.metadata.registrations import PartitionRegistration
from replog.replication.messages import IsrChanged, PartitionState, TruncateFullyAndStartAt, TruncateTo

_log = logging.getLogger(__name__)


class IsrChanges:
    """Counts since the start; a change that does both counts in both.

    Attributes:
        shrinks: The number of changes that removed members.
        expands: The number of changes that added members.
    """

    def __init__(self) -> None:
        self.shrinks = 0
        self.expands = 0

    def note(self, name: str, change: IsrChanged) -> None:
        """Counts and logs that a partition's committed ISR has other members.

        Args:
            name: The partition's name, such as flights-0.
            change: The members before and now, and the reason.
        """
        before, after = set(change.before), set(change.isr)
        self.shrinks += bool(before - after)
        self.expands += bool(after - before)
        isr_changed(name, change)


def leads(partition: str, state: PartitionState, log_end_offset: int, reason: str) -> None:
    """Writes to the log that this broker begins to lead."""
    epoch, isr = state.leader_epoch, list(state.isr)
    _log.info(
        "%s: leads in epoch %d from offset %d, ISR %s: %s", partition, epoch, log_end_offset, isr, reason,
        extra=_parts("leads", partition, reason, leader_epoch=epoch, log_end_offset=log_end_offset, isr=isr),
    )  # fmt: skip


def leads_on(partition: str, leader_epoch: int, reason: str) -> None:
    """Writes to the log that this broker was elected again."""
    _log.info(
        "%s: leads on in epoch %d: %s", partition, leader_epoch, reason,
        extra=_parts("leads_on", partition, reason, leader_epoch=leader_epoch),
    )  # fmt: skip


def follows(partition: str, registration: PartitionRegistration, reason: str) -> None:
    """Writes to the log that another broker leads."""
    leader, epoch = registration.leader, registration.leader_epoch
    _log.info(
        "%s: follows broker %d in epoch %d: %s", partition, leader, epoch, reason,
        extra=_parts("follows", partition, reason, leader=leader, leader_epoch=epoch),
    )  # fmt: skip


def has_no_leader(partition: str, leader_epoch: int, reason: str) -> None:
    """Writes to the log that the partition has no leader any more."""
    _log.warning(
        "%s: has no leader in epoch %d: %s", partition, leader_epoch, reason,
        extra=_parts("no_leader", partition, reason, leader_epoch=leader_epoch),
    )  # fmt: skip


def isr_changed(partition: str, change: IsrChanged) -> None:
    """Writes to the log that the committed ISR has other members; only the leader of the partition does so."""
    isr, before, reason = list(change.isr), list(change.before), change.reason
    _log.info(
        "%s: ISR %s, was %s: %s", partition, isr, before, reason,
        extra=_parts("isr", partition, reason, isr=isr, isr_before=before),
    )  # fmt: skip


def truncated(partition: str, log_end_offset: int, cut: TruncateTo) -> None:
    """Writes to the log that a follower cuts records that the leader does not have; `log_end_offset` is the end before."""
    offset, reason = cut.offset, cut.reason
    _log.info(
        "%s: truncated from %d to %d: %s", partition, log_end_offset, offset, reason,
        extra=_parts("truncated", partition, reason, offset=offset, log_end_offset=log_end_offset),
    )  # fmt: skip


def starts_again(partition: str, log_start_offset: int, log_end_offset: int, cut: TruncateFullyAndStartAt) -> None:
    """Writes to the log that a follower drops its whole log; the offsets are those before."""
    offset, reason = cut.offset, cut.reason
    _log.warning(
        "%s: all of %d to %d is dropped, starts again at %d: %s", partition, log_start_offset, log_end_offset, offset,
        reason,
        extra=_parts(
            "starts_again", partition, reason,
            offset=offset, log_start_offset=log_start_offset, log_end_offset=log_end_offset,
        ),
    )  # fmt: skip


def _parts(event: str, partition: str, reason: str, **values: object) -> dict[str, object]:
    return {"event": event, "partition": partition, **values, "reason": reason}
