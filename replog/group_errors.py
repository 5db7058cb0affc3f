"""Errors of consumer groups and committed offsets: a part of the tree of `replog.errors`.

The class says who must act; of those that a retry does not help, most say that the member has to join again.
"""

from __future__ import annotations

from replog.errors import ErrorCode, InvalidRequestError, RetriableError


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


class NoOffsetError(InvalidRequestError):
    """The group has no committed offset of a partition, and nobody has said where to begin."""


class RecreatedTopicError(NoOffsetError):
    """The committed offset is of an earlier topic of the same name, which was deleted."""
