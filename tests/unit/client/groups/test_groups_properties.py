"""Any interleaving of members, lost messages and slow applications: nobody reads what is another's, and all is read again."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from membership_kit import INTERVAL_MS, Member, beat, coordinator, parts, settle

from replog.client.groups.membership import State
from replog.client.groups.messages import Leave
from tests.random_examples import examples

COUNT = 3
ACTIONS = st.sampled_from(
    [
        "subscribe",
        "tick",
        "answer",
        "answer",
        "answer",
        "lose request",
        "lose answer",
        "give back",
        "give back",
        "leave",
    ]
)


@settings(max_examples=examples(50), deadline=None)
@given(st.lists(st.tuples(st.integers(0, COUNT - 1), ACTIONS), max_size=80), st.data())
def test_no_partition_is_read_by_two_members(steps: list[tuple[int, str]], data: st.DataObject) -> None:
    host = coordinator(t=4)
    members = [Member(str(number)) for number in range(COUNT)]
    for number, action in steps:
        act(members[number], action, host)
        reading = [each.reads for each in members]
        assert sum(map(len, reading)) == len(frozenset().union(*reading)), action
        host.now_ms += 1
    for each in members:
        each.subscribe(host, "t")
    settle(host, *members)
    assert frozenset().union(*(each.reads for each in members)) == parts(0, 1, 2, 3)
    assert {each.core.state for each in members} == {State.MEMBER}


def act(member: Member, action: str, host: object) -> None:
    from tests.unit.coordinator.shard_kit import Host

    assert isinstance(host, Host)
    match action:
        case "subscribe":
            member.subscribe(host, "t")
        case "tick":
            host.now_ms += INTERVAL_MS // 4
            beat(host, [member])
        case "answer" | "lose request" | "lose answer" if member.under_way is not None:
            member.answer(host, action.removeprefix("lose ") if action.startswith("lose") else "")
        case "give back" if member.giving_back is not None:
            member.give_back(host)
        case "leave":  # as a consumer does it: everything is given back before
            member.reads, member.giving_back = frozenset(), None
            member.step(Leave(), host.now_ms)
