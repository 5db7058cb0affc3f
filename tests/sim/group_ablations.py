"""What `group_simulation` finds when a safeguard of groups is taken out: one substitution each.

The table in `docs/SAFEGUARDS.md` comes from here (from the root of the repository)::

    export PYTHONPATH=timeline:quorum:checkpoints
    python -m tests.sim.group_ablations --write --stale  # without --stale every row
    python -m tests.sim.group_ablations --only "generation" --seeds 1000  # look for one
"""

from __future__ import annotations

import gc
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from msgspec.structs import replace

from replog.broker.coordinator import shard_host
from replog.broker.coordinator.shard_host import ShardHost
from replog.broker.coordinator.shards import Shards
from replog.broker.replicas.replica import Replica
from replog.client.consumer.group_member import GroupMember
from replog.client.groups.commits import Progress
from replog.client.groups.membership import Membership, State
from replog.client.groups.messages import Released
from replog.coordinator.classic.group import ClassicGroup
from replog.coordinator.consumers import manager as consumers_manager
from replog.coordinator.consumers.group import ConsumerGroup
from replog.coordinator.consumers.manager import ConsumerManager, ConsumerSessionTimer
from replog.coordinator.offsets.cleaner import OF_TOPICS, OffsetCleaner
from replog.coordinator.offsets.pending import PendingOffsets
from replog.coordinator.offsets.state import GroupOffsets
from replog.coordinator.runtime.machine import Moment
from replog.coordinator.runtime.messages import LogRead, ReplyError, Resigned
from replog.coordinator.runtime.shard import Shard, ShardState
from replog.coordinator.runtime.transactions import LoggedMarker, TransactionalRecord
from replog.errors import BrokerNotAvailableError, ReplogError
from replog.log.producers.state import ProducerStateManager
from replog.waiting.written_batches import WrittenBatches
from tests.sim.ablation_table import AblationTable, Found, Patches, taken_out
from tests.sim.group_simulation import GroupSimulation
from tests.sim.group_transactions import GroupTransactionSimulation
from tests.sim.metadata_cluster_checks import Violation
from tests.sim.shrinking import Case

SEEDS_MAX = 300


@dataclass(frozen=True)
class GroupAblation:
    """One safeguard taken out.

    Attributes:
        safeguard: what is missing.
        finding: what the violation must say.
        patches: (owner, attribute, substitute).
        shape: what of the groups makes the bad case likely; the rest is drawn.
        swarm: rates of faults that do.
        unfound_because: why a search found nothing; empty: it is found.
        shown_by: the test that misses it then, as pytest names it.
        simulation: the one that is run.
    """

    safeguard: str
    finding: str
    patches: Patches
    shape: Mapping[str, Any] = field(default_factory=dict)
    swarm: Mapping[str, Any] = field(default_factory=dict)
    unfound_because: str = ""
    shown_by: str = ""
    simulation: type[GroupSimulation] = GroupSimulation


# ---- substitutes ---------------------------------------------------------------------------------------------------------


def answers_at_once(self: Shard, answers: Any, *_: Any) -> None:
    self._effects += answers


def serves_at_once(self: Shard, message: Any) -> None:
    """Handles requests before anything is read."""
    _HANDLE_LEAD(self, message)
    self._written.begin(message.end_offset)
    self._written.move_to(message.end_offset)
    self._state = ShardState.ACTIVE


_HANDLE_LEAD = Shard._handle_lead


def keeps_state(self: Shard, error: ReplogError) -> None:
    """Fails what waits, and keeps what it knows."""
    self._effects += [ReplyError(each.request_id, error) for each in self._parked.fail_all()]
    self._effects += [ReplyError(request_id, error) for request_id in self._machine.stop()]
    self._unsure_timers.clear()
    self._wanted_timers.clear()
    self._timers.clear()
    self._written.stop()
    self._lead = None
    self._state = ShardState.IDLE


def keeps_host(self: Shards, replica: Replica) -> None:
    """Leaves the shard where it is when its replica leads no more."""
    host = self._hosts.get(replica.key)
    if host is not None:
        host.tell(Resigned())
        host.run()


def without_tombstones(self: Shard, message: LogRead) -> None:
    kept = tuple(each for each in message.records if _is_marker(each) or each[1][1] is not None)
    _REPLAY_READ(self, replace(message, records=kept))


_REPLAY_READ = Shard._replay_read


def goes_on(self: WrittenBatches, base_offset: int) -> None:
    """Writes where it must, and keeps the state of what was refused."""
    self._next_offset = base_offset
    while self._ends and self._ends[-1] > base_offset:
        self._registry.delete_snapshot(self._ends.pop())


def whatever_epoch(self: ShardHost, epoch: int) -> ReplogError | None:
    reason = self._refuses()
    return None if reason is None else BrokerNotAvailableError(reason)


def steps_on(self: ShardHost, message: Any) -> None:
    """Keeps what has not been written when a leadership ends or begins."""
    clock = self._stepper.clock
    for effect in self.shard.step(message, Moment(clock.now_ms(), clock.wall_ms())):
        self._perform(effect)


def any_epoch(self: ConsumerGroup, member_id: str, member_epoch: int) -> None:
    if member_id not in self.members:
        _CHECK_EPOCH(self, member_id, -1)


_CHECK_EPOCH = ConsumerGroup._check_epoch


def any_generation(self: ClassicGroup, member_id: str, instance_id: str | None, member_epoch: int) -> None:
    self.member_or_raise(member_id, instance_id)


def anybody(*_: Any) -> None:
    """Lets anybody commit."""


def ends_sessions(self: ConsumerManager, group_id: str, group: ConsumerGroup, moment: Moment, **_: Any) -> None:
    for member_id in group.members:
        self._timers.set(ConsumerSessionTimer(group_id, member_id), moment.now_ms)


def gives_back_first(self: GroupMember, partitions: Any, *, is_lost: bool) -> None:
    """Says that partitions are given back, and has the reader give them up afterwards."""
    held = tuple(each for each, topic_id in self.held.items() if (topic_id, each.partition) in partitions)
    _TAKE_BACK(self, partitions, is_lost=is_lost)
    if held and self.taken_back is not None:
        self._step(Released(partitions))


_TAKE_BACK = GroupMember._take_back


def done_in_hand(self: Progress, position: Any) -> dict[Any, int]:
    """Counts what was handed out as done with."""
    return {each: position(each) for each in self._touched if position(each) > self._floors[each]}


def keeps_partitions(self: Membership, error: ReplogError) -> tuple[Any, ...]:
    """Joins again with what it has, after it was put out."""
    self.state = State.FENCED
    self._forget_membership()
    self._due_ms = None
    self.owned = frozenset()
    return ()


def without_markers(self: Shard, message: LogRead) -> None:
    _REPLAY_READ(self, replace(message, records=tuple(each for each in message.records if not _is_marker(each))))


def without_pending(self: Shard, message: LogRead) -> None:
    kept = tuple(each for each in message.records if not isinstance(each, TransactionalRecord))
    _REPLAY_READ(self, replace(message, records=kept))


def _is_marker(entry: Any) -> bool:
    return isinstance(entry, LoggedMarker)


def whatever_is_read(
    self: OffsetCleaner,
    which: Any,
    group_id: str,
    kept: GroupOffsets,
    topics: Any,
    moment: Moment,
) -> Any:
    if which == OF_TOPICS:
        return _CHOOSER(self, which, group_id, kept, topics, moment)
    return lambda partition: moment.wall_ms >= kept.times(partition).commit_timestamp + self._config.retention_ms


_CHOOSER = OffsetCleaner._chooser

CONSUMERS = {"groups": (("consumer", 3),), "partitions": 4, "late_s": 2.0}
CLASSIC = {"groups": (("eager", 3), ("cooperative", 3)), "partitions": 4, "late_s": 2.0}
BUSY = {"member_fault": 0.7, "member_faults": ("kill", "pause", "leave", "slow")}
ASLEEP = {"member_fault": 0.7, "member_faults": ("pause", "slow")}
MOVED = {"crash": 0.6, "power_cut": 0.5, "elect": 0.3}
BROKEN = {"crash": 0.4, "cut": 0.6, "power_cut": 1.0}
LATE = {"late": 0.8, "stream_break": 0.02, "crash": 0.0, "mains": 0.0, "straggler": 0.05}
CALM: dict[str, Any] = dict.fromkeys(
    (
        "crash",
        "cut",
        "mains",
        "cut_in_write",
        "pause",
        "stop",
        "disk_error",
        "disk_full",
        "client_cut",
        "usurp",
        "stall",
    ),
    0.0,
)

ABLATIONS = (
    GroupAblation(
        "answers wait for the commit", "G3", ((Shard, "_answer", answers_at_once),), CONSUMERS | BUSY, BROKEN
    ),
    GroupAblation(
        "the member epoch of a commit", "G2", ((ConsumerGroup, "_check_epoch", any_epoch),), CONSUMERS | BUSY
    ),
    GroupAblation(
        "the generation of a commit", "G2", ((ClassicGroup, "check_commit", any_generation),), CLASSIC | BUSY, LATE
    ),
    GroupAblation(
        "a member that was put out commits nothing",
        "G2",
        ((ConsumerGroup, "check_commit", anybody),),
        CONSUMERS | ASLEEP,
    ),
    GroupAblation(
        "the same, of the classic protocol", "G2", ((ClassicGroup, "check_commit", anybody),), CLASSIC | ASLEEP
    ),
    GroupAblation(
        "a partition is given back before another member has it",
        "G1",
        ((consumers_manager, "_is_free", lambda *_: True),),
        CONSUMERS | BUSY,
    ),
    GroupAblation(
        "the state goes back when the log refuses records",
        "G",
        ((WrittenBatches, "take_back", goes_on),),
        CONSUMERS | BUSY,
        {"cut": 0.6, "crash": 0.2, "disk_full": 0.2},
    ),
    GroupAblation(
        "nothing is kept of a leadership that is lost",
        "G",
        ((Shard, "_forget", keeps_state), (Shards, "ended", keeps_host)),
        CONSUMERS | BUSY,
        {"cut": 0.6, "cut_metadata": 0.3, "usurp": 0.2, "cut_pair": 0.3},
        unfound_because="what is left over are members whose sessions end; `tests/unit/coordinator/test_shard.py` finds it",
        shown_by="tests/unit/coordinator/test_shard.py::test_a_lost_leadership_fails_what_waits_and_forgets_everything",
    ),
    GroupAblation(
        "what is gone stays gone when a coordinator reads its log",
        "G[1-8]",
        ((Shard, "_replay_read", without_tombstones),),
        {"groups": (("consumer", 1),), "forgets": True, "member_fault": 1.0, "member_faults": ("leave",)},
        {"crash": 0.6, "wall_jump": 1.0, "elect": 0.6},
    ),
    GroupAblation(
        "nobody is served before the log has been read",
        "G",
        ((Shard, "_handle_lead", serves_at_once), (Shard, "_handle_log_read", lambda *_: None)),
        CONSUMERS | BUSY,
        MOVED,
    ),
    GroupAblation(
        "the leader epoch of an append",
        "G|R|node",
        ((ShardHost, "_refusal", whatever_epoch), (ShardHost, "_step", steps_on)),
        CONSUMERS | BUSY,
        {"crash": 0.2, "elect": 0.6, "cut": 0.6, "cut_metadata": 0.3},
        unfound_because="it takes a change that waits while the same broker is elected again; `tests/unit/broker/test_broker_shards.py` finds it",
        shown_by="tests/unit/broker/test_broker_shards.py::test_what_waits_for_a_batch_is_not_appended_in_the_next_epoch",
    ),
    GroupAblation(
        "every coordinator begins sessions anew",
        "G9",
        ((ConsumerManager, "begin_sessions", ends_sessions),),
        CONSUMERS | {"member_fault": 0.0},
        MOVED | {"stall": 0.0},
    ),
    GroupAblation(
        "offsets of a group with members are kept",
        "G5",
        ((OffsetCleaner, "_chooser", whatever_is_read),),
        CONSUMERS | {"forgets": True, "member_fault": 0.0},
        CALM | {"wall_jump": 0.3},
    ),
    GroupAblation("what is in hand is not committed", "G6", ((Progress, "done", done_in_hand),), CONSUMERS | BUSY),
    GroupAblation(
        "a reader lets go before its partitions are given back",
        "G7",
        ((GroupMember, "_take_back", gives_back_first),),
        CONSUMERS | BUSY,
    ),
    GroupAblation(
        "a member that was put out gives up what it has",
        "G",
        ((Membership, "_fence", keeps_partitions),),
        CONSUMERS | ASLEEP,
    ),
    GroupAblation(
        "a coordinator reads the markers of transactions",
        "G1[12]",
        ((Shard, "_replay_read", without_markers),),
        swarm=MOVED,
        simulation=GroupTransactionSimulation,
    ),
    GroupAblation(
        "a coordinator reads the offsets of open transactions",
        "G11",
        ((Shard, "_replay_read", without_pending),),
        swarm=MOVED,
        simulation=GroupTransactionSimulation,
    ),
    GroupAblation(
        "a plain commit overtakes the transaction that goes on",
        "G11",
        ((PendingOffsets, "overtake", lambda *_: None),),
        simulation=GroupTransactionSimulation,
    ),
    GroupAblation(
        "a late marker of a transaction ends nothing",
        "G13",
        (
            (shard_host, "check_not_fenced", lambda *_: None),
            (ProducerStateManager, "check_marker", lambda *_, **__: None),
        ),
        simulation=GroupTransactionSimulation,
    ),
)


def simulation_of(ablation: GroupAblation) -> type[GroupSimulation]:
    """The simulation that is most likely to find it."""

    likely = {"shaped": {**ablation.simulation.shaped, **ablation.shape}, "fixed": ablation.swarm}
    return type("Likely", (ablation.simulation,), likely)


def find(ablation: GroupAblation, first: int, count: int) -> Found:
    """The first seed that shows the missing safeguard as it is expected to, and what it says; None if none does."""
    make = simulation_of(ablation)
    with taken_out(ablation.patches):
        for seed in range(first, first + count):
            with _broken_off():
                says = _run(make(seed, Case.of_seed(seed, make).swarm))
                gc.collect()
            if says and (ablation.unfound_because or re.match(ablation.finding, says, re.DOTALL)):
                return seed, says
    return None


@contextmanager
def _broken_off() -> Iterator[None]:
    """Says nothing of coroutines that are not run to their end, nor keeps them, and with them the whole simulation."""
    hook, sys.unraisablehook = sys.unraisablehook, lambda _: None
    try:
        yield
    finally:
        sys.unraisablehook = hook


def _run(simulation: GroupSimulation) -> str:
    """What a simulation finds; "" where all holds.  Nothing of it is kept, not in an exception either."""
    try:
        simulation.run()
    except Violation as violation:
        return str(violation)
    return ""


TABLE = AblationTable("group", ABLATIONS, find, SEEDS_MAX)

if __name__ == "__main__":
    sys.exit(TABLE.main(__doc__))
