"""Consumers in a group whose members assign, with a broker in the process of the test; its clients see no KIP-848 at it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import test_embedded_group_ends as ends
import test_embedded_group_members as members
import test_embedded_group_misuse as misuse
import test_embedded_group_releases as releases
import test_embedded_groups as groups
from embedded_group_kit import Background, Heard, Rig, member, read, until

from replog.client.consumer import group_member
from replog.client.protocol.connection import _LinkedBroker
from replog.coordinator.classic.requests import JoinGroup
from replog.errors import CommitStaleError
from replog.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from tests.cancelling import WAITS_MAX, cancelled_at_wait


@pytest.fixture
def rig(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> Rig:
    """The broker, with quick heartbeats, for clients that see no groups whose coordinator assigns."""

    async def offers(self: Any, api_key: int) -> bool:
        return api_key != ConsumerGroupHeartbeatRequest.API_KEY and api_key in self._link.versions

    monkeypatch.setattr(_LinkedBroker, "offers", offers)
    monkeypatch.setattr(group_member, "HEARTBEAT_INTERVAL_MS", 50)
    return rig


AS_ELSEWHERE: tuple[Callable[[Rig], Awaitable[None]], ...] = (
    ends.test_a_slow_loop_without_async_commits_what_it_has_asked_past,
    members.test_a_member_without_partitions_waits,
    members.test_a_listener_seeks_and_commits_and_cannot_read,
    members.test_a_listener_that_was_cancelled_hears_again_before_anything_is_handed_out,
    releases.test_a_read_that_is_cancelled_while_partitions_go_loses_nothing_and_repeats_nothing,
    misuse.test_a_close_whose_heartbeats_the_loops_end_has_cancelled_waits_for_no_answer,
    misuse.test_a_recreated_topic_is_told_no_more_once_others_are_subscribed_to,
    groups.test_the_next_member_begins_with_the_record_that_the_last_one_had_in_hand,
    groups.test_an_explicit_commit_counts_what_is_in_hand,
    groups.test_topics_that_match_are_read_also_those_that_come_later,
    groups.test_a_topic_that_was_named_and_deleted_is_told_of,
    groups.test_who_unsubscribes_leaves_and_may_come_again,
    groups.test_the_same_without_async,
)
"""What is promised of a member, whoever assigns."""


@pytest.mark.parametrize("test", AS_ELSEWHERE, ids=lambda test: test.__name__)
async def test_what_is_promised_holds_where_members_assign(rig: Rig, test: Callable[[Rig], Awaitable[None]]) -> None:
    await test(rig)


async def test_a_static_member_that_does_not_lead_has_its_partitions_again_when_it_restarts(rig: Rig) -> None:
    leader = await member(rig)
    await until(lambda: len(leader.consumer.assignment()) == 4)
    static = await member(rig, group_instance_id="i")
    await until(lambda: len(leader.consumer.assignment()) == len(static.consumer.assignment()) == 2)
    had, generation = static.consumer.assignment(), core(leader.consumer).epoch
    await static.stop()
    again = await member(rig, group_instance_id="i")
    await until(lambda: sorted(again.consumer.assignment()) == sorted(had))
    assert core(leader.consumer).epoch == generation
    await again.stop()
    await leader.stop()


async def test_no_record_is_skipped_or_read_twice_while_members_come_and_go(rig: Rig) -> None:
    reading: list[Background] = []
    for round_number in range(3):
        reading.append(await member(rig))
        await until(lambda: all(each.consumer.assignment() for each in reading))
        await rig.fill()
        await until(lambda: sum(len(each.records) for each in reading) >= 40 * (round_number + 2))  # noqa: B023 -- awaited here
    await rig.admin.create_partitions("t", 6)
    await until(lambda: sum(len(each.consumer.assignment()) for each in reading) == 6)
    await reading[0].stop()
    await until(lambda: sum(len(each.consumer.assignment()) for each in reading) == 6)
    await reading[2].stop()
    await until(lambda: len(reading[1].consumer.assignment()) == 6)
    await rig.fill(count=60, partitions=6)
    await until(lambda: sum(len(each.records) for each in reading) >= 220)
    found = [(each.partition, each.offset) for one in reading for each in one.records]
    assert sorted(found) == [(p, o) for p in range(6) for o in range(50 if p < 4 else 10)]
    await reading[1].stop()


def core(consumer: Any) -> Any:
    return consumer._group.member._core


async def test_who_waits_for_others_to_join_leaves_at_once(rig: Rig) -> None:
    """Goal: a join is answered when the slowest member has given back; whoever closes does not wait for that."""
    listener = Heard()
    slow = await member(rig, listener)
    await until(lambda: len(slow.records) == 40)
    listener.gate.clear()
    waiting = await member(rig)
    await until(lambda: ("revoked", 4) in listener.heard)
    await until(lambda: isinstance(core(waiting.consumer)._under_way, JoinGroup) and core(waiting.consumer).member_id)
    await waiting.stop()
    assert len((await rig.admin.describe_groups(["g"]))["g"].members) == 1
    listener.gate.set()
    await until(lambda: len(slow.consumer.assignment()) == 4)
    await slow.stop()


async def test_what_was_given_back_cannot_be_committed(rig: Rig) -> None:
    async with rig.consumer(enable_auto_commit=False) as first:
        await first.subscribe(["t"])
        await read(first, 40)
        second = await member(rig)
        while len(first.assignment()) != 2 or len(second.consumer.assignment()) != 2:
            await first.poll(1, 50)
        gone = second.consumer.assignment()[0]
        with pytest.raises(CommitStaleError, match=r"It is read by member replog-consumer-[-0-9a-f]+ now"):
            await first.commit({gone: 3})
        await second.stop()


async def test_a_leaving_that_is_cancelled_at_any_wait_leaves_all_the_same(rig: Rig) -> None:
    for number in range(1, WAITS_MAX):
        group = f"g{number}"
        async with rig.consumer(group_id=group) as consumer:
            await consumer.subscribe(["t"])
            await read(consumer, 40)
            was_cancelled = await cancelled_at_wait(number, consumer.unsubscribe())
            await consumer.unsubscribe()
            assert (await rig.admin.describe_groups([group]))[group].members == ()
        if not was_cancelled:
            return
    pytest.fail("it never ends")
