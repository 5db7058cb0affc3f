"""The tools of Apache Kafka's `bin` folder: the class behind each name, and how one is run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from kafka_install import KafkaInstall, Printed

TOOLS: Mapping[str, str] = {
    "kafka-acls": "org.apache.kafka.tools.AclCommand",
    "kafka-broker-api-versions": "org.apache.kafka.tools.BrokerApiVersionsCommand",
    "kafka-cluster": "org.apache.kafka.tools.ClusterTool",
    "kafka-configs": "kafka.admin.ConfigCommand",
    "kafka-console-consumer": "org.apache.kafka.tools.consumer.ConsoleConsumer",
    "kafka-console-producer": "org.apache.kafka.tools.ConsoleProducer",
    "kafka-consumer-groups": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
    "kafka-consumer-perf-test": "org.apache.kafka.tools.ConsumerPerformance",
    "kafka-delete-records": "org.apache.kafka.tools.DeleteRecordsCommand",
    "kafka-features": "org.apache.kafka.tools.FeatureCommand",
    "kafka-get-offsets": "org.apache.kafka.tools.GetOffsetShell",
    "kafka-groups": "org.apache.kafka.tools.GroupsCommand",
    "kafka-leader-election": "org.apache.kafka.tools.LeaderElectionCommand",
    "kafka-log-dirs": "org.apache.kafka.tools.LogDirsCommand",
    "kafka-metadata-quorum": "org.apache.kafka.tools.MetadataQuorumCommand",
    "kafka-producer-perf-test": "org.apache.kafka.tools.ProducerPerformance",
    "kafka-reassign-partitions": "org.apache.kafka.tools.reassign.ReassignPartitionsCommand",
    "kafka-share-groups": "org.apache.kafka.tools.consumer.group.ShareGroupCommand",
    "kafka-topics": "org.apache.kafka.tools.TopicCommand",
    "kafka-transactions": "org.apache.kafka.tools.TransactionsCommand",
    "kafka-verifiable-producer": "org.apache.kafka.tools.VerifiableProducer",
}

NO_SERVERS_OPTION = {"kafka-producer-perf-test"}
"""Tools that are told where brokers are in another way."""

VERB_FIRST = {"kafka-cluster"}
"""Tools that want what they shall do before where brokers are; the others want it after."""

ENDS_WITH_ITS_JVM = {"kafka-verifiable-producer"}
"""Tools that end by what the JVM ends with, and so need one of their own."""


@dataclass(frozen=True, slots=True)
class Tools:
    """Kafka's tools, in one JVM one after another.

    Attributes:
        kafka: The classes.
        servers: host:port, separated by commas, of the brokers.
        is_each_alone: Whether each call has a JVM of its own, as users run the tools.
    """

    kafka: KafkaInstall
    servers: str
    is_each_alone: bool = False

    def alone(self) -> Tools:
        """Returns the same tools, each call in a JVM of its own."""
        return replace(self, is_each_alone=True)

    def run(self, tool: str, *arguments: str, stdin: str = "", status: int = 0) -> str:
        """Returns what a tool prints; it must end with the status."""
        return self._printed(tool, arguments, stdin, status).output

    def errors(self, tool: str, *arguments: str, status: int = 1) -> str:
        """Returns what a tool prints to standard output and as errors; it must end with the status."""
        printed = self._printed(tool, arguments, "", status)
        return printed.output + printed.errors

    def _printed(self, tool: str, arguments: tuple[str, ...], stdin: str, status: int) -> Printed:
        servers = () if tool in NO_SERVERS_OPTION else ("--bootstrap-server", self.servers)
        verbs = arguments[: tool in VERB_FIRST]
        is_alone = self.is_each_alone or tool in ENDS_WITH_ITS_JVM
        run = self.kafka.run_alone if is_alone else self.kafka.run
        return run(TOOLS[tool], *verbs, *servers, *arguments[len(verbs) :], stdin=stdin, status=status)
