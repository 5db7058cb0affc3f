"""Consumer groups on the screen of `replog status`: who needs a look, and what to do next."""

from __future__ import annotations

import shlex

from replog.cli.common import counted
from replog.cli.views.groups import shown
from replog.cli.views.reassignments import time_text
from replog.client.admin.group_health import REBALANCE_MS, GroupsHealth, GroupTrouble, TroubledGroup

PARTITIONS_NAMED_MAX = 5


def facts(groups: GroupsHealth) -> list[tuple[str, str]]:
    """Returns (name, what is known) for each line about groups."""
    if groups.groups_count is None:
        return [("groups", _unknown(groups))]
    left_out = groups.groups_count - groups.looked_at_count - groups.rebalancing_count
    text = f"{groups.groups_count:,}"
    if groups.troubled_count:
        text += f"; {groups.troubled_count:,} {'needs' if groups.troubled_count == 1 else 'need'} a look"
    if left_out > 0:
        text += f"; the lags of {left_out:,} were not asked for"
    lines = [("groups", text)]
    if groups.problem:
        lines.append(("", _unknown(groups)))
    lines += [("", told(each)) for each in groups.troubled]
    if groups.troubled_count > len(groups.troubled):
        lines.append(("", f"and {groups.troubled_count - len(groups.troubled):,} more"))
    return lines


def _unknown(groups: GroupsHealth) -> str:
    if groups.is_loading:
        return f"a coordinator still reads its groups, which stand until it has: {groups.problem}"
    return f"not known: {groups.problem}"


def told(group: TroubledGroup) -> str:
    """Says what is wrong with a group, and the next step."""
    name = shown(group.group_id)
    look = f"`replog groups describe --members {argument(group.group_id)}`"
    if group.trouble is GroupTrouble.REBALANCES:
        return (
            f"{name}: has been {group.state} for {REBALANCE_MS // 1000} s or longer: it waits for members to join, or to give "
            f"partitions back; one that hangs is put out after its rebalance time-out: {look}"
        )
    behind = f"{counted(group.lag, 'record')} behind in {_partitions(group)}"
    if group.lag_ms is not None:
        behind += f" for {time_text(group.lag_ms / 1000)}"
    if group.trouble is GroupTrouble.NO_MEMBERS:
        return (
            f"{name}: has no members, and is {behind}: start them, or `replog groups delete {argument(group.group_id)}`"
        )
    readers = ", ".join(
        f"{shown(each.client_id)} at {shown(each.host)}" for each in group.readers[:PARTITIONS_NAMED_MAX]
    )
    return f"{name}: stands still, {behind}; read by {readers}: look there what it waits for; {look}"


def argument(group_id: str) -> str:
    """Returns the id of a group as it is pasted into a shell; one that a terminal may not show as `shown` does."""
    text = shlex.quote(group_id) if group_id.isprintable() else shown(group_id)
    return f"-- {text}" if group_id.startswith("-") else text


def _partitions(group: TroubledGroup) -> str:
    named, more = group.partitions[:PARTITIONS_NAMED_MAX], len(group.partitions) - PARTITIONS_NAMED_MAX
    return ", ".join(named) + (f" and {more:,} more" if more > 0 else "")
