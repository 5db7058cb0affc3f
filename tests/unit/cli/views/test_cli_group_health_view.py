"""What `replog status` says of groups."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from replog.cli.views.health import group_facts, group_told
from replog.client import MemberDescription
from replog.client.admin.group_health import GroupsHealth, GroupTrouble, TroubledGroup

MEMBER = MemberDescription("m", None, "app\x1b", "10.0.0.1", 1, ())
STILL = TroubledGroup("g", GroupTrouble.STILL, "Stable", ("t-0", "t-3"), 1_200, 720_000, (MEMBER,))
PARTITIONS = tuple(f"t-{number}" for number in range(7))
EMPTY = TroubledGroup("e", GroupTrouble.NO_MEMBERS, "Empty", PARTITIONS, 1, None)
STUCK = TroubledGroup("r", GroupTrouble.REBALANCES, "PreparingRebalance")


def test_each_trouble_has_its_next_step() -> None:
    assert group_told(STILL) == (
        "g: stands still, 1,200 records behind in t-0, t-3 for 12 min; read by 'app\\x1b' at 10.0.0.1: look there what it "
        "waits for; `replog groups describe --members g`"
    )
    assert group_told(EMPTY) == (
        "e: has no members, and is 1 record behind in t-0, t-1, t-2, t-3, t-4 and 2 more: start them, or "
        "`replog groups delete e`"
    )
    assert group_told(STUCK).startswith("r: has been PreparingRebalance for 5 s or longer: it waits for members")
    assert group_told(STUCK).endswith("`replog groups describe --members r`")


def test_the_lines() -> None:
    assert group_facts(GroupsHealth(0)) == [("groups", "0")]
    assert group_facts(GroupsHealth(3, looked_at_count=2, rebalancing_count=1)) == [("groups", "3")]
    some = GroupsHealth(9, looked_at_count=4, troubled=(STILL, STUCK), troubled_count=5, problem="broker 2 is silent")
    assert group_facts(some) == [
        ("groups", "9; 5 need a look; the lags of 5 were not asked for"),
        ("", "not known: broker 2 is silent"),
        ("", group_told(STILL)),
        ("", group_told(STUCK)),
        ("", "and 3 more"),
    ]
    assert group_facts(GroupsHealth(problem="broker 2 is silent")) == [("groups", "not known: broker 2 is silent")]
    ((_, loading),) = group_facts(GroupsHealth(problem="x-3 is being read", is_loading=True))
    assert loading == "a coordinator still reads its groups, which stand until it has: x-3 is being read"


@pytest.mark.parametrize(
    ("group_id", "pasted"), [("a b", "'a b'"), ("--help", "-- --help"), ("it's", "'it'\"'\"'s'"), ("-g h", "-- '-g h'")]
)
def test_the_next_step_can_be_pasted(group_id: str, pasted: str) -> None:
    assert group_told(replace(EMPTY, group_id=group_id)).endswith(f"`replog groups delete {pasted}`")
