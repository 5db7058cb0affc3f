"""The health of a cluster in words: the sentence on top of `replog status`, and the screen below it."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from typing import TYPE_CHECKING

from replog.cli.common import counted
from replog.cli.views.groups import shown
from replog.cli.views.reassignments import time_text
from replog.client.admin.awaited import Awaited
from replog.client.admin.group_health import REBALANCE_MS, GroupsHealth, GroupTrouble, TroubledGroup
from replog.client.admin.health import BrokerHealth, BrokerStanding, ClusterHealth
from replog.client.admin.transactions import ONGOING
from replog.client.protocol.transactions import TransactionListing
from replog.errors import ReplogError
from replog.rpc.node_messages import LateTransaction
from replog.spark.sink.once.names import writer_of

PARTITIONS_NAMED_MAX = 5


def group_facts(groups: GroupsHealth) -> list[tuple[str, str]]:
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
    lines += [("", group_told(each)) for each in groups.troubled]
    if groups.troubled_count > len(groups.troubled):
        lines.append(("", f"and {groups.troubled_count - len(groups.troubled):,} more"))
    return lines


def _unknown(groups: GroupsHealth) -> str:
    if groups.is_loading:
        return f"a coordinator still reads its groups, which stand until it has: {groups.problem}"
    return f"not known: {groups.problem}"


def group_told(group: TroubledGroup) -> str:
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


if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

    from replog.rpc.node_messages import QuorumMember

AWAITED_NAMED_MAX = 5
"""Groups of brokers of which is told how many partitions wait for them."""

_STATES = {
    BrokerStanding.DOWN: ("is down", "are down"),
    BrokerStanding.SILENT: ("does not answer", "do not answer"),
    BrokerStanding.FENCED: ("is fenced", "are fenced"),
    BrokerStanding.SHUTTING_DOWN: ("is shutting down", "are shutting down"),
    BrokerStanding.UNKNOWN: ("is not registered", "are not registered"),
    BrokerStanding.AWAY: ("is not in service", "are not in service"),
}


def said(look: ClusterHealth | ReplogError) -> str:
    """Says what one look at the cluster found: how the cluster is, or why its brokers do not answer."""
    return f"The brokers do not answer: {look}" if isinstance(look, ReplogError) else sentence(look)


def sentence(health: ClusterHealth) -> str:
    """Says how the cluster is, and why, in plain words: what is worst first; one sentence where it is well."""
    parts = []
    if health.quorum is None:
        parts.append("The metadata quorum has no leader: nothing can be changed")
    if health.troubled_count:
        parts.append(f"{_troubles(health)}{_because(health)}")
    if health.late_transactions:
        count = len(health.late_transactions)
        has = "has a transaction" if count == 1 else "have transactions"
        parts.append(f"{counted(count, 'partition')} {has} that nobody ends: readers wait before it")
    named = health.missing_brokers if health.troubled_count else ()
    missed = [broker for broker in health.brokers if broker.is_missed and broker.broker_id not in named]
    if missed:
        parts.append(_capital(_states(missed)))
    if health.voters_behind and not (missed or named):
        verb = "does" if len(health.voters_behind) == 1 else "do"
        parts.append(f"{_named('Voter', health.voters_behind)} {verb} not follow the metadata quorum")
    if health.voters_elsewhere:
        nodes = _named("node", health.voters_elsewhere)
        parts.append(f"The voter set names another log directory for {nodes}: see `replog quorum describe`")
    if not health.troubled_count:
        parts.append(_all_in_sync(health))
    return "".join(f"{part}. " for part in parts).rstrip()


def _all_in_sync(health: ClusterHealth) -> str:
    brokers = counted(sum(broker.is_up for broker in health.brokers), "broker")
    if not health.partitions_count:
        return f"No topics yet on {brokers}"
    if health.partitions_count == 1:
        return f"The only partition is in sync on {brokers}"
    return f"All {health.partitions_count:,} partitions are in sync on {brokers}"


def _troubles(health: ClusterHealth) -> str:
    """Says how many partitions are in trouble: `1 partition has no leader and 2 are under-replicated`."""
    kinds = (
        (health.unavailable_count, "has no leader", "have no leader"),
        (health.under_min_isr_count, "refuses acks=all writes", "refuse acks=all writes"),
        (health.under_replicated_count, "is under-replicated", "are under-replicated"),
    )
    clauses = [f"{count:,} {one if count == 1 else many}" for count, one, many in kinds if count]
    number, _, rest = clauses[0].partition(" ")
    noun = "partition" if number == "1" else "partitions"
    return _joined([f"{number} {noun} {rest}", *clauses[1:]])


def _because(health: ClusterHealth) -> str:
    """Says why replicas are missing: brokers are away, or replicas offline; where neither is, replicas catch up."""
    known = {broker.broker_id: broker for broker in health.brokers}
    away = [
        known.get(broker_id) or _unregistered(broker_id)
        for broker_id in health.missing_brokers
        if broker_id not in known or not known[broker_id].is_up
    ]
    offline = sorted({broker_id for partition in health.troubled for broker_id in partition.offline})
    causes = [_states(away)] if away else []
    if offline:
        causes.append(f"replicas on {_named('broker', offline)} are offline")
    if any(partition.needs_unclean_election for partition in health.troubled):
        causes.append("no replica is known to have everything")
    if not causes and health.missing_brokers and not health.unavailable_count:
        causes.append(f"replicas on {_named('broker', health.missing_brokers)} are catching up")
    return f" because {_joined(causes)}" if causes else ""


def _unregistered(broker_id: int) -> BrokerHealth:
    return BrokerHealth(broker_id, "", None, BrokerStanding.UNKNOWN, False, 0, 0, -1, "")


def _states(brokers: Iterable[BrokerHealth]) -> str:
    """Says the states of brokers: `broker 1 is down and brokers 2 and 3 are fenced`."""
    by_state: dict[BrokerStanding, list[int]] = {}
    for broker in brokers:
        by_state.setdefault(broker.state, []).append(broker.broker_id)
    return _joined(f"{_named('broker', ids)} {_STATES[state][len(ids) > 1]}" for state, ids in by_state.items())


def _named(noun: str, ids: Iterable[int]) -> str:
    numbers = [str(number) for number in ids]
    return f"{noun}{'' if len(numbers) == 1 else 's'} {_joined(numbers)}"


def _joined(parts: Iterable[str], word: str = "and") -> str:
    """Joins parts: `a`, `a and b`, `a, b and c`."""
    *first, last = parts
    return f"{', '.join(first)} {word} {last}" if first else last


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


# ---- the screen ------------------------------------------------------------------------------------------------------


def render(health: ClusterHealth) -> RenderableType:
    """Renders the sentence, the brokers, then what is to be known of quorum, partitions and moves."""
    from rich.console import Group
    from rich.text import Text

    style = "bold green" if health.is_healthy else "bold red"
    return Group(Text(sentence(health), style=style), "", _brokers(health), "", _facts(health))


def _brokers(health: ClusterHealth) -> RenderableType:
    from replog.cli.terminal.grid import Grid

    leader_id = -1 if health.quorum is None else health.quorum.leader_id
    headers = (">broker", ">leads", ">follows", ">memory", "address", "rack", "version", "state")
    return Grid(headers, [_row(broker, is_controller=broker.broker_id == leader_id) for broker in health.brokers])


def _row(broker: BrokerHealth, *, is_controller: bool) -> list[str]:
    extras = [broker.state.value]
    extras += ["controller"] if is_controller else []
    extras += ["drained"] if broker.is_drained else []
    return [
        str(broker.broker_id),
        f"{broker.leaders_count:,}",
        f"{broker.replicas_count - broker.leaders_count:,}",
        f"{broker.rss_bytes / 1e6:,.0f} MB" if broker.rss_bytes >= 0 else "-",
        broker.address,
        broker.rack or "-",
        broker.version or "-",
        ", ".join(extras),
    ]


def _facts(health: ClusterHealth) -> Table:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, text in facts(health):
        table.add_row(name, Text(text))
    return table


def facts(health: ClusterHealth) -> list[tuple[str, str]]:
    """Returns (name, what is known) for each line of cluster, quorum, partitions and moves."""
    return [
        ("cluster", _cluster(health)),
        *_quorum_facts(health),
        *_partition_facts(health),
        *_transaction_facts(health),
        *_change_facts(health),
        *(() if health.groups is None else group_facts(health.groups)),
    ]


def _cluster(health: ClusterHealth) -> str:
    if health.metadata_offset < 0:
        return f"{health.cluster_id}, of Apache Kafka: its brokers tell neither memory nor version, nor why a replica stands still"
    return f"{health.cluster_id}, metadata offset {health.metadata_offset:,}"


def _quorum_facts(health: ClusterHealth) -> list[tuple[str, str]]:
    quorum = health.quorum
    if quorum is None:
        return [("controller", "none: the metadata quorum has no leader that answers")]
    commit = f", commits take {quorum.commit_ms_p50:,} ms (median)" if quorum.commit_ms_p50 >= 0 else ""
    voters = (_voter(m, quorum.leader_id, quorum.log_end_offset) for m in quorum.members if m.is_voter)
    return [
        ("controller", f"node {quorum.leader_id}, epoch {quorum.leader_epoch}{commit}"),
        ("voters", "; ".join(voters)),
    ]


def _partition_facts(health: ClusterHealth) -> list[tuple[str, str]]:
    text = (
        f"{health.partitions_count:,} in {counted(health.topics_count, 'topic')}; "
        f"{health.unavailable_count:,} without a leader, {health.under_min_isr_count:,} under min ISR, "
        f"{health.under_replicated_count:,} under-replicated"
    )
    lines = [("partitions", text)]
    for partition in health.troubled:
        missing = ", missing " + ",".join(map(str, partition.missing)) if partition.missing else ""
        waits = f"; waits for {awaited_words(partition.awaited)}" if partition.awaited.brokers else ""
        if partition.needs_unclean_election:
            waits = f"; `replog topics elect-leaders --topic {partition.topic} --unclean` lets a replica lead, and gives up what it lacks"
        lines.append(("", f"{partition.topic}-{partition.partition_id}: {partition.trouble.value}{missing}{waits}"))
    if health.troubled_count > len(health.troubled):
        lines.append(("", f"and {health.troubled_count - len(health.troubled):,} more"))
        lines += _waiting_facts(health)
    return lines


def _transaction_facts(health: ClusterHealth) -> list[tuple[str, str]]:
    """Returns a line for each transaction that nobody ends, with what ends it."""
    texts = [
        f"{one.topic}-{one.partition_id}: producer {one.producer_id} is silent for {time_text(one.silent_ms / 1000)}; "
        f"{_what_ends(one, health.late_owners.get(one.producer_id))}"
        for one in health.late_transactions
    ]
    return [("" if index else "transactions", text) for index, text in enumerate(texts)]


def _what_ends(late: LateTransaction, owner: TransactionListing | None) -> str:
    """Says what ends a late transaction, as `replog transactions abort` takes it.

    Args:
        late: The transaction.
        owner: The transactional id whose coordinator has it open; None: no coordinator knows of it.
    """
    if owner is None:
        place = f"{late.topic}-{late.partition_id}"
        return (
            f"`replog transactions abort --partition {place} --start-offset {late.first_offset}` ends its transaction"
        )
    name = owner.transactional_id
    if owner.state != ONGOING:
        return f"{shown(name)} is decided ({owner.state}): broker {owner.coordinator_id} ends it once it reaches the leader"
    writer = writer_of(name)
    if writer is not None:
        ends = f"`replog transactions abort --query {argument(writer)}` ends what it has open"
        return f"written by Spark, which decides about it; where that never comes back, {ends}"
    return (
        f"`replog transactions abort {argument(name)}` ends its transaction in all partitions, and fences its producer"
    )


def _waiting_facts(health: ClusterHealth) -> list[tuple[str, str]]:
    """Tells how many partitions wait for whom, where not all are named: a line each for those that most wait for."""
    texts = [
        f"{counted(one.partitions_count, 'partition')} for {awaited_words(one)}"
        for one in health.awaited[:AWAITED_NAMED_MAX]
    ]
    if len(health.awaited) > AWAITED_NAMED_MAX:
        texts.append("and others")
    return [("" if index else "waiting", text) for index, text in enumerate(texts)]


def awaited_words(awaited: Awaited) -> str:
    """Says `broker 2`, `broker 2 or 3` (either helps), `brokers 2 and 3` (both must come), `2 of brokers 1, 2 and 3`."""
    if awaited.needed_count >= len(awaited.brokers):
        return _named("broker", awaited.brokers)
    if awaited.needed_count == 1:
        return f"broker {_joined(map(str, awaited.brokers), 'or')}"
    return f"{awaited.needed_count} of {_named('broker', awaited.brokers)}"


def _change_facts(health: ClusterHealth) -> list[tuple[str, str]]:
    draining = (f"broker {b.broker_id}: {counted(b.replicas_count, 'replica')} left" for b in health.draining)
    names = ", ".join(health.moving) + (", ..." if health.moving_count > len(health.moving) else "")
    moving = f"{counted(health.moving_count, 'partition')}: {names}" if health.moving_count else "none"
    if health.quorum is None and health.metadata_offset < 0:
        moving = "not known: Kafka's controller tells, and does not answer"
    lines = [("draining", "; ".join(draining) or "none"), ("moving", moving)]
    hosts = {broker.address.rpartition(":")[0] for broker in health.brokers}
    if len(health.brokers) > len(hosts) == 1:
        lines.append(("hosts", f"all brokers are on {hosts.pop()}: replicas do not survive the loss of that machine"))
    return lines


def _voter(member: QuorumMember, leader_id: int, end_offset: int) -> str:
    if member.node_id == leader_id:
        return f"{member.node_id} leads"
    if member.log_end_offset < 0:
        return f"{member.node_id} was never heard"
    lag = max(0, end_offset - member.log_end_offset)
    if not lag:
        return f"{member.node_id} has all"
    return f"{member.node_id} lacks {counted(lag, 'record')}, heard {member.last_fetch_age_ms:,} ms ago"
