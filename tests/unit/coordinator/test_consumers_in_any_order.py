"""Members of a group under any order of requests, losses and leaders: one reader a partition, and no standstill."""

from __future__ import annotations

import random
from typing import Any
from unittest import mock

from consumer_kit import CONFIG, SESSION_MS, beat, joining, pass_time
from group_record_kit import unhurried
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from shard_kit import FULL, Host, Topics, group_host

from replog.coordinator.assignors import TopicPartition, assignment_of, partitions_of
from replog.coordinator.consumers import decisions
from replog.coordinator.consumers.requests import ConsumerHeartbeat
from replog.coordinator.runtime.messages import ReplyError, Resigned
from replog.errors import (
    FencedMemberEpochError,
    GroupIdNotFoundError,
    UnknownMemberIdError,
)

CLIENT_REBALANCE_MS = 5 * SESSION_MS


class Client:
    """A consumer: it reads what it is told, gives back when it gets to it, and stops when nobody answers for a session.

    It also stops when it has not come to giving back for long: before the coordinator, which may have told it earlier.  After
    an answer that was lost it says everything, to be told everything.
    """

    def __init__(self, member_id: str) -> None:
        self.member_id = member_id
        self.epoch = 0
        self.assigned: frozenset[TopicPartition] = frozenset()
        self.reads: frozenset[TopicPartition] = frozenset()
        self.sent_ms = 0
        self.revoking_ms: int | None = None
        self.has_lost = False

    def request(self) -> ConsumerHeartbeat:
        if self.epoch == 0:
            return replace(joining(self.member_id), rebalance_timeout_ms=CLIENT_REBALANCE_MS)
        told = beat(self.member_id, self.epoch, assignment_of(self.reads))
        return (
            replace(told, rebalance_timeout_ms=CLIENT_REBALANCE_MS, subscribed_topics=("t",)) if self.has_lost else told
        )

    def hear(self, answer: Any, sent_ms: int) -> None:
        if isinstance(answer, ReplyError):
            if isinstance(answer.error, UnknownMemberIdError | FencedMemberEpochError | GroupIdNotFoundError):
                self.stop()
            return
        self.epoch, self.sent_ms = answer.response.member_epoch, sent_ms
        if answer.response.assignment is not None:
            self.assigned = partitions_of(answer.response.assignment)
        if not self.reads - self.assigned:
            self.reads, self.revoking_ms = self.assigned, None
        elif self.revoking_ms is None:
            self.revoking_ms = sent_ms

    def pass_time(self, now_ms: int) -> None:
        is_slow = self.revoking_ms is not None and now_ms - self.revoking_ms >= CLIENT_REBALANCE_MS - 2 * SESSION_MS
        if is_slow or now_ms - self.sent_ms >= SESSION_MS:
            self.stop()

    def stop(self) -> None:
        self.epoch, self.reads, self.assigned, self.revoking_ms = 0, frozenset(), frozenset(), None


ACTIONS = st.lists(
    st.tuples(
        st.sampled_from(["beat", "beat", "lost", "slow", "leave", "grow", "refuse", "lead", "cut", "wait"]),
        st.sampled_from("abc"),
    ),
    max_size=60,
)


def heartbeat(host: Host, client: Client, *, is_lost: bool = False, is_slow: bool = False) -> None:
    if not is_slow:
        client.reads &= client.assigned
    sent_ms = host.now_ms
    request = host.submit(client.request())
    host.commit()
    client.has_lost = is_lost or (client.has_lost and isinstance(host.answers[request], ReplyError))
    if not is_lost:
        client.hear(host.answers[request], sent_ms)


def check(host: Host, clients: dict[str, Client]) -> None:
    read = [each for client in clients.values() for each in client.reads]
    assert len(read) == len(set(read)), {each.member_id: sorted(each.reads) for each in clients.values()}
    group = host.machine._groups.find("g")
    if group is not None:
        held = [
            each
            for member in group.current.values()
            for each in (*partitions_of(member.assigned), *partitions_of(member.revoked))
        ]
        assert len(held) == len(set(held))
        assert set(group.holders) == set(held)
        assert group.members.keys() == group.current.keys()


@unhurried
@given(st.integers(0, 2**32), ACTIONS, st.sampled_from([0, SESSION_MS // 4]), st.booleans())
def test_nobody_reads_what_another_one_reads_and_all_is_read_in_the_end(
    seed: int, actions: list[tuple[str, str]], pause_ms: int, is_beside: bool
) -> None:
    """Goal: lost answers, slow and silent members, full logs, other leaders: one reader a partition, and no standstill.

    With a pause between two decisions, as large groups have it, and without; decided at once, and beside the loop.
    """
    at_once = 0 if is_beside else decisions.DECIDED_AT_ONCE
    with (
        mock.patch.object(decisions, "pause_ms", return_value=pause_ms),
        mock.patch.object(decisions, "DECIDED_AT_ONCE", at_once),
    ):
        _check_any_order(seed, actions)


def _check_any_order(seed: int, actions: list[tuple[str, str]]) -> None:
    rng, topics = random.Random(seed), Topics(t=4)
    host = group_host(topics, CONFIG)
    host.lead()
    host.holds_beside = True
    clients = {each: Client(each) for each in "abc"}
    for action, name in actions:
        client = clients[name]
        match action:
            case "beat" | "lost" | "slow":
                heartbeat(host, client, is_lost=action == "lost", is_slow=action == "slow")
            case "leave" if client.epoch > 0:
                client.stop()
                host.submit(beat(name, -1))
                host.commit()
            case "grow":
                topics.change(t=topics.partitions["t"] + 1)
            case "refuse":
                host.refuses = None if host.refuses else FULL
            case "lead":
                host.lead()
            case "cut":  # another leader, without what has not committed
                host.submit(clients[rng.choice("abc")].request())
                del host.log[host.high_watermark :]
                host.step(Resigned())
                host.lead()
            case "wait":
                if host.beside:
                    host.do_beside()
                pass_time(host, host.now_ms + SESSION_MS // 3)
                for each in clients.values():
                    each.pass_time(host.now_ms)
        check(host, clients)
    host.refuses, host.holds_beside = None, False
    for _ in range(24):
        for client in clients.values():
            heartbeat(host, client)
            check(host, clients)
        pass_time(host, host.now_ms + SESSION_MS // 10)
    assert sum(len(each.reads) for each in clients.values()) == topics.partitions["t"]
    assert max(len(each.reads) for each in clients.values()) - min(len(each.reads) for each in clients.values()) <= 1
