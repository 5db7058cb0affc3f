"""How the coordinators of a node are made: those of groups, those of transactions, and the way between brokers for these.

The modules of what they decide are loaded with the first of them: they are a tenth of all that a node can load, and a broker of
a test seldom has groups or transactions (processes: `late_modules`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from replog.broker.coordinator.coordinators import Coordinators, ImageTopics
from replog.broker.coordinator.internal_topic import WAIT_MS, InternalTopic, offsets_shape, transactions_shape
from replog.broker.coordinator.kinds import GROUPS, TRANSACTIONS
from replog.broker.coordinator.shards import Shards
from replog.broker.node.core_settings import groups_config, transactions_config
from replog.broker.node.parts import CoordinatingParts, MetadataParts, ReplicaParts
from replog.broker.node.resources import NodeResources
from replog.broker.transactions.broker_calls import BrokerCalls
from replog.broker.transactions.verifier import JoinVerifier
from replog.controller.requests import CreateTopicsResponse
from replog.coordinator.rebalance_reasons import RebalanceCounts
from replog.metadata.features import TRANSACTION_VERSION

if TYPE_CHECKING:
    from replog.coordinator.group_machine import GroupMachine
    from replog.coordinator.runtime.machine import Timers
    from replog.coordinator.runtime.shard import Shard
    from replog.coordinator.transactions.machine import TransactionMachine
    from replog_timeline import SnapshotRegistry


def coordinating_parts(
    resources: NodeResources,
    metadata: MetadataParts,
    replicas: ReplicaParts,
    address_of: Callable[[int], str | None],
) -> CoordinatingParts:
    """Makes the coordinators of a node.

    Args:
        resources: What the parts of a node are made from.
        metadata: The parts that decide on metadata.
        replicas: The parts that hold data.
        address_of: The function that returns where a broker is reached by other nodes; None: the metadata does not say.
    """
    config, publisher = resources.config, replicas.publisher
    rebalances: RebalanceCounts = Counter()
    shards = Shards(
        replicas.stepper,
        {
            GROUPS.topic: partial(_group_shard, resources, ImageTopics(lambda: publisher.image), rebalances),
            TRANSACTIONS.topic: partial(
                _transaction_shard, resources, lambda: publisher.image.features.get(TRANSACTION_VERSION, 0)
            ),
        },
        replicas.lifecycle.refuses_because,
        replicas.images.run_later,
        rebalances,
    )
    create = partial(metadata.channel.send, answer=CreateTopicsResponse, timeout_ms=WAIT_MS)
    groups, transactions = (
        Coordinators(
            kind,
            config.node_id,
            lambda: publisher.image,
            InternalTopic(shape_of(config), config, publisher, create),
            shards,
        )
        for kind, shape_of in ((GROUPS, offsets_shape), (TRANSACTIONS, transactions_shape))
    )
    calls = BrokerCalls(resources.hello(), resources.peers, address_of)
    return CoordinatingParts(
        groups=groups,
        transactions=transactions,
        shards=shards,
        calls=calls,
        joins=JoinVerifier(config.node_id, lambda: publisher.image, transactions, calls),
    )


def _group_shard(resources: NodeResources, topics: ImageTopics, rebalances: RebalanceCounts, name: str) -> Shard:
    from replog.coordinator.config import ShardConfig
    from replog.coordinator.group_machine import GroupMachine
    from replog.coordinator.group_records import GROUP_RECORDS
    from replog.coordinator.runtime.shard import Shard

    def make_machine(registry: SnapshotRegistry, timers: Timers) -> GroupMachine:
        settings, rng = groups_config(resources.config), resources.environment.new_rng()
        return GroupMachine(registry, timers, settings, topics, rng, rebalances)

    return Shard(name=name, codec=GROUP_RECORDS, make_machine=make_machine, config=ShardConfig())


def _transaction_shard(resources: NodeResources, transaction_version: Callable[[], int], name: str) -> Shard:
    from replog.coordinator.config import ShardConfig
    from replog.coordinator.runtime.shard import Shard
    from replog.coordinator.transactions.machine import TransactionMachine
    from replog.coordinator.transactions.records import TRANSACTION_RECORDS

    def make_machine(registry: SnapshotRegistry, timers: Timers) -> TransactionMachine:
        return TransactionMachine(registry, timers, transactions_config(resources.config), transaction_version)

    return Shard(name=name, codec=TRANSACTION_RECORDS, make_machine=make_machine, config=ShardConfig())
