"""`Admin`: topics, groups, transactions, cluster, nodes, offsets."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Never, Self

from msgspec.structs import replace

from replog.client.admin.access import AclOperations, DelegationTokenOperations, QuotaOperations, UserOperations
from replog.client.admin.groups import GroupOperations
from replog.client.admin.operations import Fate, Operations, config_text, in_parts, require_configs
from replog.client.admin.together import Deadline
from replog.client.admin.transactions import TransactionOperations
from replog.client.arguments import (
    assignments_of,
    items_of,
    limit_ms,
    numbers_by_partition,
    partitions_of,
    require_limit,
    require_text,
    require_whole,
    texts_of,
    wrong_type,
)
from replog.client.cluster.addresses import address_of, parse_address
from replog.client.cluster.image import has_leaders, is_in_sync, is_ready
from replog.client.cluster.offsets import delete_records, epoch_ends, list_offset_results, list_offsets
from replog.client.cluster.view import ATTEMPT_TIMEOUT_MS, VISIBLE_WITHIN_MS, ClusterView
from replog.client.protocol.seam import Transport
from replog.client.settings import refuse_unknown
from replog.client.types import EpochEndOffset, OffsetAndTimestamp, TopicPartition
from replog.controller.requests import (
    ConfigEntry,
    CreateTopics,
    DeleteTopics,
    ForkTopic,
    NamedPartition,
    NewTopic,
    TopicResult,
)
from replog.errors import (
    BrokerNotAvailableError,
    ErrorCode,
    InvalidRequestError,
    ReplogError,
    TopicExistsError,
)
from replog.errors.choices import require_at_least
from replog.errors.from_code import error_from_code
from replog.metadata.records import ResourceType
from replog.rpc.messages import LATEST_TIMESTAMP
from replog.rpc.metadata_messages import BrokerInfo, ClusterMetadata, TopicInfo
from replog.rpc.node_messages import (
    ConfigDescription,
    DescribeLogDirsRequest,
    DescribeNodeConfigsRequest,
    DescribeNodeRequest,
    DescribeNodeResponse,
    LogDir,
    MoveReplicaRequest,
)
from replog.waiting.task_ends import Ending

if TYPE_CHECKING:  # loaded where it is asked for
    from replog.client.admin.partition_description import PartitionDescription
    from replog.client.admin.reassignments import Reassignments
    from replog.client.security.security import Security

DEFAULT_TIMEOUT_MS = 30_000


class Admin(
    Operations,
    GroupOperations,
    TransactionOperations,
    AclOperations,
    QuotaOperations,
    UserOperations,
    DelegationTokenOperations,
):
    """Manages topics, consumer groups, transactions, users, delegation tokens, access control lists and quotas, and looks at the cluster.

    Every method but those that make one attempt retries what is worth retrying, for `timeout_ms` at most, and then
    raises RequestTimedOutError with the last cause in its text.

    Use it as `async with Admin("127.0.0.1:9092") as admin:`; entering does not wait for a broker, so it can be opened
    before the cluster is up (see `wait_until_ready`).

    Args:
        bootstrap_servers: "host:port,host:port", or a sequence of "host:port".
        client_id: The name of this client in the brokers' logs.
        timeout_ms: The overall limit of each method that retries and is given none of its own, in milliseconds.
        security: How client and brokers are believed by each other (docs/SECURITY_CLIENTS.md); None: plain text.
        transport: The transport to the brokers; None: TCP.

    Raises:
        ConfigError: `bootstrap_servers` is not a list of host:port.
    """

    def __init__(
        self,
        bootstrap_servers: str | Sequence[str],
        *misplaced: Never,
        client_id: str = "replog-admin",
        timeout_ms: int = DEFAULT_TIMEOUT_MS,
        security: Security | None = None,
        transport: Transport | None = None,
        **unknown: Never,
    ) -> None:
        refuse_unknown(type(self), unknown, misplaced)
        require_at_least("timeout.ms", timeout_ms, 1)
        self._view = ClusterView(bootstrap_servers, transport=transport, security=security, client_id=client_id)
        self._timeout_ms = timeout_ms
        self._ending = Ending(self._view.close)

    async def __aenter__(self) -> Self:
        self._view.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Closes the connections.  Calling it again does nothing."""
        if self._view.is_out_of_reach:
            await self._view.close()
            return
        self._view.home.enter()
        await self._ending.wait()

    # ---- topics ----------------------------------------------------------------------------------------------------

    async def create_topics(
        self, topics: Iterable[NewTopic], *, validate_only: bool = False, timeout_ms: int | None = None
    ) -> tuple[TopicResult, ...]:
        """Creates several topics, each for itself; look at `error` of each result.

        A result says NONE too when an earlier attempt of this call, whose answer was lost, had created the topic.
        """
        wanted = tuple(items_of("topics", topics, "a list of NewTopic"))
        for topic in wanted:
            if not isinstance(topic, NewTopic):
                raise wrong_type("an item of topics", topic, "a NewTopic")
        requests = [CreateTopics(part, validate_only=validate_only) for part in in_parts(wanted, _records_of)]
        fate = Fate()
        within_ms = self._limit_ms(timeout_ms)
        results = tuple(await self._ask_of_topics(requests, within_ms, what="create topics", on_retry=fate.note))
        if not fate.unknown or validate_only:
            return results
        return tuple([await self._judge_created(topic, result) for topic, result in zip(wanted, results, strict=True)])

    async def create_topic(
        self,
        name: str,
        num_partitions: int = -1,
        replication_factor: int = -1,
        configs: Mapping[str, object] | None = None,
        *,
        assignments: Sequence[Sequence[int]] = (),
        timeout_ms: int | None = None,
    ) -> TopicInfo:
        """Creates one topic and waits until all its partitions have leaders that this client can see.

        Args:
            name: The name of the topic: letters, digits, ".", "_" and "-", at most 249 of them.
            num_partitions: The number of partitions; -1: the brokers' `num.partitions`.
            replication_factor: The number of replicas; -1: the brokers' `default.replication.factor`.
            configs: The configurations by Kafka's names, e.g. `{"min.insync.replicas": 2}`.
            assignments: The replicas of partition 0, 1, ...; instead of the two counts.
            timeout_ms: The limit of the creation, and then that of the wait, in milliseconds.

        Raises:
            TopicExistsError, InvalidTopicError, InvalidPartitionsError, InvalidReplicationFactorError, ConfigError: The
                controller refuses the topic.
            RequestTimedOutError: The leaders were not there in time; the topic may exist all the same.
        """
        within_ms = self._limit_ms(timeout_ms)
        require_text("name", name)
        require_whole("num_partitions", num_partitions)
        require_whole("replication_factor", replication_factor)
        replicas = assignments_of(assignments)
        topic = NewTopic(name, num_partitions, replication_factor, replicas, _entries(configs or {}))
        (result,) = await self.create_topics([topic], timeout_ms=within_ms)
        _raise_result(result)
        return await self.wait_for_topic(name, has_leaders, timeout_ms=within_ms, what=f"wait for leaders of {name}")

    async def fork_topic(self, source: str, copy: str, *, timeout_ms: int | None = None) -> TopicInfo:
        """Creates a topic with all that is committed in another one; returns when it can be read from it.

        Segments are shared as hard links, so that it takes no longer for a large topic.  The copy has the same partitions, replicas,
        configurations and offsets, and goes on by itself.  Transactions that are open are aborted in it.  Partitions are not cut at
        one moment: a transaction that commits meanwhile may be in some of them.

        Args:
            source: The name of the topic.
            copy: The name of the topic to create.
            timeout_ms: The limit of each of the steps (markers, ends, creation, leaders, replicas), in milliseconds.

        Raises:
            UnknownTopicOrPartitionError: There is no such source.
            TopicExistsError, InvalidTopicError, PolicyViolationError: The controller refuses the copy, or the source is the cluster's own.
            LeaderNotAvailableError: A partition of the source has no leader, or moves to other brokers.
            UnsupportedVersionError: A node is too old.
            RequestTimedOutError: The copy was not there in time; it may come all the same.
        """
        require_text("source", source)
        require_text("copy", copy)
        within_ms = self._limit_ms(timeout_ms)
        info = (await self.describe_topics([source]))[source]
        places = [TopicPartition(source, each) for each in range(len(info.partitions))]
        await self._wait_for_markers(places, Deadline(within_ms))
        latest = dict.fromkeys(places, LATEST_TIMESTAMP)
        ends = await list_offset_results(self._view, latest, timeout_ms=within_ms, read_uncommitted=True)
        request = ForkTopic(source, info.topic_id, copy, tuple(ends[place].offset for place in places))
        fate = Fate()
        try:
            what = f"fork topic {source} as {copy}"
            await self._view.call_any(request, timeout_ms=within_ms, what=what, on_retry=fate.note)
        except TopicExistsError:
            if not fate.unknown:
                raise
        topic = await self.wait_for_topic(copy, has_leaders, timeout_ms=within_ms, what=f"wait for leaders of {copy}")
        # a leader tells no high watermark before all replicas in sync have what it began with
        await self.list_offsets({(copy, each.partition): LATEST_TIMESTAMP for each in places}, timeout_ms=within_ms)
        return topic

    async def delete_topics(self, names: Iterable[str], *, timeout_ms: int | None = None) -> tuple[TopicResult, ...]:
        """Deletes several topics, each for itself, and waits until they are gone from the metadata that this client sees.

        Look at `error` of each result.  A name that stands twice is deleted once.
        """
        wanted = tuple(dict.fromkeys(texts_of("names", names)))
        within_ms = self._limit_ms(timeout_ms)
        fate = Fate()
        answered = await self._ask_of_topics(
            [DeleteTopics(part) for part in in_parts(wanted) if part],
            within_ms,
            what=f"delete topic {wanted[0]}" if len(wanted) == 1 else "delete topics",
            on_retry=fate.note,
        )
        results = tuple(
            replace(result, error=ErrorCode.NONE, message="")
            if fate.unknown and result.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            else result
            for result in answered
        )
        going = [result.name for result in results if result.error is ErrorCode.NONE]

        def gone() -> bool | None:
            if self._view.cluster_id and self._view.image.topics.keys().isdisjoint(going):
                return True
            self._view.request_refresh()
            return None

        if going:
            await self._view.wait_for(gone, timeout_ms=within_ms, what="see deleted topics go")
        return results

    async def delete_topic(self, name: str, *, timeout_ms: int | None = None) -> None:
        """Deletes a topic and waits until it is gone from the metadata that this client sees.

        Raises:
            UnknownTopicOrPartitionError: There is no such topic.
        """
        require_text("name", name)
        (result,) = await self.delete_topics([name], timeout_ms=timeout_ms)
        _raise_result(result)

    async def list_topics(self, *, timeout_ms: int | None = None) -> list[str]:
        """Returns the names of all topics, sorted."""
        metadata = await self.describe_cluster(timeout_ms=timeout_ms)
        return sorted(topic.name for topic in metadata.topics)

    async def describe_topics(
        self, names: Iterable[str], *, visible_within_ms: int = VISIBLE_WITHIN_MS
    ) -> dict[str, TopicInfo]:
        """Returns partitions, leaders, ISRs and configs, by topic name.

        Args:
            names: The names of the topics.
            visible_within_ms: The time that a topic that was just created may take to reach the brokers' metadata,
                in milliseconds.

        Raises:
            UnknownTopicOrPartitionError: A topic is still not there after that.
        """
        wanted = texts_of("names", names)
        require_limit("visible_within_ms", visible_within_ms)
        told = {topic.name: topic for topic in (await self.describe_cluster()).topics}
        return {
            name: told.get(name) or await self._view.topic_or_raise(name, within_ms=visible_within_ms)
            for name in wanted
        }

    async def alter_topic_configs(
        self, topic: str, configs: Mapping[str, object], *, timeout_ms: int | None = None
    ) -> None:
        """Sets configs of a topic; see `alter_configs`."""
        require_text("topic", topic)
        await self.alter_configs((ResourceType.TOPIC, topic), configs, timeout_ms=timeout_ms)

    # ---- cluster and nodes -----------------------------------------------------------------------------------------

    async def describe_cluster(self, *, timeout_ms: int | None = None) -> ClusterMetadata:
        """Asks anew for brokers, controller and topics, and returns them."""
        return await self._view.describe(self._limit_ms(timeout_ms))

    async def describe_node(
        self,
        broker: int | str,
        *,
        partitions: Iterable[tuple[str, int]] | None = None,
        timeout_ms: int | None = None,
    ) -> DescribeNodeResponse:
        """Returns what one process says about itself, also before it is unfenced.

        Args:
            broker: The id of the broker, or its "host:port".
            partitions: The only replicas to describe, with what a leader knows of the others; None: all, without that.
            timeout_ms: The limit of the one attempt, in milliseconds.

        Raises:
            BrokerNotAvailableError: No broker of this id is registered.
            ConnectionLostError: The node does not answer.  One attempt only: a dead node is an answer here.
        """
        within_ms = limit_ms(timeout_ms, ATTEMPT_TIMEOUT_MS)
        chosen = None if partitions is None else partitions_of("partitions", partitions)
        named = None if chosen is None else tuple(NamedPartition(*one) for one in chosen)
        address = await self._address(broker)
        return await self._view.read(address, DescribeNodeRequest(named), timeout_ms=within_ms)

    async def describe_node_configs(
        self, node: int | str, *, timeout_ms: int | None = None
    ) -> tuple[ConfigDescription, ...]:
        """Returns every configuration that one node goes by, by name.

        It is what the node's file says, and what was set while it ran.

        Args:
            node: The id of a broker or of a voter of the metadata quorum, which brokers ask for it, or the "host:port" of any.
            timeout_ms: The limit of the one attempt, in milliseconds.

        Raises:
            BrokerNotAvailableError: No node of this id is known.
            ConnectionLostError: The node does not answer.
        """
        within_ms = limit_ms(timeout_ms, ATTEMPT_TIMEOUT_MS)
        address = parse_address("node", node) if isinstance(node, str) else await self._node_address(node)
        if address is None:
            return await self._configs_of_voter(int(node), within_ms)
        return (await self._view.read(address, DescribeNodeConfigsRequest(), timeout_ms=within_ms)).configs

    async def _configs_of_voter(self, node_id: int, timeout_ms: int) -> tuple[ConfigDescription, ...]:
        """Lets a broker ask a node that is a controller only: clients need not reach those."""
        request, what = DescribeNodeConfigsRequest(node_id), f"describe the configuration of node {node_id}"
        with suppress(InvalidRequestError):  # it is no voter
            answer = await self._view.call_any(request, timeout_ms=timeout_ms, what=what)
            if answer.node_id == node_id:  # brokers of before answer for themselves
                return answer.configs
        known = ", ".join(str(one) for one in sorted(self._view.image.brokers))
        raise BrokerNotAvailableError(
            f"no broker {node_id} is {self._known_are}, and the metadata quorum has no such voter. There are brokers: {known or 'none'}; "
            "`replog quorum describe` shows the voters. Of another node name the listener, as host:port"
        )

    async def describe_log_dirs(self, broker: int | str, *, timeout_ms: int | None = None) -> tuple[LogDir, ...]:
        """Returns the log directories of one broker, with their replicas, and the replicas that move to them.

        Args:
            broker: The id of the broker, or its "host:port".
            timeout_ms: The limit of the one attempt, in milliseconds.

        Raises:
            BrokerNotAvailableError: No broker of this id is registered.
            ConnectionLostError: The broker does not answer.
        """
        address = await self._address(broker)
        request = DescribeLogDirsRequest()
        response = await self._view.read(address, request, timeout_ms=limit_ms(timeout_ms, ATTEMPT_TIMEOUT_MS))
        return response.directories

    async def move_replica(
        self, topic: str, partition: int, *, broker: int | str, path: str, timeout_ms: int | None = None
    ) -> None:
        """Asks a broker to move one of its replicas to another of its log directories.

        It returns when the broker has noted the wish; `describe_log_dirs` says how far the move is.

        Args:
            topic: The name of the topic.
            partition: The number of the partition.
            broker: The id of the broker, or its "host:port".
            path: The path of the log directory, as the broker's `log.dirs` names it.
            timeout_ms: The limit of the one attempt, in milliseconds.

        Raises:
            UnknownTopicOrPartitionError: The broker has no such replica that can be used.
            LogDirNotFoundError: The broker has no such log directory.
            InvalidRequestError: The replica is there already, or moves already, or is the metadata log.
            StorageError: The log directory is offline.
            DiskFullError: The log directory has no room.
            ThrottledError: Too many moves wait.
            BrokerNotAvailableError: No broker of this id is registered.
            ConnectionLostError: The broker does not answer.
        """
        require_text("topic", topic)
        require_whole("partition", partition)
        require_text("path", path)
        address = await self._address(broker)
        request = MoveReplicaRequest(topic, partition, path)
        await self._view.call(address, request, timeout_ms=limit_ms(timeout_ms, ATTEMPT_TIMEOUT_MS))

    async def describe_partition(
        self, topic: str, partition: int, *, timeout_ms: int | None = None, visible_within_ms: int = VISIBLE_WITHIN_MS
    ) -> PartitionDescription:
        """Asks the leader and all replicas for epochs, offsets, in-sync replicas and the lag of each replica.

        Args:
            topic: The name of the topic.
            partition: The number of the partition.
            timeout_ms: The limit of each question, in milliseconds; a broker that does not answer by then is shown so.
            visible_within_ms: The time that a topic that was just created may take to reach the brokers' metadata,
                in milliseconds.

        Raises:
            UnknownTopicOrPartitionError: There is no such partition.
        """
        require_text("topic", topic)
        require_whole("partition", partition)
        require_limit("visible_within_ms", visible_within_ms)
        within_ms = limit_ms(timeout_ms, ATTEMPT_TIMEOUT_MS)
        from replog.client.admin.partition_description import describe_partition

        return await describe_partition(
            self._view, topic, partition, timeout_ms=within_ms, visible_within_ms=visible_within_ms
        )

    async def describe_reassignments(
        self, since: Reassignments | None = None, *, timeout_ms: int | None = None
    ) -> Reassignments:
        """Returns how far the reassignments under way are.

        That is bytes there and needed, and what keeps a replica from going on.

        Args:
            since: An earlier look; rates, times left and stalls are reckoned from it.
            timeout_ms: The limit of each question, in milliseconds; what a broker would have said that does not answer
                by then is None.
        """
        from replog.client.admin.reassignments import Reassignments, compared, describe_reassignments

        if since is not None and not isinstance(since, Reassignments):
            raise wrong_type("since", since, "what describe_reassignments returned before, or None")
        found = await describe_reassignments(self._view, timeout_ms=limit_ms(timeout_ms, ATTEMPT_TIMEOUT_MS))
        return found if since is None else compared(since, found)

    async def list_offsets(
        self, timestamps: Mapping[tuple[str, int], int], *, timeout_ms: int | None = None
    ) -> dict[TopicPartition, OffsetAndTimestamp]:
        """Looks up one offset per partition.

        See `replog.client.cluster.offsets.list_offsets` for what can be asked and raised.
        """
        wanted = numbers_by_partition("timestamps", timestamps)
        return await list_offsets(self._view, wanted, timeout_ms=self._limit_ms(timeout_ms))

    async def delete_records(
        self, offsets: Mapping[tuple[str, int], int], *, timeout_ms: int | None = None
    ) -> dict[TopicPartition, int]:
        """Deletes what is below the offsets (-1: the high watermark).

        See `replog.client.cluster.offsets.delete_records` for what can be raised.
        """
        wanted = numbers_by_partition("offsets", offsets)
        return await delete_records(self._view, wanted, timeout_ms=self._limit_ms(timeout_ms))

    async def epoch_ends(
        self, epochs: Mapping[tuple[str, int], int], *, timeout_ms: int | None = None
    ) -> dict[TopicPartition, EpochEndOffset | None]:
        """Looks up where leader epochs end in the leaders' logs; see `replog.client.cluster.offsets.epoch_ends`."""
        wanted = numbers_by_partition("epochs", epochs)
        return await epoch_ends(self._view, wanted, timeout_ms=self._limit_ms(timeout_ms))

    # ---- waiting ---------------------------------------------------------------------------------------------------

    async def wait_until_ready(self, *, brokers: int = 1, timeout_ms: int | None = None) -> ClusterMetadata:
        """Waits until at least `brokers` brokers are unfenced and there is a controller."""
        require_whole("brokers", brokers)

        def ready() -> ClusterMetadata | None:
            return self._view.metadata if is_ready(self._view.image, brokers) else None

        within_ms = self._limit_ms(timeout_ms)
        return await self._view.wait_for(ready, timeout_ms=within_ms, what=f"wait for {brokers} brokers")

    async def wait_until_in_sync(self, topic: str, *, timeout_ms: int | None = None) -> TopicInfo:
        """Waits until every partition has a leader and all its replicas in the ISR."""
        require_text("topic", topic)
        return await self.wait_for_topic(
            topic, is_in_sync, timeout_ms=timeout_ms, what=f"wait for all replicas of {topic} to be in sync"
        )

    async def wait_for_topic(
        self, name: str, predicate: Callable[[TopicInfo], bool], *, timeout_ms: int | None = None, what: str = ""
    ) -> TopicInfo:
        """Waits until the topic's metadata satisfies `predicate`, which looks at it after every change."""
        require_text("name", name)
        if not callable(predicate):
            raise wrong_type("predicate", predicate, "a function of a TopicInfo")

        def found() -> TopicInfo | None:
            topic = self._view.image.topics.get(name)
            if topic is None:
                self._view.request_refresh()
            return topic if topic is not None and predicate(topic) else None

        self._view.open()
        self._view.request_refresh()
        within_ms = self._limit_ms(timeout_ms)
        return await self._view.wait_for(found, timeout_ms=within_ms, what=what or f"wait for topic {name}")

    async def _address(self, broker: int | str) -> str:
        """Returns where a broker listens that is named by its id, or by that."""
        if isinstance(broker, str):
            return parse_address("broker", broker)
        require_whole("broker", broker, 'a broker id or "host:port"')
        if (found := await self._broker(broker)) is None:
            known = ", ".join(map(str, sorted(self._view.image.brokers)))
            raise BrokerNotAvailableError(f"no broker {broker} is {self._known_are}; there are: {known or 'none'}")
        return address_of(found)

    @property
    def _known_are(self) -> str:
        """What brokers are that are told: Kafka before 4.0 leaves those out that are fenced."""
        return "in service" if self._view.image.is_counted else "registered"

    async def _broker(self, broker_id: int) -> BrokerInfo | None:
        """Returns a broker, also one that Apache Kafka has fenced; None: none of this id is told."""
        await self._view.ready(self._timeout_ms)
        found = self._view.image.brokers.get(broker_id)
        if found is None and self._view.image.is_counted:
            metadata = await self.describe_cluster()
            found = next((one for one in metadata.brokers if one.broker_id == broker_id), None)
        return found

    async def _node_address(self, node_id: int) -> str | None:
        """Returns the address of a broker, or of a controller only that `bootstrap_servers` names; None: nobody tells it."""
        require_whole("node", node_id, 'a node id or "host:port"')
        if (found := await self._broker(node_id)) is not None:
            return address_of(found)
        for address in self._view.bootstrap:
            with suppress(ReplogError):
                if (await self.describe_node(address)).node_id == node_id:
                    return address
        return None

    async def _judge_created(self, topic: NewTopic, result: TopicResult) -> TopicResult:
        """Turns "exists already" into success where a lost attempt of ours must have been the one that created it."""
        if result.error is not ErrorCode.TOPIC_ALREADY_EXISTS:
            return result
        info = (await self.describe_topics([topic.name]))[topic.name]
        factor = len(info.partitions[0].replicas) if info.partitions else -1
        if topic.num_partitions not in {-1, len(info.partitions)} or topic.replication_factor not in {-1, factor}:
            return result
        return TopicResult(topic.name, ErrorCode.NONE, "", info.topic_id, len(info.partitions), factor)


def _records_of(topic: NewTopic) -> int:
    return 1 + len(topic.configs) + max(1, topic.num_partitions, len(topic.assignments))


def _entries(configs: Mapping[str, object]) -> tuple[ConfigEntry, ...]:
    require_configs(configs)
    return tuple(ConfigEntry(name, None if value is None else config_text(value)) for name, value in configs.items())


def _raise_result(result: TopicResult) -> None:
    if result.error is not ErrorCode.NONE:
        raise error_from_code(result.error, result.message or f"{result.name}: {result.error.name}")
