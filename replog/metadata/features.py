"""The features of a cluster, and the levels of each that this version of the code can work with.

A level is finalized for the whole cluster by a record, once every node supports it: nodes are replaced one by one, then
the level is raised, and only then records appear that older nodes would not understand.

===================  =====  ==========================================================================================
feature              level  what it brings
===================  =====  ==========================================================================================
metadata.version     1      brokers, topics, partitions, configurations, producer ids
metadata.version     2      transactions of the metadata log, reassignments, drained brokers, controller registrations
metadata.version     3      endpoints of brokers by the names of listeners: where they serve Kafka's clients
metadata.version     4      users, entries of access control lists, quotas of clients, delegation tokens
metadata.version     5      forks: topics that begin with the records of another one
transaction.version  1      records of transactions that a later version may add to (KIP-890)
transaction.version  2      another epoch for each transaction; a partition joins one with its first batch (KIP-890)
===================  =====  ==========================================================================================
"""

from __future__ import annotations

from collections.abc import Iterable

from replog.metadata.records import SupportedFeature

METADATA_VERSION = "metadata.version"
METADATA_VERSION_TRANSACTIONS = 2
"""From this level on there are transactions, reassignments, drained brokers and registered controllers."""

METADATA_VERSION_ENDPOINTS = 3
"""From this level on registrations hold the endpoints of brokers."""

METADATA_VERSION_SECURITY = 4
"""From this level on there are users, entries of access control lists, quotas of clients and delegation tokens."""

METADATA_VERSION_FORKS = 5
"""From this level on a topic may be the fork of another one."""

TRANSACTION_VERSION = "transaction.version"
"""The feature of transactions; its levels are Kafka's, and producers look at it to know how to write."""

TRANSACTION_VERSION_FLEXIBLE = 1
"""From this level on coordinators write records that a later version may add fields to."""

TRANSACTION_VERSION_BUMPS = 2
"""From this level on a producer gets another epoch at the end of each transaction."""

SUPPORTED_FEATURES = (
    SupportedFeature(METADATA_VERSION, 1, METADATA_VERSION_FORKS),
    SupportedFeature(TRANSACTION_VERSION, 0, TRANSACTION_VERSION_BUMPS),
)
"""What this code supports; a new cluster starts with the highest levels."""


def supported_levels(features: Iterable[SupportedFeature], name: str) -> SupportedFeature:
    """Returns the levels of one feature that a node supports, by what it told when it registered.

    A node that says nothing about `metadata.version` is of the first version; of any other feature it supports nothing.
    """
    for feature in features:
        if feature.name == name:
            return feature
    level = 1 if name == METADATA_VERSION else 0
    return SupportedFeature(name, level, level)
