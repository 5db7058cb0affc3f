"""Replicas that their brokers cannot use: they leave the ISR, lead nothing, and come back by proof only."""

from __future__ import annotations

from uuid import UUID

import pytest
from controller_kit import Quorum

from replog.controller.config import ControllerConfig
from replog.controller.requests import Heartbeat, HeartbeatResponse, OfflineReplica
from replog.errors import ErrorCode


@pytest.fixture
def quorum() -> Quorum:
    quorum = Quorum(1, config=ControllerConfig(min_insync_replicas=2))
    quorum.claim(1)
    quorum.commit()
    quorum.start(1, 2, 3)
    return quorum


def tell(
    quorum: Quorum, broker_id: int, *names: str, is_intact: bool = False, gave_up: bool = False, more: bool = False
) -> HeartbeatResponse:
    """A heartbeat that says which replicas of this broker are offline."""
    offline = tuple(OfflineReplica(quorum.image.topics_by_name[name].topic_id, 0, is_intact, gave_up) for name in names)
    epoch = quorum.broker_epoch(broker_id)
    answer = quorum.ask(Heartbeat(broker_id, epoch, quorum.end_offset, offline_replicas=offline, more_offline=more))
    assert isinstance(answer, HeartbeatResponse)
    return answer


def test_an_offline_leader_is_replaced_and_its_other_replicas_stay(quorum: Quorum) -> None:
    quorum.create("flights", 1, 2, 3)
    quorum.create("other", 1, 2, 3)
    answer = tell(quorum, 1, "flights")
    assert not answer.is_fenced
    flights, other = quorum.partition("flights"), quorum.partition("other")
    assert (flights.leader, flights.isr, flights.elr) == (2, (2, 3), ())
    assert (other.leader, other.isr) == (1, (1, 2, 3))
    end_offset = quorum.end_offset
    tell(quorum, 1, "flights")
    assert quorum.end_offset == end_offset, "told again, nothing changes"


@pytest.mark.parametrize(("policy", "is_intact"), [("auto", True), ("auto", False), ("always", False)])
def test_it_does_not_stay_eligible(quorum: Quorum, policy: str, is_intact: bool) -> None:
    """What it had acknowledged may be lost, on a failed disk or in damaged bytes: a member of the ELR must have everything."""
    quorum.create("flights", 1, 2, **{"flush.policy": policy})
    tell(quorum, 1, "flights", is_intact=is_intact)
    flights = quorum.partition("flights")
    assert (flights.leader, flights.isr, flights.elr, flights.last_known_elr) == (2, (2,), (), (1,))


def test_it_stays_eligible_where_what_it_acknowledged_is_on_its_disk(quorum: Quorum) -> None:
    """And is elected when its disk works again, if nobody else can be."""
    quorum.create("flights", 1, 2, **{"flush.policy": "always"})
    tell(quorum, 1, "flights", is_intact=True)
    flights = quorum.partition("flights")
    assert (flights.leader, flights.isr, flights.elr) == (2, (2,), (1,))
    end_offset = quorum.end_offset
    tell(quorum, 1, "flights", is_intact=True)
    assert quorum.end_offset == end_offset, "told again, nothing changes"
    tell(quorum, 2, "flights")
    flights = quorum.partition("flights")
    assert (flights.leader, flights.isr, flights.elr) == (-1, (), (1,)), "its disk does not work yet"
    quorum.register(1, incarnation=2)
    tell(quorum, 1)
    flights = quorum.partition("flights")
    assert (flights.leader, flights.isr) == (1, (1,))


def test_whose_bytes_turn_out_to_be_wrong_is_eligible_no_longer(quorum: Quorum) -> None:
    quorum.create("flights", 1, 2, **{"flush.policy": "always"})
    tell(quorum, 1, "flights", is_intact=True)
    tell(quorum, 1, "flights", is_intact=False)
    assert quorum.partition("flights").elr == ()


def test_a_sole_replica_leads_nothing_until_it_proves_what_it_has(quorum: Quorum) -> None:
    quorum.create("flights", 1)
    tell(quorum, 1, "flights")
    flights = quorum.partition("flights")
    assert (flights.leader, flights.isr, flights.elr, flights.last_known_elr) == (-1, (), (), (1,))
    tell(quorum, 1, "flights")
    assert quorum.partition("flights").leader == -1
    quorum.register(1, incarnation=2)
    tell(quorum, 1)
    quorum.report(1, "flights", 0, 7)
    assert quorum.partition("flights").leader == 1, "started again with a disk that works"


def test_an_election_passes_over_it(quorum: Quorum) -> None:
    """Also when it is told before it is in anybody's way: unclean elections take any active replica."""
    quorum.create("flights", 1, 2, 3, **{"unclean.leader.election.enable": "true"})
    for broker_id in (2, 1):
        tell(quorum, broker_id, "flights")
    assert quorum.partition("flights").leader == 3
    tell(quorum, 3, "flights")
    assert quorum.partition("flights").leader == -1


def test_a_broker_that_starts_with_an_offline_replica_is_unfenced_for_the_others(quorum: Quorum) -> None:
    quorum.create("flights", 1, 2, 3)
    quorum.register(1, incarnation=2)
    tell(quorum, 1, "flights")
    assert not tell(quorum, 1, "flights").is_fenced
    assert 1 not in quorum.partition("flights").isr


def test_it_does_not_join_the_isr_while_it_is_offline(quorum: Quorum) -> None:
    quorum.create("flights", 1, 2)
    tell(quorum, 2, "flights")
    assert quorum.alter_isr("flights", (1, 2)) is ErrorCode.INELIGIBLE_REPLICA
    tell(quorum, 2)
    assert quorum.alter_isr("flights", (1, 2)) is ErrorCode.NONE


def test_a_replica_that_is_usable_again_is_elected_where_nobody_leads(quorum: Quorum) -> None:
    quorum.create("flights", 1, **{"unclean.leader.election.enable": "true"})
    tell(quorum, 1, "flights")
    assert quorum.partition("flights").leader == -1
    tell(quorum, 1)
    assert quorum.partition("flights").leader == 1


def test_a_replica_that_was_offline_under_another_controller_is_elected(quorum: Quorum) -> None:
    """The new one has not heard that it was: what counts is the first list that it is told, and that is empty."""
    quorum.create("flights", 1, **{"flush.policy": "always"})
    tell(quorum, 1, "flights", is_intact=True)
    assert quorum.partition("flights").leader == -1
    quorum.renounce()
    quorum.claim(1)
    assert quorum.partition("flights").leader == -1, "nobody has told yet"
    tell(quorum, 1, more=True)
    assert quorum.partition("flights").leader == -1, "the next part may name it"
    tell(quorum, 1)
    assert quorum.partition("flights").leader == 1


def test_a_report_elects_nobody_whose_replica_is_offline(quorum: Quorum) -> None:
    """The report is from before the loss of the disk, or from after its return: the next heartbeat tells."""
    quorum.create("flights", 1)
    tell(quorum, 1, "flights")
    quorum.report(1, "flights", 0, 7)
    assert quorum.partition("flights").leader == -1
    tell(quorum, 1)
    assert quorum.partition("flights").leader == 1


def test_more_replicas_than_one_heartbeat_may_name_are_told_in_several(quorum: Quorum) -> None:
    for name in ("a", "b", "c"):
        quorum.create(name, 1, 2, 3)
    tell(quorum, 1, "a", more=True)
    assert quorum.partition("a").leader == 2, "what is told counts at once"
    tell(quorum, 1, "b")
    assert [quorum.partition(name).leader for name in ("a", "b", "c")] == [2, 2, 1]
    tell(quorum, 1, "a", more=True)
    assert not quorum.leader._managers.replication.is_offline(1, key(quorum, "c"))
    assert quorum.leader._managers.replication.is_offline(1, key(quorum, "b")), "the next part may name it"
    tell(quorum, 1, "c")
    assert [quorum.leader._managers.replication.is_offline(1, key(quorum, name)) for name in ("a", "b", "c")] == [
        True,
        False,
        True,
    ]


def test_a_broker_has_told_what_it_cannot_use_when_it_has_told_all(quorum: Quorum) -> None:
    quorum.renounce()
    quorum.claim(1)
    quorum.create("a", 1, 2, 3)
    tell(quorum, 3, "a", more=True)
    assert not quorum.leader._managers.replication.has_told(3)
    tell(quorum, 3)
    assert quorum.leader._managers.replication.has_told(3)


@pytest.mark.parametrize("has_told", [True, False])
def test_an_election_completes_a_move_only_where_the_elected_has_told(quorum: Quorum, *, has_told: bool) -> None:
    """After a change of the controller nobody knows yet whether its disk still works, and the other copy would go."""
    quorum.create("flights", 1, 2)
    quorum.heartbeat(2, want_fence=True)
    quorum.reassign("flights", (2,))
    quorum.heartbeat(2)
    quorum.renounce()
    quorum.claim(1)
    quorum.commit()
    if has_told:
        tell(quorum, 2)
    assert quorum.partition("flights").elr == (2,)
    quorum.heartbeat(1, want_fence=True)
    flights = quorum.partition("flights")
    assert (flights.leader, flights.isr) == (2, (2,))
    assert (flights.replicas, flights.elr) == (((2,), ()) if has_told else ((2, 1), (1,)))
    tell(quorum, 2)
    assert quorum.alter_isr("flights", (2,)) is ErrorCode.NONE
    assert quorum.partition("flights").replicas == (2,), "what its leader proposes completes it anyway"


def key(quorum: Quorum, name: str) -> tuple[UUID, int]:
    return quorum.image.topics_by_name[name].topic_id, 0


# ---- replicas of which a repair gave records up ----------------------------------------------------------------------------


def test_nobody_waits_for_what_a_repair_gave_up(quorum: Quorum) -> None:
    """Where acknowledgements wait for the disk too: what was on it is not any more."""
    quorum.create("flights", 1, 2, 3, **{"flush.policy": "always"})
    tell(quorum, 1, "flights", gave_up=True)
    flights = quorum.partition("flights")
    assert (flights.leader, flights.isr, flights.elr, flights.last_known_elr) == (2, (2, 3), (), ())


def test_others_that_may_have_it_decide_without_it(quorum: Quorum) -> None:
    quorum.create("flights", 1, 2)
    tell(quorum, 2, "flights")
    tell(quorum, 1, "flights", gave_up=True)
    flights = quorum.partition("flights")
    assert (flights.leader, flights.isr, flights.elr, flights.last_known_elr) == (-1, (), (), (2,))


def test_who_was_waited_for_is_not_once_a_repair_has_cut_it(quorum: Quorum) -> None:
    quorum.create("flights", 1, 2)
    tell(quorum, 1, "flights")
    tell(quorum, 2, "flights")
    assert quorum.partition("flights").last_known_elr == (1, 2)
    quorum.register(1, incarnation=2)
    tell(quorum, 1, "flights", gave_up=True)
    assert quorum.partition("flights").last_known_elr == (2,)
    quorum.register(2, incarnation=2)
    tell(quorum, 2)
    quorum.report(2, "flights", 0, 7)
    assert quorum.partition("flights").leader == 2
