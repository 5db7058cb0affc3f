"""All questions that clients put to brokers in Kafka's messages, by the class of the question.

The questions of one kind, and Kafka's messages for them, are loaded with the first of them: a producer has four of forty-six.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Final

from replog.client.protocol.asking import Question

_NAMES: Final[Mapping[str, tuple[str, ...]]] = {
    "offsets": (
        *("ListOffsetsRequest", "EpochEndsRequest", "DeleteRecordsRequest", "InitProducerIdRequest"),
        "MetadataRequest",
    ),
    "topics": ("CreateTopics", "CreatePartitions", "DeleteTopics"),
    "configs": ("DescribeConfigsRequest", "AlterConfigs"),
    "acls": ("DescribeAcls", "CreateAcls", "DeleteAcls"),
    "quotas": ("DescribeQuotas", "AlterClientQuotas"),
    "replicas": ("ElectLeaders", "AlterPartitionReassignments", "MoveReplicaRequest", "DescribeLogDirsRequest"),
    "cluster": (
        *("ClusterDetailsRequest", "UnregisterBroker", "UpdateFeatures", "DescribeQuorumRequest", "AddVoterRequest"),
        *("RemoveVoterRequest", "DescribeFeatures"),
    ),
    "users": ("DescribeUsers", "AlterUser"),
    "delegation_tokens": ("MakeToken", "SetTokenExpiry", "DescribeTokens"),
    "group_members": (
        *("FindCoordinator", "ConsumerHeartbeat", "JoinGroup", "SyncGroup", "ClassicHeartbeat"),
        "LeaveGroup",
    ),
    "group_offsets": ("CommitOffsets", "FetchOffsets", "DeleteOffsets"),
    "transactions": (
        *("BeginProducing", "AddToTransaction", "AddGroupToTransaction", "CommitInTransaction", "DecideTransaction"),
    ),
    "transaction_operations": (
        *("ListTransactionalIds", "DescribeTransactionalId", "DescribeProducers", "WriteMarkersRequest"),
        "OffersPreparing",
    ),
    "group_descriptions": ("DeleteGroup", "ListGroups", "DescribeGroup", "DescribeConsumerGroup"),
}
"""By the module, the names of the classes in its `QUESTIONS`."""

_MODULES: Final = {name: module for module, names in _NAMES.items() for name in names}


def question_of(request: type) -> Question | None:
    """Returns what puts a question to a broker; None where no message of Kafka's stands for it.

    Args:
        request: The class of the question.
    """
    module = _MODULES.get(request.__name__)
    if module is None:
        return None
    questions: Mapping[type, Question] = import_module(f"replog.client.protocol.questions.{module}").QUESTIONS
    return questions.get(request)
