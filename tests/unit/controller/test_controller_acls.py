"""Tests for the entries of access control lists in the controller: each once, checked, bounded, removed by filters."""

from __future__ import annotations

from typing import Any

import pytest
from controller_kit import Quorum, refusing
from msgspec.structs import replace

from replog.access.entries import AclEntry, AclFilter, AclOperation, PatternType, Permission, ResourceKind
from replog.controller.config import ControllerConfig
from replog.controller.requests import AclResult, CreateAcls, CreateAclsResponse, DeleteAcls, DeleteAclsResponse
from replog.controller.state import acls
from replog.errors import ErrorCode, PolicyViolationError
from tests.work_counts import calls_of

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


def test_entries_are_checked_as_many_in_a_step_as_are_appended(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trap: nine thousand were checked and made records of in one step, which held the loop for a twentieth of a second."""
    quorum = refusing(max_records_per_step=10, max_acls=40)
    checked: list[int] = []
    problem, step = acls.entry_problem, quorum.leader.step

    def counted(entry: AclEntry) -> str | None:
        checked[-1] += 1
        return problem(entry)

    def stepped(message: Any, now_ms: int) -> Any:
        checked.append(0)
        return step(message, now_ms)

    monkeypatch.setattr(acls, "entry_problem", counted)
    monkeypatch.setattr(quorum.leader, "step", stepped)
    entries = [replace(READS, name=f"t{number % 45}") for number in range(50)]
    errors = [each.error for each in create(quorum, WRONG, *entries)]
    assert errors == [
        ErrorCode.INVALID_REQUEST,
        *[ErrorCode.NONE] * 40,
        *[ErrorCode.POLICY_VIOLATION] * 5,
        *[ErrorCode.NONE] * 5,
    ]
    assert in_image(quorum) == sorted(entries[:40])
    assert (sum(checked), max(checked)) == (51, 10)


def test_thousands_of_entries_are_removed_in_steps_that_cost_as_much_as_other_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Trap: all records were made, and their sizes reckoned twice, in the step that looked for the entries: 27 ms for nine thousand."""
    quorum = started(ControllerConfig(max_records_per_step=100))
    create(quorum, *(replace(READS, name=f"t{number}") for number in range(2_000)))
    step, calls = quorum.leader.step, list[int]()

    def stepped(message: Any, now_ms: int) -> Any:
        effects: list[Any] = []
        calls.append(calls_of(lambda: effects.extend(step(message, now_ms))))
        return effects

    monkeypatch.setattr(quorum.leader, "step", stepped)
    assert len(delete(quorum, AclFilter())[0].entries) == 2_000
    assert in_image(quorum) == []
    assert max(calls) < 6 * 2_000
