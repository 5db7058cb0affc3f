"""What waits for a log to commit: answers, and the ends of batches that a state can go back to."""

from __future__ import annotations

import pytest

from replog.errors import InvariantViolationError
from replog.waiting.parked_answers import ParkedAnswers
from replog.waiting.written_batches import WrittenBatches
from replog_timeline import SnapshotRegistry, TimelineLong


def parked(*answers: tuple[int, int, int | None]) -> ParkedAnswers[str]:
    """Answers by request id, end offset and deadline."""
    found = ParkedAnswers[str]()
    for request_id, end_offset, deadline_ms in answers:
        found.park(request_id, end_offset, f"answer {request_id}", deadline_ms)
    return found


def test_answers_leave_in_order_up_to_what_has_committed() -> None:
    waiting = parked((1, 5, 50), (2, 5, None), (3, 8, 40))
    assert waiting.complete_up_to(4) == []
    assert waiting.complete_up_to(7) == ["answer 1", "answer 2"]
    assert (len(waiting), waiting.next_deadline_ms()) == (1, 40)
    assert waiting.complete_up_to(8) == ["answer 3"]
    assert (len(waiting), waiting.next_deadline_ms()) == (0, None)


def test_answers_without_a_deadline_wait_as_long_as_it_takes() -> None:
    waiting = parked((1, 5, 50), (2, 5, None))
    assert waiting.expire(49) == []
    assert waiting.expire(1_000_000) == ["answer 1"]
    assert waiting.fail_all() == ["answer 2"]
    assert len(waiting) == 0


def test_what_is_taken_back_fails_what_was_made_of_it() -> None:
    waiting = parked((1, 5, 50), (2, 6, 60), (3, 7, 70))
    assert waiting.fail_beyond(5) == ["answer 2", "answer 3"]
    assert waiting.next_deadline_ms() == 50


def test_a_request_waits_once() -> None:
    waiting = parked((1, 5, 50))
    with pytest.raises(InvariantViolationError, match="request 1 waits already"):
        waiting.park(1, 6, "another", 50)


def written(*ends: int) -> tuple[WrittenBatches, TimelineLong]:
    """Batches from offset 10 on; the value is the end of the last one."""
    registry = SnapshotRegistry()
    batches, value = WrittenBatches(registry), TimelineLong(registry)
    batches.begin(10)
    batches.move_to(10)
    for end in ends:
        value.set(end)
        batches.move_to(end)
    return batches, value


def test_the_state_goes_back_to_the_end_of_any_batch_that_has_not_committed() -> None:
    batches, value = written(12, 15, 20)
    assert batches.commit_up_to(13) == 12
    batches.take_back(15)
    assert (value.get(), batches.next_offset) == (15, 15)
    batches.take_back(12)
    assert (value.get(), batches.next_offset) == (12, 12)
    assert batches.commit_up_to(20) is None


def test_a_batch_that_was_taken_back_does_not_commit() -> None:
    batches, _ = written(12, 15)
    batches.take_back(12)
    batches.move_to(14)
    assert batches.commit_up_to(15) == 14


def test_only_who_leads_writes_and_never_backwards() -> None:
    batches, _ = written(12)
    with pytest.raises(InvariantViolationError, match="goes back from 12 to 11"):
        batches.move_to(11)
    batches.stop()
    with pytest.raises(InvariantViolationError, match="does not lead"):
        batches.move_to(13)
    assert batches.commit_up_to(100) is None
