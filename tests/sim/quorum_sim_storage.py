"""Effects of the quorum's core on the disk of a simulated node: log, snapshots, downloads."""

from __future__ import annotations

from msgspec.structs import replace

from replog_quorum import (
    AppendBatches,
    Appended,
    AppendLeaderChange,
    AppendVoters,
    EpochEnd,
    Flushed,
    InstallSnapshot,
    OpenSnapshot,
    QuorumError,
    SendFetchedData,
    SendSnapshotChunk,
    SnapshotChunkWritten,
    SnapshotDamaged,
    SnapshotInstalled,
    SnapshotOpened,
    Truncated,
    TruncateTo,
    VoterSet,
    WriteSnapshotChunk,
)
from tests.sim.quorum_sim_checker import Violation
from tests.sim.quorum_sim_log import FlushJob, Snapshot, Value
from tests.sim.quorum_sim_nodes import SimBase, SimNode


class Storage(SimBase):
    """The disk side.  `snapshot_offset` may be replaced by a test to remove a safeguard."""

    # ---- log --------------------------------------------------------------------------------------------------

    def write_log(self, node: SimNode, effect: AppendLeaderChange | AppendVoters | AppendBatches | TruncateTo) -> None:
        match effect:
            case AppendLeaderChange():
                self.append(node, effect.leader_epoch, -effect.leader_epoch)
                self.after_append(node)
            case AppendVoters():
                self.append_voters(node, effect)
            case AppendBatches():
                self.append_batches(node, effect)
            case TruncateTo():
                self.seen["truncate"] += 1
                self.seen["truncate voters"] += any(o >= effect.end_offset for o in node.log.voter_offsets)
                node.log.truncate(effect.end_offset)
                self.checker.shortened()
                self.step_soon(node, Truncated(node.log.log_end_offset))

    def append(self, node: SimNode, epoch: int, value: Value, *, closes: bool = True) -> None:
        node.log.append(epoch, value, closes=closes)
        self.checker.appended(node.node_id, node.log)

    def append_voters(self, node: SimNode, effect: AppendVoters) -> None:
        self.checker.appends_voters(node.node_id, node.log, effect)
        if effect.writes_version:
            self.seen["upgrade"] += 1
            self.append(node, effect.leader_epoch, 0, closes=False)
        else:
            before = [(v.voter_id, v.directory_id) for v in self.voters_of(node)]
            self.seen["voter updated"] += before == [(v.voter_id, v.directory_id) for v in effect.voters]
        self.append(node, effect.leader_epoch, effect.voters)
        self.after_append(node, ((node.log.log_end_offset - 1, effect.voters),))

    def append_batches(self, node: SimNode, effect: AppendBatches) -> None:
        offset, entries = effect.batches
        found: list[tuple[int, VoterSet]] = []
        for epoch, value, closes in entries:
            if epoch > effect.leader_epoch:
                break
            if offset != node.log.log_end_offset:
                raise Violation(f"node {node.node_id} appends {offset} at {node.log.log_end_offset}")
            if isinstance(value, VoterSet):
                found.append((offset, value))
            self.append(node, epoch, value, closes=closes)
            offset += 1
        self.after_append(node, tuple(found))

    def after_append(self, node: SimNode, voter_sets: tuple[tuple[int, VoterSet], ...] = ()) -> None:
        self.step_soon(node, Appended(node.log.log_end_offset, voter_sets))
        life, job = node.life, node.log.begin_flush()
        slow = self.chance(self.swarm.slow_flush)
        self.at(self.rng.randrange(600 if slow else 4), lambda: self.flushed(node, life, job))

    def flushed(self, node: SimNode, life: int, job: FlushJob) -> None:
        if node.core is not None and node.life == life:
            node.log.complete_flush(job)
            self.step(node, life, Flushed(node.log.flushed_offset))

    def advance(self, node: SimNode, high_watermark: int) -> None:
        core, span = node.core, (node.high_watermark, high_watermark)
        if core is None:
            return
        epoch = core._context.epoch
        self.checker.high_watermark(node.node_id, node.log, span, epoch, self.voters_of(node))
        node.high_watermark = high_watermark
        if self.chance(self.swarm.snapshot):
            self.take_snapshot(node)

    def send_fetched(self, node: SimNode, effect: SendFetchedData) -> None:
        if effect.fetch_offset < node.log.log_start_offset and node.leading_epoch is not None:
            self.seen["cleaned before it was sent"] += 1
            self.send(node, effect.destination, replace(effect.response, error=QuorumError.OFFSET_OUT_OF_RANGE))
            return
        if not node.log.log_start_offset <= effect.fetch_offset < node.log.log_end_offset:
            raise Violation(f"M7 node {node.node_id} serves offset {effect.fetch_offset}, which is not in its log")
        batches = node.log.read(effect.fetch_offset, self.rng.randrange(1, 8))
        self.send(node, effect.destination, replace(effect.response, batches=batches))

    # ---- snapshots --------------------------------------------------------------------------------------------

    def snapshot_offset(self, node: SimNode) -> int:
        """Where a node may end a snapshot: at what it knows to be committed."""
        return node.high_watermark

    def take_snapshot(self, node: SimNode) -> None:
        snapshot = node.log.take_snapshot(self.snapshot_offset(node))
        if snapshot is not None:
            self.seen["snapshot"] += 1
            self.checker.snapshot_there(node.node_id, snapshot, node.log)
        if self.chance(0.7):
            self.seen["clean"] += node.log.clean(self.swarm.kept_snapshots)
            self.checker.log_start(node.node_id, node.log)

    def send_chunk(self, node: SimNode, effect: SendSnapshotChunk) -> None:
        response = effect.response
        found = [s for s in node.log.snapshots if s.snapshot_id == response.snapshot_id]
        if not found:
            self.seen["snapshot not found"] += 1
            self.send(node, effect.destination, replace(response, error=QuorumError.SNAPSHOT_NOT_FOUND))
            return
        data = found[0].data
        if response.position > len(data):
            self.seen["position out of range"] += 1
            self.send(node, effect.destination, replace(response, error=QuorumError.POSITION_OUT_OF_RANGE))
            return
        chunk = data[response.position : response.position + effect.max_bytes]
        self.send(node, effect.destination, replace(response, size=len(data), data=chunk))

    def download(self, node: SimNode, effect: OpenSnapshot | WriteSnapshotChunk | InstallSnapshot) -> None:
        parts, snapshot_id = node.disk.parts, effect.snapshot_id
        match effect:
            case OpenSnapshot():
                part = b"" if effect.restart else parts.get(snapshot_id, b"")
                parts[snapshot_id] = part
                self.seen["download resumed"] += len(part) > 0
                self.seen["download again"] += effect.restart
                self.step_soon(node, SnapshotOpened(snapshot_id, len(part)))
            case WriteSnapshotChunk():
                parts[snapshot_id] = parts[snapshot_id][: effect.position] + effect.data
                self.step_soon(node, SnapshotChunkWritten(snapshot_id, len(parts[snapshot_id])))
            case InstallSnapshot():
                if self.chance(self.swarm.slow_install):
                    life = node.life
                    self.at(self.rng.randrange(400), lambda: self.install(node, life, snapshot_id))
                else:
                    self.install(node, node.life, snapshot_id)

    def install(self, node: SimNode, life: int, snapshot_id: EpochEnd) -> None:
        """Check, rename, cut the log; a crash may come before the rename or behind it."""
        if node.core is None or node.life != life:
            return
        data = node.disk.parts.pop(snapshot_id)
        snapshot = Snapshot.parse(data)
        if snapshot is None:
            self.seen["snapshot damaged"] += 1
            self.step_soon(node, SnapshotDamaged(snapshot_id))
            return
        self.seen["install"] += 1
        node.log.replace_by(snapshot)
        self.checker.installed(node.node_id, snapshot, node.log)
        if self.chance(20 * self.swarm.effect_crash):
            self.seen["crash inside install"] += 1
            self.crash(node)
            return
        self.step_soon(node, SnapshotInstalled(snapshot_id, snapshot.voters))
