"""Answers to our own requests: which of them are encoded beside the loop."""

from __future__ import annotations

from uuid import UUID

import pytest
from msgspec import Struct

from replog.errors import ErrorCode
from replog.protocol.private_answers import _is_long
from replog.rpc.messages import Cut, FindCutsResponse, FindCutsResult
from replog.rpc.node_messages import DescribeLogDirsResponse, LogDir, LogDirReplica


def directory(count: int) -> LogDir:
    return LogDir("/data", "", 1, tuple(LogDirReplica("t", number, 1) for number in range(count)), ())


def cuts(count: int) -> FindCutsResult:
    return FindCutsResult(UUID(int=1), 0, ErrorCode.NONE, (Cut(1, 1),) * count)


@pytest.mark.parametrize(
    ("answer", "is_long"),
    [
        (DescribeLogDirsResponse((directory(10), directory(10))), False),
        (DescribeLogDirsResponse((directory(600), directory(600))), True),
        (DescribeLogDirsResponse((directory(5_000),)), True),
        (FindCutsResponse((cuts(1),)), False),
        (FindCutsResponse((cuts(600), cuts(600))), True),
    ],
)
def test_an_answer_with_thousands_of_things_is_long_whatever_they_are_in(answer: Struct, is_long: bool) -> None:
    assert _is_long(answer) is is_long
