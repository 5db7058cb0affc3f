"""Errors of groups as Kafka's clients know them."""

from __future__ import annotations

import pytest

from replog.errors import ErrorCode, RecordTooLargeError
from replog.protocol.handlers.groups.group_codes import failure_of
from replog.protocol.handlers.groups.group_offsets import _commit_code
from replog.wire.messages.offset_commit import OffsetCommitRequest


@pytest.mark.parametrize("version", [2, 9])
def test_what_is_too_large_is_a_matter_of_commits_only_where_one_was_asked_for(version: int) -> None:
    """A member that joins or syncs does not know the code for commits."""
    too_large = RecordTooLargeError("2 MB")
    assert failure_of(too_large).code is ErrorCode.UNKNOWN_SERVER_ERROR
    code = _commit_code(too_large.code, OffsetCommitRequest(), version)
    assert code is ErrorCode.INVALID_COMMIT_OFFSET_SIZE
