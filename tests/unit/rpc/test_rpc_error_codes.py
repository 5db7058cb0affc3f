"""Errors across the wire: the class that is raised here is the one that was raised there, or its nearest base."""

from __future__ import annotations

import pytest

from replog import errors
from replog.client import ConsumerRecord
from replog.errors import ErrorCode, ReplogError
from replog.errors.from_code import error_code_of, error_from_code
from replog.records import TimestampType
from replog.rpc.transport import ConnectionLostError


def subclasses(cls: type[ReplogError]) -> list[type[ReplogError]]:
    return [cls, *(found for child in cls.__subclasses__() for found in subclasses(child))]


ALL = [cls for cls in subclasses(ReplogError) if cls.__module__ == "replog.errors"]

# Kafka has no code of their own: what arrives is the base that says what to do, or the root.
ARRIVES_AS: dict[type[ReplogError], type[ReplogError]] = {
    errors.RetriableError: ReplogError,  # raise a class that says what to wait for
    errors.InternalError: ReplogError,  # of another node: only its log says what it was
    errors.BrokerClosedError: ReplogError,  # local: an object of this process was closed
    errors.TransactionOutcomeUnknownError: ReplogError,  # local: no coordinator has answered
    errors.MalformedFrameError: errors.InvalidRequestError,
    errors.CorruptIndexError: errors.StorageError,
    errors.CorruptCheckpointError: errors.StorageError,
    errors.ContradictedLogError: errors.StorageError,
    errors.LateLeaderEpochError: errors.StorageError,
    errors.DirectoryLockedError: errors.StorageError,
    errors.ForeignDirectoryError: errors.StorageError,
    errors.DiskFullError: errors.ThrottledError,
    errors.TooManyOpenFilesError: errors.ThrottledError,
    errors.ReadOnlyLogError: errors.InvalidRequestError,
    errors.LogTruncatedError: errors.OffsetOutOfRangeError,  # local: a consumer compares
    errors.CommitStaleError: errors.StaleMemberEpochError,  # local: made by the member
    errors.HandlerFailedError: ReplogError,  # local: a worker ends
    errors.AuthenticationError: ReplogError,  # local: a client finds out
    errors.AuthorizationError: ReplogError,  # raise a class that says of what
    errors.TlsAuthenticationError: ReplogError,  # local: so are handshakes
    errors.ForkFailedError: errors.StorageError,  # local: a broker tells that the replica is offline
    errors.RegistryNotAvailableError: ReplogError,  # local: no registry speaks this protocol
    errors.RecordDecodeError: ReplogError,  # local: so are codecs
    errors.RecordEncodeError: errors.InvalidRequestError,
    errors.NoOffsetError: errors.InvalidRequestError,  # local, too
    errors.RecreatedTopicError: errors.InvalidRequestError,
}


def make(cls: type[ReplogError]) -> ReplogError:
    if issubclass(cls, errors.ConfigError):
        return cls("a.key", 1, "reason")
    if issubclass(cls, errors.CorruptRecordError):
        return cls("path", 5, "reason")
    if issubclass(cls, errors.CorruptCheckpointError):
        return cls("path", 5, "reason")
    if issubclass(cls, errors.RecordDecodeError):
        return cls("reason", ConsumerRecord("t", 0, 0, 0, TimestampType.CREATE_TIME, None, b"", ()))
    if cls is errors.InternalError:
        return errors.InternalError("a request", ValueError("reason"))
    return cls("reason")


@pytest.mark.parametrize("cls", ALL, ids=lambda cls: cls.__name__)
def test_every_class_comes_back(cls: type[ReplogError]) -> None:
    error = make(cls)
    arrived = error_from_code(error_code_of(error), str(error))
    assert type(arrived) is ARRIVES_AS.get(cls, cls)
    assert isinstance(error, type(arrived))
    assert str(error) in str(arrived)


def test_every_code_is_an_exception_with_a_text() -> None:
    found = {code: error_from_code(code, "") for code in ErrorCode if code is not ErrorCode.NONE}
    assert [
        code for code, error in found.items() if not isinstance(error, ReplogError) or code.name not in str(error)
    ] == []


@pytest.mark.parametrize("error", [ValueError("x"), KeyError("x"), errors.InvariantViolationError("x")])
def test_what_is_not_ours_is_unknown(error: Exception) -> None:
    assert error_code_of(error) is ErrorCode.UNKNOWN_SERVER_ERROR


def test_a_lost_connection_does_not_travel_as_one() -> None:
    """The connection between two brokers is not the client's: it must not think that its own was lost."""
    arrived = error_from_code(error_code_of(ConnectionLostError("to node 3", refused=True)), "to node 3")
    assert type(arrived) is ReplogError


def test_where_the_leader_is_comes_along() -> None:
    arrived = error_from_code(ErrorCode.NOT_LEADER_OR_FOLLOWER, "", leader_id=3, leader_epoch=9)
    assert isinstance(arrived, errors.NotLeaderOrFollowerError)
    assert (arrived.leader_id, arrived.leader_epoch) == (3, 9)
