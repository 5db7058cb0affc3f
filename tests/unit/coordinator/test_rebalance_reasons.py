"""Rebalances are counted by what has set them off."""

from __future__ import annotations

import random
from collections import Counter

from classic_kit import CONFIG, REBALANCE_MS, SESSION_MS, beat, joining, leaving, meet, pass_time, settle, stable
from shard_kit import Host, Topics

from replog.coordinator.classic.requests import LeaveGroup, LeavingMember
from replog.coordinator.consumers.requests import ConsumerHeartbeat
from replog.coordinator.group_machine import GroupMachine
from replog.coordinator.rebalance_reasons import RebalanceReason


def counting(topics: Topics) -> tuple[Host, Counter[RebalanceReason]]:
    """A shard of groups that is led, and its counts."""
    counts: Counter[RebalanceReason] = Counter()
    host = Host(lambda registry, timers: GroupMachine(registry, timers, CONFIG, topics, random.Random(1), counts))
    host.lead()
    return host, counts


def test_of_groups_whose_members_assign() -> None:
    host, counts = counting(Topics(t=4))
    first, second = stable(host, "a", "b")
    assert counts == {"joined": 1}, "both met in the first generation"
    told = host.submit(joining(first)), host.submit(joining(second))  # the leader asks for it
    settle(host, [host.response(each) for each in told])
    assert counts == {"joined": 1, "changed": 1}
    host.ask(leaving(second))
    assert counts == {"joined": 1, "changed": 1, "left": 1}
    pass_time(host, REBALANCE_MS + SESSION_MS)  # the other one does not come again
    assert counts == {"joined": 1, "changed": 1, "left": 1}, "an empty group is not shared out"


def test_of_members_that_are_silent_or_slow() -> None:
    host, counts = counting(Topics(t=4))
    stable(host, "a")
    pass_time(host, SESSION_MS)
    assert counts == {"joined": 1, "silent": 1}
    first, _ = meet(host, joining(client_id="b", is_id_required=False), joining(client_id="c", is_id_required=False))
    for _ in range(REBALANCE_MS // 100):  # nobody asks what it gets
        pass_time(host, 99)
        if counts["slow"]:
            break
        host.submit(beat(first.member_id, first.generation))
    pass_time(host, REBALANCE_MS)
    assert counts == {"joined": 2, "silent": 1, "slow": 1}


def test_of_groups_whose_coordinator_assigns() -> None:
    topics = Topics(t=4, u=1)
    host, counts = counting(topics)

    def heartbeat(member_id: str, epoch: int, *subscribed: str) -> int:
        names = subscribed or (("t",) if not epoch else None)
        more = {"rebalance_timeout_ms": 500, "owned": {}} if not epoch else {}
        found: int = host.ask(ConsumerHeartbeat("g", member_id, epoch, subscribed_topics=names, **more)).member_epoch
        return found

    epoch = heartbeat("a", 0)
    heartbeat("b", 0)
    assert counts == {"joined": 2}
    epoch = heartbeat("a", epoch, "t", "u")
    topics.change(t=6)
    heartbeat("a", epoch)
    assert counts == {"joined": 2, "changed": 2}
    heartbeat("b", -1)
    assert counts == {"joined": 2, "changed": 2, "left": 1}
    heartbeat("c", 0)
    host.ask(LeaveGroup("g", (LeavingMember("c"),)))
    assert counts == {"joined": 3, "changed": 2, "left": 2}
    pass_time(host, CONFIG.consumers.session_timeout_ms)  # "a" was to give back, and does not
    heartbeat("d", 0)
    assert counts == {"joined": 4, "changed": 2, "left": 2, "slow": 1}
    pass_time(host, CONFIG.consumers.session_timeout_ms)
    assert counts == {"joined": 4, "changed": 2, "left": 2, "slow": 1, "silent": 1}
