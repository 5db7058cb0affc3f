"""Tests for the entries of access control lists in the controller: each once, checked, bounded, removed by filters."""

from __future__ import annotations

import pytest
from controller_kit import Quorum
from msgspec.structs import replace

from replog.access.entries import AclEntry, AclFilter, AclOperation, PatternType, Permission, ResourceKind
from replog.controller.config import ControllerConfig
from replog.controller.requests import AclResult, CreateAcls, CreateAclsResponse, DeleteAcls, DeleteAclsResponse
from replog.errors import ErrorCode, PolicyViolationError

READS = AclEntry(
    ResourceKind.TOPIC, "flights", PatternType.LITERAL, "User:alice", "*", AclOperation.READ, Permission.ALLOW
)
WRITES = replace(READS, operation=AclOperation.WRITE)
WRONG = replace(READS, principal="alice")


def started(config: ControllerConfig | None = None) -> Quorum:
    quorum = Quorum(1) if config is None else Quorum(1, config=config)
    quorum.claim(1)
    quorum.commit()
    return quorum


def create(quorum: Quorum, *entries: AclEntry) -> tuple[AclResult, ...]:
    response = quorum.ask(CreateAcls(entries))
    assert isinstance(response, CreateAclsResponse)
    return response.results


def delete(quorum: Quorum, *filters: AclFilter) -> tuple[AclResult, ...]:
    response = quorum.ask(DeleteAcls(filters))
    assert isinstance(response, DeleteAclsResponse)
    return response.results


def in_image(quorum: Quorum) -> list[AclEntry]:
    return sorted(quorum.image.acls.values())


def test_an_entry_is_there_once_however_often_it_is_created() -> None:
    quorum = started()
    assert [each.error for each in create(quorum, READS, READS, WRITES)] == [ErrorCode.NONE] * 3
    end_offset = quorum.image.end_offset
    assert create(quorum, WRITES)[0].error is ErrorCode.NONE
    assert quorum.image.end_offset == end_offset
    assert in_image(quorum) == [READS, WRITES]


def test_an_entry_that_cannot_be_one_stops_no_other() -> None:
    quorum = started()
    wrong, right = create(quorum, WRONG, READS)
    assert wrong.error is ErrorCode.INVALID_REQUEST
    assert "write it as User:NAME" in wrong.message
    assert right.error is ErrorCode.NONE
    assert in_image(quorum) == [READS]


def test_a_filter_removes_what_it_fits_and_names_it() -> None:
    quorum = started()
    create(quorum, READS, WRITES)
    assert delete(quorum, AclFilter(name="other")) == (AclResult(ErrorCode.NONE),)
    whole = AclFilter(*(getattr(READS, name) for name in READS.__struct_fields__))
    everything = AclFilter(principal="User:alice")
    first, second = delete(quorum, whole, everything)
    assert first.entries == (READS,)
    assert set(second.entries) == {READS, WRITES}
    assert in_image(quorum) == []
    assert create(quorum, READS)[0].error is ErrorCode.NONE  # it may come back
    assert in_image(quorum) == [READS]


def test_there_are_only_so_many_entries() -> None:
    quorum = started(ControllerConfig(max_acls=2))
    results = create(quorum, READS, WRITES, replace(READS, name="more"), READS)
    assert [each.error for each in results] == [
        ErrorCode.NONE,
        ErrorCode.NONE,
        ErrorCode.POLICY_VIOLATION,
        ErrorCode.NONE,
    ]
    assert "no more may be" in results[2].message


def test_a_request_may_not_have_everything_looked_at_again_and_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("replog.controller.state.acls.LOOKS_MAX", 3)
    quorum = started()
    create(quorum, READS, WRITES)
    with pytest.raises(PolicyViolationError, match="ask in several requests"):
        delete(quorum, AclFilter(name="a"), AclFilter(name="b"))
    assert len(delete(quorum, AclFilter())[0].entries) == 2
