"""Where brokers serve Kafka's clients: kept from level 3 of `metadata.version` on, and told later by those that run already."""

from __future__ import annotations

import pytest
from controller_kit import Quorum
from msgspec.structs import replace

from replog.controller.requests import FeatureUpdate, Heartbeat, HeartbeatResponse, UpdateFeatures
from replog.errors import InvalidRequestError, StaleBrokerEpochError
from replog.metadata import MetadataDelta, MetadataImage, image_records
from replog.metadata.records import (
    CLIENT_LISTENER,
    BrokerEndpoint,
    BrokerRegistrationChangeRecord,
    FeatureLevelRecord,
    MetadataRecord,
)

KAFKA = BrokerEndpoint(CLIENT_LISTENER, "localhost", 19_092)
UPGRADE = UpdateFeatures((FeatureUpdate("metadata.version", 3),))
WRONG = [
    (replace(KAFKA, port=0),),
    (replace(KAFKA, port=65_536),),
    (replace(KAFKA, host=""),),
    (replace(KAFKA, host="h" * 256),),
    (replace(KAFKA, host="a b"),),
    (replace(KAFKA, name=""),),
    (replace(KAFKA, name="N" * 65),),
    (replace(KAFKA, name="KAF\nKA"),),
    (KAFKA, replace(KAFKA, port=5)),
    tuple(replace(KAFKA, name=f"L{number}") for number in range(17)),
]


@pytest.fixture
def quorum() -> Quorum:
    """One controller, and nobody else yet."""
    quorum = Quorum(1)
    quorum.claim(1)
    quorum.commit()
    return quorum


@pytest.fixture
def old_quorum(monkeypatch: pytest.MonkeyPatch) -> Quorum:
    """Nodes of this version in a cluster of the version before: broker 1 leads, 3 is eligible, 2 has to catch up."""
    monkeypatch.setattr(
        "replog.controller.state.features.FeatureControl.bootstrap_records",
        lambda _: (FeatureLevelRecord("metadata.version", 2),),
    )
    quorum = Quorum(1)
    quorum.claim(1)
    quorum.commit()
    for broker_id in (1, 2, 3):
        quorum.ask(replace(quorum.register_request(broker_id), endpoints=(KAFKA,)))
        quorum.heartbeat(broker_id)
    quorum.create("flights", 1, 2, 3, min_insync_replicas="2")
    for broker_id in (2, 3):
        quorum.heartbeat(broker_id, want_fence=True)
    quorum.heartbeat(2)
    quorum.heartbeat(3)
    assert (quorum.partition("flights").isr, quorum.partition("flights").elr) == ((1,), (3,))
    return quorum


def tell(quorum: Quorum, broker_id: int, *endpoints: BrokerEndpoint, **wishes: bool) -> HeartbeatResponse:
    """A heartbeat that tells endpoints."""
    epoch = quorum.broker_epoch(broker_id)
    answer = quorum.ask(Heartbeat(broker_id, epoch, quorum.image.end_offset, endpoints=endpoints, **wishes))
    assert isinstance(answer, HeartbeatResponse)
    return answer


def told_since(quorum: Quorum, batches_count: int) -> list[MetadataRecord]:
    return [record for batch in quorum.log[batches_count:] for record in batch.records]


# ---- a cluster of the newest level -------------------------------------------------------------------------------------


def test_a_registration_holds_the_endpoints_and_a_snapshot_keeps_them(quorum: Quorum) -> None:
    quorum.ask(replace(quorum.register_request(1), endpoints=(KAFKA,)))
    assert quorum.image.brokers[1].endpoint(CLIENT_LISTENER) == KAFKA
    delta = MetadataDelta(MetadataImage())
    for record in image_records(quorum.image):
        delta.replay(record)
    assert delta.apply(quorum.image.end_offset, 1).brokers[1].endpoints == (KAFKA,)


def test_a_new_incarnation_says_anew_where_it_serves(quorum: Quorum) -> None:
    quorum.ask(replace(quorum.register_request(1), endpoints=(KAFKA,)))
    quorum.ask(replace(quorum.register_request(1, incarnation=2), endpoints=(replace(KAFKA, port=7),)))
    assert quorum.image.brokers[1].endpoints == (replace(KAFKA, port=7),)
    quorum.ask(quorum.register_request(1, incarnation=3))
    assert quorum.image.brokers[1].endpoints == ()


@pytest.mark.parametrize("endpoints", WRONG)
def test_endpoints_that_cannot_be_are_refused(quorum: Quorum, endpoints: tuple[BrokerEndpoint, ...]) -> None:
    quorum.start(2)
    batches_count = len(quorum.log)
    with pytest.raises(InvalidRequestError, match="broker 1"):
        quorum.ask(replace(quorum.register_request(1), endpoints=endpoints))
    with pytest.raises(InvalidRequestError, match="broker 2"):
        tell(quorum, 2, *endpoints)
    assert len(quorum.log) == batches_count


# ---- a cluster that is upgraded -----------------------------------------------------------------------------------------


def test_below_the_level_no_endpoint_is_written(old_quorum: Quorum) -> None:
    quorum = old_quorum
    batches_count = len(quorum.log)
    tell(quorum, 1, KAFKA)
    quorum.ask(replace(quorum.register_request(1), endpoints=(KAFKA,)))  # the answer was lost
    assert told_since(quorum, batches_count) == []
    assert all(broker.endpoints == () for broker in quorum.image.brokers.values())


def test_a_broker_tells_its_endpoints_once_and_keeps_everything_else(old_quorum: Quorum) -> None:
    """Epoch, leaderships, ISR and ELR: in another registration it might look like a restart."""
    quorum = old_quorum
    quorum.ask(UPGRADE)
    before, partition, batches_count = quorum.image.brokers, quorum.partition("flights"), len(quorum.log)
    for broker_id in (1, 2, 3):
        assert not tell(quorum, broker_id, KAFKA).is_fenced
        tell(quorum, broker_id, KAFKA)
    assert told_since(quorum, batches_count) == [
        BrokerRegistrationChangeRecord(broker_id, before[broker_id].broker_epoch, endpoints=(KAFKA,))
        for broker_id in (1, 2, 3)
    ]
    assert quorum.partition("flights") == partition
    for broker_id, broker in quorum.image.brokers.items():
        assert broker == replace(before[broker_id], endpoints=(KAFKA,))


def test_a_heartbeat_without_endpoints_takes_none_away(old_quorum: Quorum) -> None:
    quorum = old_quorum
    quorum.ask(UPGRADE)
    tell(quorum, 1, KAFKA)
    quorum.heartbeat(1)
    assert quorum.image.brokers[1].endpoints == (KAFKA,)


def test_a_process_that_was_replaced_tells_nothing(old_quorum: Quorum) -> None:
    quorum = old_quorum
    late = Heartbeat(1, quorum.broker_epoch(1), quorum.image.end_offset, endpoints=(KAFKA,))
    quorum.ask(UPGRADE)
    quorum.register(1, incarnation=2)
    with pytest.raises(StaleBrokerEpochError):
        quorum.ask(late)
    assert quorum.image.brokers[1].endpoints == ()


def test_a_broker_may_tell_them_with_the_wish_to_stop(old_quorum: Quorum) -> None:
    quorum = old_quorum
    quorum.ask(UPGRADE)
    tell(quorum, 1, KAFKA, want_shut_down=True)
    assert quorum.image.brokers[1].in_controlled_shutdown
    assert quorum.image.brokers[1].endpoints == (KAFKA,)
