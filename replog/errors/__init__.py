"""Every error a user of replog can meet, as one tree, and Kafka's numeric code for each.

::

    ReplogError
    ├── ConfigError                        fix the configuration
    ├── RetriableError                     the client retries with backoff
    │   ├── NotLeaderOrFollowerError, FencedLeaderEpochError, UnknownLeaderEpochError, OffsetNotAvailableError
    │   ├── NotControllerError, BrokerNotAvailableError, StaleBrokerEpochError, BrokerIdNotRegisteredError
    │   ├── NotEnoughReplicasError, NotEnoughReplicasAfterAppendError, RequestTimedOutError
    │   ├── PreferredLeaderNotAvailableError, EligibleLeadersNotAvailableError
    │   ├── RegistryNotAvailableError
    │   └── ThrottledError, DiskFullError
    ├── InvalidRequestError                the caller's mistake, never retried
    │   ├── OffsetOutOfRangeError, UnknownTopicOrPartitionError, RecordTooLargeError, TopicExistsError, ...
    │   ├── RecordEncodeError
    │   └── InvalidProducerEpochError, OutOfOrderSequenceError, MalformedFrameError
    ├── StorageError                       this log directory goes offline
    │   ├── CorruptRecordError, CorruptIndexError, CorruptCheckpointError, ContradictedLogError
    │   ├── LateLeaderEpochError
    │   └── DirectoryLockedError, ForeignDirectoryError
    ├── AuthenticationError                one side does not believe the other who it is; never retried
    │   ├── TlsAuthenticationError
    │   └── SaslAuthenticationError, UnsupportedSaslMechanismError, IllegalSaslStateError
    ├── AuthorizationError                 the principal lacks a right; never retried
    │   ├── TopicAuthorizationError, GroupAuthorizationError, DelegationTokenAuthorizationError
    │   └── ClusterAuthorizationError, TransactionalIdAuthorizationError
    ├── InconsistentClusterIdError         two clusters were mixed up; nothing is changed
    ├── InconsistentTopicIdError           a replica of an earlier topic of the same name is in the way
    ├── those of consumer groups           at the end of this module; retriable, or the caller's mistake, as the others are
    ├── those of transactions              likewise
    ├── RecordDecodeError                  a record is not what its reader's codecs take: mend them, or pass it over
    ├── InternalError                      our bug, which has changed nothing: the node goes on
    └── BrokerClosedError
    InvariantViolationError                our bug: the node stops

The class says who must act, the attributes carry the facts, the message says the cause and the next step.
"""

from __future__ import annotations

from typing import ClassVar, Protocol, TypeVar

from replog.errors.codes import ErrorCode as ErrorCode

E = TypeVar("E", bound=BaseException)


class ReplogError(Exception):
    """Base of everything replog raises on purpose."""

    code: ClassVar[ErrorCode] = ErrorCode.UNKNOWN_SERVER_ERROR

    @property
    def told(self) -> str:
        """What clients are told: the text, without names of files and folders of the node, which its log has."""
        return str(self)


def raised_anew(error: E) -> E:
    """Returns a copy of an error that is kept, to be raised in its place.

    Why: an error that is raised takes every frame that it passes with it, variables and all, each time.  One that is kept
    (until a seek, for whoever else awaits a batch) would keep its readers' records for as long.
    """
    copy = type(error).__new__(type(error), *error.args)
    copy.args = error.args
    copy.__dict__.update(error.__dict__)
    copy.__cause__ = error.__cause__
    return copy


class InvariantViolationError(Exception):
    """A rule that the code guarantees did not hold: a bug of ours.  The node stops; nothing catches this."""


class ConfigError(ReplogError):
    """A configuration value is unknown, missing or out of range."""

    code = ErrorCode.INVALID_CONFIG

    def __init__(self, field: str, value: object, reason: str) -> None:
        super().__init__(reason)
        self.field = field
        self.value = value
        self.reason = reason


class RetriableError(ReplogError):
    """The same request may succeed a little later; clients retry it with backoff."""


class NotLeaderOrFollowerError(RetriableError):
    """The node asked does not lead this partition (any more)."""

    code = ErrorCode.NOT_LEADER_OR_FOLLOWER

    def __init__(self, message: str, leader_id: int = -1, leader_epoch: int = -1) -> None:
        super().__init__(message)
        self.leader_id = leader_id
        self.leader_epoch = leader_epoch


class LeaderNotAvailableError(RetriableError):
    """The partition has no leader right now."""

    code = ErrorCode.LEADER_NOT_AVAILABLE


class FencedLeaderEpochError(RetriableError):
    """The request carries an older leader epoch than the partition has."""

    code = ErrorCode.FENCED_LEADER_EPOCH


class UnknownLeaderEpochError(RetriableError):
    """The request carries a newer leader epoch than this node knows yet."""

    code = ErrorCode.UNKNOWN_LEADER_EPOCH


class OffsetNotAvailableError(RetriableError):
    """A new leader does not know its high watermark yet (KIP-207)."""

    code = ErrorCode.OFFSET_NOT_AVAILABLE


class NotEnoughReplicasError(RetriableError):
    """Fewer in-sync replicas than min.insync.replicas; nothing was appended."""

    code = ErrorCode.NOT_ENOUGH_REPLICAS


class NotEnoughReplicasAfterAppendError(RetriableError):
    """The records were appended, but the in-sync replicas fell below min.insync.replicas before they counted."""

    code = ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND


class RequestTimedOutError(RetriableError):
    """No answer in time; the request may or may not have taken effect."""

    code = ErrorCode.REQUEST_TIMED_OUT


class ThrottledError(RetriableError):
    """A bound of the broker (queued bytes, open requests) or a quota of the client is reached; try again later.

    Attributes:
        throttle_time_ms: When to try again, in milliseconds from now; 0: it is not known.
    """

    code = ErrorCode.THROTTLING_QUOTA_EXCEEDED
    throttle_time_ms = 0


class DiskFullError(ThrottledError):
    """The disk of a log directory is full, or nearly; nothing was appended.  It ends when there is room again.

    To our clients it is a bound of the broker that is reached (89).  Kafka's are told KAFKA_STORAGE_ERROR, since not all of
    them ask again after 89.

    Attributes:
        directory: The log directory on that disk.
        free_bytes: The bytes that were left; -1 where the disk refused a write and nobody has looked.
    """

    def __init__(self, message: str, directory: str = "", free_bytes: int = -1) -> None:
        super().__init__(message)
        self.directory = directory
        self.free_bytes = free_bytes

    @property
    def told(self) -> str:
        return "a disk of this broker is full, or nearly: nothing was appended. It goes on by itself when there is room; its log says more"


class TooManyOpenFilesError(DiskFullError):
    """This process, or the machine, may open no more files.  It ends when some are closed.

    The message says what holds until then: mostly that nothing was changed, else what has been, and what ends it.  A kind of
    `DiskFullError`, because it means the same to whoever appends: not now, and nothing is broken.
    """

    @property
    def told(self) -> str:
        return "this broker may open no more files now: try again; its log says more"


class RegistryNotAvailableError(RetriableError):
    """A registry of schemas does not answer; the record that needs it is tried again."""


class NotControllerError(RetriableError):
    """The node asked is not the active controller."""

    code = ErrorCode.NOT_CONTROLLER


class BrokerNotAvailableError(RetriableError):
    """The broker is starting, stopping, or cut off from the controller."""

    code = ErrorCode.BROKER_NOT_AVAILABLE


class StaleBrokerEpochError(RetriableError):
    """The request names an incarnation of a broker that has been replaced."""

    code = ErrorCode.STALE_BROKER_EPOCH


class BrokerIdNotRegisteredError(RetriableError):
    """The controller does not know this broker; it must register (again)."""

    code = ErrorCode.BROKER_ID_NOT_REGISTERED


class PreferredLeaderNotAvailableError(RetriableError):
    """The first of the replicas is not in sync, not up, or drained: it cannot lead now."""

    code = ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE


class EligibleLeadersNotAvailableError(RetriableError):
    """No replica of the partition is up."""

    code = ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE


class InvalidRequestError(ReplogError):
    """The caller's mistake; the same request never succeeds."""

    code = ErrorCode.INVALID_REQUEST


class InvalidRequiredAcksError(InvalidRequestError):
    """acks is not 0, 1 or all."""

    code = ErrorCode.INVALID_REQUIRED_ACKS


class OffsetOutOfRangeError(InvalidRequestError):
    """The offset is below the log start or above the log end."""

    code = ErrorCode.OFFSET_OUT_OF_RANGE

    def __init__(self, message: str, log_start_offset: int = -1, log_end_offset: int = -1) -> None:
        super().__init__(message)
        self.log_start_offset = log_start_offset
        self.log_end_offset = log_end_offset


class LogTruncatedError(OffsetOutOfRangeError):
    """Records that were read are not in the log any more: an unclean election has replaced them (KIP-320).

    Attributes:
        end_offset: The offset where the log that was read and the log that is there part.
    """

    def __init__(self, message: str, end_offset: int = -1) -> None:
        super().__init__(message)
        self.end_offset = end_offset


class ReadOnlyLogError(InvalidRequestError):
    """The log was opened for reading only."""


class LogDirNotFoundError(InvalidRequestError):
    """The broker has no log directory of that path."""

    code = ErrorCode.LOG_DIR_NOT_FOUND


class UnknownTopicOrPartitionError(InvalidRequestError):
    """No such topic or partition."""

    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


class UnknownTopicIdError(RetriableError):
    """The topic id is not known here: deleted, recreated, or not yet heard of."""

    code = ErrorCode.UNKNOWN_TOPIC_ID


class TopicExistsError(InvalidRequestError):
    """A topic of this name exists."""

    code = ErrorCode.TOPIC_ALREADY_EXISTS


class InvalidTopicError(InvalidRequestError):
    """The topic name is not allowed."""

    code = ErrorCode.INVALID_TOPIC_EXCEPTION


class PolicyViolationError(InvalidRequestError):
    """A rule of the cluster or of the topic is against it: so many topics, or deleting records of a compacted topic."""

    code = ErrorCode.POLICY_VIOLATION


class InvalidPartitionsError(InvalidRequestError):
    """The number of partitions is out of range."""

    code = ErrorCode.INVALID_PARTITIONS


class InvalidReplicationFactorError(InvalidRequestError):
    """The replication factor is out of range, or more than there are usable brokers."""

    code = ErrorCode.INVALID_REPLICATION_FACTOR


class InvalidReplicaAssignmentError(InvalidRequestError):
    """A manual assignment names unknown or repeated brokers."""

    code = ErrorCode.INVALID_REPLICA_ASSIGNMENT


class ElectionNotNeededError(InvalidRequestError):
    """The partition has the leader that the election would give it."""

    code = ErrorCode.ELECTION_NOT_NEEDED


class NoReassignmentInProgressError(InvalidRequestError):
    """There is no reassignment of this partition to cancel."""

    code = ErrorCode.NO_REASSIGNMENT_IN_PROGRESS


class FeatureUpdateFailedError(InvalidRequestError):
    """A node of the cluster cannot work with the feature level asked for, or it may not be lowered."""

    code = ErrorCode.FEATURE_UPDATE_FAILED


class RecordTooLargeError(InvalidRequestError):
    """A record or batch is larger than max.message.bytes."""

    code = ErrorCode.MESSAGE_TOO_LARGE


class InvalidRecordError(InvalidRequestError):
    """A batch breaks a rule of the format (docs/KAFKA.md 4.1)."""

    code = ErrorCode.INVALID_RECORD


class RecordEncodeError(InvalidRequestError):
    """A key or value is not one of its codec's; nothing of the record was sent."""


class InvalidTimestampError(InvalidRequestError):
    """A timestamp is too far from the leader's clock for this topic, or its type is not the client's to set."""

    code = ErrorCode.INVALID_TIMESTAMP


class UnsupportedCompressionError(InvalidRequestError):
    """The batch names a codec that is unknown, or whose library is not installed."""

    code = ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


class InvalidProducerEpochError(InvalidRequestError):
    """A newer incarnation of this producer exists; this one is a zombie."""

    code = ErrorCode.INVALID_PRODUCER_EPOCH


class OutOfOrderSequenceError(InvalidRequestError):
    """A batch of an idempotent producer does not follow the last one."""

    code = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


class MalformedFrameError(InvalidRequestError):
    """Bytes on a stream are not a frame of this protocol."""


class DuplicateBrokerRegistrationError(InvalidRequestError):
    """Another live process uses this node id."""

    code = ErrorCode.DUPLICATE_BROKER_REGISTRATION


class SecurityDisabledError(InvalidRequestError):
    """The node decides nothing by access control lists: it has no authorizer."""

    code = ErrorCode.SECURITY_DISABLED


class UnsupportedVersionError(InvalidRequestError):
    """The two sides share no version of this API."""

    code = ErrorCode.UNSUPPORTED_VERSION


class DuplicateVoterError(InvalidRequestError):
    """A voter of this id is there already; it must be removed first."""

    code = ErrorCode.DUPLICATE_VOTER


class VoterNotFoundError(InvalidRequestError):
    """No voter has this id and directory, or it is the last one."""

    code = ErrorCode.VOTER_NOT_FOUND


class ResourceNotFoundError(InvalidRequestError):
    """There is no such thing: no credential of a user, for example."""

    code = ErrorCode.RESOURCE_NOT_FOUND


class DuplicateResourceError(InvalidRequestError):
    """A request names one thing twice."""

    code = ErrorCode.DUPLICATE_RESOURCE


class UnacceptableCredentialError(InvalidRequestError):
    """No user may have such a name or such a credential."""

    code = ErrorCode.UNACCEPTABLE_CREDENTIAL


class DelegationTokenDisabledError(InvalidRequestError):
    """The cluster has no delegation tokens: `delegation.token.secret.key` is not set."""

    code = ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED


class DelegationTokenNotFoundError(InvalidRequestError):
    """There is no delegation token with this HMAC."""

    code = ErrorCode.DELEGATION_TOKEN_NOT_FOUND


class DelegationTokenExpiredError(InvalidRequestError):
    """The delegation token held for a time that is over; it is removed soon."""

    code = ErrorCode.DELEGATION_TOKEN_EXPIRED


class InvalidPrincipalTypeError(InvalidRequestError):
    """A principal is of another kind than `User`."""

    code = ErrorCode.INVALID_PRINCIPAL_TYPE


class AuthenticationError(ReplogError):
    """One side does not believe the other who it is; the same settings never succeed, so that nothing is tried again."""


class TlsAuthenticationError(AuthenticationError):
    """The two sides of TLS do not agree: on a certificate, on a version, or on whether the client needs one."""


class SaslAuthenticationError(AuthenticationError):
    """The broker refuses a name with its password or token, or does not prove that it knows the password itself."""

    code = ErrorCode.SASL_AUTHENTICATION_FAILED


class UnsupportedSaslMechanismError(AuthenticationError):
    """The broker does not offer the SASL mechanism of the client."""

    code = ErrorCode.UNSUPPORTED_SASL_MECHANISM


class IllegalSaslStateError(AuthenticationError):
    """A SASL message where none is expected, such as at a listener without SASL."""

    code = ErrorCode.ILLEGAL_SASL_STATE


class AuthorizationError(ReplogError):
    """The principal of the client lacks a right; asking again changes nothing until an administrator grants it."""


class TopicAuthorizationError(AuthorizationError):
    """The principal may not do this to a topic."""

    code = ErrorCode.TOPIC_AUTHORIZATION_FAILED


class GroupAuthorizationError(AuthorizationError):
    """The principal may not do this to a group."""

    code = ErrorCode.GROUP_AUTHORIZATION_FAILED


class ClusterAuthorizationError(AuthorizationError):
    """The principal may not do this to the cluster."""

    code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED


class TransactionalIdAuthorizationError(AuthorizationError):
    """The principal may not do this to a transactional id."""

    code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


class DelegationTokenAuthorizationError(AuthorizationError):
    """The principal may not make delegation tokens for another user, or describe this one."""

    code = ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED


class DelegationTokenOwnerMismatchError(AuthorizationError):
    """The principal is neither the owner nor a renewer of a delegation token."""

    code = ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH


class DelegationTokenRequestNotAllowedError(AuthorizationError):
    """Nobody may ask for delegation tokens over such a connection: in plain text, unknown, or logged in with such a token."""

    code = ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED


class InconsistentClusterIdError(ReplogError):
    """The node or directory belongs to another cluster."""

    code = ErrorCode.INCONSISTENT_CLUSTER_ID


class InconsistentTopicIdError(ReplogError):
    """A replica's directory belongs to an earlier topic of the same name."""

    code = ErrorCode.INCONSISTENT_TOPIC_ID


class StorageError(ReplogError):
    """A log directory failed; it goes offline and what it holds is not touched."""

    code = ErrorCode.KAFKA_STORAGE_ERROR

    @property
    def told(self) -> str:
        return "a disk or a file of this broker failed; its log says which and why"


class CorruptRecordError(StorageError):
    """Record bytes that fail their checks.

    Attributes:
        path: The file, or "" for bytes that came from the network.
        position: The byte position of the batch in it.
    """

    code = ErrorCode.CORRUPT_MESSAGE

    def __init__(self, path: str, position: int, reason: str) -> None:
        where = f"{path} at byte {position}" if path else f"batch at byte {position}"
        super().__init__(f"{where}: {reason}")
        self.path = path
        self.position = position
        self.reason = reason

    @property
    def told(self) -> str:
        return super().told if self.path else str(self)


class CorruptIndexError(StorageError):
    """An index file that contradicts its log; it is rebuilt, never trusted."""


class CorruptCheckpointError(StorageError):
    """A checkpoint file that cannot be read; never taken as empty.

    Attributes:
        path: The file.
        line: The 1-based line of the first problem, 0 when the file as a whole is meant.
    """

    def __init__(self, path: str, line: int, reason: str) -> None:
        super().__init__(f"{path} line {line}: {reason}" if line else f"{path}: {reason}")
        self.path = path
        self.line = line
        self.reason = reason


class ContradictedLogError(StorageError):
    """A log whose files are sound, and which cannot be its partition's: the leader's log and it have no common history."""


class LateLeaderEpochError(StorageError):
    """A broker is to lead in an earlier leader epoch than its log has records of: the metadata log has lost its end."""


class ForkFailedError(StorageError):
    """A replica cannot begin with the records of the replica beside it: they are not all there, or the disk refused."""


class DirectoryLockedError(StorageError):
    """Another process holds the lock of this log directory."""


class ForeignDirectoryError(StorageError):
    """A log directory that is not this node's to use: Kafka's, another version's, a copy, or one without an identity."""


class BrokerClosedError(ReplogError):
    """The object was closed."""


class InternalError(ReplogError):
    """A bug of ours ended some work, and nothing has changed: the node goes on, and its log says what it was.

    Args:
        what: The work that failed, for a sentence.
        bug: The error that ended it.
    """

    def __init__(self, what: str, bug: Exception) -> None:
        super().__init__(f"{what} failed unexpectedly, nothing has changed: {bug!r}")
        self.what = what
        self.__cause__ = bug

    @property
    def told(self) -> str:
        return f"{self.what} failed unexpectedly, nothing has changed; the log of the node says more"


# ---- consumer groups and committed offsets: of those that a retry does not help, most say that the member has to join again ----


class JoinRefusal:
    """What errors have in common with which a group refuses a join.

    Attributes:
        names_member: Whether the answer names the id that the member came with, as that of Kafka does: not where the coordinator
            assigns, nor where the group is full.
    """

    names_member: bool = True


class NotCoordinatorError(RetriableError):
    """The node asked does not coordinate this group (any more); another one does."""

    code = ErrorCode.NOT_COORDINATOR


class CoordinatorNotAvailableError(RetriableError):
    """The group has no coordinator right now."""

    code = ErrorCode.COORDINATOR_NOT_AVAILABLE


class CoordinatorLoadInProgressError(RetriableError):
    """The coordinator has not read all of its groups yet, or has too much to do; ask it again a little later."""

    code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


class RebalanceInProgressError(RetriableError):
    """The group is being rebalanced; the member has to join again."""

    code = ErrorCode.REBALANCE_IN_PROGRESS


class UnstableOffsetCommitError(RetriableError):
    """A transaction that has not ended has committed offsets."""

    code = ErrorCode.UNSTABLE_OFFSET_COMMIT


class MemberIdRequiredError(RetriableError):
    """A member that joins for the first time has to come again with the id that it is told.

    Attributes:
        member_id: The id.
    """

    code = ErrorCode.MEMBER_ID_REQUIRED

    def __init__(self, message: str, member_id: str = "") -> None:
        super().__init__(message)
        self.member_id = member_id


class InvalidGroupIdError(InvalidRequestError):
    """The group id is empty or may not be used."""

    code = ErrorCode.INVALID_GROUP_ID


class GroupIdNotFoundError(InvalidRequestError):
    """There is no such group."""

    code = ErrorCode.GROUP_ID_NOT_FOUND


class NonEmptyGroupError(InvalidRequestError):
    """The group has members, and only an empty one can be deleted."""

    code = ErrorCode.NON_EMPTY_GROUP


class GroupSubscribedToTopicError(InvalidRequestError):
    """The group reads the topic whose offsets were to be deleted."""

    code = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC


class GroupMaxSizeReachedError(JoinRefusal, InvalidRequestError):
    """The group has as many members as it may have."""

    code = ErrorCode.GROUP_MAX_SIZE_REACHED
    names_member = False


class UnknownMemberIdError(JoinRefusal, InvalidRequestError):
    """The group has no such member (any more); it has to join anew."""

    code = ErrorCode.UNKNOWN_MEMBER_ID


class IllegalGenerationError(InvalidRequestError):
    """The member is of another generation of its group; it has to join again."""

    code = ErrorCode.ILLEGAL_GENERATION


class InconsistentGroupProtocolError(JoinRefusal, InvalidRequestError):
    """The member has no protocol in common with the others of its group."""

    code = ErrorCode.INCONSISTENT_GROUP_PROTOCOL


class InvalidSessionTimeoutError(InvalidRequestError):
    """The session timeout is out of the coordinator's range."""

    code = ErrorCode.INVALID_SESSION_TIMEOUT


class FencedInstanceIdError(JoinRefusal, InvalidRequestError):
    """Another member has taken over this instance id."""

    code = ErrorCode.FENCED_INSTANCE_ID


class UnreleasedInstanceIdError(InvalidRequestError):
    """A member that has not left uses this instance id."""

    code = ErrorCode.UNRELEASED_INSTANCE_ID


class FencedMemberEpochError(InvalidRequestError):
    """The coordinator has put the member out; it has to give up its partitions and join anew."""

    code = ErrorCode.FENCED_MEMBER_EPOCH


class StaleMemberEpochError(InvalidRequestError):
    """The member's epoch is not the one that the coordinator knows; a commit with it would be of a former owner."""

    code = ErrorCode.STALE_MEMBER_EPOCH


class UnsupportedAssignorError(InvalidRequestError):
    """The coordinator has no assignor of this name."""

    code = ErrorCode.UNSUPPORTED_ASSIGNOR


class InvalidRegularExpressionError(InvalidRequestError):
    """The regular expression cannot be understood."""

    code = ErrorCode.INVALID_REGULAR_EXPRESSION


class OffsetMetadataTooLargeError(InvalidRequestError):
    """The text beside a committed offset is longer than the coordinator keeps."""

    code = ErrorCode.OFFSET_METADATA_TOO_LARGE


class CommitStaleError(StaleMemberEpochError):
    """An offset was not committed, because the partition is not this member's any more.

    What was done with its records is done again by whoever has the partition now.

    Attributes:
        partition: The topic and the partition; None where they are not known.
    """

    def __init__(self, message: str, partition: tuple[str, int] | None = None) -> None:
        super().__init__(message)
        self.partition = partition


class RawRecord(Protocol):
    """A record as it stands in the log: a `replog.client.ConsumerRecord` of bytes."""

    @property
    def topic(self) -> str: ...

    @property
    def partition(self) -> int: ...

    @property
    def offset(self) -> int: ...

    @property
    def timestamp(self) -> int: ...

    @property
    def key(self) -> bytes | None: ...

    @property
    def value(self) -> bytes | None: ...

    @property
    def headers(self) -> tuple[tuple[str, bytes | None], ...]: ...


class RecordDecodeError(ReplogError):
    """A codec cannot decode the key or the value of a record.  The reader stays in front of it; the message says how to pass it.

    Attributes:
        record: The record, its key and value as they stand in the log.
        field: "key" or "value".
    """

    def __init__(self, message: str, record: RawRecord, field: str = "value") -> None:
        super().__init__(message)
        self.record = record
        self.field = field


class HandlerFailedError(ReplogError):
    """A worker's handler has failed on a record as often as it may, and there is no topic for dead letters.

    The record is not committed: a worker that starts again handles it again.

    Attributes:
        topic, partition, offset: The place of the record.
        attempts: The number of times that the handler was called.
    """

    def __init__(
        self, message: str, topic: str = "", partition: int = -1, offset: int = -1, *, attempts: int = 0
    ) -> None:
        super().__init__(message)
        self.topic, self.partition, self.offset, self.attempts = topic, partition, offset, attempts


class NoOffsetError(InvalidRequestError):
    """The group has no committed offset of a partition, and nobody has said where to begin."""


class RecreatedTopicError(NoOffsetError):
    """The committed offset is of an earlier topic of the same name, which was deleted."""


# ---- transactions ----------------------------------------------------------------------------------------------------


class ConcurrentTransactionsError(RetriableError):
    """The last transaction of this transactional id is being ended; ask again a little later."""

    code = ErrorCode.CONCURRENT_TRANSACTIONS


class InvalidTxnStateError(InvalidRequestError):
    """The transaction is not in a state in which this can be done."""

    code = ErrorCode.INVALID_TXN_STATE


class InvalidProducerIdMappingError(InvalidRequestError):
    """The transactional id belongs to another producer id, or has been forgotten."""

    code = ErrorCode.INVALID_PRODUCER_ID_MAPPING


class InvalidTransactionTimeoutError(InvalidRequestError):
    """A transaction may not be open for so long."""

    code = ErrorCode.INVALID_TRANSACTION_TIMEOUT


class TransactionCoordinatorFencedError(InvalidRequestError):
    """A later coordinator has written a marker of this producer."""

    code = ErrorCode.TRANSACTION_COORDINATOR_FENCED


class ProducerFencedError(InvalidRequestError):
    """Another producer has taken over the transactional id; this one must stop."""

    code = ErrorCode.PRODUCER_FENCED


class TransactionalIdNotFoundError(InvalidRequestError):
    """There is no such transactional id."""

    code = ErrorCode.TRANSACTIONAL_ID_NOT_FOUND


class TransactionAbortableError(InvalidRequestError):
    """The transaction can only be aborted; the producer may go on with the next one."""

    code = ErrorCode.TRANSACTION_ABORTABLE


class TransactionOutcomeUnknownError(ReplogError):
    """The coordinator has not said whether a transaction was committed: it may or may not be.

    Read what it has written, as a reader of committed records, before the work is done again.
    """
