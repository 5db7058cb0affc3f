"""A safeguard of the controller is taken out: the simulation of several controllers must notice."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from replog.controller.controller import Controller
from replog.controller.events.offset_control import OffsetControl
from replog.controller.messages import CommittedRecords, LoadSnapshot, Reply, ReplyError
from replog.controller.partitions.change import Placement
from replog.metadata.records import MetadataRecord
from replog_timeline import SnapshotRegistry
from tests.sim.controller_simulation import ViolationError, run_seeds

ABLATION_SEEDS = 120


def no_revert(patch: pytest.MonkeyPatch) -> None:
    """What did not commit stays in the state of a former leader."""
    deactivate = OffsetControl.deactivate

    def keeping(self: OffsetControl) -> Iterator[tuple[int, MetadataRecord]]:
        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(SnapshotRegistry, "revert_to_snapshot", lambda *_: None)
            return deactivate(self)

    patch.setattr(OffsetControl, "deactivate", keeping)


def answers_before_commit(patch: pytest.MonkeyPatch) -> None:
    def at_once(self: Controller, answer: Reply | ReplyError, _deadline_ms: int) -> None:
        self._effects.append(answer)

    patch.setattr(Controller, "_answer", at_once)


def surviving_batches_are_replayed_twice(patch: pytest.MonkeyPatch) -> None:
    """The active controller replays what it has replayed when it made it."""
    handle = Controller._handle_committed

    def again(self: Controller, message: CommittedRecords) -> None:
        if self._is_active:
            for offset, record in enumerate(message.records, message.base_offset):
                self._state.replay(record, offset)
        handle(self, message)

    patch.setattr(Controller, "_handle_committed", again)


def the_committed_half_of_a_transaction_is_forgotten(patch: pytest.MonkeyPatch) -> None:
    deactivate = OffsetControl.deactivate

    def forgetting(self: OffsetControl) -> Iterator[tuple[int, MetadataRecord]]:
        deactivate(self)
        return iter(())

    patch.setattr(OffsetControl, "deactivate", forgetting)


def open_transactions_are_left_open(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(OffsetControl, "in_transaction", False)


def snapshots_are_loaded_over_what_is_there(patch: pytest.MonkeyPatch) -> None:
    handle = Controller._handle_load_snapshot

    def loading(self: Controller, message: LoadSnapshot) -> None:
        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(SnapshotRegistry, "reset", lambda _: None)
            handle(self, message)

    patch.setattr(Controller, "_handle_load_snapshot", loading)


def control_records_are_not_skipped(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Controller, "_handle_skip", lambda *_: None)


def reassignments_do_not_wait_for_the_additions(patch: pytest.MonkeyPatch) -> None:
    def at_once(self: Placement, _isr: tuple[int, ...]) -> Placement:
        return Placement(tuple(replica for replica in self.replicas if replica not in self.removing))

    patch.setattr(Placement, "completed", at_once)


@pytest.mark.parametrize(
    "remove",
    [
        no_revert,
        answers_before_commit,
        surviving_batches_are_replayed_twice,
        the_committed_half_of_a_transaction_is_forgotten,
        open_transactions_are_left_open,
        snapshots_are_loaded_over_what_is_there,
        control_records_are_not_skipped,
        reassignments_do_not_wait_for_the_additions,
    ],
)
def test_a_missing_safeguard_is_found(
    remove: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    remove(monkeypatch)
    with pytest.raises(ViolationError) as found:
        run_seeds(range(ABLATION_SEEDS))
    print(f"{remove.__name__}: {found.value}"[:200])
