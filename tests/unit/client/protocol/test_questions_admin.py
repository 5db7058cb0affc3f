"""Questions of administrators: what a broker's handlers make of them, and what comes back; older versions, and Kafka's answers."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any, TypeAlias
from uuid import UUID

import pytest
from answering_broker import MirrorBroker, ScriptedBroker
from msgspec import Struct
from msgspec.structs import replace

from replog.client.cluster.addresses import address_of
from replog.client.protocol.questions import cluster, configs, replicas, table, topics
from replog.client.protocol.questions.cluster import ClusterDetailsRequest, DescribeFeatures, Move
from replog.controller import requests as asked
from replog.errors import (
    ErrorCode,
    FeatureUpdateFailedError,
    InconsistentClusterIdError,
    InvalidRequestError,
    MalformedFrameError,
    NotControllerError,
    PolicyViolationError,
    ReplogError,
    StorageError,
    UnknownTopicOrPartitionError,
    UnsupportedVersionError,
    VoterNotFoundError,
)
from replog.metadata.records import ElectionType, ResourceType
from replog.rpc import node_messages
from replog.wire.messages.alter_configs import AlterConfigsRequest
from replog.wire.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from replog.wire.messages.alter_replica_log_dirs import AlterReplicaLogDirsRequest, AlterReplicaLogDirsResponse
from replog.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from replog.wire.messages.create_partitions import CreatePartitionsRequest
from replog.wire.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from replog.wire.messages.delete_topics import DeleteTopicsRequest
from replog.wire.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from replog.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResponse
from replog.wire.messages.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse
from replog.wire.messages.describe_quorum import DescribeQuorumRequest, DescribeQuorumResponse
from replog.wire.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse
from replog.wire.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from replog.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from replog.wire.messages.remove_raft_voter import RemoveRaftVoterRequest, RemoveRaftVoterResponse
from replog.wire.messages.update_features import UpdateFeaturesRequest, UpdateFeaturesResponse

QUESTIONS = {**topics.QUESTIONS, **configs.QUESTIONS, **replicas.QUESTIONS, **cluster.QUESTIONS}
IDS = [UUID(int=number) for number in (1, 2, 3)]
WITHIN_MS = 4_321
Answers: TypeAlias = dict[type[Any], Any]
NONE = ErrorCode.NONE
TOPIC = ResourceType.TOPIC
REFUSED = ErrorCode.INVALID_REQUEST, "because of this; do that"
ALTERED = asked.AlterableConfig("retention.ms", value="7")


async def put(broker: ScriptedBroker, question: Struct) -> Any:
    return await QUESTIONS[type(question)](broker, question, WITHIN_MS)


MIRRORED: list[tuple[Struct, Struct]] = [
    (
        asked.CreateTopics(
            (
                asked.NewTopic("a", 2, 3, configs=(asked.ConfigEntry("retention.ms", "5"),)),
                asked.NewTopic("b", assignments=((1, 2), (2, 1))),
                asked.NewTopic("c"),
            ),
        ),
        asked.CreateTopicsResponse(
            (
                asked.TopicResult("a", NONE, "", IDS[0], 2, 3),
                asked.TopicResult("b", *REFUSED),
                asked.TopicResult("c", NONE, "", IDS[1], 1, 1),
            )
        ),
    ),
    (
        asked.CreatePartitions((asked.NewPartitions("a", 4, ((1,), (2,))), asked.NewPartitions("b", 2)), True),  # noqa: FBT003
        asked.CreatePartitionsResponse(
            (asked.TopicResult("a", NONE, num_partitions=4), asked.TopicResult("b", *REFUSED))
        ),
    ),
    (
        asked.DeleteTopics(("a", "b"), (IDS[1], IDS[2])),
        asked.DeleteTopicsResponse(
            (
                asked.TopicResult("a", NONE, topic_id=IDS[0]),
                asked.TopicResult("b", *REFUSED),
                asked.TopicResult("c", NONE, topic_id=IDS[1]),
                asked.TopicResult("", *REFUSED, topic_id=IDS[2]),
            )
        ),
    ),
    (
        asked.AlterConfigs(
            (
                asked.AlterConfigsResource(
                    TOPIC,
                    "a",
                    (
                        ALTERED,
                        asked.AlterableConfig("flush.ms", asked.ConfigOperation.DELETE),
                        asked.AlterableConfig("cleanup.policy", asked.ConfigOperation.APPEND, "compact"),
                    ),
                ),
                asked.AlterConfigsResource(ResourceType.BROKER, "", (ALTERED,)),
            ),
            validate_only=True,
        ),
        asked.AlterConfigsResponse(
            (
                asked.AlterConfigsResult(TOPIC, "a", *REFUSED),
                asked.AlterConfigsResult(ResourceType.BROKER, "", NONE),
            )
        ),
    ),
    (
        asked.AlterConfigs((asked.AlterConfigsResource(TOPIC, "a", (ALTERED,), replaces=True),)),
        asked.AlterConfigsResponse((asked.AlterConfigsResult(TOPIC, "a", NONE),)),
    ),
    (
        asked.ElectLeaders(
            ElectionType.UNCLEAN,
            tuple(asked.NamedPartition(*one) for one in (("a", 0), ("a", 1), ("b", 0))),
        ),
        asked.ElectLeadersResponse(
            (
                asked.PartitionResult("a", 0, NONE),
                asked.PartitionResult("a", 1, *REFUSED),
                asked.PartitionResult("b", 0, ErrorCode.ELECTION_NOT_NEEDED, "it leads"),
            )
        ),
    ),
    (
        asked.ElectLeaders(ElectionType.PREFERRED),
        asked.ElectLeadersResponse((asked.PartitionResult("a", 0, NONE),)),
    ),
    (
        asked.AlterPartitionReassignments(
            (asked.Reassignment("a", 0, (1, 2)), asked.Reassignment("b", 1, None)),
            allow_replication_factor_change=False,
        ),
        asked.AlterPartitionReassignmentsResponse(
            (asked.PartitionResult("a", 0, *REFUSED), asked.PartitionResult("b", 1, NONE))
        ),
    ),
    (asked.UnregisterBroker(7), asked.UnregisterBrokerResponse()),
    (
        asked.UpdateFeatures((asked.FeatureUpdate("metadata.version", 3),), validate_only=True),
        asked.UpdateFeaturesResponse(),
    ),
]
TIMED = [question for question, _ in MIRRORED]


def without_clients(structs: list[Any]) -> list[Any]:
    """What a broker has read, without whose quota counts: that is the broker's to say, by the connection."""
    return [replace(each, client=None) if hasattr(each, "client") else each for each in structs]


@pytest.mark.parametrize(("question", "answer"), MIRRORED)
async def test_a_replog_broker_reads_the_struct_and_its_answer_comes_back(question: Struct, answer: Struct) -> None:
    broker = MirrorBroker([answer])
    found = await put(broker, question)
    assert without_clients(broker.structs) == [question]
    assert found == answer
    assert broker.within_ms == WITHIN_MS, "the broker knows how long the client waits"


@pytest.mark.parametrize("question", TIMED)
async def test_what_failed_as_a_whole_and_passes_is_raised_with_its_text(question: Struct) -> None:
    broker = MirrorBroker([NotControllerError("node 1 is not the active controller")])
    with pytest.raises(NotControllerError, match=r"^node 1 is not the active controller$"):
        await put(broker, question)


@pytest.mark.parametrize("question", TIMED)
async def test_a_broker_of_another_cluster_is_told_of_the_whole_request(question: Struct) -> None:
    broker = MirrorBroker([InconsistentClusterIdError("it belongs to c")])
    with pytest.raises(InconsistentClusterIdError, match=r"^it belongs to c$"):
        await put(broker, question)


@pytest.mark.parametrize("question", TIMED)
async def test_what_failed_as_a_whole_for_good_is_told_with_its_text(question: Any) -> None:
    broker = MirrorBroker([PolicyViolationError("too many")])
    try:
        answer = await put(broker, question)
    except PolicyViolationError as error:
        assert str(error) == "too many"  # noqa: PT017 -- or each thing has it
    else:
        results = getattr(answer, answer.__struct_fields__[0])
        assert {(one.error, one.message) for one in results} == {(ErrorCode.POLICY_VIOLATION, "too many")}


async def test_an_answer_that_leaves_something_out_is_none() -> None:
    broker = ScriptedBroker({CreateTopicsRequest: CreateTopicsResponse()})
    with pytest.raises(MalformedFrameError, match="broker:9092 leaves out t"):
        await put(broker, asked.CreateTopics((asked.NewTopic("t", 1, 1),)))


async def test_a_code_of_later_is_told_with_its_number() -> None:
    topic = CreateTopicsResponse.CreatableTopicResult("t", error_code=999, error_message="new")
    broker = ScriptedBroker({CreateTopicsRequest: CreateTopicsResponse(topics=[topic])})
    (result,) = (await put(broker, asked.CreateTopics((asked.NewTopic("t", 1, 1),)))).topics
    assert (result.error, result.message) == (ErrorCode.UNKNOWN_SERVER_ERROR, "error 999: new")


# ---- older versions --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("request_kind", "version", "question", "answer"),
    [
        (CreateTopicsRequest, 4, *MIRRORED[0]),
        (CreatePartitionsRequest, 0, *MIRRORED[1]),
        (
            DeleteTopicsRequest,
            5,
            asked.DeleteTopics(("a",)),
            asked.DeleteTopicsResponse((asked.TopicResult("a", NONE),)),
        ),
        (IncrementalAlterConfigsRequest, 0, *MIRRORED[3]),
        (AlterConfigsRequest, 0, *MIRRORED[4]),
        (ElectLeadersRequest, 1, *MIRRORED[5]),
        (ElectLeadersRequest, 0, *MIRRORED[6]),
        (UpdateFeaturesRequest, 1, *MIRRORED[9]),
    ],
)
async def test_older_versions_do_the_same(request_kind: Any, version: int, question: Any, answer: Any) -> None:
    broker = MirrorBroker([answer], {request_kind: version})
    found = await put(broker, question)
    assert without_clients(broker.structs) == [question]
    if request_kind is CreateTopicsRequest:  # which told no more than errors
        answer = asked.CreateTopicsResponse(
            tuple(replace(one, topic_id=None, num_partitions=-1, replication_factor=-1) for one in answer.topics)
        )
    assert found == answer


@pytest.mark.parametrize(
    ("request_kind", "version", "question"),
    [
        (DeleteTopicsRequest, 5, asked.DeleteTopics((), (IDS[0],))),
        (ElectLeadersRequest, 0, asked.ElectLeaders(ElectionType.UNCLEAN)),
        (AlterPartitionReassignmentsRequest, 0, MIRRORED[7][0]),
        (UpdateFeaturesRequest, 0, MIRRORED[9][0]),
    ],
)
async def test_what_an_older_version_cannot_say_is_refused(request_kind: Any, version: int, question: Struct) -> None:
    broker = ScriptedBroker(versions={request_kind: version})
    api = request_kind.__name__.removesuffix("Request")
    with pytest.raises(UnsupportedVersionError, match=rf"^broker:9092 serves version {version} of {api}"):
        await put(broker, question)
    assert broker.asked == []


async def test_all_of_a_resource_is_replaced_but_no_list_changed() -> None:
    deleted = asked.AlterableConfig("flush.ms", asked.ConfigOperation.DELETE)
    whole = asked.AlterConfigsResource(TOPIC, "a", (ALTERED, deleted), replaces=True)
    part = asked.AlterConfigsResource(TOPIC, "b", (ALTERED,))
    results = tuple(asked.AlterConfigsResult(TOPIC, name, NONE) for name in "ab")
    broker = MirrorBroker([asked.AlterConfigsResponse(results[1:]), asked.AlterConfigsResponse(results[:1])])
    answer = await put(broker, asked.AlterConfigs((whole, part)))
    assert [one.resources for one in broker.structs] == [(part,), (replace(whole, configs=(ALTERED,)),)]
    assert answer.resources == results, "in the order of the question"
    added = asked.AlterableConfig("cleanup.policy", asked.ConfigOperation.APPEND, "compact")
    with pytest.raises(UnsupportedVersionError, match=r"set cleanup\.policy"):
        await put(MirrorBroker([]), asked.AlterConfigs((replace(whole, configs=(added,)),)))


# ---- as Kafka answers ------------------------------------------------------------------------------------------------


async def test_a_topic_that_is_judged_only_has_no_id() -> None:
    topic = CreateTopicsResponse.CreatableTopicResult("t", IDS[0], error_message=None, num_partitions=3)
    broker = ScriptedBroker({CreateTopicsRequest: CreateTopicsResponse(topics=[topic])})
    (result,) = (await put(broker, asked.CreateTopics((asked.NewTopic("t"),), validate_only=True))).topics
    assert (broker.asked[0].validate_only, result.topic_id, result.num_partitions) == (True, None, 3)


@pytest.mark.parametrize("version", DescribeConfigsRequest.VERSIONS)
async def test_configurations_are_described(version: int) -> None:
    one, described = (
        DescribeConfigsResponse.DescribeConfigsResourceResult,
        DescribeConfigsResponse.DescribeConfigsResult,
    )
    found = [one("b", "2", config_source=5), one("a", "1", config_source=1), one("s", None, config_source=8)]
    result = described(0, None, TOPIC, "t", found)
    broker = ScriptedBroker(
        {DescribeConfigsRequest: DescribeConfigsResponse(results=[result])}, {DescribeConfigsRequest: version}
    )
    question = node_messages.DescribeConfigsRequest(TOPIC, "t")
    told = [(each.name, each.value, each.source) for each in (await put(broker, question)).configs]
    assert told == [("a", "1", "topic"), ("b", "2", "default"), ("s", None, "unknown")]
    (resource,) = broker.asked[0].resources
    assert (resource.resource_type, resource.resource_name, resource.configuration_keys) == (TOPIC, "t", None)
    result.error_code, result.error_message = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "no t"
    with pytest.raises(UnknownTopicOrPartitionError, match=r"^no t$"):
        await put(broker, question)


async def test_elections_of_all_leave_out_what_needs_none() -> None:
    partition, topic = ElectLeadersResponse.PartitionResult, ElectLeadersResponse.ReplicaElectionResult
    results = [topic("t", [partition(0, 0, None), partition(1, ErrorCode.ELECTION_NOT_NEEDED, "it leads")])]
    broker = ScriptedBroker({ElectLeadersRequest: ElectLeadersResponse(replica_election_results=results)})
    answer = await put(broker, asked.ElectLeaders(ElectionType.PREFERRED))
    assert answer.partitions == (asked.PartitionResult("t", 0, NONE),)


MOVE = node_messages.MoveReplicaRequest("t", 3, "/two")


@pytest.mark.parametrize(
    ("code", "text", "kind", "told"),
    [
        (ErrorCode.KAFKA_STORAGE_ERROR, "/two burnt", StorageError, "/two burnt"),
        (ErrorCode.KAFKA_STORAGE_ERROR, "", StorageError, "KAFKA_STORAGE_ERROR"),
        (ErrorCode.REPLICA_NOT_AVAILABLE, "", UnknownTopicOrPartitionError, "broker:9092 has no replica of t-3"),
        (ErrorCode.REPLICA_NOT_AVAILABLE, "none here", UnknownTopicOrPartitionError, "none here"),
        (NONE, "t-3 is in /two already", InvalidRequestError, "t-3 is in /two already"),
    ],
)
async def test_why_a_replica_does_not_move(code: int, text: str, kind: type[ReplogError], told: str) -> None:
    partition = AlterReplicaLogDirsResponse.AlterReplicaLogDirPartitionResult(3, code, text)
    topic = AlterReplicaLogDirsResponse.AlterReplicaLogDirTopicResult("t", [partition])
    broker = ScriptedBroker({AlterReplicaLogDirsRequest: AlterReplicaLogDirsResponse(results=[topic])})
    with pytest.raises(kind) as raised:
        await put(broker, MOVE)
    assert str(raised.value) == told
    (directory,) = broker.asked[0].dirs
    assert (directory.path, directory.topics[0].name, directory.topics[0].partitions) == ("/two", "t", [3])


async def test_moves_are_asked_of_a_replog_broker_and_its_texts_come_back() -> None:
    here = node_messages.LogDir("/two", "", 1, (node_messages.LogDirReplica("t", 3, 0),), ())
    described = node_messages.DescribeLogDirsResponse((here,))
    assert await put(MirrorBroker([described, moved := node_messages.MoveReplicaResponse()]), MOVE) == moved
    for error in (
        UnknownTopicOrPartitionError("no replica here"),
        StorageError("/two burnt"),
        InvalidRequestError("t-3 is in /two already"),
        NotControllerError("another time"),
    ):
        broker: Any = MirrorBroker([described, error])
        broker.image = type("Image", (), {"topics_by_name": {}})
        with pytest.raises(type(error), match=rf"^{error.told}$"):
            await put(broker, MOVE)


@pytest.mark.parametrize("version", DescribeLogDirsRequest.VERSIONS)
async def test_log_dirs_are_told_as_far_as_kafka_does(version: int) -> None:
    partition, topic = DescribeLogDirsResponse.DescribeLogDirsPartition, DescribeLogDirsResponse.DescribeLogDirsTopic
    directory = DescribeLogDirsResponse.DescribeLogDirsResult
    directories = [
        directory(ErrorCode.KAFKA_STORAGE_ERROR, "/burnt"),
        directory(0, "/one", [topic("t", [partition(0, 100), partition(1, 7)])], 1000, 900),
        directory(0, "/two", [topic("t", [partition(0, 30, 5, True)])], 1000, 800),  # noqa: FBT003 -- a message
    ]
    broker = ScriptedBroker(
        {DescribeLogDirsRequest: DescribeLogDirsResponse(results=directories)}, {DescribeLogDirsRequest: version}
    )
    one, two, burnt = (await put(broker, node_messages.DescribeLogDirsRequest())).directories
    assert broker.asked[0].topics is None
    replica = node_messages.LogDirReplica
    assert (one.path, one.error, one.replicas) == ("/one", "", (replica("t", 0, 100), replica("t", 1, 7)))
    assert (two.replicas, two.moves) == ((), (node_messages.ReplicaMoveStatus("t", 0, "/two", 30, 70),))
    assert (burnt.path, burnt.error) == ("/burnt", "KAFKA_STORAGE_ERROR: the broker's log says why")
    assert (two.free_bytes, two.total_bytes) == ((800, 1000) if version >= 4 else (-1, 0))


# ---- features and the quorum -----------------------------------------------------------------------------------------


def features(**levels: int) -> ApiVersionsResponse:
    feature = ApiVersionsResponse.FinalizedFeatureKey
    return ApiVersionsResponse(
        finalized_features=[feature(name.replace("_", "."), level, level) for name, level in levels.items()]
    )


@pytest.mark.parametrize(("version", "told"), [(0, [(3, False), (5, True)]), (2, [(3, 1), (5, 2)])])
async def test_only_what_lowers_a_level_is_a_downgrade(version: int, told: list[Any]) -> None:
    answers: Answers = {UpdateFeaturesRequest: UpdateFeaturesResponse(), ApiVersionsRequest: features(a=2, b=7)}
    broker = ScriptedBroker(answers, {UpdateFeaturesRequest: version})
    updates = tuple(asked.FeatureUpdate(*one, allow_downgrade=True) for one in (("a", 3), ("b", 5)))
    await put(broker, asked.UpdateFeatures(updates))
    how = "upgrade_type" if version else "allow_downgrade"
    assert [(one.max_version_level, getattr(one, how)) for one in broker.asked[-1].feature_updates] == told


async def test_why_a_feature_is_not_updated() -> None:
    result = UpdateFeaturesResponse.UpdatableFeatureResult("a", ErrorCode.INVALID_UPDATE_VERSION, "no level 9")
    answer = UpdateFeaturesResponse(error_message=None, results=[result])
    broker = ScriptedBroker({UpdateFeaturesRequest: answer}, {UpdateFeaturesRequest: 1})
    with pytest.raises(FeatureUpdateFailedError, match=r"^no level 9$"):
        await put(broker, asked.UpdateFeatures((asked.FeatureUpdate("a", 9),)))


def quorum(*voters: DescribeQuorumResponse.ReplicaState, code: int = 0) -> DescribeQuorumResponse:
    node, listener = DescribeQuorumResponse.Node, DescribeQuorumResponse.Listener
    observer = DescribeQuorumResponse.ReplicaState(9, IDS[2], 70, 9_000, 8_000)
    partition = DescribeQuorumResponse.PartitionData(0, code, "not now", 1, 4, 80, list(voters), [observer])
    return DescribeQuorumResponse(
        topics=[DescribeQuorumResponse.TopicData("__cluster_metadata", [partition])],
        nodes=[node(1, [listener("CTRL", "::1", 7), listener("OTHER", "h", 8)]), node(2, [])],
    )


VOTERS = (
    DescribeQuorumResponse.ReplicaState(1, IDS[0], 80, 10_000, 10_000),
    DescribeQuorumResponse.ReplicaState(2, UUID(int=0), 75, 9_990, -1),
)


@pytest.mark.parametrize("version", DescribeQuorumRequest.VERSIONS)
async def test_the_quorum_is_told_as_far_as_kafka_does(version: int) -> None:
    answers: Answers = {DescribeQuorumRequest: quorum(*VOTERS), ApiVersionsRequest: features(kraft_version=1)}
    broker = ScriptedBroker(answers, {DescribeQuorumRequest: version})
    told = await put(broker, node_messages.DescribeQuorumRequest())
    assert (told.leader_id, told.leader_epoch, told.high_watermark, told.log_end_offset) == (1, 4, 80, 80)
    assert (told.log_start_offset, told.is_dynamic) == (-1, True)
    member = node_messages.QuorumMember
    expected: tuple[node_messages.QuorumMember, ...] = (
        member(1, IDS[0], "[::1]:7", True, 80, 0, 0),  # noqa: FBT003 -- a record
        member(2, None, "", True, 75, 10, -1),  # noqa: FBT003 -- a record
        member(9, IDS[2], "", False, 70, 1_000, 2_000),  # noqa: FBT003 -- a record
    )
    if version < 2:
        expected = tuple(replace(one, directory_id=None, endpoint="") for one in expected)
    if version < 1:
        expected = tuple(replace(one, last_fetch_age_ms=-1, last_caught_up_age_ms=-1) for one in expected)
    assert told.members == expected
    broker = ScriptedBroker({DescribeQuorumRequest: quorum(code=ErrorCode.NOT_CONTROLLER)})
    with pytest.raises(NotControllerError, match=r"^not now$"):
        await put(broker, node_messages.DescribeQuorumRequest())


MEMBERS = node_messages.DescribeQuorumResponse(1, 4, 80, 0, 80, is_dynamic=True, members=())


async def test_voters_are_added_with_the_listener_that_the_others_have() -> None:
    question = node_messages.AddVoterRequest(5, IDS[0], "[::1]:9093")
    broker = MirrorBroker([MEMBERS, node_messages.AddVoterResponse()])
    assert await put(broker, question) == node_messages.AddVoterResponse()
    assert broker.structs[1:] == [question]
    assert (broker.asked[-1].cluster_id, broker.within_ms) == (None, WITHIN_MS)
    scripted = ScriptedBroker({DescribeQuorumRequest: quorum(*VOTERS)})
    with pytest.raises(KeyError):
        await put(scripted, question)  # which has no answer to the last request
    assert [(one.name, one.host, one.port) for one in scripted.asked[-1].listeners] == [("CTRL", "::1", 9093)]
    for wrong in ("somewhere", "host:port", "host:70000"):
        with pytest.raises(InvalidRequestError, match="host:port"):
            await put(MirrorBroker([MEMBERS]), replace(question, endpoint=wrong))


async def test_a_voter_is_removed_from_the_directory_that_it_has() -> None:
    question = node_messages.RemoveVoterRequest(1)
    broker = ScriptedBroker(
        {DescribeQuorumRequest: quorum(*VOTERS), RemoveRaftVoterRequest: RemoveRaftVoterResponse(error_message=None)}
    )
    assert await put(broker, question) == node_messages.RemoveVoterResponse()
    assert (broker.asked[-1].voter_id, broker.asked[-1].voter_directory_id) == (1, IDS[0])
    mirror = MirrorBroker([MEMBERS, VoterNotFoundError("no voter 1")])
    with pytest.raises(VoterNotFoundError, match=r"^no voter 1$"):
        await put(mirror, question)
    assert (mirror.structs[1:], mirror.within_ms) == ([question], WITHIN_MS)


async def test_a_voter_that_is_none_is_not_removed() -> None:
    refused = RemoveRaftVoterResponse(error_code=ErrorCode.INVALID_REQUEST, error_message="not a valid voter")
    broker = ScriptedBroker({DescribeQuorumRequest: quorum(*VOTERS), RemoveRaftVoterRequest: refused})
    with pytest.raises(VoterNotFoundError, match="no voter 9 "):
        await put(broker, node_messages.RemoveVoterRequest(9))
    with pytest.raises(InvalidRequestError, match="not a valid voter"):
        await put(broker, node_messages.RemoveVoterRequest(9, IDS[0]))


@pytest.mark.parametrize("version", DescribeClusterRequest.VERSIONS)
async def test_fenced_brokers_and_moves_are_told_as_far_as_kafka_does(version: int) -> None:
    broker, topic = DescribeClusterResponse.DescribeClusterBroker, ListPartitionReassignmentsResponse
    told = [broker(1, "h", 7), broker(2, "h", 8, None, version >= 2)]
    move = topic.OngoingPartitionReassignment(3, [1, 2], [2], [1])
    answers: Answers = {
        DescribeClusterRequest: DescribeClusterResponse(cluster_id="c", brokers=told),
        ListPartitionReassignmentsRequest: topic(topics=[topic.OngoingTopicReassignment("t", [move])]),
        DescribeQuorumRequest: quorum(*VOTERS),
    }
    asked_broker = ScriptedBroker(answers, {DescribeClusterRequest: version})
    found = await put(asked_broker, ClusterDetailsRequest())
    assert asked_broker.asked[0].include_fenced_brokers == (version >= 2)
    assert [(one.broker_id, address_of(one), one.fenced) for one in found.fenced] == [(2, "h:8", True)] * (version >= 2)
    assert (found.controller_id, found.moves) == (1, (Move("t", 3, (2,), (1,)),))


def test_each_question_is_found_by_its_class_alone() -> None:
    """Its module is known by name, so that it is loaded only with the first question of its kind."""
    rooms = [import_module(f"replog.client.protocol.questions.{module}") for module in table._NAMES]
    assert {path.stem for path in Path(table.__file__).parent.glob("*.py")} - {"__init__", "answered", "table"} == set(
        table._NAMES
    )
    for room, names in zip(rooms, table._NAMES.values(), strict=True):
        assert {question.__name__ for question in room.QUESTIONS} == set(names)
        assert all(table.question_of(question) is ask for question, ask in room.QUESTIONS.items())
    assert table.question_of(type("CreateTopics", (), {})) is None


async def test_features_are_told_with_the_levels_that_the_broker_knows() -> None:
    known, final = ApiVersionsResponse.SupportedFeatureKey, ApiVersionsResponse.FinalizedFeatureKey
    told = ApiVersionsResponse(
        supported_features=[known("a", 0, 2), known("b", 1, 3)],
        finalized_features=[final("b", 3, 3), final("c", 4, 4)],
        finalized_features_epoch=7,
    )
    found = await put(ScriptedBroker({ApiVersionsRequest: told}), DescribeFeatures())
    assert found.epoch == 7
    assert {name: (one.level, one.min_level, one.max_level) for name, one in found.features.items()} == {
        "a": (0, 0, 2),
        "b": (3, 1, 3),
        "c": (4, 0, 0),
    }
