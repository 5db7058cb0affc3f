"""The invariants of the metadata quorum, over all simulated nodes at once.

======== ===============================================================================================================
M1       an epoch has one leader; a node that has restarted is another one
M2       an (offset, epoch) has one content and one predecessor, in whichever log it is
M3       a leader holds everything that was committed in the epochs before its own
M4       what is committed at an offset has one content for good, and a snapshot holds just what is committed
M5       the epoch of a node does not go back, and within an epoch it votes for one candidate and knows one leader
M6       what counts is on disk: a voter fetches at what its fsync has covered, and what a leader has committed is on the
         disks of a majority of the voters that committed it
M7       a log that does not start at 0 starts where a snapshot ends; a leader loads no snapshot, and serves what it has
M8       one voter changes at a time: the change before is committed, and so is something of the leader's own epoch
M9       a voter that was cut off, however long, changes neither leader nor epoch when it returns (`quorum_sim_faults`)
M10      a leader from which no majority fetches any more resigns, within two rounds of check-quorum
======== ===============================================================================================================

R6 (of the high watermark) and S4 (of epochs in a log) hold here too; all labels: "Labels of what must hold" in
`docs/TESTING.md`.

Each is looked at whenever something happens that can break it; the costly M6 after every event that can take data away.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from uuid import UUID

from replog_quorum import AppendVoters, ElectionState, QuorumFetchRequest, Request, Response, Voter, VoterSet
from tests.sim.quorum_sim_log import SimDisk, SimLog, Snapshot, Value, digest_of


class Violation(AssertionError):  # noqa: N818 - named like what the testing guide speaks of
    """An invariant does not hold; the message starts with its name."""


@dataclass(slots=True)
class Commit:
    """One committed entry, and the set that committed it."""

    epoch: int
    value: Value
    digest: int
    voters: VoterSet


@dataclass(slots=True)
class Leadership:
    """What M10 and M8 need to know of a leader."""

    epoch: int
    epoch_start_offset: int
    voters: VoterSet
    since_ms: int
    fetched_ms: dict[int, int] = field(default_factory=dict)


class Checker:
    """Sees everything: all disks, also lost ones."""

    def __init__(self) -> None:
        self.disks: dict[tuple[int, UUID], SimDisk] = {}
        self.leaders: dict[int, tuple[int, int]] = {}
        self.history: dict[tuple[int, int], tuple[Value, int]] = {}
        self.granted: dict[tuple[int, UUID, int], tuple[int, UUID]] = {}
        self.committed: list[Commit] = []
        self.last_committed_in: dict[int, int] = {}
        self.leading: dict[int, Leadership] = {}
        self.is_suspicious = False

    # ---- logs -----------------------------------------------------------------------------------------------

    def appended(self, node_id: int, log: SimLog) -> None:
        """M2, S4: one (offset, epoch) has one content and one predecessor."""
        offset = log.log_end_offset - 1
        epoch, value, _ = log.entries[-1]
        before = log.epochs[-2] if len(log.epochs) > 1 else log.snapshots[0].snapshot_id.epoch if offset else 0
        if epoch < before:
            raise Violation(f"S4 epochs decrease at offset {offset} of node {node_id}")
        if self.history.setdefault((offset, epoch), (value, before)) != (value, before):
            raise Violation(f"M2 log matching: offset {offset} epoch {epoch} has two contents")

    def snapshot_there(self, node_id: int, snapshot: Snapshot, log: SimLog) -> None:
        """M4, M7: a snapshot holds what is committed; a log that does not start at 0 starts at one."""
        snapshot_id, end_offset = snapshot.snapshot_id, snapshot.snapshot_id.end_offset
        if end_offset > len(self.committed):
            raise Violation(f"M4 {snapshot_id} of node {node_id} is beyond what is committed ({len(self.committed)})")
        last = self.committed[end_offset - 1]
        if (last.epoch, last.digest) != (snapshot_id.epoch, snapshot.digest):
            raise Violation(f"M4 {snapshot_id} of node {node_id} holds something else than what is committed")
        self.log_start(node_id, log)

    def log_start(self, node_id: int, log: SimLog) -> None:
        """M7."""
        earliest = log.earliest_snapshot_id
        if log.log_start_offset > 0 and (earliest is None or earliest.end_offset != log.log_start_offset):
            raise Violation(
                f"M7 the log of node {node_id} starts at {log.log_start_offset}, its snapshots at {earliest}"
            )

    def installed(self, node_id: int, snapshot: Snapshot, log: SimLog) -> None:
        """M7: a leader never loads a snapshot."""
        if node_id in self.leading:
            raise Violation(f"M7 leader {node_id} loads {snapshot.snapshot_id}")
        self.snapshot_there(node_id, snapshot, log)
        self.is_suspicious = True

    def shortened(self) -> None:
        """A log has become shorter."""
        self.is_suspicious = True

    # ---- election -------------------------------------------------------------------------------------------

    def persisted(self, node_id: int, disk: SimDisk, state: ElectionState) -> None:
        old = disk.election or ElectionState()
        if state.epoch < old.epoch:
            raise Violation(f"M5 epoch of node {node_id} goes back: {old} -> {state}")
        if state.epoch > old.epoch:
            return
        if old.voted_id not in (None, state.voted_id) or old.leader_id not in (None, state.leader_id):
            raise Violation(f"M5 node {node_id} changes its mind within an epoch: {old} -> {state}")

    def granted_vote(self, voter: tuple[int, UUID], candidate: tuple[int, UUID], epoch: int) -> None:
        if self.granted.setdefault((*voter, epoch), candidate) != candidate:
            raise Violation(f"M5 node {voter[0]} votes twice in epoch {epoch}")

    def became_leader(self, node_id: int, life: int, log: SimLog, leadership: Leadership) -> None:
        """M1 (a node that restarted is another leader), M3."""
        epoch, leader = leadership.epoch, (node_id, life)
        if self.leaders.setdefault(epoch, leader) != leader or node_id in self.leading:
            raise Violation(f"M1 epoch {epoch} has two leaders: {self.leaders[epoch]} and {leader} (node, life)")
        self.leading[node_id] = leadership
        last = max((offset for e, offset in self.last_committed_in.items() if e < epoch), default=-1)
        if last >= log.log_end_offset or (last >= log.log_start_offset and not self._holds(log, last)):
            raise Violation(f"M3 leader {node_id} of epoch {epoch} lacks committed offset {last}")

    def lost_leadership(self, node_id: int, epoch: int) -> None:
        led = self.leading.pop(node_id, None)
        if led is None or led.epoch != epoch:
            raise Violation(f"node {node_id} loses epoch {epoch}, but led {led}")

    def died(self, node_id: int) -> None:
        self.leading.pop(node_id, None)
        self.is_suspicious = True

    # ---- commits --------------------------------------------------------------------------------------------

    def sent(self, is_voter: bool, log: SimLog, message: Request | Response) -> None:
        """M6: what a voter fetches by is on its disk."""
        if is_voter and isinstance(message, QuorumFetchRequest) and message.fetch_offset > log.flushed_offset:
            raise Violation(f"M6 voter {message.replica_id} fetches at {message.fetch_offset} before its fsync")

    def high_watermark(self, node_id: int, log: SimLog, span: tuple[int, int], epoch: int, voters: VoterSet) -> None:
        """R6, M4, M6: the high watermark moves over `span`."""
        before, after = span
        if after <= before or after > log.log_end_offset:
            raise Violation(f"R6 high watermark of node {node_id} moves from {before} to {after}")
        for offset in range(max(0, before, log.log_start_offset), after):
            entry_epoch, value, _ = log.entry(offset)
            if offset == len(self.committed):
                digest = digest_of(self.committed[-1].digest if offset else 0, entry_epoch, value)
                self.committed.append(Commit(entry_epoch, value, digest, voters))
                self.last_committed_in[epoch] = offset
                self.is_suspicious = True
            elif offset > len(self.committed) or (self.committed[offset].epoch, self.committed[offset].value) != (
                entry_epoch,
                value,
            ):
                raise Violation(f"M4 offset {offset} is committed with two contents")

    def after_event(self) -> None:
        """M6: the last committed offset is on the disks of a majority of the set that committed it."""
        if not self.is_suspicious:
            return
        self.is_suspicious = False
        if not self.committed:
            return
        last, voters = len(self.committed) - 1, self.committed[-1].voters
        holders = [voter.voter_id for voter in voters if self._voter_holds(voter, last)]
        if len(holders) < voters.majority_size:
            raise Violation(f"M6 only {holders} of voters {voters.ids} hold committed offset {last} on disk")

    def _voter_holds(self, voter: Voter, offset: int) -> bool:
        """A lost disk still counts: what was on it can vote for nothing else."""
        disks = [d for key, d in self.disks.items() if voter.matches(*key)]
        return any(d.log.flushed_offset > offset and self._holds(d.log, offset) for d in disks)

    def _holds(self, log: SimLog, offset: int) -> bool:
        if offset < log.log_start_offset:
            return True  # in the snapshot, which was compared when it was made or installed
        commit = self.committed[offset]
        return log.entry(offset)[:2] == (commit.epoch, commit.value)

    # ---- voters ---------------------------------------------------------------------------------------------

    def appends_voters(self, node_id: int, log: SimLog, effect: AppendVoters) -> None:
        """M8: one uncommitted change at most, of one voter, after something of the leader's epoch has committed."""
        history, led = log.voter_history(), self.leading.get(node_id)
        if led is None or led.epoch != effect.leader_epoch:
            raise Violation(f"M8 node {node_id} changes the voters of epoch {effect.leader_epoch}, but leads {led}")
        if history and history[-1][0] >= len(self.committed):
            raise Violation(f"M8 node {node_id} changes the voters while {history[-1][1].ids} is not committed")
        if led.epoch_start_offset >= len(self.committed):
            raise Violation(f"M8 node {node_id} changes the voters before anything of epoch {led.epoch} is committed")
        before = {(v.voter_id, v.directory_id) for v in led.voters}
        after = {(v.voter_id, v.directory_id) for v in effect.voters}
        if not effect.writes_version and len(before ^ after) > 1:
            raise Violation(f"M8 more than one voter changes: {led.voters} -> {effect.voters}")

    def uses_voters(self, node_id: int, voters: VoterSet, now_ms: int) -> None:
        """Another set is in force on a node; M10 gives a leader new time."""
        led = self.leading.get(node_id)
        if led is not None:
            led.voters, led.since_ms = voters, now_ms

    # ---- check-quorum ---------------------------------------------------------------------------------------

    def fetched(self, leader_id: int, replica: tuple[int, UUID], now_ms: int) -> None:
        led = self.leading.get(leader_id)
        if led is not None and led.voters.contains(*replica):
            led.fetched_ms[replica[0]] = now_ms

    def check_leaders(self, now_ms: int, limit_ms: int) -> None:
        """M10: the majority's last fetches are not older than check-quorum allows (two rounds of it)."""
        for leader_id, led in self.leading.items():
            fetched_ms = [now_ms if i == leader_id else led.fetched_ms.get(i, -1) for i in led.voters.ids]
            heard_ms = sorted(fetched_ms, reverse=True)[led.voters.majority_size - 1]
            if max(heard_ms, led.since_ms) + limit_ms < now_ms:
                raise Violation(
                    f"M10 node {leader_id} leads epoch {led.epoch}, but no majority fetches since {heard_ms}"
                )
