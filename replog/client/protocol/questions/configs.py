"""Configurations are described and altered: DescribeConfigs, IncrementalAlterConfigs, AlterConfigs.

Any broker tells of a topic and of the cluster, and passes changes on to the active controller.  What is in force at one
broker is told by that broker alone, and on Apache Kafka it alone takes changes for itself, since it judges them by its own
configuration: `Admin` asks it first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from replog.client.protocol.asking import Broker, Question
from replog.client.protocol.questions.answered import in_order, raise_if_refused, raise_if_unanswered, told
from replog.controller.requests import AlterConfigs, AlterConfigsResource, AlterConfigsResult, ConfigOperation
from replog.controller.requests import AlterConfigsResponse as ConfigsAltered
from replog.errors import MalformedFrameError, UnsupportedVersionError
from replog.metadata.records import ResourceType
from replog.rpc.node_messages import ConfigDescription
from replog.rpc.node_messages import DescribeConfigsRequest as ConfigsAsked
from replog.rpc.node_messages import DescribeConfigsResponse as ConfigsDescribed
from replog.wire.messages.alter_configs import AlterConfigsRequest, AlterConfigsResponse
from replog.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResponse
from replog.wire.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

_SOURCES: Final = {1: "topic", 2: "broker", 3: "cluster", 4: "node", 5: "default"}
"""Where a value comes from, by Kafka's numbers (KIP-226)."""

_NO_SOURCE: Final = "unknown"


async def describe_configs(broker: Broker, question: ConfigsAsked, timeout_ms: int) -> ConfigsDescribed:
    """Returns the configurations of a resource, by name; one that Kafka keeps secret has no value.

    Of the cluster's defaults Kafka tells those that are set; replog, which has a request of its own for this, tells all.
    """
    resource = DescribeConfigsRequest.DescribeConfigsResource(
        question.resource_type, question.resource_name, configuration_keys=None
    )
    answer = await broker.ask(DescribeConfigsRequest([resource]), DescribeConfigsResponse, timeout_ms=timeout_ms)
    if len(answer.results) != 1:
        raise MalformedFrameError(
            f"{broker.address} describes {len(answer.results)} resources instead of 1; ask another broker"
        )
    (result,) = answer.results
    raise_if_refused(result.error_code, result.error_message)
    found = (ConfigDescription(one.name, one.value, _source(one.config_source)) for one in result.configs)
    return ConfigsDescribed(tuple(sorted(found, key=lambda one: one.name)))


def _source(number: int) -> str:
    return _SOURCES.get(number, _NO_SOURCE)


async def alter_configs(broker: Broker, question: AlterConfigs, timeout_ms: int) -> ConfigsAltered:
    """Alters configurations, or judges only whether they could be altered.

    Resources of which all is replaced go in a request of their own, after the others.

    Raises:
        RetriableError: Nobody has answered; another broker, or the same one later, may.
        UnsupportedVersionError: All of a resource is to be replaced, and a list changed at the same time.
    """
    replaced = [one for one in question.resources if one.replaces]
    changed = [one for one in question.resources if not one.replaces]
    values = [_replaced(broker, one) for one in replaced]
    results: list[AlterConfigsResult] = []
    if changed:
        changes = IncrementalAlterConfigsRequest(list(map(_changed, changed)), question.validate_only, timeout_ms)
        results += _results(await broker.ask(changes, IncrementalAlterConfigsResponse, timeout_ms=timeout_ms))
    if replaced:
        request = AlterConfigsRequest(values, question.validate_only, timeout_ms)
        results += _results(await broker.ask(request, AlterConfigsResponse, timeout_ms=timeout_ms))
    raise_if_unanswered(results)
    found = {(one.resource_type, one.resource_name): one for one in results}
    return ConfigsAltered(
        in_order(broker, [(one.resource_type, one.resource_name) for one in question.resources], found)
    )


def _changed(resource: AlterConfigsResource) -> IncrementalAlterConfigsRequest.AlterConfigsResource:
    config = IncrementalAlterConfigsRequest.AlterableConfig
    return IncrementalAlterConfigsRequest.AlterConfigsResource(
        resource.resource_type,
        resource.resource_name,
        [config(one.name, one.operation, one.value) for one in resource.configs],
    )


def _replaced(broker: Broker, resource: AlterConfigsResource) -> AlterConfigsRequest.AlterConfigsResource:
    lists = [one.name for one in resource.configs if one.operation > ConfigOperation.DELETE]
    if lists:
        raise UnsupportedVersionError(
            f"AlterConfigs, by which {broker.address} replaces all configurations, cannot add to a list or take from it: "
            f"set {', '.join(lists)}"
        )
    return AlterConfigsRequest.AlterConfigsResource(
        resource.resource_type,
        resource.resource_name,
        [
            AlterConfigsRequest.AlterableConfig(one.name, one.value)
            for one in resource.configs
            if one.operation is not ConfigOperation.DELETE  # what is not named is removed
        ],
    )


def _results(answer: IncrementalAlterConfigsResponse | AlterConfigsResponse) -> list[AlterConfigsResult]:
    responses: Sequence[Any] = answer.responses  # of one shape
    return [
        AlterConfigsResult(ResourceType(one.resource_type), one.resource_name, *told(one.error_code, one.error_message))
        for one in responses
    ]


QUESTIONS: Final[Mapping[type[Any], Question]] = {ConfigsAsked: describe_configs, AlterConfigs: alter_configs}
"""By the class of the question."""
