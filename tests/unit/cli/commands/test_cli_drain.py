"""`replog brokers drain` says what cannot happen, and does not wait for it."""

from __future__ import annotations

from uuid import UUID

import pytest

from replog.cli.commands.brokers import require_room
from replog.cli.errors import CommandFailedError
from replog.rpc.metadata_messages import BrokerInfo, ClusterMetadata, PartitionInfo, TopicInfo


def cluster(*brokers: int, replicas: tuple[int, ...], drained: tuple[int, ...] = ()) -> ClusterMetadata:
    infos = tuple(BrokerInfo(b, "h", 9092, 1, fenced=False, rack=None, drained=b in drained) for b in brokers)
    topic = TopicInfo("t", UUID(int=1), (PartitionInfo(0, replicas[0], 0, 0, replicas, replicas),), ())
    return ClusterMetadata("c", 1, 1, 1, infos, (topic,))


def test_replicas_that_no_other_broker_can_take() -> None:
    with pytest.raises(CommandFailedError, match=r"1 replica of it can go nowhere.*the 2 others"):
        require_room(cluster(1, 2, 3, replicas=(1, 2, 3)), 3)
    with pytest.raises(CommandFailedError, match="the 2 others"):
        require_room(cluster(1, 2, 3, 4, replicas=(1, 2, 3), drained=(3, 4)), 3)


def test_replicas_that_have_somewhere_to_go() -> None:
    require_room(cluster(1, 2, 3, 4, replicas=(1, 2, 3)), 3)
    require_room(cluster(1, 2, 3, replicas=(1, 2)), 3)
