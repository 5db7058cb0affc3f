"""What `replog doctor` finds: everything that was heard of a cluster, judged line by line, each with what to do next.

Pure: who asks is `replog.cli.commands.doctor`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING

from msgspec import Struct

from replog.cli.common import counted
from replog.config.kinds import names_loopback

if TYPE_CHECKING:
    from replog.client.admin.health import BrokerHealth, ClusterHealth
    from replog.rpc.node_messages import DescribeNodeResponse, LogDir

CLOCK_WARN_MS = 1_000
CLOCK_WRONG_MS = 60_000
"""Differences of clocks: what retention, times of records and `--from=-10m` go by."""

FILES_SHARE_WARN = 0.5
FILES_SHARE_WRONG = 0.9
"""Of the open files that a broker's process may have."""

OWN_CONNECTIONS_MAX = 4
"""Of a client to each broker."""

OWN_FILES = 64
"""What a program has open besides."""


class Level(StrEnum):
    """How good what was found is, from best to worst."""

    OK = "ok"
    WARN = "warn"
    WRONG = "wrong"


class Diagnosis(Struct, frozen=True):
    """One line.

    Attributes:
        subject: What it is about, such as "broker 2".
        text: What was found.
        advice: What to do next; "" where nothing is to be done.
    """

    level: Level
    subject: str
    text: str
    advice: str = ""


class Heard(Struct, frozen=True):
    """What was heard of one broker.

    Attributes:
        trouble: Why nobody can be reached at the address that it advertises, as words before the address; None: somebody is.
        node: What its process says of itself; None: it does not answer that, as brokers of Apache Kafka.
        asked_ms: The time here when it was asked, in the middle of question and answer, milliseconds since 1970.
        round_trip_ms: How long the answer took, milliseconds.
        directories: Its log directories; an error as text where it did not tell them.
    """

    trouble: str | None
    node: DescribeNodeResponse | None
    asked_ms: float
    round_trip_ms: float
    directories: Sequence[LogDir] | str


def worst(findings: Sequence[Diagnosis]) -> Level:
    """Returns the worst level there is."""
    order = list(Level)
    return max((finding.level for finding in findings), key=order.index, default=Level.OK)


def bootstrap_findings(troubles: Mapping[str, str | None]) -> Iterator[Diagnosis]:
    """Judges the addresses to ask first; one that is wrong while another serves is worth a warning."""
    level = Level.WRONG if all(troubles.values()) else Level.WARN
    for address, trouble in troubles.items():
        if trouble is None:
            yield Diagnosis(Level.OK, "bootstrap", f"{address} is reached from here")
        else:
            advice = "Start what should listen there, or name another broker with --bootstrap-servers or --dir"
            yield Diagnosis(level, "bootstrap", f"{trouble} {address}", advice)


def cluster_findings(
    bootstrap: Sequence[str], health: ClusterHealth, heard: Mapping[int, Heard], *, own_version: str, own_files_max: int
) -> Iterator[Diagnosis]:
    """Judges a cluster whose brokers tell its metadata.

    Args:
        bootstrap: The addresses that were asked first.
        health: What metadata, quorum and brokers say.
        heard: What was heard of each broker, by id.
        own_version: The version of this command.
        own_files_max: How many files this process may have open.
    """
    brokers = counted(len(health.brokers), "broker")
    yield Diagnosis(Level.OK, "cluster", f"{health.cluster_id} has {brokers}")
    yield from _quorum(health)
    for broker in health.brokers:
        found = heard.get(broker.broker_id)
        yield from _broker(broker, found, are_local=all(map(names_loopback, bootstrap)))
        if found is not None:
            yield from _node(broker, found)
            yield from _disks(broker, found)
    yield from _versions(health, own_version)
    yield from _partitions(health)
    needed = OWN_FILES + OWN_CONNECTIONS_MAX * len(health.brokers)
    if own_files_max < needed:
        text = f"programs may have {own_files_max:,} files open, and a client of {brokers} may need {needed:,}"
        yield Diagnosis(Level.WARN, "here", text, f"Raise it, for example with `ulimit -n {2 * needed}`")
    else:
        yield Diagnosis(Level.OK, "here", f"programs may have {own_files_max:,} files open")


def _quorum(health: ClusterHealth) -> Iterator[Diagnosis]:
    quorum = health.quorum
    if quorum is None:
        advice = "Start the nodes with the controller role; `replog quorum describe` says who votes"
        yield Diagnosis(Level.WRONG, "controller", "the metadata quorum has no leader that answers", advice)
        return
    voters = [member.node_id for member in quorum.members if member.is_voter]
    led = f"node {quorum.leader_id} leads the metadata quorum, {counted(len(voters), 'voter')}"
    if health.voters_behind:
        behind = ", ".join(map(str, health.voters_behind))
        advice = "Start them, or see `replog quorum describe`"
        yield Diagnosis(Level.WARN, "controller", f"{led}; not following: {behind}", advice)
    elif len(voters) % 2 == 0:
        advice = "Add one or remove one: `replog quorum add-voter`, `remove-voter`"
        yield Diagnosis(Level.WARN, "controller", f"{led}: no more may be lost than of {len(voters) - 1}", advice)
    else:
        yield Diagnosis(Level.OK, "controller", led)


def _broker(broker: BrokerHealth, heard: Heard | None, *, are_local: bool) -> Iterator[Diagnosis]:
    """Judges whether it can be reached where it says, and whether it serves."""
    subject = f"broker {broker.broker_id}"
    if heard is None:
        yield Diagnosis(
            Level.WRONG, subject, f"is {broker.state.value}", "Start it; `replog status` says what misses it"
        )
        return
    if heard.trouble is not None:
        advice = (
            f"Start it; if it runs, set advertised.listeners of node {broker.broker_id} to an address that clients reach, or open "
            "the way to it"
        )
        yield Diagnosis(Level.WRONG, subject, f"advertises {broker.address}: {heard.trouble} that, from here", advice)
        return
    if not are_local and names_loopback(broker.address):
        advice = f"Set advertised.listeners of node {broker.broker_id} to an address that other machines reach"
        yield Diagnosis(
            Level.WRONG, subject, f"advertises {broker.address}, which is each client's own machine", advice
        )
        return
    if not broker.is_up:
        advice = "Wait if it has just started or is about to stop; else its log says why"
        yield Diagnosis(Level.WARN, subject, f"answers at {broker.address} and is {broker.state.value}", advice)
        return
    yield Diagnosis(Level.OK, subject, f"answers at {broker.address} in {heard.round_trip_ms:.0f} ms")


def _node(broker: BrokerHealth, heard: Heard) -> Iterator[Diagnosis]:
    """Judges clock and open files, where its process tells them."""
    node, subject = heard.node, f"broker {broker.broker_id}"
    if node is None:
        return
    if node.wall_ms:
        difference_ms = node.wall_ms - heard.asked_ms
        certain_ms = max(0.0, abs(difference_ms) - heard.round_trip_ms / 2)
        level = Level.WRONG if certain_ms >= CLOCK_WRONG_MS else Level.WARN if certain_ms >= CLOCK_WARN_MS else Level.OK
        way = "ahead of" if difference_ms > 0 else "behind"
        text = (
            f"its clock is {certain_ms / 1000:,.1f} s {way} the clock here"
            if level is not Level.OK
            else "its clock is right"
        )
        advice = (
            "" if level is Level.OK else "Let both machines keep time by NTP: retention and times of records go by it"
        )
        yield Diagnosis(level, subject, text, advice)
    if node.open_files and node.open_files_max:
        share = node.open_files / node.open_files_max
        level = Level.WRONG if share >= FILES_SHARE_WRONG else Level.WARN if share >= FILES_SHARE_WARN else Level.OK
        advice = "" if level is Level.OK else "Raise the limit (`ulimit -n`, LimitNOFILE), and start it again"
        yield Diagnosis(
            level, subject, f"has {node.open_files:,} of at most {node.open_files_max:,} files open", advice
        )


def _disks(broker: BrokerHealth, heard: Heard) -> Iterator[Diagnosis]:
    from replog.log.disk_space import DiskLimits

    subject = f"broker {broker.broker_id}"
    if isinstance(heard.directories, str):
        if heard.trouble is None:
            yield Diagnosis(
                Level.WARN, subject, f"does not tell its disks: {heard.directories}", "`replog status` says how it is"
            )
        return
    for directory in heard.directories:
        if directory.error:
            advice = 'Repair or replace the disk; docs/OPERATIONS.md, "Several disks"'
            yield Diagnosis(Level.WRONG, subject, f"{directory.path} is offline: {directory.error}", advice)
            continue
        if not directory.total_bytes:
            continue  # of a broker that does not tell it
        free = f"{directory.path} has {directory.free_bytes / 1e9:,.1f} of {directory.total_bytes / 1e9:,.1f} GB left"
        limits, left = DiskLimits().on(directory.total_bytes), directory.free_bytes
        level = (
            Level.WRONG
            if left < limits.read_only_free_bytes
            else Level.WARN
            if left < limits.warn_free_bytes
            else Level.OK
        )
        advice = "" if level is Level.OK else "Delete topics, lower retention or enlarge the disk"
        yield Diagnosis(level, subject, free, advice)


def _versions(health: ClusterHealth, own_version: str) -> Iterator[Diagnosis]:
    versions = sorted({broker.version for broker in health.brokers if broker.version})
    if health.metadata_offset < 0:
        text = "brokers of Apache Kafka tell neither version, clock nor open files"
        yield Diagnosis(Level.OK, "versions", text)
    elif len(versions) > 1:
        advice = "Finish the upgrade, one node after the other, then `replog features upgrade`"
        yield Diagnosis(Level.WARN, "versions", f"brokers run {', '.join(versions)}", advice)
    elif versions and versions != [own_version]:
        advice = "Install the same version here, if something does not work"
        yield Diagnosis(Level.WARN, "versions", f"brokers run {versions[0]}, and this command is {own_version}", advice)
    elif versions:
        yield Diagnosis(Level.OK, "versions", f"brokers and this command are {own_version}")


def _partitions(health: ClusterHealth) -> Iterator[Diagnosis]:
    serious = health.unavailable_count + health.under_min_isr_count
    text = (
        f"{health.partitions_count:,} partitions: {health.unavailable_count:,} without a leader, {health.under_min_isr_count:,} refuse "
        f"acks=all, {health.under_replicated_count:,} under-replicated"
    )
    level = Level.WRONG if serious else Level.WARN if health.under_replicated_count else Level.OK
    yield Diagnosis(
        level, "partitions", text, "" if level is Level.OK else "`replog status` says which, and for whom they wait"
    )
