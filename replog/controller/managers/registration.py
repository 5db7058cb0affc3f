"""Nodes make themselves known, and are forgotten (docs/KAFKA.md 6.5).

Every node and client connects to where a node says that it listens, and the metadata log keeps it: so it is checked.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from uuid import UUID

from replog.controller.events.offset_control import OffsetControl
from replog.controller.managers.heartbeats import BrokerHeartbeats
from replog.controller.managers.replication import ReplicationControl, only_changes
from replog.controller.requests import (
    LongResult,
    RegisterBroker,
    RegisterBrokerResponse,
    RegisterController,
    RegisterControllerResponse,
    Result,
    UnregisterBroker,
    UnregisterBrokerResponse,
)
from replog.controller.state.broker_registry import BrokerRegistry, ControllerRegistry
from replog.controller.state.features import FeatureControl
from replog.controller.state.replication import ReplicationState
from replog.errors import DuplicateBrokerRegistrationError, InconsistentClusterIdError, InvalidRequestError
from replog.metadata.features import METADATA_VERSION_TRANSACTIONS
from replog.metadata.records import (
    BrokerEndpoint,
    DrainBrokerRecord,
    MetadataRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    UnregisterBrokerRecord,
)
from replog.metadata.registrations import BrokerRegistration


class RegistrationControl:
    """Turns what starting nodes say into records."""

    def __init__(
        self,
        cluster_id: str,
        offsets: OffsetControl,
        brokers: BrokerRegistry,
        controllers: ControllerRegistry,
        features: FeatureControl,
        state: ReplicationState,
        replication: ReplicationControl,
        heartbeats: BrokerHeartbeats,
    ) -> None:
        self._cluster_id = cluster_id
        self._offsets = offsets
        self._brokers = brokers
        self._controllers = controllers
        self._features = features
        self._state = state
        self._replication = replication
        self._heartbeats = heartbeats

    # ---- brokers ----------------------------------------------------------------------------------------------------

    def register(self, request: RegisterBroker, now_ms: int) -> Result | LongResult:
        """Registers an incarnation; a new one is fenced and loses its leaderships in the same change.

        The offset of that change becomes its broker epoch; its session starts now.

        Raises:
            InconsistentClusterIdError: The broker belongs to another cluster.
            InvalidRequestError: Its id is negative; it can listen nowhere such; its log directories are missing,
                too many, repeated, or those of another broker; its features are too many; its endpoints cannot be.
            UnsupportedVersionError: It cannot work with a feature level of the cluster.
            DuplicateBrokerRegistrationError: Another process with other log directories uses the id and is alive.
        """
        node = f"broker {request.broker_id}"
        self._check_cluster(node, request.cluster_id)
        if request.broker_id < 0:
            raise InvalidRequestError(f"broker ids start at 0, {request.broker_id} is none")
        check_address(node, request.host, request.port)
        check_endpoints(node, request.endpoints)
        self._check_log_dirs(request)
        self._features.check_node(node, request.supported_features)
        stored = self._brokers.get(request.broker_id)
        if stored is not None and stored.incarnation_id == request.incarnation_id:
            return self._register_again(request, stored, now_ms)
        leaves: Iterator[MetadataRecord | None] = iter(())
        if stored is not None:
            self._check_not_alive(request, stored, now_ms)
            keeps_log_dirs = set(stored.log_dirs) <= set(_known_log_dirs(request, stored))
            stopped_in_order = keeps_log_dirs and request.previous_broker_epoch == stored.broker_epoch
            leaves = self._replication.changes_without(
                request.broker_id,
                leaves_in_order=stopped_in_order,
                restarted_uncleanly=not stopped_in_order,
                keeps_log_dirs=keeps_log_dirs,
            )
        broker_epoch = self._offsets.next_write_offset_or_raise()
        made = chain(leaves, (_register_record(request, stored, broker_epoch, self._endpoints(request)),))

        def finished(end_offset: int) -> RegisterBrokerResponse:
            self._heartbeats.start(request.broker_id, broker_epoch, end_offset, now_ms)
            return RegisterBrokerResponse(broker_epoch)

        if self._offsets.needs_steps(self._state.hosted_count(request.broker_id)):
            return LongResult(made, finished)
        records = only_changes(made)
        return Result(records, finished(self._offsets.end_after(records)))

    def _register_again(self, request: RegisterBroker, stored: BrokerRegistration, now_ms: int) -> Result:
        """Registers a process again whose answer was lost: nothing about it changes but what it says anew."""
        record = _register_record(
            request,
            stored,
            stored.broker_epoch,
            self._endpoints(request),
            fenced=stored.fenced,
            in_controlled_shutdown=stored.in_controlled_shutdown,
        )
        records = (record,) if BrokerRegistration.from_record(record) != stored else ()
        self._heartbeats.start(request.broker_id, stored.broker_epoch, self._offsets.end_after(records), now_ms)
        return Result(records, RegisterBrokerResponse(stored.broker_epoch))

    def _endpoints(self, request: RegisterBroker) -> tuple[BrokerEndpoint, ...]:
        """Returns what the registration may hold: a node of the version before cannot keep endpoints in a snapshot."""
        return request.endpoints if self._features.knows_endpoints else ()

    def _check_cluster(self, node: str, cluster_id: str) -> None:
        if cluster_id != self._cluster_id:
            raise InconsistentClusterIdError(f'{node} belongs to cluster "{cluster_id}", this is "{self._cluster_id}"')

    def _check_log_dirs(self, request: RegisterBroker) -> None:
        if len(request.log_dirs) > LOG_DIRS_MAX:
            count = len(request.log_dirs)
            raise InvalidRequestError(
                f"broker {request.broker_id} names {count:,} log directories, {LOG_DIRS_MAX:,} may be"
            )
        if not request.log_dirs or len(set(request.log_dirs)) < len(request.log_dirs):
            raise InvalidRequestError(f"broker {request.broker_id} must name its log directories, each once")
        for other in self._brokers.all():
            if other.broker_id != request.broker_id and set(other.log_dirs) & set(request.log_dirs):
                raise InvalidRequestError(
                    f"a log directory of broker {request.broker_id} belongs to broker {other.broker_id}: was it copied?"
                )

    def _check_not_alive(self, request: RegisterBroker, stored: BrokerRegistration, now_ms: int) -> None:
        # The lock on a log directory admits one process, so holding an old one proves that the old process is gone.
        holds_old_one = not set(stored.log_dirs).isdisjoint(request.log_dirs)
        if not holds_old_one and self._heartbeats.is_live(stored.broker_id, stored.broker_epoch, now_ms):
            raise DuplicateBrokerRegistrationError(
                f"broker id {request.broker_id} is in use by a live broker at {stored.host}:{stored.port} "
                "with other log directories; give this one another id, or stop that one"
            )

    def unregister(self, request: UnregisterBroker) -> Result:
        """Forgets a broker, and the wish to drain it.

        Raises:
            BrokerIdNotRegisteredError: There is no such broker.
            InvalidRequestError: The broker is alive, or partitions have replicas on it.
        """
        registration = self._brokers.known_or_raise(request.broker_id)
        if not registration.fenced:
            raise InvalidRequestError(f"broker {request.broker_id} is alive; stop it before it is forgotten")
        if count := self._state.hosted_count(request.broker_id):
            raise InvalidRequestError(
                f"broker {request.broker_id} has {count} replicas; drain it or reassign them before it is forgotten"
            )
        records: list[MetadataRecord] = [UnregisterBrokerRecord(request.broker_id, registration.broker_epoch)]
        if self._brokers.is_drained(request.broker_id):
            records.append(DrainBrokerRecord(request.broker_id, drained=False))
        return Result(tuple(records), UnregisterBrokerResponse())

    # ---- controllers ------------------------------------------------------------------------------------------------

    def register_controller(self, request: RegisterController) -> Result:
        """Notes what a controller can work with.

        Raises:
            InconsistentClusterIdError: The controller belongs to another cluster.
            InvalidRequestError: Its id is negative, it can listen nowhere such, or its features are too many.
            UnsupportedVersionError: It cannot work with a feature level of the cluster, or the cluster is not at the
                level that knows controllers.
        """
        node = f"controller {request.controller_id}"
        self._check_cluster(node, request.cluster_id)
        if request.controller_id < 0:
            raise InvalidRequestError(f"controller ids start at 0, {request.controller_id} is none")
        check_address(node, request.host, request.port)
        self._features.require_metadata_version(METADATA_VERSION_TRANSACTIONS, "registered controllers")
        self._features.check_node(node, request.supported_features)
        record = RegisterControllerRecord(
            request.controller_id, request.incarnation_id, request.host, request.port, request.supported_features
        )
        is_new = self._controllers.registrations.get(request.controller_id) != record
        return Result((record,) if is_new else (), RegisterControllerResponse())


def _known_log_dirs(request: RegisterBroker, stored: BrokerRegistration | None) -> tuple[UUID, ...]:
    """Returns a broker's log directories, with those it had and cannot open now: when they are back, nothing is lost.

    Where one is missing and another is new, the new one may be on the disk that replaced it.
    """
    if stored is None:
        return request.log_dirs
    had, has = set(stored.log_dirs), set(request.log_dirs)
    may_return = has < had and len(had - has) <= request.unopened_log_dirs
    return stored.log_dirs if may_return else request.log_dirs


def _register_record(
    request: RegisterBroker,
    stored: BrokerRegistration | None,
    broker_epoch: int,
    endpoints: tuple[BrokerEndpoint, ...],
    *,
    fenced: bool = True,
    in_controlled_shutdown: bool = False,
) -> RegisterBrokerRecord:
    return RegisterBrokerRecord(
        broker_id=request.broker_id,
        incarnation_id=request.incarnation_id,
        broker_epoch=broker_epoch,
        host=request.host,
        port=request.port,
        log_dirs=_known_log_dirs(request, stored),
        rack=request.rack,
        fenced=fenced,
        in_controlled_shutdown=in_controlled_shutdown,
        supported_features=request.supported_features,
        endpoints=endpoints,
    )


HOST_LENGTH_MAX = 255
"""Of a name in the DNS."""

LISTENER_NAME_LENGTH_MAX = 64

ENDPOINTS_MAX = 16
"""Of one broker."""

LOG_DIRS_MAX = 1_000
"""Of one broker.  Each is walked through several times on the way into a record, in one step of the controller."""


def check_address(node: str, host: str, port: int) -> None:
    """Refuses an address that cannot be one.

    Raises:
        InvalidRequestError: The host is empty, too long or not printable, or the port is none.
    """
    if not _is_word(host, HOST_LENGTH_MAX):
        raise InvalidRequestError(f"{node}: its host must be 1 to {HOST_LENGTH_MAX} characters without spaces")
    if not 0 < port < 2**16:
        raise InvalidRequestError(f"{node}: ports are from 1 to 65535, {port} is none")


def check_endpoints(node: str, endpoints: Sequence[BrokerEndpoint]) -> None:
    """Refuses endpoints of which one cannot be, or that are too many, or two of one listener.

    Raises:
        InvalidRequestError: They are such.
    """
    if len(endpoints) > ENDPOINTS_MAX:
        raise InvalidRequestError(f"{node} names {len(endpoints)} endpoints, {ENDPOINTS_MAX} may be")
    for endpoint in endpoints:
        if not _is_word(endpoint.name, LISTENER_NAME_LENGTH_MAX):
            raise InvalidRequestError(
                f"{node}: the name of a listener must be 1 to {LISTENER_NAME_LENGTH_MAX} characters without spaces"
            )
        check_address(f"listener {endpoint.name} of {node}", endpoint.host, endpoint.port)
    if len({endpoint.name for endpoint in endpoints}) < len(endpoints):
        raise InvalidRequestError(f"{node} names a listener twice: each has one endpoint")


def _is_word(text: str, length_max: int) -> bool:
    return 0 < len(text) <= length_max and text.isprintable() and " " not in text
