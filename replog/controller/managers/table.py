"""The managers that turn requests into records, and which of them handles what.

A new kind of request is a manager's method and one row of the table here; before, two messages and a field of each `oneof` in
`proto/` (`make proto`), structs by their names in `controller.requests`, and a row of the table in `rpc.calls`; where
clients may ask it, what it needs in `controller.rights`, and a row of those that `broker.requests.handlers` forwards.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeAlias, TypeVar

from replog.access.principal import ClientIdentity, Envelope
from replog.access.rights import Denial, Rights
from replog.controller.config import ControllerConfig
from replog.controller.managers.alter_partition import IsrControl
from replog.controller.managers.cluster import ClusterControl
from replog.controller.managers.drain import DrainControl
from replog.controller.managers.elections import ElectionControl
from replog.controller.managers.heartbeats import BrokerHeartbeats
from replog.controller.managers.mutation_quotas import MutationQuotas
from replog.controller.managers.reassignments import ReassignmentControl
from replog.controller.managers.registration import RegistrationControl
from replog.controller.managers.replication import AlterConfigsControl, ReplicationControl
from replog.controller.managers.topics import TopicControl
from replog.controller.requests import (
    REPLICAS_PER_REQUEST_MAX,
    AllocateProducerIds,
    AlterClientQuotas,
    AlterConfigs,
    AlterPartition,
    AlterPartitionReassignments,
    AlterUserScramCredentials,
    ClientChange,
    ControllerRequest,
    CreateAcls,
    CreateDelegationToken,
    CreateInternalTopic,
    CreatePartitions,
    CreateTopics,
    DeleteAcls,
    DeleteTopics,
    DrainBroker,
    ElectLeaders,
    ExpireDelegationToken,
    ForkTopic,
    Heartbeat,
    LongResult,
    NodeWish,
    RegisterBroker,
    RegisterController,
    RenewDelegationToken,
    ReportReplicas,
    Result,
    UnregisterBroker,
    UpdateFeatures,
)
from replog.controller.rights import permitted
from replog.controller.state.state import ControllerState
from replog.errors import InvalidRequestError, PolicyViolationError
from replog.metadata.features import METADATA_VERSION_TRANSACTIONS
from replog.metadata.records import MetadataRecord

RequestHandler: TypeAlias = Callable[[Any, int], Result | LongResult]
"""Takes a wish of the class it is registered for, and the time."""

ChangeHandler: TypeAlias = Callable[[Any, ClientIdentity, int], Result | LongResult]
"""Takes a change of the class it is registered for, the client that asks, and the time."""

C = TypeVar("C", bound=ClientChange)
N = TypeVar("N", bound=NodeWish)


def _on(cls: type[N], handle: Callable[[N], Result | LongResult]) -> tuple[type, RequestHandler]:
    return cls, lambda wish, _now_ms: handle(wish)


def _timed(cls: type[N], handle: Callable[[N, int], Result | LongResult]) -> tuple[type, RequestHandler]:
    return cls, handle


def _of(cls: type[C], handle: Callable[[C], Result | LongResult]) -> tuple[type, ChangeHandler]:
    return cls, lambda change, _client, _now_ms: handle(change)


def _in_time(cls: type[C], handle: Callable[[C, int], Result | LongResult]) -> tuple[type, ChangeHandler]:
    return cls, lambda change, _client, now_ms: handle(change, now_ms)


def _by(cls: type[C], handle: Callable[[C, str], Result | LongResult]) -> tuple[type, ChangeHandler]:
    return cls, lambda change, client, _now_ms: handle(change, client.principal.name)


def _nothing(_request: ClientChange | NodeWish) -> int:
    return 0


_WISHES: Mapping[type, Callable[[Any], int]] = {
    CreateTopics: lambda request: len(request.topics),
    DeleteTopics: lambda request: len(request.names) + len(request.topic_ids),
    CreatePartitions: lambda request: len(request.topics),
    ForkTopic: lambda request: len(request.end_offsets),
    AlterConfigs: lambda request: sum(max(1, len(resource.configs)) for resource in request.resources),
    ElectLeaders: lambda request: len(request.partitions or ()),
    AlterPartitionReassignments: lambda request: len(request.items),
    AlterUserScramCredentials: lambda request: len(request.credentials),
    UpdateFeatures: lambda request: len(request.updates),
    CreateAcls: lambda request: len(request.entries),
    DeleteAcls: lambda request: len(request.filters),
    CreateDelegationToken: lambda request: len(request.renewers),
    AlterClientQuotas: lambda request: sum(max(1, len(entity.quotas)) for entity in request.entities),
}
"""How much a client's request names."""

_REPORTED: Mapping[type, Callable[[Any], int]] = {
    AlterPartition: lambda request: len(request.partitions),
    Heartbeat: lambda request: len(request.offline_replicas),
    ReportReplicas: lambda request: len(request.replicas),
}
"""Of how many of its replicas a broker's request tells."""


class Managers:
    """All managers over one state.

    Attributes:
        of_nodes: What handles the wishes of nodes.
        of_clients: What handles the changes that clients ask for: only what an envelope holds comes here.
        heartbeats: The sessions of this term.
        replication: The manager of what the fates of brokers change.
        cluster, elections, drains: The managers of what happens by time, too.
    """

    def __init__(
        self,
        cluster_id: str,
        config: ControllerConfig,
        state: ControllerState,
        rng: random.Random,
        wall_ms: Callable[[], int],
    ) -> None:
        self._config = config
        self._features = state.features
        self._offsets = state.offsets
        self.heartbeats = BrokerHeartbeats(config.broker_session_timeout_ms)
        self.replication = ReplicationControl(state.replication, state.brokers, state.configs)
        self.cluster = ClusterControl(
            state.offsets, state.brokers, state.features, state.replication, self.replication, self.heartbeats
        )
        self.elections = ElectionControl(config, state.replication, self.replication, state.brokers)
        self._reassignments = ReassignmentControl(state.replication, self.replication, state.brokers, state.features)
        self.drains = DrainControl(
            config, state.replication, self.replication, self._reassignments, state.brokers, state.features
        )
        self._topics = TopicControl(
            config,
            state.brokers,
            state.configs,
            state.features,
            state.replication,
            MutationQuotas(state.quotas.quotas),
            rng,
        )
        self._registrations = RegistrationControl(
            cluster_id,
            state.offsets,
            state.brokers,
            state.controllers,
            state.features,
            state.replication,
            self.replication,
            self.heartbeats,
        )
        self._isr = IsrControl(state.replication, state.brokers, self.replication)
        self._configs = AlterConfigsControl(
            state.offsets, state.configs, state.replication, self.replication, state.brokers
        )
        self._create_acls = partial(state.acls.create, rng=rng)
        self._rng = rng
        self._wall_ms = wall_ms
        self._entries_in_force = state.acls.in_force
        self._topic_names = state.replication.topics
        self.of_nodes: Mapping[type, RequestHandler] = self._of_nodes(state)
        self.of_clients: Mapping[type, ChangeHandler] = self._of_clients(state)

    def _of_nodes(self, state: ControllerState) -> dict[type, RequestHandler]:
        return dict(
            (
                _timed(RegisterBroker, self._registrations.register),
                _timed(Heartbeat, self.cluster.heartbeat),
                _on(AlterPartition, self._isr.alter_partitions),
                _on(AllocateProducerIds, state.producer_ids.allocate),
                _on(ReportReplicas, self.cluster.report),
                _on(RegisterController, self._registrations.register_controller),
                _timed(CreateInternalTopic, self._topics.create_internal),
            )
        )

    def _of_clients(self, state: ControllerState) -> dict[type, ChangeHandler]:
        topics, tokens, rng, wall_ms = self._topics, state.delegation_tokens, self._rng, self._wall_ms
        return dict(
            (
                _in_time(CreateTopics, topics.create),
                _in_time(DeleteTopics, topics.delete),
                _in_time(ForkTopic, topics.fork),
                _in_time(CreatePartitions, topics.create_partitions),
                _of(AlterConfigs, self._configs.alter),
                _of(ElectLeaders, self.elections.elect),
                _of(AlterPartitionReassignments, self._reassignments.alter),
                _of(UnregisterBroker, self._registrations.unregister),
                _of(DrainBroker, self.drains.drain),
                _of(AlterUserScramCredentials, state.users.alter),
                _of(UpdateFeatures, state.features.update),
                _of(AlterClientQuotas, state.quotas.alter),
                _of(CreateAcls, self._create_acls),
                _of(DeleteAcls, state.acls.delete),
                _by(CreateDelegationToken, lambda request, user: tokens.create(request, user, wall_ms(), rng)),
                _by(RenewDelegationToken, lambda request, user: tokens.renew(request, user, wall_ms())),
                _by(ExpireDelegationToken, lambda request, user: tokens.expire(request, user, wall_ms())),
            )
        )

    def handle(
        self, request: ControllerRequest, now_ms: int, tell_denied: Callable[[Denial], None]
    ) -> Result | LongResult:
        """Returns what `request` leads to, made of the newest state.

        Args:
            request: The request.
            now_ms: The time.
            tell_denied: The function that is told what a client may not have.

        Raises:
            ReplogError: The request is refused; nothing changes.
        """
        if isinstance(request, Envelope):
            result = self._changed(request, now_ms, tell_denied)
        else:
            _check_count(request, _REPORTED, REPLICAS_PER_REQUEST_MAX)
            result = self.of_nodes[type(request)](request, now_ms)
        if isinstance(result, Result) and result.records:
            self._check_size(result.records)
        return result

    def rights(self, client: ClientIdentity, api: str, tell_denied: Callable[[Denial], None]) -> Rights:
        """Returns what a client may have changed, by the newest state; arguments as of `replog.access.rights.Rights`."""
        return Rights(self._entries_in_force.authorizer(), client, api, tell_denied)

    def _changed(
        self, envelope: Envelope[ClientChange], now_ms: int, tell_denied: Callable[[Denial], None]
    ) -> Result | LongResult:
        change = envelope.change
        _check_count(change, _WISHES, self._config.max_records_per_request)
        rights = self.rights(envelope.client, envelope.api or type(change).__name__, tell_denied)
        allowed = permitted(change, rights, self._topic_names.get)
        return allowed.completed(self.of_clients[type(change)](allowed.change, envelope.client, now_ms))

    def _check_size(self, records: tuple[MetadataRecord, ...]) -> None:
        """Refuses here what the quorum would refuse once it had been replayed."""
        config = self._config
        if self._offsets.bytes_max(records) > config.max_bytes_per_record:  # else none of them is
            for record, size_bytes in zip(records, self._offsets.sizes_max(records), strict=True):
                if size_bytes > config.max_bytes_per_record:
                    raise InvalidRequestError(
                        f"a {type(record).__name__} of up to {size_bytes} bytes, {config.max_bytes_per_record} may be; "
                        "shorten names and lists"
                    )
        if len(records) > config.max_records_per_change:
            raise InvalidRequestError(
                f"the request changes {len(records)} records, at most {config.max_records_per_change} may be"
            )
        if not self._offsets.is_one_batch(records):
            self._features.require_metadata_version(METADATA_VERSION_TRANSACTIONS, "changes larger than a batch")


def _check_count(request: ClientChange | NodeWish, counts: Mapping[type, Callable[[Any], int]], count_max: int) -> None:
    count = counts.get(type(request), _nothing)(request)
    if count > count_max:
        raise PolicyViolationError(
            f"one {type(request).__name__} names at most {count_max:,}, not {count:,}; ask in several requests"
        )
