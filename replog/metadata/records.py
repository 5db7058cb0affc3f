"""The records of the metadata log: every fact of the cluster is one of these (docs/KAFKA.md 6.4).

Frozen values without behaviour.  The controller writes them, every node replays them in order.  On disk they are
protobuf (``replog.rpc.metadata_records``); a field that is None means "unchanged" in the change records.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TypeAlias, cast
from uuid import UUID

from msgspec import Struct

from replog.access.credentials import ScramCredential, ScramMechanism
from replog.access.delegation_tokens import DelegationToken
from replog.access.entries import AclEntry

NO_LEADER = -1


class LeaderRecoveryState(IntEnum):
    """Whether the leader was elected with everything that was acknowledged (KIP-704)."""

    RECOVERED = 0
    RECOVERING = 1


class ElectionType(IntEnum):
    """How a leader came to lead; recorded so that status and metrics can count it."""

    CLEAN = 0
    PREFERRED = 1
    UNCLEAN = 2
    RECOVERED = 3  # all members of the last ISR and ELR restarted uncleanly and came back; the longest log won


class ResourceType(IntEnum):
    """What a configuration belongs to; Kafka's numbers."""

    TOPIC = 2
    BROKER = 4


class SupportedFeature(Struct, frozen=True, gc=False):
    """A node can work with every level of a feature from `min_level` to `max_level`, both included."""

    name: str
    min_level: int
    max_level: int


class SecurityProtocol(IntEnum):
    """How clients speak at a listener; the numbers are Kafka's."""

    PLAINTEXT = 0
    SSL = 1
    SASL_PLAINTEXT = 2
    SASL_SSL = 3

    @property
    def is_tls(self) -> bool:
        """Whether what is said there is encrypted."""
        return self in {SecurityProtocol.SSL, SecurityProtocol.SASL_SSL}

    @property
    def is_sasl(self) -> bool:
        """Whether clients log in there."""
        return self in {SecurityProtocol.SASL_PLAINTEXT, SecurityProtocol.SASL_SSL}


class BrokerEndpoint(Struct, frozen=True, gc=False):
    """Where a broker serves the clients of one listener.

    Attributes:
        name: The name of the listener, as `CLIENT_LISTENER`.
        host: The host that clients connect to.
        port: The port there.
        protocol: How they speak there.
    """

    name: str
    host: str
    port: int
    protocol: SecurityProtocol = SecurityProtocol.PLAINTEXT


CLIENT_LISTENER = "PLAINTEXT"
"""The name of the listener for clients that the configuration gives none."""


class RegisterBrokerRecord(Struct, frozen=True, gc=False):
    """An incarnation of a broker; `endpoints` is empty below the level of `metadata.version` that knows them."""

    broker_id: int
    incarnation_id: UUID
    broker_epoch: int
    host: str
    port: int
    log_dirs: tuple[UUID, ...]
    rack: str | None = None
    fenced: bool = True
    in_controlled_shutdown: bool = False
    supported_features: tuple[SupportedFeature, ...] = ()
    endpoints: tuple[BrokerEndpoint, ...] = ()


class UnregisterBrokerRecord(Struct, frozen=True, gc=False):
    broker_id: int
    broker_epoch: int


class BrokerRegistrationChangeRecord(Struct, frozen=True, gc=False):
    broker_id: int
    broker_epoch: int
    fenced: bool | None = None
    in_controlled_shutdown: bool | None = None
    endpoints: tuple[BrokerEndpoint, ...] | None = None


class DrainBrokerRecord(Struct, frozen=True, gc=False):
    """An operator's wish, not a fact about a process: it outlives restarts and registrations of the broker.

    While `drained` holds, the broker gets no new replicas, leads nothing that another replica can lead, and its replicas
    move away.
    """

    broker_id: int
    drained: bool


class RegisterControllerRecord(Struct, frozen=True, gc=False):
    """A controller and what it can work with; a new incarnation replaces the one before."""

    controller_id: int
    incarnation_id: UUID
    host: str
    port: int
    supported_features: tuple[SupportedFeature, ...] = ()


class TopicRecord(Struct, frozen=True, gc=False):
    name: str
    topic_id: UUID


class RemoveTopicRecord(Struct, frozen=True, gc=False):
    topic_id: UUID


class PartitionRecord(Struct, frozen=True, gc=False):
    """A partition as a whole.

    `last_known_elr`: members of the last ISR or ELR that restarted uncleanly since the ISR was last proven; the
    `recovered` election waits for all of them.  `adding_replicas` and `removing_replicas` are both parts of `replicas`;
    a reassignment is under way while one of them is not empty.  `forked_topic_id`: the topic whose records below
    `forked_end_offset` this partition began with, and None of any other one; neither ever changes.
    """

    partition_id: int
    topic_id: UUID
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader: int
    leader_epoch: int
    partition_epoch: int
    elr: tuple[int, ...] = ()
    last_known_elr: tuple[int, ...] = ()
    leader_recovery_state: LeaderRecoveryState = LeaderRecoveryState.RECOVERED
    adding_replicas: tuple[int, ...] = ()
    removing_replicas: tuple[int, ...] = ()
    forked_topic_id: UUID | None = None
    forked_end_offset: int = 0


class PartitionChangeRecord(Struct, frozen=True, gc=False):
    """A change of one partition.  `leader` set (even to the same value) raises the leader epoch by one; every
    change raises the partition epoch by one (docs/KAFKA.md 4.10)."""

    partition_id: int
    topic_id: UUID
    leader: int | None = None
    isr: tuple[int, ...] | None = None
    elr: tuple[int, ...] | None = None
    last_known_elr: tuple[int, ...] | None = None
    replicas: tuple[int, ...] | None = None
    leader_recovery_state: LeaderRecoveryState | None = None
    election_type: ElectionType | None = None
    adding_replicas: tuple[int, ...] | None = None
    removing_replicas: tuple[int, ...] | None = None


class ConfigRecord(Struct, frozen=True, gc=False):
    """One configuration value; `value` None removes it.  `resource_name` "" is the cluster-wide default."""

    resource_type: ResourceType
    resource_name: str
    name: str
    value: str | None


class ProducerIdsRecord(Struct, frozen=True, gc=False):
    broker_id: int
    broker_epoch: int
    next_producer_id: int


class FeatureLevelRecord(Struct, frozen=True, gc=False):
    name: str
    level: int


class AccessControlEntryRecord(Struct, frozen=True, gc=False):
    """An entry of an access control list is there; `acl_id` names it (Kafka's record 18)."""

    acl_id: UUID
    entry: AclEntry


class RemoveAccessControlEntryRecord(Struct, frozen=True, gc=False):
    """An entry of an access control list is gone (Kafka's record 19)."""

    acl_id: UUID


class QuotaEntityPart(Struct, frozen=True, gc=False):
    """One kind of what a quota is of, and its name; None: the default of all that have none of their own."""

    kind: str
    name: str | None


class ClientQuotaRecord(Struct, frozen=True, gc=False):
    """A quota of an entity; `value` None removes it."""

    entity: tuple[QuotaEntityPart, ...]
    key: str
    value: float | None


class UserScramCredentialRecord(Struct, frozen=True, gc=False):
    """What the cluster keeps of the password of a user, for one mechanism; it replaces the one before (KIP-554)."""

    name: str
    mechanism: ScramMechanism
    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int

    @property
    def credential(self) -> ScramCredential:
        """The credential without its place."""
        return ScramCredential(self.salt, self.stored_key, self.server_key, self.iterations)

    def __repr__(self) -> str:
        """Shows no bytes: by them passwords can be tried."""
        return f"UserScramCredentialRecord(name={self.name!r}, mechanism={self.mechanism!r}, {self.credential!r})"


class RemoveUserScramCredentialRecord(Struct, frozen=True, gc=False):
    name: str
    mechanism: ScramMechanism


class DelegationTokenRecord(Struct, frozen=True, gc=False):
    """A delegation token; it replaces the one of its id (KIP-48)."""

    token: DelegationToken


class RemoveDelegationTokenRecord(Struct, frozen=True, gc=False):
    token_id: str


class NoOpRecord(Struct, frozen=True, gc=False):
    """Moves the committed offset, changes nothing."""


class BeginTransactionRecord(Struct, frozen=True, gc=False):
    """From here on nothing counts until `EndTransactionRecord`: a change too large for one batch (KAFKA.md 6.1, 6.2).

    Transactions of the metadata log do not nest.  Who replays shows none of it to anybody before the end, and forgets
    all of it at an `AbortTransactionRecord`.
    """

    name: str


class EndTransactionRecord(Struct, frozen=True, gc=False):
    """Everything since the `BeginTransactionRecord` counts."""


class AbortTransactionRecord(Struct, frozen=True, gc=False):
    """Everything since the `BeginTransactionRecord` is void; `reason` is for people."""

    reason: str


MetadataRecord: TypeAlias = (
    RegisterBrokerRecord
    | UnregisterBrokerRecord
    | BrokerRegistrationChangeRecord
    | DrainBrokerRecord
    | RegisterControllerRecord
    | TopicRecord
    | RemoveTopicRecord
    | PartitionRecord
    | PartitionChangeRecord
    | ConfigRecord
    | ProducerIdsRecord
    | FeatureLevelRecord
    | AccessControlEntryRecord
    | RemoveAccessControlEntryRecord
    | ClientQuotaRecord
    | UserScramCredentialRecord
    | RemoveUserScramCredentialRecord
    | DelegationTokenRecord
    | RemoveDelegationTokenRecord
    | NoOpRecord
    | BeginTransactionRecord
    | EndTransactionRecord
    | AbortTransactionRecord
)


_NUMBER_BYTES = 12
"""A number of 64 bits with its tag, and what frames a text, an id or a list: a tag and a length."""

_ID_BYTES = 16 + _NUMBER_BYTES
_UTF8_BYTES_MAX = 4

_ACL_BYTES = 160
"""Of an entry of an access control list without its texts: the frame, an id, seven numbers or lengths."""

_PARTITION_BYTES = 160
"""Of a partition record without its lists: the frame, an id, and up to eleven numbers or lengths."""


def encoded_bytes_max(record: MetadataRecord) -> int:
    """Returns a size that the encoded record does not exceed; about twice the size of a usual one.

    Why: the controller replays its records before anybody encodes them, so whether they fit into a batch must be known before
    that.  An upper bound is enough, and takes a fraction of the time.
    """
    if type(record) is PartitionRecord:
        members_count = len(record.replicas) + len(record.isr) + len(record.elr) + len(record.last_known_elr)
        members_count += len(record.adding_replicas) + len(record.removing_replicas)
        fork_bytes = 0 if record.forked_topic_id is None else _ID_BYTES + _NUMBER_BYTES
        return _PARTITION_BYTES + 10 * members_count + fork_bytes
    if type(record) is PartitionChangeRecord:
        lists = (record.isr, record.elr, record.last_known_elr, record.replicas)
        moved = (record.adding_replicas, record.removing_replicas)
        return _PARTITION_BYTES + 10 * sum(len(members) for members in (*lists, *moved) if members is not None)
    if type(record) is AccessControlEntryRecord:
        entry = record.entry
        return _ACL_BYTES + _UTF8_BYTES_MAX * (len(entry.name) + len(entry.principal) + len(entry.host))
    return _NUMBER_BYTES + _bytes_of(record)


def _bytes_of(value: object) -> int:
    if type(value) is int:  # most values are numbers
        return _NUMBER_BYTES
    if isinstance(value, str):
        return _NUMBER_BYTES + (len(value) if value.isascii() else _UTF8_BYTES_MAX * len(value))
    if isinstance(value, bytes):
        return _NUMBER_BYTES + len(value)
    if isinstance(value, UUID):
        return _ID_BYTES
    if isinstance(value, tuple):
        members = cast("tuple[object, ...]", value)
        return _NUMBER_BYTES + sum(map(_bytes_of, members))
    if isinstance(value, Struct):
        return _NUMBER_BYTES + sum(_bytes_of(getattr(value, name)) for name in value.__struct_fields__)
    return 0 if value is None else _NUMBER_BYTES
