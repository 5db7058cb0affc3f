"""What counts as healthy, and what is said to be missing."""

from __future__ import annotations

from uuid import UUID

import pytest
from fake_cluster import FakeCluster
from msgspec.structs import replace

from replog.cli.views.health import facts, sentence
from replog.client import Admin
from replog.client.admin.awaited import NOBODY, Awaited, AwaitedBy
from replog.client.admin.health import (
    NAMED_MAX,
    BrokerStanding,
    ClusterHealth,
    PartitionTrouble,
    _late_owners,
    cluster_health,
    is_under_replicated,
    judged,
    missing_replicas,
    trouble_of,
)
from replog.client.protocol.transactions import TransactionListing
from replog.controller.requests import ConfigEntry
from replog.errors import RequestTimedOutError
from replog.metadata.records import BrokerEndpoint
from replog.rpc.metadata_messages import BrokerInfo, ClusterMetadata, PartitionInfo, TopicInfo
from replog.rpc.node_messages import (
    DescribeNodeResponse,
    DescribeQuorumResponse,
    LateTransaction,
    QuorumMember,
    ReplicaStatus,
)


def partition(partition_id: int, leader: int, isr: tuple[int, ...], **more: tuple[int, ...]) -> PartitionInfo:
    return PartitionInfo(partition_id, leader, 0, 0, (1, 2, 3), isr, **more)  # type: ignore[arg-type]


NOTHING = (False, 0, -1, -1, -1, -1)  # does not lead, epoch, offsets


def answer(node_id: int, *offline: int) -> DescribeNodeResponse:
    replicas = tuple(ReplicaStatus("t", p, *NOTHING, (), "offline", "its disk") for p in offline)
    return DescribeNodeResponse(node_id, UUID(int=1), "running", 1, "", 1, 1, 1, 1, replicas=replicas, version="0.1")


def quorum(*caught_up_ages_ms: int) -> DescribeQuorumResponse:
    members = tuple(
        QuorumMember(
            node_id, None, "", is_voter=True, log_end_offset=9, last_fetch_age_ms=age, last_caught_up_age_ms=age
        )
        for node_id, age in enumerate(caught_up_ages_ms or (0, 5, 5), start=1)
    )
    return DescribeQuorumResponse(1, 4, 9, 0, 9, is_dynamic=True, members=members)


GOOD = (partition(0, 1, (1, 2, 3)), partition(1, 2, (2, 3, 1)))
BROKERS = tuple(BrokerInfo(number, "127.0.0.1", 9000 + number, 1, fenced=False) for number in (1, 2, 3))
ANSWERS = {number: answer(number) for number in (1, 2, 3)}


def health(
    *partitions: PartitionInfo,
    brokers: tuple[BrokerInfo, ...] = BROKERS,
    told: DescribeQuorumResponse | None = None,
    answers: dict[int, DescribeNodeResponse | None] | None = None,
    default_min_isr: int = 1,
    **configs: str,
) -> ClusterHealth:
    entries = tuple(ConfigEntry(name.replace("_", "."), value) for name, value in configs.items())
    topic = TopicInfo("t", UUID(int=1), partitions or GOOD, entries)
    metadata = ClusterMetadata("c", 7, 1, 4, brokers, (topic,))
    return judged(metadata, told or quorum(), default_min_isr, ANSWERS if answers is None else answers)


def test_a_cluster_with_everything_is_healthy() -> None:
    found = health()
    assert found.is_healthy
    assert (found.partitions_count, found.troubled_count, found.troubled, found.missing_brokers) == (2, 0, (), ())
    assert [(b.state, b.leaders_count, b.replicas_count) for b in found.brokers] == [
        (BrokerStanding.IN_SERVICE, 1, 2), (BrokerStanding.IN_SERVICE, 1, 2), (BrokerStanding.IN_SERVICE, 0, 2),
    ]  # fmt: skip


def test_a_partition_is_in_the_worst_of_its_states() -> None:
    found = health(partition(2, 1, (1, 2)), partition(3, 2, (2,)), partition(4, -1, ()), *GOOD, min_insync_replicas="2")
    assert (found.unavailable_count, found.under_min_isr_count, found.under_replicated_count) == (1, 1, 1)
    assert [(t.partition_id, t.trouble, t.missing) for t in found.troubled] == [
        (4, PartitionTrouble.UNAVAILABLE, (1, 2, 3)),
        (3, PartitionTrouble.UNDER_MIN_ISR, (1, 3)),
        (2, PartitionTrouble.UNDER_REPLICATED, (3,)),
    ]
    assert found.missing_brokers == (1, 2, 3)
    assert not found.is_healthy


def test_the_brokers_default_holds_where_the_topic_says_nothing() -> None:
    assert health(partition(0, 1, (1, 2)), default_min_isr=3).under_min_isr_count == 1
    assert health(partition(0, 1, (1, 2)), default_min_isr=3, min_insync_replicas="1").under_min_isr_count == 0
    sole = PartitionInfo(0, 1, 0, 0, (1,), (1,))
    assert trouble_of(sole, 2) is None, "one replica can never have two in sync"


def test_a_replica_that_is_being_added_is_not_missing() -> None:
    moving = partition(0, 1, (1, 2), adding_replicas=(3,))
    assert not is_under_replicated(moving)
    assert missing_replicas(partition(0, 1, (1,), adding_replicas=(3,))) == (2,)
    found = health(moving)
    assert found.is_healthy
    assert (found.moving_count, found.moving) == (1, ("t-0",))


def test_states_of_brokers() -> None:
    first, second, third = BROKERS
    brokers = (replace(first, fenced=True), replace(second, fenced=True), replace(third, in_controlled_shutdown=True))
    found = health(brokers=brokers, answers={1: answer(1), 2: None, 3: answer(3)})
    assert [broker.state for broker in found.brokers] == [
        BrokerStanding.FENCED, BrokerStanding.DOWN, BrokerStanding.SHUTTING_DOWN,
    ]  # fmt: skip
    assert not found.is_healthy
    silent = health(answers={1: answer(1), 2: answer(2)})
    assert silent.brokers[2].state is BrokerStanding.SILENT
    assert not silent.is_healthy


def test_a_broker_is_named_by_its_address_for_clients() -> None:
    first, second, third = BROKERS
    told = BrokerEndpoint("OUTSIDE", "::1", 6)  # by the listener that the client came by
    found = health(brokers=(replace(first, endpoints=(told,)), second, third))
    assert [broker.address for broker in found.brokers[:2]] == ["[::1]:6", f"{second.host}:{second.port}"]


def test_a_drained_broker_is_done_when_it_is_empty() -> None:
    gone = BrokerInfo(4, "127.0.0.1", 9004, 1, fenced=True, drained=True)
    assert health(brokers=(*BROKERS, gone)).is_healthy, "it may go"
    draining = replace(BROKERS[2], drained=True)
    found = health(brokers=(*BROKERS[:2], draining))
    assert [broker.broker_id for broker in found.draining] == [3]
    assert found.is_healthy, "a drain under way is what somebody asked for"


def test_voters_that_do_not_follow() -> None:
    found = health(told=quorum(0, 50_000, -1))
    assert found.voters_behind == (2, 3)
    assert not found.is_healthy


def test_an_offline_replica_is_told_by_its_broker() -> None:
    found = health(partition(0, 1, (1, 2)), answers={1: answer(1), 2: answer(2), 3: answer(3, 0)})
    assert found.troubled[0].offline == (3,)


def test_of_many_partitions_the_first_are_named() -> None:
    found = health(*(partition(number, 1, (1,)) for number in range(1_000)))
    assert (found.under_replicated_count, len(found.troubled)) == (1_000, NAMED_MAX)


AWAY = {1: answer(1), 2: None, 3: None}
BROKERS_AWAY = (BROKERS[0], *(replace(broker, fenced=True) for broker in BROKERS[1:]))


@pytest.mark.parametrize(
    ("waiting", "expected"),
    [
        (partition(0, -1, (), elr=(3, 2)), Awaited((2, 3), 1)),
        (partition(0, -1, (), elr=(3,), last_known_elr=(2,)), Awaited((3,), 1)),
        (partition(0, -1, (), last_known_elr=(1, 2, 3)), Awaited((2, 3), 2)),
        (partition(0, -1, (), elr=(1, 2)), NOBODY),
        (partition(0, -1, ()), NOBODY),
        (partition(0, 1, (1,)), Awaited((2, 3), 1)),
        (partition(0, 1, (1, 2)), NOBODY),
    ],
    ids=["either", "the eligible one", "all that did not tell", "is there", "an operator", "in sync", "goes on"],
)
def test_who_must_come_back(waiting: PartitionInfo, expected: Awaited) -> None:
    found = health(waiting, brokers=BROKERS_AWAY, answers=AWAY, min_insync_replicas="2")
    assert found.troubled[0].awaited == expected
    by_all = [(one.brokers, one.needed_count, one.partitions_count) for one in found.awaited]
    assert by_all == ([(expected.brokers, expected.needed_count, 1)] if expected.brokers else [])


def test_a_replica_that_cannot_be_used_is_awaited_though_its_broker_runs() -> None:
    found = health(partition(0, -1, (), elr=(3,)), answers={1: answer(1), 2: answer(2), 3: answer(3, 0)})
    assert found.troubled[0].awaited == Awaited((3,), 1)


def test_who_catches_up_need_not_come_back() -> None:
    catching_up = {1: answer(1), 2: answer(2), 3: None}
    brokers = (*BROKERS[:2], replace(BROKERS[2], fenced=True))
    found = health(partition(0, 1, (1,)), brokers=brokers, answers=catching_up, min_insync_replicas="2")
    assert found.troubled[0].awaited == NOBODY
    found = health(partition(0, 1, (1,)), brokers=brokers, answers=catching_up, min_insync_replicas="3")
    assert found.troubled[0].awaited == Awaited((3,), 1)


def test_where_no_replica_is_known_to_have_everything_an_operator_decides() -> None:
    lost, offline, waits = partition(0, -1, ()), partition(1, -1, ()), partition(2, -1, (), last_known_elr=(3,))
    answers = {number: answer(number, 1) for number in (1, 2, 3)}
    found = health(lost, offline, waits, brokers=BROKERS, answers=answers)
    assert [one.needs_unclean_election for one in found.troubled] == [True, False, False]
    assert "because replicas on brokers 1, 2 and 3 are offline and no replica is known to have everything" in sentence(
        found
    )
    said = "t-0: unavailable, missing 1,2,3; `replog topics elect-leaders --topic t --unclean` lets a replica lead"
    assert any(text.startswith(said) for _, text in facts(found))


def test_partitions_that_wait_for_the_same_brokers_are_counted_together() -> None:
    either = (partition(number, -1, (), elr=(2, 3) if number % 2 else (3, 2)) for number in range(50))
    one = (partition(number, -1, (), elr=(3,)) for number in range(50, 80))
    found = health(*either, *one, brokers=BROKERS_AWAY, answers=AWAY)
    assert found.awaited == (AwaitedBy((2, 3), 1, 50), AwaitedBy((3,), 1, 30))


async def test_brokers_that_do_not_answer_are_part_of_the_answer() -> None:
    cluster = FakeCluster(3)
    cluster.create_topic("t", 2)
    async with Admin(cluster.bootstrap, transport=cluster.transport()) as admin:
        await admin.wait_until_ready(brokers=3)
        cluster.nodes[2].is_down = True
        found = await cluster_health(admin, timeout_ms=2_000)
        assert {broker.broker_id: broker.state for broker in found.brokers}[2] in {
            BrokerStanding.SILENT,
            BrokerStanding.DOWN,
        }
        assert not found.is_healthy


def test_a_transaction_that_nobody_ends_is_no_health() -> None:
    late = LateTransaction("t", 1, 7, 12, 1_500_000)
    found = health(answers={**ANSWERS, 2: replace(answer(2), late_transactions=(late,)), 3: None})
    assert found.late_transactions == (late,)
    assert not found.is_healthy


async def test_coordinators_are_asked_for_whose_a_late_transaction_is() -> None:
    late = [LateTransaction("t", partition_id, 7 + partition_id, 12, 1_500_000) for partition_id in range(3)]
    listed = (TransactionListing("a", 7, "Ongoing", 1), TransactionListing("b", 8, "CompleteAbort", 2))

    class Coordinators(Admin):
        async def list_transactions(self, **asked: object) -> tuple[TransactionListing, ...]:
            assert asked == {"producer_ids": [7, 8, 9], "timeout_ms": 2_000}
            return listed

    class Silent(Admin):
        async def list_transactions(self, **_: object) -> tuple[TransactionListing, ...]:
            raise RequestTimedOutError("a broker is away")

    transport = FakeCluster(1).transport()
    async with Coordinators("a:1", transport=transport) as admin, Silent("a:1", transport=transport) as silent:
        assert await _late_owners(admin, late, 2_000) == {7: listed[0]}
        assert await _late_owners(silent, late, 2_000) == {}
