"""What `transaction_simulation` finds when a safeguard of transactions is taken out: one substitution each.

The table in `docs/SAFEGUARDS.md` comes from here (from the root of the repository)::

    export PYTHONPATH=timeline:quorum:checkpoints
    python -m tests.sim.transaction_ablations --write --stale  # without --stale every row
    python -m tests.sim.transaction_ablations --only "marker" --seeds 1000  # look for some
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

from msgspec.structs import replace

from replog.broker.coordinator.commit_permits import CommitPermits
from replog.broker.requests import transaction_joins
from replog.broker.requests.transaction_joins import TransactionJoins
from replog.broker.transactions.marker_sender import MarkerSender
from replog.client.producer.transaction import TransactionDriver
from replog.client.producer.transactions import TransactionBook
from replog.coordinator.offsets.manager import OffsetManager
from replog.coordinator.offsets.requests import FetchOffsets, FetchOffsetsResponse
from replog.coordinator.runtime.machine import Moment, Outcome
from replog.coordinator.runtime.messages import Reply
from replog.coordinator.runtime.shard import Shard
from replog.coordinator.transactions import machine
from replog.coordinator.transactions.machine import TransactionMachine
from replog.coordinator.transactions.passes import Passes
from replog.coordinator.transactions.records import WrittenTransaction
from replog.coordinator.transactions.requests import (
    AddPartitions,
    EndTransaction,
    InitProducer,
    InitProducerResponse,
)
from replog.coordinator.transactions.transitions import (
    check_may_add,
    ended,
    incarnation_of,
    taken_over,
)
from replog.log import log as log_module
from replog.log.producers.guards import TransactionGuards
from replog.log.producers.state import ProducerEntry, ProducerStateManager, TransactionMarker
from replog.log.producers.undecided import UndecidedTransactions
from replog.log.state import LogState
from replog.metadata.records import NO_LEADER
from replog.records import BatchHeader
from tests.sim.ablation_table import AblationTable
from tests.sim.group_ablations import GroupAblation, answers_at_once, find
from tests.sim.metadata_cluster_simulation import Simulation
from tests.sim.transaction_simulation import TransactionSimulation

SEEDS_MAX = 60


@dataclass(frozen=True)
class TransactionAblation(GroupAblation):
    """One safeguard taken out; `shape` is of the transactions."""

    simulation: type[Simulation] = TransactionSimulation


# ---- substitutes ---------------------------------------------------------------------------------------------------------


def begins_beside(
    self: TransactionMachine, request_id: int, request: InitProducer, value: WrittenTransaction, moment: Moment
) -> Outcome:
    """Lets the successor begin while the transaction is open."""
    taken = taken_over(value, request, moment.wall_ms)
    answer = Reply(request_id, InitProducerResponse(incarnation_of(taken)))
    return Outcome(self._written(request.transactional_id, taken), (answer,))


def ends_for_anybody(value: WrittenTransaction, request: EndTransaction, now_ms: int) -> WrittenTransaction | None:
    """Ends the transaction for whoever asks."""
    return ended(value, replace(request, producer=incarnation_of(value)), now_ms)


def adds_for_anybody(value: WrittenTransaction, request: AddPartitions) -> None:
    """Lets whoever asks add partitions."""
    check_may_add(value, replace(request, producer=incarnation_of(value)))


def counts_at_once(self: MarkerSender, share: Any, _refused: Any) -> None:
    """Tells the coordinator that all partitions have their marker, also those that refused it."""
    self._tell(share, share.partitions)


def forgets_decisions(self: TransactionMachine, moment: Moment, epoch: int) -> None:
    """Begins to coordinate without what was decided before."""
    self._ends.stop()
    _START(self, moment, epoch)


_START = TransactionMachine.start


def takes_any_epoch(self: ProducerStateManager, header: BatchHeader) -> Any:
    """Takes a batch of an epoch that is over."""
    entry = self._producers.get(header.producer_id)
    if entry is not None and header.is_transactional and header.producer_epoch < entry.producer_epoch:
        return None
    return _CHECK(self, header)


_CHECK = ProducerStateManager.check


def takes_any_coordinator(self: ProducerStateManager, marker: TransactionMarker, *, bumps_epochs: bool = False) -> None:
    """Takes a marker of a coordinator that is none any more."""
    entry = self._producers.get(marker.producer_id)
    if entry is not None:
        marker = replace(marker, coordinator_epoch=max(marker.coordinator_epoch, entry.coordinator_epoch))
    _CHECK_MARKER(self, marker, bumps_epochs=bumps_epochs)


_CHECK_MARKER = ProducerStateManager.check_marker


def reads_on(self: LogState, high_watermark: int) -> int:
    """Lets readers of committed records read all that is replicated."""
    return high_watermark


def first_open(self: UndecidedTransactions, high_watermark: int) -> int | None:
    """Counts a transaction as ended with its marker in the log, replicated or not."""
    return self.first_open_offset


def tells_all(self: OffsetManager, request: FetchOffsets) -> FetchOffsetsResponse:
    """Tells offsets that a transaction may be about to change."""
    return _FETCH(self, replace(request, wants_stable=False))


_FETCH = OffsetManager.fetch


async def joins_nothing(*_: Any, **__: Any) -> None:
    """Asks no coordinator of transactions."""


def is_always_ready(self: TransactionBook, identity: Any) -> None:
    """Goes on with the epoch it has, whatever may be under way."""
    _END(self, self.identity if identity is None else identity)
    self.was_given_up = False


_END = TransactionBook.end


def waits_for_the_deleted(self: MarkerSender, partitions: Any) -> Any:
    """Takes a partition of a topic that is deleted for one without a leader."""
    found, gone = _BY_LEADER(self, partitions)
    if gone:
        found.setdefault(NO_LEADER, []).extend(gone)
    return found, ()


_BY_LEADER = MarkerSender._by_leader

ZOMBIES = {"client_fault": 0.7, "client_faults": ("successor", "pause"), "dwells": 0.3, "writers": 3}
SLOW = {"dwells": 0.3, "timeout_ms": 1_000, "writers": 3, "client_fault": 0.3, "client_faults": ("pause",)}
CHAINS = {"chains": 2, "client_fault": 0.7, "client_faults": ("kill", "successor")}
MOVED = {"crash": 0.6, "power_cut": 0.5}
BROKEN = {"crash": 0.4, "cut": 0.6, "power_cut": 1.0}
LATE = {"late": 0.8, "stream_break": 0.02, "straggler": 0.05}
OLD = {"versions": (0,)}
NEW = {"versions": (2,)}

ABLATIONS = (
    TransactionAblation(
        "answers wait for the commit of a decision", "X", ((Shard, "_answer", answers_at_once),), {"writers": 3}, BROKEN
    ),
    TransactionAblation(
        "an open transaction is aborted before its successor begins",
        "X",
        ((TransactionMachine, "_fence", begins_beside),),
        ZOMBIES,
    ),
    TransactionAblation(
        "who may take over a transactional id again", "X", ((machine, "check_may_take_over", lambda *_: None),), ZOMBIES
    ),
    TransactionAblation("the epoch of who ends a transaction", "X", ((machine, "ended", ends_for_anybody),), ZOMBIES),
    TransactionAblation(
        "the epoch of who adds partitions", "X", ((machine, "check_may_add", adds_for_anybody),), ZOMBIES
    ),
    TransactionAblation(
        "a transaction is complete when all partitions have taken their marker",
        "X",
        ((MarkerSender, "_settle", counts_at_once),),
        {"writers": 3},
        BROKEN | {"elect": 0.3},
    ),
    TransactionAblation(
        "the next coordinator writes the markers of what was decided",
        "X",
        ((TransactionMachine, "start", forgets_decisions),),
        {"writers": 3, "elects": 0.3},
        MOVED,
    ),
    TransactionAblation(
        "a marker that is refused is sent again", "X", ((MarkerSender, "_try_later", lambda *_: None),), {}, BROKEN
    ),
    TransactionAblation(
        "a transaction that is open for too long is aborted",
        "X6",
        ((Passes, "_abort", lambda *_: None),),
        SLOW | {"abandons": True},
        {"wall_jump": 0.0},
    ),
    TransactionAblation(
        "a topic that is deleted keeps no transaction open",
        "X6",
        ((MarkerSender, "_by_leader", waits_for_the_deleted),),
        {"deletes": True, "writers": 3},
    ),
    TransactionAblation(
        "no time-out ends a transaction that is prepared",
        "X9",
        ((machine, "prepared", lambda *_: None),),
        {"prepares": 0.5, "timeout_ms": 1_000, "client_fault": 0.0, "writers": 3},
    ),
    TransactionAblation(
        "a leader asks whether a partition is part of the transaction",
        "X",
        ((TransactionJoins, "take", lambda *_: False),),
        ZOMBIES | OLD,
        LATE,
        unfound_because="our producers add partitions before they send; a late batch must come behind its marker; shown by `test_broker_transaction_joins.py`",
        shown_by="tests/unit/broker/test_broker_transaction_joins.py::test_the_coordinator_is_asked_once_for_a_transaction",
    ),
    TransactionAblation(
        "what the coordinator says to that",
        "X",
        ((transaction_joins, "_refusals", lambda *_: {}),),
        ZOMBIES,
        LATE,
    ),
    TransactionAblation(
        "a marker ends what the coordinator was asked before",
        "X",
        ((TransactionGuards, "note_marker", lambda *_: None),),
        ZOMBIES | SLOW,
        LATE | {"slow_thread": 0.2},
        unfound_because="a marker must come between the coordinator's answer and the append; shown by `test_log_transaction_rules.py`",
        shown_by="tests/unit/log/test_log_transaction_rules.py::test_a_marker_takes_the_guard_of_its_transaction_but_not_that_of_the_next",
    ),
    TransactionAblation(
        "a log refuses producer epochs that are over",
        "X",
        ((ProducerStateManager, "check", takes_any_epoch),),
        ZOMBIES,
        {"wall_jump": 0.0},
    ),
    TransactionAblation(
        "a marker fences the epoch before",
        "X",
        ((ProducerEntry, "raise_epoch", lambda *_: None),),
        ZOMBIES | NEW,
    ),
    TransactionAblation(
        "a log refuses markers of earlier coordinators",
        "X",
        ((ProducerStateManager, "check_marker", takes_any_coordinator),),
        ZOMBIES | OLD,
        MOVED | LATE,
        unfound_because="its marker must be under way while the next one writes it and the next transaction begins; shown by `test_log_transaction_rules.py`",
        shown_by="tests/unit/log/test_log_transaction_rules.py::test_a_marker_of_an_earlier_epoch_or_coordinator_is_refused",
    ),
    TransactionAblation(
        "a log refuses markers of earlier transactions",
        "X",
        ((ProducerStateManager, "check_marker", lambda *_, **__: None),),
        ZOMBIES | NEW,
        MOVED | LATE,
        unfound_because="its marker must come when the next transaction has begun; one seed of sixty showed it before producers took over at their start; shown by `test_log_transaction_rules.py`",
        shown_by="tests/unit/log/test_log_transaction_rules.py::test_a_marker_of_an_earlier_epoch_or_coordinator_is_refused",
    ),
    TransactionAblation(
        "readers stop at the last stable offset", "X", ((LogState, "last_stable_offset", reads_on),), {"dwells": 0.3}
    ),
    TransactionAblation(
        "a marker counts when it is replicated",
        "X4",
        ((UndecidedTransactions, "first_unstable_offset", first_open),),
        {"writers": 3},
    ),
    TransactionAblation(
        "readers are told what was aborted",
        "X",
        ((log_module, "aborted_transactions", lambda *_: []),),
        {"aborts": 0.5},
    ),
    TransactionAblation(
        "offsets of an open transaction are not told",
        "X",
        ((OffsetManager, "fetch", tells_all),),
        CHAINS,
        unfound_because="who had the partitions must have ended a transaction whose marker is not there yet; shown by `test_transactional_offsets.py`",
        shown_by="tests/unit/coordinator/test_transactional_offsets.py::test_an_offset_of_a_transaction_counts_from_its_end",
    ),
    TransactionAblation(
        "offsets join a transaction before they are kept",
        "X",
        ((CommitPermits, "_join", joins_nothing),),
        CHAINS | NEW,
    ),
    TransactionAblation(
        "one record that fails fails the transaction",
        "X",
        ((TransactionDriver, "_handle_failed", lambda *_: None),),
        {"delivery_timeout_ms": 1_500, "writers": 3},
        BROKEN,
    ),
    TransactionAblation(
        "a producer begins anew after what it has given up",
        "X",
        ((TransactionBook, "end", is_always_ready),),
        OLD | {"cancels": 0.3, "writers": 3},
        LATE | BROKEN,
        unfound_because="what was given up must arrive in the next transaction; shown by `test_client_transaction_book.py`",
        shown_by="tests/unit/client/producer/test_client_transaction_book.py::test_an_epoch_of_which_something_was_given_up_is_not_used_again",
    ),
)

TABLE = AblationTable("transaction", ABLATIONS, find, SEEDS_MAX)

if __name__ == "__main__":
    sys.exit(TABLE.main(__doc__))
