"""What an operator does to a running cluster: configurations, partitions, leaders, brokers, voters.

A base class of `Admin`; every method retries what is worth retrying, for its time-out at most.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias, TypeVar, cast
from uuid import UUID

from msgspec.structs import replace

from replog.client.admin.together import AdminPart
from replog.client.arguments import (
    assignments_of,
    broker_ids_of,
    partition_of,
    partitions_of,
    require_mapping,
    require_text,
    require_whole,
    wrong_type,
)
from replog.client.cluster.addresses import address_of
from replog.client.cluster.view import VISIBLE_WITHIN_MS
from replog.client.types import TopicPartition
from replog.controller.requests import (
    AlterableConfig,
    AlterConfigs,
    AlterConfigsResource,
    AlterPartitionReassignments,
    ConfigOperation,
    CreatePartitions,
    CreateTopics,
    CreateTopicsResponse,
    DeleteTopics,
    DeleteTopicsResponse,
    DrainBroker,
    ElectLeaders,
    FeatureUpdate,
    NamedPartition,
    NewPartitions,
    PartitionResult,
    Reassignment,
    TopicResult,
    UnregisterBroker,
    UpdateFeatures,
)
from replog.errors import (
    BrokerIdNotRegisteredError,
    BrokerNotAvailableError,
    ErrorCode,
    InvalidRequestError,
    ReplogError,
    RequestTimedOutError,
    ThrottledError,
    UnknownTopicOrPartitionError,
)
from replog.errors.choices import require_choice
from replog.errors.from_code import error_from_code
from replog.metadata.records import ElectionType, ResourceType
from replog.rpc.metadata_messages import BrokerInfo, ClusterMetadata, PartitionInfo
from replog.rpc.node_messages import (
    AddVoterRequest,
    ConfigDescription,
    DescribeConfigsRequest,
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    RemoveVoterRequest,
)
from replog.rpc.transport import ConnectionLostError
from replog.waiting.asks import Asks

if TYPE_CHECKING:  # loaded where it is asked for
    from replog.client.protocol.questions.cluster import FeatureRange

RECORDS_TOGETHER = 1_000
"""Records of the metadata log that one request of this client makes, where it may be cut: the controller handles a request in
one step, and has heartbeats to answer."""

CLUSTER = (ResourceType.BROKER, "")
"""The resource that holds the cluster-wide defaults."""


T = TypeVar("T")


class Fate:
    """Remembers whether an attempt was lost in a way that leaves open if it took effect."""

    def __init__(self) -> None:
        self.unknown = False

    def note(self, error: ReplogError) -> None:
        lost = isinstance(error, ConnectionLostError) and not error.refused
        self.unknown = self.unknown or lost or isinstance(error, RequestTimedOutError)


RETRY_PAUSE_S = 0.5
"""The pause before topics are asked for again that a quota refused without saying for how long."""

TopicRequest: TypeAlias = CreateTopics | DeleteTopics


def _asked(request: TopicRequest) -> Asks[CreateTopicsResponse | DeleteTopicsResponse]:
    """Returns a request as one whose answer is either."""
    return cast("Asks[CreateTopicsResponse | DeleteTopicsResponse]", request)


def _refused(results: Sequence[TopicResult]) -> list[int]:
    """Returns the places of the topics that a quota has refused."""
    return [place for place, one in enumerate(results) if one.error is ErrorCode.THROTTLING_QUOTA_EXCEEDED]


def _of_topics(request: TopicRequest, places: Sequence[int]) -> TopicRequest:
    """Returns a request for some of the topics of another one, which names them or does not mean any by their ids."""
    if isinstance(request, CreateTopics):
        return replace(request, topics=tuple(request.topics[place] for place in places))
    return replace(request, names=tuple(request.names[place] for place in places))


class Operations(AdminPart):
    """The methods about configurations, partitions, brokers, features and the metadata quorum."""

    async def _ask_all(
        self,
        requests: Iterable[Asks[T]],
        timeout_ms: int | None,
        *,
        what: str,
        on_retry: Callable[[ReplogError], None] | None = None,
    ) -> list[T]:
        """Makes requests one after the other, within one time-out, and returns the answers; the first error ends it."""
        deadline = self._deadline(timeout_ms)
        return [await self._ask(request, deadline.left_ms, what, on_retry) for request in requests]

    async def _ask_of_topics(
        self,
        requests: Iterable[TopicRequest],
        timeout_ms: int | None,
        *,
        what: str,
        on_retry: Callable[[ReplogError], None] | None = None,
    ) -> list[TopicResult]:
        """Makes requests as `_ask_all` does, and returns what became of each topic.

        Topics that the quota `controller_mutation_rate` refuses are asked for again, as soon as the answer says, while there is time.
        """
        deadline = self._deadline(timeout_ms)
        results: list[TopicResult] = []
        for request in requests:
            answer = await self._ask(_asked(request), deadline.left_ms, what, on_retry)
            found, throttle_s = list(answer.topics), answer.throttle_time_ms / 1000
            while (refused := _refused(found)) and throttle_s * 1000 + 1 < deadline.left_ms:
                await asyncio.sleep(throttle_s or RETRY_PAUSE_S)
                again = _of_topics(request, refused)
                try:
                    answer = await self._ask(_asked(again), deadline.left_ms, what, on_retry)
                except RequestTimedOutError as error:
                    if isinstance(error.__cause__, ThrottledError):  # what was done is told, and what was refused
                        break
                    raise
                for place, result in zip(refused, answer.topics, strict=True):
                    found[place] = result
                throttle_s = answer.throttle_time_ms / 1000
            results += found
        return results

    # ---- configurations ----------------------------------------------------------------------------------------------

    async def alter_configs(
        self,
        resource: tuple[ResourceType, str],
        configs: Mapping[str, object],
        *,
        validate_only: bool = False,
        timeout_ms: int | None = None,
    ) -> None:
        """Sets configurations of a topic, a broker (its id as text) or `CLUSTER`; what is not named stays.

        A broker is asked itself, if it answers: one of Apache Kafka judges them by its own configuration, and refuses those of
        another one.

        Args:
            resource: The type and name of the resource.
            configs: The values by Kafka's names; None as a value removes one, so that the next place's value holds
                again.
            validate_only: Whether the controller only judges the request, and changes nothing.
            timeout_ms: The limit of the whole call, in milliseconds.

        Raises:
            ConfigError: A name or value is not allowed.
            UnknownTopicOrPartitionError: There is no such topic.
        """
        _require_resource(resource)
        request = AlterConfigs((AlterConfigsResource(*resource, _alterable(configs)),), validate_only=validate_only)
        what, within_ms = f"alter configs of {resource[1] or 'the cluster'}", self._limit_ms(timeout_ms)
        broker = await self._broker_named(resource, within_ms)
        response = await self._view.call_any(
            request, timeout_ms=within_ms, what=what, first="" if broker is None else address_of(broker)
        )
        for result in response.resources:
            if result.error is not ErrorCode.NONE:
                raise error_from_code(result.error, result.message)

    async def describe_configs(
        self, resource: tuple[ResourceType, str], *, timeout_ms: int | None = None
    ) -> tuple[ConfigDescription, ...]:
        """Returns every configuration in force for a resource, by name, with where its value comes from.

        A broker is asked itself: what its file says, nobody else knows.

        Raises:
            UnknownTopicOrPartitionError: There is no such topic.
            InvalidRequestError: There is no such broker.
            BrokerNotAvailableError: The broker does not answer.
        """
        _require_resource(resource)
        request, within_ms = DescribeConfigsRequest(*resource), self._limit_ms(timeout_ms)
        broker = await self._broker_named(resource, within_ms)
        if broker is None and resource[0] is ResourceType.BROKER and resource[1] and self._view.image.is_counted:
            raise InvalidRequestError(
                f'there is no broker "{resource[1]}" in service'
            )  # as none of Kafka's would say it
        if broker is None:  # a topic, the cluster, or a broker that does not exist, as any other will tell
            try:
                response = await self._view.call_any(request, timeout_ms=within_ms, what="describe configs")
            except UnknownTopicOrPartitionError as error:
                if str(error) != error.code.name:
                    raise
                # Kafka tells the code only
                raise UnknownTopicOrPartitionError(f'there is no topic "{resource[1]}"') from None
        else:
            try:
                response = await self._view.read(address_of(broker), request, timeout_ms=within_ms)
            except (ConnectionLostError, RequestTimedOutError) as error:
                raise BrokerNotAvailableError(
                    f"broker {broker.broker_id} does not answer, and nobody else knows what its file says: {error}"
                ) from error
        return response.configs

    async def _broker_named(self, resource: tuple[ResourceType, str], within_ms: int) -> BrokerInfo | None:
        resource_type, name = resource
        if resource_type is not ResourceType.BROKER or not name:
            return None
        metadata = await self._view.ready(within_ms)
        return next((broker for broker in metadata.brokers if str(broker.broker_id) == name), None)

    # ---- partitions --------------------------------------------------------------------------------------------------

    async def create_partitions(
        self,
        topic: str,
        count: int,
        *,
        assignments: Sequence[Sequence[int]] = (),
        validate_only: bool = False,
        timeout_ms: int | None = None,
    ) -> None:
        """Gives a topic more partitions, and waits a little longer, until this client has heard of them.

        Args:
            topic: The name of the topic.
            count: The number of partitions that it has afterwards.
            assignments: The replicas of the new ones, in order; empty: the controller places them.
            validate_only: Whether the controller only judges the request, and changes nothing.
            timeout_ms: The limit of the request to the controller, in milliseconds; the wait for news has one of its own.

        Raises:
            UnknownTopicOrPartitionError, InvalidPartitionsError, InvalidReplicaAssignmentError: The controller refuses
                the request.
        """
        require_text("topic", topic)
        require_whole("count", count)
        wanted = NewPartitions(topic, count, assignments_of(assignments))
        request = CreatePartitions((wanted,), validate_only=validate_only)
        (result,) = (await self._ask(request, timeout_ms, f"add partitions to {topic}")).topics
        if result.error is not ErrorCode.NONE:
            raise error_from_code(result.error, result.message)
        if not validate_only:
            await self._hear_of(f"new partitions of {topic}", lambda: self._view.image.partition(topic, count - 1))

    async def elect_leaders(
        self,
        partitions: Iterable[tuple[str, int]] | None = None,
        *,
        election_type: ElectionType = ElectionType.PREFERRED,
        timeout_ms: int | None = None,
    ) -> tuple[PartitionResult, ...]:
        """Lets partitions be led by their first replica, or, unclean, by any that is alive; look at each `error`.

        It is done once the elections are committed; it waits a little longer, until this client has heard of them.
        More than `RECORDS_TOGETHER` partitions are named in several requests, as in `reassign_partitions`.

        Args:
            partitions: The partitions; None: all that need it, as many as the controller elects for one request.
            election_type: PREFERRED, or UNCLEAN where nobody leads: acknowledged records may be lost.
            timeout_ms: The limit of the elections, in milliseconds.
        """
        require_choice("election type", election_type, (ElectionType.PREFERRED, ElectionType.UNCLEAN))
        requests = [ElectLeaders(election_type, None)]
        if partitions is not None:
            named = partitions_of("partitions", partitions)
            chosen = [NamedPartition(*one) for one in dict.fromkeys(named)]
            requests = [ElectLeaders(election_type, part) for part in in_parts(chosen)]
        answers = await self._ask_all(requests, timeout_ms, what="elect leaders")
        results = tuple(result for answer in answers for result in answer.partitions)
        elected = {(result.topic, result.partition_id) for result in results if result.error is ErrorCode.NONE}
        await self._until_led(elected, by_first=election_type is ElectionType.PREFERRED)
        return results

    async def _until_led(self, partitions: Collection[tuple[str, int]], *, by_first: bool) -> None:
        """Waits until this client has heard of the leaders; another election may be faster than the news of this one."""

        def is_led(partition: PartitionInfo | None) -> bool:
            if partition is None:
                return False
            return partition.leader in (partition.replicas[:1] if by_first else partition.replicas)

        def all_led() -> bool | None:
            return all(is_led(self._view.image.partition(*one)) for one in partitions) or None

        await self._hear_of("elected leaders", all_led)

    async def _hear_of(self, news: str, found: Callable[[], object | None]) -> None:
        """Waits until the metadata of this client have something, for `VISIBLE_WITHIN_MS` at most.

        It raises nothing: what the news are about is committed.
        """

        def heard() -> object | None:
            if (result := found()) is None:
                self._view.request_refresh()
            return result

        with contextlib.suppress(ReplogError):
            await self._view.wait_for(heard, timeout_ms=VISIBLE_WITHIN_MS, what=f"hear of {news}")

    async def reassign_partitions(
        self,
        replicas: Mapping[tuple[str, int], Sequence[int] | None],
        *,
        allow_replication_factor_change: bool = True,
        timeout_ms: int | None = None,
    ) -> tuple[PartitionResult, ...]:
        """Moves partitions; returns when the wish is committed, not when the data has moved.  Look at each `error`.

        Each partition moves for itself.  More than `RECORDS_TOGETHER` are asked for in several requests, one after the
        other: an error that is raised may leave those of earlier requests moving.

        Args:
            replicas: The brokers of each partition, the preferred leader first; None cancels what is under way.
            allow_replication_factor_change: Whether the number of replicas may change.
            timeout_ms: The limit of the whole call, in milliseconds.
        """
        items = _reassignments(replicas)
        requests = [AlterPartitionReassignments(part, allow_replication_factor_change) for part in in_parts(items)]
        answers = await self._ask_all(requests, timeout_ms, what="reassign partitions")
        return tuple(result for answer in answers for result in answer.partitions)

    async def list_reassignments(self, *, timeout_ms: int | None = None) -> dict[TopicPartition, tuple[int, ...]]:
        """Returns the partitions that are moving, and the replicas they will have.

        Raises:
            BrokerNotAvailableError: These are brokers of Apache Kafka, and no controller answers, which alone knows.
        """
        metadata = await self._view.describe(self._limit_ms(timeout_ms))
        require_moves(metadata)
        return {
            TopicPartition(topic.name, partition.partition_id): tuple(
                replica for replica in partition.replicas if replica not in partition.removing_replicas
            )
            for topic in metadata.topics
            for partition in topic.partitions
            if partition.adding_replicas or partition.removing_replicas
        }

    # ---- brokers -----------------------------------------------------------------------------------------------------

    async def drain_broker(self, broker_id: int, *, drained: bool = True, timeout_ms: int | None = None) -> int:
        """Marks a broker as one to be emptied, or lets it be used again.  Kept across restarts until told otherwise.

        It returns when the wish is committed, not when everything has moved off the broker.

        Returns:
            The number of replicas that the broker still has.

        Raises:
            BrokerIdNotRegisteredError: There is no such broker to be emptied.
        """
        require_whole("broker_id", broker_id)
        request = DrainBroker(broker_id, drained)
        return (await self._ask(request, timeout_ms, f"drain broker {broker_id}")).replicas_count

    async def unregister_broker(self, broker_id: int, *, timeout_ms: int | None = None) -> None:
        """Forgets a broker that is gone for good.

        Raises:
            InvalidRequestError: The broker is alive, or still has replicas.
            BrokerIdNotRegisteredError: There is no such broker.
        """
        require_whole("broker_id", broker_id)
        fate = Fate()
        try:
            await self._ask(UnregisterBroker(broker_id), timeout_ms, f"unregister broker {broker_id}", fate.note)
        except BrokerIdNotRegisteredError:
            if fate.unknown:
                return  # an earlier attempt, whose answer was lost, has done it
            raise

    async def update_features(
        self, levels: Mapping[str, int], *, allow_downgrade: bool = False, timeout_ms: int | None = None
    ) -> None:
        """Finalizes feature levels, all or none; 0 removes a feature.

        Raises:
            FeatureUpdateFailedError: A broker or controller does not know the level, or it would be a downgrade.
        """
        require_mapping("levels", levels, 'a dict such as {"metadata.version": 1}')
        for name, level in levels.items():
            require_text("a key of levels", name)
            require_whole(f"levels[{name!r}]", level)
        updates = tuple(FeatureUpdate(name, level, allow_downgrade) for name, level in levels.items())
        await self._ask(UpdateFeatures(updates), timeout_ms, "update features")

    async def describe_features(self, *, timeout_ms: int | None = None) -> Mapping[str, FeatureRange]:
        """Returns the features of the cluster by name: the level in force, and the levels that the asked broker knows."""
        from replog.client.protocol.questions.cluster import DescribeFeatures

        return (await self._ask(DescribeFeatures(), timeout_ms, "describe the features")).features

    # ---- the metadata quorum -----------------------------------------------------------------------------------------

    async def describe_quorum(self, *, timeout_ms: int | None = None) -> DescribeQuorumResponse:
        """Returns the leader, the voters and the observers, as the leader knows them."""
        return await self._ask(DescribeQuorumRequest(), timeout_ms, "describe the quorum")

    async def add_voter(
        self, voter_id: int, directory_id: UUID, endpoint: str, *, timeout_ms: int | None = None
    ) -> None:
        """Lets an observer vote, once it has caught up.

        Args:
            voter_id: The node id of the observer.
            directory_id: The id of its metadata log's directory, as `describe_quorum` has it.
            endpoint: The host:port at which other nodes reach it (its `inter.broker.listener`).
            timeout_ms: The overall limit, in milliseconds.

        Raises:
            DuplicateVoterError: There is a voter of this id; remove it first.
            RequestTimedOutError: The observer has not caught up, or another change is under way; it names the
                last cause.
        """
        require_whole("voter_id", voter_id)
        if not isinstance(directory_id, UUID):
            raise wrong_type("directory_id", directory_id, "a UUID")
        require_text("endpoint", endpoint)
        await self._ask(AddVoterRequest(voter_id, directory_id, endpoint), timeout_ms, f"add voter {voter_id}")

    async def remove_voter(
        self, voter_id: int, directory_id: UUID | None = None, *, timeout_ms: int | None = None
    ) -> None:
        """Takes a vote away.

        Raises:
            VoterNotFoundError: There is no such voter, or it is the last one.
        """
        require_whole("voter_id", voter_id)
        if directory_id is not None and not isinstance(directory_id, UUID):
            raise wrong_type("directory_id", directory_id, "a UUID or None")
        await self._ask(RemoveVoterRequest(voter_id, directory_id), timeout_ms, f"remove voter {voter_id}")


def require_moves(metadata: ClusterMetadata) -> None:
    """Raises BrokerNotAvailableError where it is not known what moves: Kafka's controller tells, and has not answered."""
    if metadata.controller_id < 0 and metadata.metadata_offset < 0:
        raise BrokerNotAvailableError(
            "no controller answers, which alone knows what is being reassigned; `replog quorum describe` shows the voters. Try "
            "again when one leads"
        )


def _require_resource(resource: object) -> None:
    if not isinstance(resource, (tuple, list)) or len(resource) != 2:
        raise wrong_type("resource", resource, 'a pair such as (ResourceType.TOPIC, "flights")')
    require_choice("resource type", resource[0], tuple(ResourceType))
    require_text("the name of resource", resource[1])


def require_configs(configs: object) -> None:
    """Raises TypeError for anything but a mapping whose keys are names."""
    require_mapping("configs", configs, 'a dict such as {"retention.ms": 1000}')
    for name in configs:  # type: ignore[attr-defined]  # a mapping
        require_text("a key of configs", name)


def _alterable(configs: Mapping[str, object]) -> tuple[AlterableConfig, ...]:
    require_configs(configs)
    return tuple(
        AlterableConfig(name, ConfigOperation.DELETE)
        if value is None
        else AlterableConfig(name, ConfigOperation.SET, config_text(value))
        for name, value in configs.items()
    )


def _reassignments(replicas: Mapping[tuple[str, int], Sequence[int] | None]) -> list[Reassignment]:
    require_mapping("replicas", replicas, 'a dict such as {("flights", 0): [1, 2, 3]}')
    named = [(partition_of("a key of replicas", key), wanted) for key, wanted in replicas.items()]
    return [
        Reassignment(*partition, None if wanted is None else broker_ids_of(f"the replicas of {partition}", wanted))
        for partition, wanted in named
    ]


def config_text(value: object) -> str:
    """Returns a configuration's value as it travels."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def in_parts(items: Sequence[T], records_of: Callable[[T], int] = lambda _: 1) -> list[tuple[T, ...]]:
    """Returns the items in order, as many together as make `RECORDS_TOGETHER` records; one that makes more is alone.

    Args:
        items: The items that are asked for; without any there is one part, an empty one.
        records_of: The number of records that an item makes, about.
    """
    parts: list[tuple[T, ...]] = []
    part: list[T] = []
    records_count = 0
    for item in items:
        records = records_of(item)
        if part and records_count + records > RECORDS_TOGETHER:
            parts.append(tuple(part))
            part, records_count = [], 0
        part.append(item)
        records_count += records
    return [*parts, tuple(part)]
