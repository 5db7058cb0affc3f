"""Readings as Prometheus families: names, units and help texts stand here (and in docs/OPERATIONS.md).

Prometheus wants base units: times are seconds, whatever unit they are kept in.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from replog.broker.metrics.readings import (
    AccessReading,
    CoordinatorReading,
    KafkaReading,
    LeaderReading,
    QuorumReading,
    Readings,
)
from replog.coordinator.rebalance_reasons import RebalanceReason
from replog.coordinator.runtime.shard import ShardState
from replog.metadata.records import ElectionType


class NodeCollector(Collector):
    """Asks for new readings at every scrape.

    Args:
        read: The function that returns readings; it is called in the thread that serves the scrape, and may wait.
    """

    def __init__(self, read: Callable[[], Readings]) -> None:
        self._read = read

    def collect(self) -> Iterator[Metric]:
        """Yields all families; raises what `read` raises."""
        readings = self._read()
        yield from _replication(readings)
        yield from _lags(readings.leaders)
        yield from _transactions(readings.leaders)
        yield from _waiting(readings)
        yield from _quorum(readings.quorum)
        yield from _coordinators(readings.coordinators)
        yield _elections(readings.elections)
        yield CounterMetricFamily(
            "replog_node_authentications_failed",
            "Connections at inter.broker.listener whose other side was not believed to be a node.",
            value=readings.refused_nodes,
        )
        if readings.kafka is not None:
            yield from _kafka(readings.kafka)
        if readings.access is not None:
            yield from _access(readings.access)


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(name, text, value=value)


def _replication(readings: Readings) -> Iterator[Metric]:
    leaders = readings.leaders
    yield _gauge("replog_broker_running", "1: registered and unfenced, 0: not.", readings.is_running)
    yield _gauge("replog_partitions", "Partitions of which this broker has a replica.", readings.partitions_count)
    yield _gauge("replog_leaders", "Partitions that this broker leads.", len(leaders))
    yield _gauge(
        "replog_under_replicated_partitions",
        "Led here, and a replica that should be in sync is not.",
        sum(one.is_under_replicated for one in leaders),
    )
    yield _gauge(
        "replog_under_min_isr_partitions",
        "Led here, with fewer in-sync replicas than min.insync.replicas: acks=all is refused.",
        sum(one.is_under_min_isr for one in leaders),
    )
    yield _gauge(
        "replog_offline_partitions",
        "Partitions with a replica here that nobody leads.",
        readings.offline_partitions_count,
    )
    yield _gauge(
        "replog_offline_replicas",
        "Replicas of this broker that cannot be used: their disk or their bytes.",
        readings.offline_replicas_count,
    )
    yield CounterMetricFamily(
        "replog_isr_shrinks", "Times that the ISR of a partition led here lost members.", value=readings.isr_shrinks
    )
    yield CounterMetricFamily(
        "replog_isr_expands", "Times that the ISR of a partition led here won members.", value=readings.isr_expands
    )


def _lags(leaders: tuple[LeaderReading, ...]) -> Iterator[Metric]:
    labels = ("topic", "partition", "replica")
    records = GaugeMetricFamily("replog_replica_lag_records", "Records that a replica lacks.", labels=labels)
    seconds = GaugeMetricFamily(
        "replog_replica_lag_seconds",
        "Time since a replica had everything; 0 where it has, +Inf where it never had under this leader.",
        labels=labels,
    )
    for leader in leaders:
        for follower in leader.followers:
            values = (leader.topic, str(leader.partition_id), str(follower.replica_id))
            records.add_metric(values, follower.lag_records)
            seconds.add_metric(values, math.inf if follower.lag_ms is None else follower.lag_ms / 1000)
    yield records
    yield seconds
    ends = GaugeMetricFamily(
        "replog_partition_high_watermark", "Records below are committed; of partitions led here.", labels=labels[:2]
    )
    for leader in leaders:
        ends.add_metric((leader.topic, str(leader.partition_id)), leader.high_watermark)
    yield ends


def _transactions(leaders: tuple[LeaderReading, ...]) -> Iterator[Metric]:
    """Yields what is told of open transactions; of single partitions only where one is open."""
    found = [(leader, leader.transactions) for leader in leaders if leader.transactions is not None]
    yield _gauge(
        "replog_open_transactions",
        "Transactions that are open in partitions led here, each counted in every partition.",
        sum(transactions.count for _, transactions in found),
    )
    yield _gauge(
        "replog_late_transactions",
        "Partitions led here whose earliest open transaction nobody may be going to end.",
        sum(transactions.is_late for _, transactions in found),
    )
    labels = ("topic", "partition")
    silent = GaugeMetricFamily(
        "replog_open_transaction_seconds",
        "Time since the producer of the earliest open transaction of a partition wrote.",
        labels=labels,
    )
    ends = GaugeMetricFamily(
        "replog_open_transaction_first_offset",
        "Where the earliest open transaction of a partition begins: readers see nothing behind it.",
        labels=labels,
    )
    for leader, transactions in found:
        values = (leader.topic, str(leader.partition_id))
        silent.add_metric(values, transactions.silent_ms / 1000)
        ends.add_metric(values, transactions.first_offset)
    yield silent
    yield ends


def _waiting(readings: Readings) -> Iterator[Metric]:
    purgatory = GaugeMetricFamily(
        "replog_purgatory_size", "Requests that wait for replicas or for records.", labels=("operation",)
    )
    purgatory.add_metric(("produce",), readings.waiting_produces)
    purgatory.add_metric(("fetch",), readings.waiting_fetches)
    purgatory.add_metric(("incremental_fetch",), readings.waiting_incremental_fetches)
    purgatory.add_metric(("delete_records",), readings.waiting_deletions)
    yield purgatory
    yield _gauge(
        "replog_incremental_fetches", "Streams of followers that fetch incrementally.", readings.incremental_fetches
    )
    yield _gauge(
        "replog_unread_answers_bytes",
        "Records that were read for consumers and that these have not received.",
        readings.unread_bytes,
    )
    yield _gauge(
        "replog_event_loop_lag_seconds",
        "The most that the event loop was late within the last two seconds.",
        readings.loop_lag_ms / 1000,
    )


def _quorum(quorum: QuorumReading) -> Iterator[Metric]:
    yield _gauge("replog_quorum_epoch", "Leader epoch of the metadata quorum.", quorum.epoch)
    yield _gauge("replog_quorum_leader_id", "Node that leads the metadata quorum, -1: none known.", quorum.leader_id)
    yield _gauge("replog_quorum_is_leader", "1: this node leads it.", quorum.is_leader)
    yield _gauge("replog_quorum_high_watermark", "Metadata records below are committed.", quorum.high_watermark)
    yield _gauge("replog_quorum_log_end_offset", "End of this node's metadata log.", quorum.log_end_offset)
    yield CounterMetricFamily(
        "replog_quorum_elections", "Times that another leader became known.", value=quorum.elections
    )
    if quorum.election_ms is not None:
        yield _gauge(
            "replog_quorum_election_seconds", "How long there was no leader, the last time.", quorum.election_ms / 1000
        )
    commits = GaugeMetricFamily(
        "replog_quorum_commit_seconds",
        "From append to commit, over the last 1,024 commits of this node as leader.",
        labels=("quantile",),
    )
    for quantile, commit_ms in quorum.commit_ms:
        if commit_ms is not None:
            commits.add_metric((f"{quantile:g}",), commit_ms / 1000)
    yield commits
    lags = GaugeMetricFamily(
        "replog_quorum_voter_lag_records", "Metadata records that a voter lacks, told by the leader.", labels=("voter",)
    )
    for voter_id, lag in quorum.voter_lags:
        lags.add_metric((str(voter_id),), lag)
    yield lags


def _coordinators(coordinators: CoordinatorReading) -> Iterator[Metric]:
    shards = GaugeMetricFamily(
        "replog_group_coordinators", "Partitions of __consumer_offsets that are led here, by state.", labels=("state",)
    )
    for state in (ShardState.LOADING, ShardState.ACTIVE, ShardState.FAILED):
        shards.add_metric((state.name.lower(),), coordinators.shards.get(state, 0))
    yield shards
    groups = GaugeMetricFamily("replog_groups", "Groups that are coordinated here, by state.", labels=("state",))
    for name, count in sorted(coordinators.groups.items()):
        groups.add_metric((name.lower(),), count)
    yield groups
    yield _gauge(
        "replog_group_open_requests",
        "Requests that wait for coordinators of groups, joins among them.",
        coordinators.open_requests,
    )
    yield CounterMetricFamily(
        "replog_group_committed_offsets", "Offsets that groups have committed.", value=coordinators.committed_offsets
    )
    yield _gauge(
        "replog_group_load_seconds",
        "The longest that reading a log has taken of the coordinators that serve.",
        coordinators.load_ms / 1000,
    )
    rebalances = CounterMetricFamily(
        "replog_group_rebalances", "Times that groups were shared out anew, by what set it off.", labels=("reason",)
    )
    for reason in RebalanceReason:
        rebalances.add_metric((reason.value,), coordinators.rebalances.get(reason, 0))
    yield rebalances
    offsets = GaugeMetricFamily(
        "replog_group_committed_offset",
        "The offset that a group has committed of a partition, of groups that are coordinated here.",
        labels=("group", "topic", "partition"),
    )
    for group_id, topic, partition, offset in coordinators.offsets:
        offsets.add_metric((group_id, topic, str(partition)), offset)
    yield offsets
    yield _gauge(
        "replog_group_offsets_left_out",
        "Committed offsets that are not told, because there are more than metrics.group.offsets.max.",
        coordinators.left_out_count,
    )


def _elections(elections: Mapping[ElectionType, int]) -> Metric:
    family = CounterMetricFamily(
        "replog_elections",
        "Leader elections of partitions, on controllers, by how the leader was chosen.",
        labels=("type",),
    )
    for election_type, count in elections.items():
        family.add_metric((election_type.name.lower(),), count)
    return family


def _access(access: AccessReading) -> Iterator[Metric]:
    yield _gauge("replog_acl_entries", "Entries of access control lists that are in force.", access.entries)
    yield CounterMetricFamily(
        "replog_acl_denials", "Times that somebody was not allowed something.", value=access.denials
    )


def _kafka(kafka: KafkaReading) -> Iterator[Metric]:
    counts = kafka.counts
    yield _gauge("replog_client_connections", "Connections of clients, ours and Kafka's.", kafka.connections)
    for name, text, value in (
        ("replog_client_connections_accepted", "Connections of clients that were taken in.", kafka.accepted),
        ("replog_client_connections_ended", "Connections that were ended from this side.", kafka.ended),
        ("replog_kafka_malformed_requests", "Bytes that are no request that is served.", counts.malformed),
        ("replog_kafka_failures", "Requests that were answered with an error because of a bug.", counts.failures),
    ):
        yield CounterMetricFamily(name, text, value=value)
    refused = CounterMetricFamily(
        "replog_client_authentications_failed", "Connections whose client was not believed.", labels=("listener",)
    )
    for listener, count in dict(kafka.refused).items():
        refused.add_metric((listener,), count)
    yield refused
    held = CounterMetricFamily(
        "replog_client_connections_held",
        "Connections that came sooner than max.connection.creation.rate (listener) or connection_creation_rate (address) lets them.",
        labels=("by",),
    )
    for by, count in dict(kafka.held).items():
        held.add_metric((by,), count)
    yield held
    throttled = CounterMetricFamily(
        "replog_client_throttle_seconds", "Time that clients over a quota were told to wait.", labels=("quota",)
    )
    for quota, seconds in dict(kafka.throttled_s).items():
        throttled.add_metric((quota,), seconds)
    yield throttled
    requests = CounterMetricFamily("replog_kafka_requests", "Requests of Kafka's clients.", labels=("api", "version"))
    for (api, version), count in counts.requests.copy().items():
        requests.add_metric((api, str(version)), count)
    yield requests
    clients = CounterMetricFamily(
        "replog_kafka_clients", "Connections by what the client says it is.", labels=("software", "version")
    )
    for kind, count in counts.software.copy().items():
        clients.add_metric(kind, count)
    yield clients
