"""Why a partition has another leader, as far as the metadata tells: for the line that a broker logs about it.

The controller writes only the outcome of its decision.  The reason follows from what has happened to the leader before.
"""

from __future__ import annotations

from replog.metadata.image import MetadataImage
from replog.metadata.records import LeaderRecoveryState
from replog.metadata.registrations import PartitionRegistration

NOBODY = -1


def election_reason(before: PartitionRegistration | None, now: PartitionRegistration, image: MetadataImage) -> str:
    """Says in a few words why a partition has the leader that it has now.

    Args:
        before: The registration that this broker acted on until now; None: it has just started, or this is a new one.
        now: The registration that the metadata in force has.
        image: The brokers as they are now.
    """
    if now.leader != NOBODY and now.leader_recovery_state is LeaderRecoveryState.RECOVERING:
        return "elected uncleanly, acknowledged records may be lost"
    if before is None:
        return "as this broker opens its replica"
    if before.leader == NOBODY:
        return "there was no leader"
    if before.leader == now.leader:
        return f"broker {now.leader} was elected again"
    broker = image.brokers.get(before.leader)
    if broker is None:
        return f"broker {before.leader} is not registered any more"
    if broker.fenced:
        return f"broker {before.leader} is fenced"
    if broker.in_controlled_shutdown:
        return f"broker {before.leader} is shutting down"
    if before.leader not in now.isr:
        return f"broker {before.leader} is out of the ISR"
    return f"broker {before.leader} gave it up"
