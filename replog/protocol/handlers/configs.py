"""Configurations are described, altered and listed: DescribeConfigs, AlterConfigs, IncrementalAlterConfigs, ListConfigResources.

Topics, brokers and the cluster (a broker without a name) have configurations here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Protocol, TypeVar

from msgspec import Struct

from replog.access.rights import Rights
from replog.controller.requests import (
    AlterableConfig,
    AlterConfigs,
    AlterConfigsResource,
    AlterConfigsResult,
    ConfigOperation,
)
from replog.errors import (
    ConfigError,
    InvalidRequestError,
    InvalidTopicError,
    PolicyViolationError,
    ReplogError,
    UnsupportedVersionError,
)
from replog.metadata.config_keys import config_key_or_raise
from replog.metadata.records import ResourceType
from replog.metadata.topic_names import topic_name_trouble
from replog.protocol.handlers.known_configs import KnownConfig, source_number
from replog.protocol.handlers.metadata import reachable
from replog.protocol.handlers.node import Call, Failure, KafkaNode, beside, in_steps, require_few
from replog.protocol.handlers.unkept_configs import THROTTLED_REPLICAS, is_so
from replog.waiting.sorting import sorted_in_pieces
from replog.wire.messages.alter_configs import AlterConfigsRequest, AlterConfigsResponse
from replog.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResponse
from replog.wire.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from replog.wire.messages.list_config_resources import ListConfigResourcesRequest, ListConfigResourcesResponse

BROKER_LOGGER, CLIENT_METRICS, GROUP = 8, 16, 32
"""Types of resources that Kafka knows and that have no configurations here."""

R = TypeVar("R")

AskedResource = DescribeConfigsRequest.DescribeConfigsResource
Described = DescribeConfigsResponse.DescribeConfigsResult
DescribedConfig = DescribeConfigsResponse.DescribeConfigsResourceResult
Synonym = DescribeConfigsResponse.DescribeConfigsSynonym


class _Resource(Protocol):
    resource_type: int
    resource_name: str


class _Altered(_Resource, Protocol):
    @property
    def configs(self) -> Sequence[Any]: ...


class _Wish(Struct, frozen=True):
    """The changes that a request asks for.

    Attributes:
        resources: The resources, with the configurations that are named.
        alterable: The function that returns a configuration as the controller takes it.
        replaces: Whether what is not named is removed.
        validate_only: Whether it is only judged.
        timeout_ms: The time within which the answer is wanted; 0: the request does not say.
    """

    resources: Sequence[_Altered]
    alterable: Callable[[Any], AlterableConfig]
    replaces: bool
    validate_only: bool
    timeout_ms: int


# ---- describe --------------------------------------------------------------------------------------------------------


async def describe_configs(node: KafkaNode, request: DescribeConfigsRequest, _call: Call) -> DescribeConfigsResponse:
    """Returns the values in force, for each resource once.  Only a broker itself knows its configuration file."""
    require_few(len(request.resources), "resources")
    return DescribeConfigsResponse(
        results=await in_steps(_each_once(request.resources), lambda resource: _described(node, request, resource))
    )


def refuse_describe_configs(request: DescribeConfigsRequest, failure: Failure) -> DescribeConfigsResponse:
    """Returns the answer to a request that failed as a whole."""
    return DescribeConfigsResponse(
        results=[
            Described(failure.code, failure.message, one.resource_type, one.resource_name) for one in request.resources
        ]
    )


def _each_once(resources: Iterable[AskedResource]) -> list[AskedResource]:
    """Returns the resources without repeats, each with all keys that it is asked for.

    The answer has hundreds of times as many bytes as a name, so that a name which is repeated would fill the memory.  Kafka
    answers each; its clients keep one.
    """
    found: dict[tuple[int, str], AskedResource] = {}
    for one in resources:
        before = found.get((one.resource_type, one.resource_name))
        if before is None:
            found[one.resource_type, one.resource_name] = one
        elif not (before.configuration_keys and one.configuration_keys):
            before.configuration_keys = None
        else:
            before.configuration_keys += one.configuration_keys
    return list(found.values())


def _described(node: KafkaNode, request: DescribeConfigsRequest, resource: AskedResource) -> Described:
    try:
        known = node.configs(_type_of(resource), resource.resource_name)
    except ReplogError as error:
        return Described(error.code, error.told, resource.resource_type, resource.resource_name)
    wanted = set(resource.configuration_keys or ())
    return Described(
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
        configs=[_described_config(request, config) for config in known if not wanted or config.name in wanted],
    )


def _described_config(request: DescribeConfigsRequest, config: KnownConfig) -> DescribedConfig:
    synonyms = config.values if request.include_synonyms else ()

    def told(value: str | None) -> str | None:
        return None if config.is_sensitive else value

    return DescribedConfig(
        config.name,
        told(config.value),
        config.is_read_only,
        source_number(config.source),
        config.is_sensitive,
        synonyms=[Synonym(one.name, told(one.value), source_number(one.source)) for one in synonyms],
        config_type=config.type,
        documentation=config.document() if request.include_documentation else None,
    )


# ---- alter -----------------------------------------------------------------------------------------------------------


async def incremental_alter_configs(
    node: KafkaNode, request: IncrementalAlterConfigsRequest, call: Call
) -> IncrementalAlterConfigsResponse:
    """Sets and removes the named configurations, and adds to and takes from lists; the others stay."""
    answer = IncrementalAlterConfigsResponse.AlterConfigsResourceResponse
    wish = _Wish(request.resources, _increment, False, request.validate_only, request.timeout_ms)  # noqa: FBT003 -- a tuple
    return IncrementalAlterConfigsResponse(responses=await _altered(node, wish, call.rights, answer))


def refuse_incremental_alter_configs(
    request: IncrementalAlterConfigsRequest, failure: Failure
) -> IncrementalAlterConfigsResponse:
    """Returns the answer to a request that failed as a whole."""
    answer = IncrementalAlterConfigsResponse.AlterConfigsResourceResponse
    return IncrementalAlterConfigsResponse(
        responses=[
            answer(failure.code, failure.message, one.resource_type, one.resource_name) for one in request.resources
        ]
    )


async def alter_configs(node: KafkaNode, request: AlterConfigsRequest, call: Call) -> AlterConfigsResponse:
    """Gives resources the named configurations and no others: those that are not named are removed."""
    answer = AlterConfigsResponse.AlterConfigsResourceResponse
    wish = _Wish(request.resources, _set, True, request.validate_only, request.timeout_ms)  # noqa: FBT003 -- a tuple
    return AlterConfigsResponse(responses=await _altered(node, wish, call.rights, answer))


def refuse_alter_configs(request: AlterConfigsRequest, failure: Failure) -> AlterConfigsResponse:
    """Returns the answer to a request that failed as a whole."""
    answer = AlterConfigsResponse.AlterConfigsResourceResponse
    return AlterConfigsResponse(
        responses=[
            answer(failure.code, failure.message, one.resource_type, one.resource_name) for one in request.resources
        ]
    )


async def _altered(
    node: KafkaNode, wish: _Wish, rights: Rights, answer: Callable[[int, str | None, int, str], R]
) -> list[R]:
    """Lets the controller make the allowed changes; returns the answers, in the order of the request."""
    count = sum(max(1, len(one.configs)) for one in wish.resources)
    require_few(count, "configurations", PolicyViolationError)
    judged = await beside(count, _judged, wish)
    asked = tuple(one for one in judged if isinstance(one, AlterConfigsResource))
    results: Iterator[AlterConfigsResult] = iter(())
    if asked:
        altered = await node.change(AlterConfigs(asked, wish.validate_only), wish.timeout_ms, rights)
        results = iter(altered.resources)
    told = (_outcome(next(results)) if isinstance(one, AlterConfigsResource) else one for one in judged)
    return [
        answer(one.code, one.message or None, resource.resource_type, resource.resource_name)
        for resource, one in zip(wish.resources, told, strict=True)
    ]


def _judged(wish: _Wish) -> list[AlterConfigsResource | Failure]:
    """Returns the request to the controller for each resource, or why it is not asked."""
    repeated = Counter((one.resource_type, one.resource_name) for one in wish.resources)
    judged: list[AlterConfigsResource | Failure] = []
    for resource in wish.resources:
        try:
            if repeated[resource.resource_type, resource.resource_name] > 1:
                raise InvalidRequestError("a resource stands twice in the request: name it once")
            judged.append(_resource(resource, wish.alterable, replaces=wish.replaces))
        except ReplogError as error:
            judged.append(Failure(error.code, error.told))
    return judged


def _outcome(result: AlterConfigsResult) -> Failure:
    return Failure(result.error, result.message)


def _resource(
    resource: _Altered, alterable: Callable[[Any], AlterableConfig], *, replaces: bool
) -> AlterConfigsResource:
    resource_type = _type_of(resource)
    named = [alterable(config) for config in resource.configs]
    names = [config.name for config in named]
    if len(set(names)) < len(names):
        twice = Counter(names).most_common(1)[0][0]
        raise InvalidRequestError(f'configuration "{twice}" stands twice in the request: name it once')
    for config in named:
        if config.value is None and config.operation is not ConfigOperation.DELETE:
            raise InvalidRequestError(f'configuration "{config.name}" has no value: give one, or delete it')
    configs = tuple(config for config in named if not _is_so_already(resource_type, resource.resource_name, config))
    return AlterConfigsResource(resource_type, resource.resource_name, configs, replaces)


def _is_so_already(resource_type: ResourceType, resource_name: str, config: AlterableConfig) -> bool:
    """Whether a change has nothing to change: it removes a value that does not exist, or sets one that `is_so`.

    Kafka's tools that move partitions do both.

    Raises:
        ConfigError: It is a configuration that cannot be changed, to another value.
    """
    is_of_topic, is_set = resource_type is ResourceType.TOPIC, config.operation is ConfigOperation.SET
    if is_of_topic and (config.name in THROTTLED_REPLICAS or (is_set and is_so(config.name, config.value))):
        return True
    if config.operation is not ConfigOperation.DELETE:
        return False
    try:
        config_key_or_raise(resource_type, config.name, resource_name)
    except ConfigError:
        return True
    return False


def _set(config: AlterConfigsRequest.AlterableConfig) -> AlterableConfig:
    return AlterableConfig(config.name, ConfigOperation.SET, config.value)


def _increment(config: IncrementalAlterConfigsRequest.AlterableConfig) -> AlterableConfig:
    try:
        operation = ConfigOperation(config.config_operation)
    except ValueError:
        raise InvalidRequestError(
            f"{config.config_operation} is no operation: 0 sets, 1 deletes, 2 appends, 3 subtracts"
        ) from None
    return AlterableConfig(config.name, operation, None if operation is ConfigOperation.DELETE else config.value)


# ---- list ------------------------------------------------------------------------------------------------------------


async def list_config_resources(
    node: KafkaNode, request: ListConfigResourcesRequest, call: Call
) -> ListConfigResourcesResponse:
    """Returns topics and brokers.  Version 0 asks for clients' metrics, which do not exist here."""
    known = (ResourceType.TOPIC, ResourceType.BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP)
    asked = set(request.resource_types or known) if call.version > 0 else {CLIENT_METRICS}
    if unknown := asked - set(known):
        raise UnsupportedVersionError(f"there are no resources of the types {sorted(unknown)}")
    found: list[ListConfigResourcesResponse.ConfigResource] = []
    if ResourceType.TOPIC in asked:
        topics = node.image.topics_by_name
        found += await beside(len(topics), _topics, topics)
    if ResourceType.BROKER in asked:
        found += _resources(ResourceType.BROKER, map(str, reachable(node, call.listener)))
    return ListConfigResourcesResponse(config_resources=found)


def _topics(names: Iterable[str]) -> list[ListConfigResourcesResponse.ConfigResource]:
    return _resources(ResourceType.TOPIC, sorted_in_pieces(names))


def _resources(resource_type: ResourceType, names: Iterable[str]) -> list[ListConfigResourcesResponse.ConfigResource]:
    return [ListConfigResourcesResponse.ConfigResource(name, resource_type) for name in names]


# ---- both ------------------------------------------------------------------------------------------------------------


def _type_of(resource: _Resource) -> ResourceType:
    """Returns the type of a resource that may exist."""
    if resource.resource_type == ResourceType.BROKER:
        return ResourceType.BROKER
    if resource.resource_type != ResourceType.TOPIC:
        raise InvalidRequestError(
            f"resources of type {resource.resource_type} have no configurations here; topics (2) and brokers (4) have"
        )
    if (trouble := topic_name_trouble(resource.resource_name)) is not None:
        raise InvalidTopicError(trouble)
    return ResourceType.TOPIC
