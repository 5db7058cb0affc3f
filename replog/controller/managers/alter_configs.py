"""Configurations are changed, by the one or all of a resource at once, and elections follow where they must."""

from __future__ import annotations

from collections import Counter

from replog.controller.managers.replication import ReplicationControl
from replog.controller.requests import (
    AlterConfigs,
    AlterConfigsResource,
    AlterConfigsResponse,
    AlterConfigsResult,
)
from replog.controller.result import Result
from replog.controller.state.broker_registry import BrokerRegistry
from replog.controller.state.configuration import ConfigurationControl
from replog.controller.state.replication import ReplicationState
from replog.errors import ErrorCode, InvalidRequestError, ReplogError, UnknownTopicOrPartitionError
from replog.metadata.config_keys import CONTROLLER_KEYS
from replog.metadata.records import ConfigRecord, ResourceType

_TIMED = {key.cluster_name for key in CONTROLLER_KEYS}


class AlterConfigsControl:
    """Makes the records of configuration requests."""

    def __init__(
        self,
        configs: ConfigurationControl,
        state: ReplicationState,
        replication: ReplicationControl,
        brokers: BrokerRegistry,
    ) -> None:
        self._configs = configs
        self._state = state
        self._replication = replication
        self._brokers = brokers

    def alter(self, request: AlterConfigs) -> Result:
        """Alters configurations: one result per resource, in order; all that succeed are one atomic change."""
        times = Counter((resource.resource_type, resource.resource_name) for resource in request.resources)
        records: list[ConfigRecord] = []
        results: list[AlterConfigsResult] = []
        for resource in request.resources:
            code, message = ErrorCode.NONE, ""
            try:
                if times[resource.resource_type, resource.resource_name] > 1:
                    raise InvalidRequestError(f'resource "{resource.resource_name}" is given more than once')
                records += self._records(resource)
            except ReplogError as error:
                code, message = error.code, str(error)
            results.append(AlterConfigsResult(resource.resource_type, resource.resource_name, code, message))
        response = AlterConfigsResponse(tuple(results))
        if request.validate_only or not records:
            return Result((), response)
        wakes = ("no-op", "balance") if any(record.name in _TIMED for record in records) else ()
        return Result((*records, *self._replication.changes_under(records)), response, wakes)

    def _records(self, resource: AlterConfigsResource) -> tuple[ConfigRecord, ...]:
        name = resource.resource_name
        if resource.resource_type is ResourceType.TOPIC and name not in self._state.topic_ids:
            raise UnknownTopicOrPartitionError(f'topic "{name}" does not exist')
        records = self._configs.change(resource.resource_type, name, resource.configs, replaces=resource.replaces)
        if resource.resource_type is ResourceType.BROKER and name:
            self._brokers.known_or_raise(int(name))
        return records
