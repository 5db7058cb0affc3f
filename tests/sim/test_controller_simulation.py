"""Several controllers over one log, and the proof that the checks see a missing safeguard."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from replog.controller.controller import Controller
from replog.controller.events.offset_control import OffsetControl
from replog.controller.messages import CommittedRecords, LoadSnapshot, Reply, ReplyError
from replog.controller.partitions.change import Placement
from replog.metadata.records import MetadataRecord
from replog_timeline import SnapshotRegistry
from tests.sim.controller_simulation import ViolationError, run_seeds
from tests.sim.fresh_seeds import fresh_seeds

SEEDS = int(os.environ.get("REPLOG_SIM_SEEDS", "150"))
FRESH_SEEDS = 30
ABLATION_SEEDS = 120

MUST_BE_SEEN = (
    "several batches at once",
    "skip",
    "lost tail",
    "snapshot",
    "gone",
    "moving",
    "reassign",
    "drain",
)


def test_the_invariants_hold() -> None:
    seen = run_seeds(range(SEEDS))
    assert [name for name in MUST_BE_SEEN if seen[name] == 0] == []


def test_fresh_seeds_break_no_invariant_either() -> None:
    with fresh_seeds("controller_simulation", FRESH_SEEDS) as seeds:
        run_seeds(seeds)


def test_an_operator_decides_where_the_only_complete_disk_is_gone() -> None:
    """With a minimum of one replica the others may lack what was committed: nobody is elected until somebody gives it up."""
    assert run_seeds((1112146094,))["given up"] == 3


def test_one_seed_is_one_run_under_any_hash_seed() -> None:
    def trace(hash_seed: str) -> str:
        root = Path(__file__).parents[2]
        code = "from tests.sim.controller_simulation import *; s = Simulation(7); s.run(); print(s.trace)"
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": f"{root}/timeline"}
        done = subprocess.run(
            [sys.executable, "-c", code], cwd=root, env=environment, capture_output=True, text=True, check=True
        )
        return done.stdout

    assert trace("1") == trace("2")


# ---- without a safeguard ----------------------------------------------------------------------------------------------


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
