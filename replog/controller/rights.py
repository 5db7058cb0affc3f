"""What each change needs that a client asks for, and what of it the client may have: the active controller decides by its newest state.

Brokers decide by the same table (`replog.protocol.rights.table`), earlier and by the entries that they know, so that most of what is
refused never comes here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias
from uuid import UUID

from msgspec import Struct
from msgspec.structs import replace

from replog.access.entries import CLUSTER_NAME, AclOperation, ResourceKind
from replog.access.rights import Rights
from replog.controller.requests import (
    AlterClientQuotas,
    AlterConfigs,
    AlterConfigsResource,
    AlterConfigsResult,
    AlterPartitionReassignments,
    AlterUserScramCredentials,
    ClientChange,
    ControllerResponse,
    CreateAcls,
    CreateDelegationToken,
    CreatePartitions,
    CreateTopics,
    DeleteAcls,
    DeleteTopics,
    DrainBroker,
    ElectLeaders,
    ExpireDelegationToken,
    ForkTopic,
    LongResult,
    NewPartitions,
    NewTopic,
    RenewDelegationToken,
    Result,
    TopicResult,
    UnregisterBroker,
    UpdateFeatures,
)
from replog.errors import ReplogError
from replog.errors.from_code import error_code_of
from replog.metadata.records import ResourceType

Resource: TypeAlias = tuple[ResourceKind, str]
"""A kind, and the name of one resource of it."""

TopicNames: TypeAlias = Callable[[UUID], str | None]
"""Returns the name of the topic of an id; None: there is none."""

_THE_CLUSTER: Final[Resource] = (ResourceKind.CLUSTER, CLUSTER_NAME)


class NamedThings(Struct, frozen=True):
    """The things of one field of a change, each of which is refused for itself.

    Attributes:
        field: The name of the field.
        resource: The function that returns the resource of one of them; None: there is none that anybody could protect.
        failed: The function that makes the result of one of them from an error.
        shown: The function that returns the name by which it is told of: that by which the client asked, and no other.
    """

    field: str
    resource: Callable[[Any, TopicNames], Resource | None]
    failed: Callable[[Any, ReplogError], Any]
    shown: Callable[[Any], str]


def _needs_cluster(_change: ClientChange, _user: str) -> Resource | None:
    return _THE_CLUSTER


class ChangeRight(Struct, frozen=True):
    """What a change needs.

    Attributes:
        operation: The operation on each of its resources.
        resource: The function that returns what the whole change is done to, of the change and the name of who asks; None: the
            change sees to its right itself.
        things: What is refused for itself, and not the whole change; empty: nothing.
        everywhere: The operation on the cluster that does for all things; None: there is none.
    """

    operation: AclOperation
    resource: Callable[[Any, str], Resource | None] = _needs_cluster
    things: tuple[NamedThings, ...] = ()
    everywhere: AclOperation | None = None


class Permitted(Struct, frozen=True):
    """What a client may have of a change.

    Attributes:
        change: The change without what is refused.
        refused: The results of what is refused, by their places among all results.
        count: How many results there are; 0 where nothing is refused.
    """

    change: ClientChange
    refused: Mapping[int, Any]
    count: int

    def completed(self, result: Result | LongResult) -> Result | LongResult:
        """Returns what the change leads to, with what is refused in its answer."""
        if not self.refused:
            return result
        if isinstance(result, LongResult):
            finished = result.finished

            def answer(end_offset: int) -> ControllerResponse:
                return self._answer(finished(end_offset))

            return replace(result, finished=answer)
        return replace(result, response=self._answer(result.response))

    def _answer(self, response: ControllerResponse) -> ControllerResponse:
        field = response.__struct_fields__[0]
        done = iter(getattr(response, field))
        results = (self.refused[place] if place in self.refused else next(done) for place in range(self.count))
        return replace(response, **{field: tuple(results)})


def permitted(change: ClientChange, rights: Rights, topic_name: TopicNames) -> Permitted:
    """Returns what a client may have of a change; costs a look-up for each thing in it.

    Args:
        change: The change.
        rights: The rights of the client.
        topic_name: The function that knows the topics of ids.

    Raises:
        AuthorizationError: It may have nothing of it.
    """
    right = CHANGE_RIGHTS[type(change)]
    if rights.is_open or (right.everywhere is not None and rights.sees(right.everywhere, ResourceKind.CLUSTER)):
        return Permitted(change, {}, 0)
    if not right.things:
        resource = right.resource(change, rights.principal.name)
        if resource is not None:
            rights.require(right.operation, *resource)
        return Permitted(change, {}, 0)
    kept: dict[str, tuple[Any, ...]] = {}
    refused: dict[int, Any] = {}
    count = 0
    for things in right.things:
        allowed: list[Any] = []
        for place, thing in enumerate(getattr(change, things.field), count):
            resource = things.resource(thing, topic_name)
            if resource is None or rights.allows(right.operation, *resource):
                allowed.append(thing)
            else:
                error = rights.error(right.operation, resource[0], things.shown(thing))
                refused[place] = things.failed(thing, error)
        kept[things.field] = tuple(allowed)
        count += len(getattr(change, things.field))
    return Permitted(replace(change, **kept) if refused else change, refused, count)


# ---- what is told of a thing that failed -----------------------------------------------------------------------------


def topic_failed(topic: NewTopic, error: ReplogError) -> TopicResult:
    """Returns the result of a topic that is not created."""
    return TopicResult(topic.name, error_code_of(error), str(error))


def name_failed(name: str, error: ReplogError) -> TopicResult:
    """Returns the result of a topic that is named, and not changed."""
    return TopicResult(name, error_code_of(error), str(error))


def id_failed(topic_id: UUID, error: ReplogError) -> TopicResult:
    """Returns the result of a topic that is meant by its id, and not changed: its name is not told."""
    return TopicResult("", error_code_of(error), str(error), topic_id)


def configs_failed(resource: AlterConfigsResource, error: ReplogError) -> AlterConfigsResult:
    """Returns the result of a resource whose configurations are not changed."""
    return AlterConfigsResult(resource.resource_type, resource.resource_name, error_code_of(error), str(error))


def _growth_failed(wish: NewPartitions, error: ReplogError) -> TopicResult:
    return name_failed(wish.topic, error)


# ---- whose right it is -----------------------------------------------------------------------------------------------


def _topic(name: str) -> Resource:
    return ResourceKind.TOPIC, name


def _topic_of_id(topic_id: UUID, topic_name: TopicNames) -> Resource | None:
    name = topic_name(topic_id)
    return None if name is None else _topic(name)


def _configured(resource: AlterConfigsResource, _topic_name: TopicNames) -> Resource:
    return _topic(resource.resource_name) if resource.resource_type is ResourceType.TOPIC else _THE_CLUSTER


def _configured_name(resource: AlterConfigsResource) -> str:
    return resource.resource_name if resource.resource_type is ResourceType.TOPIC else CLUSTER_NAME


def _owner_of_token(change: CreateDelegationToken, user: str) -> Resource | None:
    """Returns the user in whose name a token is asked for; None: it is who asks."""
    return None if change.owner == user else (ResourceKind.USER, f"User:{change.owner}")


def _own_token(_change: ClientChange, _user: str) -> Resource | None:
    """Returns nothing: a token is renewed and ended by its owner and its renewers, whatever entries say."""
    return None


def _copy(change: ForkTopic, _user: str) -> Resource:
    """Returns the topic that is made; what is done to the source are reads, which the broker decides that is asked."""
    return _topic(change.copy)


ALTERS_CLUSTER: Final = ChangeRight(AclOperation.ALTER)
"""What changes of the cluster as a whole need, those of the voters of the metadata quorum among them."""

CHANGE_RIGHTS: Final[Mapping[type, ChangeRight]] = {
    CreateTopics: ChangeRight(
        AclOperation.CREATE,
        things=(
            NamedThings(
                "topics", lambda topic, _names: _topic(topic.name), topic_failed, lambda topic: str(topic.name)
            ),
        ),
        everywhere=AclOperation.CREATE,
    ),
    DeleteTopics: ChangeRight(
        AclOperation.DELETE,
        things=(
            NamedThings("names", lambda name, _names: _topic(name), name_failed, str),
            NamedThings("topic_ids", _topic_of_id, id_failed, lambda topic_id: f"of the id {topic_id}"),
        ),
        everywhere=AclOperation.DELETE,
    ),
    ForkTopic: ChangeRight(AclOperation.CREATE, _copy, everywhere=AclOperation.CREATE),
    CreatePartitions: ChangeRight(
        AclOperation.ALTER,
        things=(
            NamedThings(
                "topics", lambda wish, _names: _topic(wish.topic), _growth_failed, lambda wish: str(wish.topic)
            ),
        ),
    ),
    AlterConfigs: ChangeRight(
        AclOperation.ALTER_CONFIGS,
        things=(NamedThings("resources", _configured, configs_failed, _configured_name),),
    ),
    AlterClientQuotas: ChangeRight(AclOperation.ALTER_CONFIGS),
    AlterPartitionReassignments: ALTERS_CLUSTER,
    AlterUserScramCredentials: ALTERS_CLUSTER,
    CreateAcls: ALTERS_CLUSTER,
    DeleteAcls: ALTERS_CLUSTER,
    DrainBroker: ALTERS_CLUSTER,
    ElectLeaders: ALTERS_CLUSTER,
    UnregisterBroker: ALTERS_CLUSTER,
    UpdateFeatures: ALTERS_CLUSTER,
    CreateDelegationToken: ChangeRight(AclOperation.CREATE_TOKENS, _owner_of_token),
    RenewDelegationToken: ChangeRight(AclOperation.ALTER, _own_token),
    ExpireDelegationToken: ChangeRight(AclOperation.ALTER, _own_token),
}
"""By the class of the change."""
