"""A cluster that obeys commands: the simulation without chance, for scenarios in `tests/data/quorum`.

A message takes 1 ms, a fsync none (unless held), node N's election timeout is 1000 ms + N x 100 ms, and all timers are
the defaults.  All invariants of the simulation are checked on the way.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from dataclasses import replace

import msgspec
from quorum_world_text import effect_lines, end_of, end_text, log_text, state_text, voters_text

from replog_quorum import (
    AddVoter,
    BeginQuorumEpochRequest,
    ChangeVoters,
    Effect,
    ElectionState,
    EndQuorumEpochRequest,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    Flushed,
    Message,
    QuorumConfig,
    QuorumError,
    QuorumFetchRequest,
    QuorumFetchResponse,
    QuorumInvariantError,
    Received,
    RemoveVoter,
    Request,
    Resign,
    Response,
    SendFailed,
    Shutdown,
    Tick,
    UpdateVoterRequest,
    Voter,
    VoteRequest,
    VoterSet,
)
from tests.sim.quorum_sim_log import FlushJob, SimDisk
from tests.sim.quorum_sim_nodes import directory_id
from tests.sim.quorum_simulation import SimNode, Simulation, Swarm

QUIET = Swarm(voter_count=3, observer_count=0, client_interval_ms=1)


class Fixed(random.Random):
    """Always the same draw, and the lower end of every range."""

    def __init__(self, draw: float) -> None:
        super().__init__(0)
        self._draw = draw

    def random(self) -> float:
        return self._draw

    def randrange(self, start: int, stop: int | None = None, step: int = 1) -> int:
        return 0 if stop is None else start


class QuorumWorld(Simulation):
    """Executes the commands of one scenario file; see the methods named after them."""

    def __init__(self) -> None:
        super().__init__(0, QUIET)
        self.config = QuorumConfig()
        self.rng = Fixed(0.0)
        self.held: dict[int, list[Callable[[], None]]] = {}
        self.muted: list[int] = []

    def execute(self, line: str) -> str:
        name, *words = line.split()
        command = getattr(self, f"do_{name}")
        return command(*words) or ""

    def core_rng(self, node: SimNode) -> random.Random:
        return Fixed(node.node_id % 10 / 10)

    # ---- commands -------------------------------------------------------------------------------------------

    def do_cluster(self, voters: str, _voters: str, observers: str = "0", _observers: str = "") -> None:
        """cluster 3 voters [1 observers]: voters are 1, 2, 3, observers 10, 11; all are down."""
        super().__init__(0, replace(QUIET, voter_count=int(voters), observer_count=int(observers)))
        self.config = QuorumConfig()
        self.rng = Fixed(0.0)

    def do_directories(self, _known: str) -> None:
        """directories known: the configuration names the voters' directories, too."""
        self.voters = VoterSet(
            tuple(msgspec.structs.replace(v, directory_id=directory_id(v.voter_id)) for v in self.voters)
        )

    def do_disk(self, node_id: str, *words: str) -> None:
        """disk 1 epoch 3 leader 2 voted 1 log 1x3 2x1: what a node finds when it starts."""
        node, fields = self.node(node_id), list(words)
        if "log" in fields:
            for run in fields[fields.index("log") + 1 :]:
                epoch, count = map(int, run.split("x"))
                for _ in range(count):
                    self.append(node, epoch, 0)
            node.log.flushed_offset = node.log.log_end_offset
            fields = fields[: fields.index("log")]
        state = dict(zip(fields[::2], map(int, fields[1::2]), strict=True))
        if state:
            voted = state.get("voted")
            directory = None if voted is None else directory_id(voted)
            node.disk.election = ElectionState(state["epoch"], state.get("leader"), voted, directory)

    def do_unflushed(self, node_id: str, count: str) -> None:
        """unflushed 1 2: the last two entries are in the log, but not on disk."""
        log = self.node(node_id).log
        log.flushed_offset = log.log_end_offset - int(count)

    def do_fsync(self, node_id: str) -> str:
        """fsync 1: an fsync ends; prints the effects."""
        node = self.node(node_id)
        node.log.flushed_offset = node.log.log_end_offset
        return self.effects_of(node, Flushed(node.log.flushed_offset))

    def do_start(self, *node_ids: str) -> None:
        """start [1 2]: start these nodes, or all."""
        for node_id in node_ids or self.nodes:
            self.start(self.node(node_id))

    def do_run(self, duration: str) -> None:
        """run 500ms: let time pass and everything happen."""
        self.run_until(self.now_ms + int(duration.removesuffix("ms")), lambda: False)

    def do_crash(self, *node_ids: str) -> None:
        """crash 1: a power cut; what was not flushed is gone."""
        for node_id in node_ids:
            node = self.node(node_id)
            node.core, node.tick_at_ms, node.leading_epoch = None, None, None
            node.log.crash(0)
            self.checker.died(node.node_id)
            self.connections_break(node)
            self.held.pop(node.node_id, None)

    def do_cut(self, *node_ids: str) -> None:
        """cut 1: no message reaches or leaves these nodes."""
        for one in map(int, node_ids):
            for other in self.nodes:
                self.cuts[one, other] = self.cuts[other, one] = True

    def do_mute(self, *node_ids: str) -> None:
        """mute 1: what this node sends vanishes, and it does not hear of it; answers are given by hand."""
        self.muted += map(int, node_ids)

    def do_boot(self, node_id: str) -> str:
        """boot 1: start one node and print the effects."""
        node, lines = self.node(node_id), list[str]()
        perform_all = self.perform_all

        def observed(node: SimNode, effects: Iterable[Effect]) -> bool:
            lines.extend(line for effect in effects for line in effect_lines(effect))
            self.perform_all = perform_all  # type: ignore[method-assign]  # only the first call is of interest
            return perform_all(node, effects)

        self.perform_all = observed  # type: ignore[method-assign]  # see above
        self.start(node)
        return "\n".join(lines)

    def do_heal(self) -> None:
        """heal: all links work."""
        self.cuts.clear()

    def do_append(self, node_id: str, count: str) -> None:
        """append 1 5: the leader's client writes."""
        node = self.node(node_id)
        assert node.leading_epoch is not None, f"{node_id} does not lead"
        for _ in range(int(count)):
            self._value += 1
            self.append(node, node.leading_epoch, self._value)
        self.after_append(node)

    def do_hold(self, node_id: str) -> None:
        """hold 1: fsyncs of this node's log do not end any more."""
        self.held[int(node_id)] = []

    def do_release(self, node_id: str) -> None:
        """release 1: they do."""
        for complete in self.held.pop(int(node_id), []):
            complete()

    def do_resign(self, node_id: str) -> str:
        """resign 1: the host gives up leadership; prints the effects."""
        node = self.node(node_id)
        return self.effects_of(node, Resign(node.leading_epoch or 0))

    def do_shutdown(self, node_id: str) -> str:
        """shutdown 1: prints the effects."""
        return self.effects_of(self.node(node_id), Shutdown())

    def do_tick(self, node_id: str) -> str:
        """tick 1: prints the effects."""
        return self.effects_of(self.node(node_id), Tick())

    def do_vote(self, candidate: str, _to: str, voter: str, *words: str) -> str:
        """vote 2 -> 1 epoch 3 log 2/7 [pre] [for 3] [disk 0]: a vote request, meant for that disk; prints the effects."""
        last_epoch, last_offset = map(int, words[3].split("/"))
        request = VoteRequest(
            correlation_id=0,
            voter_id=int(words[words.index("for") + 1]) if "for" in words else int(voter),
            replica_id=int(candidate),
            replica_epoch=int(words[1]),
            last_epoch=last_epoch,
            last_offset=last_offset,
            pre_vote="pre" in words,
            replica_directory_id=directory_id(int(candidate)),
            voter_directory_id=directory_id(int(voter), int(words[words.index("disk") + 1]))
            if "disk" in words
            else None,
        )
        self._requests[int(candidate), int(voter), 0] = request
        return self.effects_of(self.node(voter), Received(int(candidate), request))

    def do_begin(self, leader: str, _to: str, voter: str, *words: str) -> str:
        """begin 2 -> 1 epoch 3 [endpoint x:1]: BeginQuorumEpoch; prints the effects."""
        facts = dict(zip(words[::2], words[1::2], strict=True))
        endpoint = facts.get("endpoint", "")
        request = BeginQuorumEpochRequest(0, int(voter), int(leader), int(facts["epoch"]), None, endpoint)
        return self.effects_of(self.node(voter), Received(int(leader), request))

    def do_end(self, leader: str, _to: str, voter: str, _epoch: str, epoch: str, _word: str, *successors: str) -> str:
        """end 2 -> 1 epoch 3 preferred 1 3: EndQuorumEpoch; prints the effects."""
        preferred = tuple(map(int, successors))
        request = EndQuorumEpochRequest(0, int(voter), int(leader), int(epoch), preferred, None)
        return self.effects_of(self.node(voter), Received(int(leader), request))

    def do_fetch(self, replica: str, _to: str, leader: str, *words: str) -> str:
        """fetch 2 -> 1 epoch 3 from 2/7 [hw 5] [wait 100] [disk 1]: at offset 7, last epoch 2; prints the effects."""
        facts = dict(zip(words[::2], words[1::2], strict=True))
        last_epoch, offset = map(int, facts["from"].split("/"))
        request = QuorumFetchRequest(
            correlation_id=0,
            replica_id=int(replica),
            leader_epoch=int(facts["epoch"]),
            fetch_offset=offset,
            last_fetched_epoch=last_epoch,
            high_watermark=int(facts.get("hw", "-1")),
            max_wait_ms=int(facts.get("wait", "500")),
            replica_directory_id=directory_id(int(replica), int(facts.get("disk", "0"))),
        )
        return self.effects_of(self.node(leader), Received(int(replica), request))

    def do_answer(self, source: str, _to: str, node_id: str, *words: str) -> str:
        """answer 2 -> 1 epoch 3 leader 2 [correlation 9] [error FENCED_LEADER_EPOCH] [hw 5] [diverging 2/4]
        [snapshot 2/4] [endpoint x:1]: a fetch response to the request in flight (or to that correlation id); prints the effects."""
        node, facts = self.node(node_id), dict(zip(words[::2], words[1::2], strict=True))
        leader = facts.get("leader")
        response = QuorumFetchResponse(
            correlation_id=int(facts.get("correlation", self.in_flight(node, int(source)))),
            replica_id=int(source),
            error=QuorumError[facts.get("error", "NONE")],
            leader_id=None if leader is None else int(leader),
            leader_epoch=int(facts["epoch"]),
            high_watermark=int(facts.get("hw", "-1")),
            log_start_offset=0,
            diverging=end_of(facts["diverging"]) if "diverging" in facts else None,
            snapshot_id=end_of(facts["snapshot"]) if "snapshot" in facts else None,
            leader_endpoint=facts.get("endpoint", ""),
        )
        return self.effects_of(node, Received(int(source), response))

    def in_flight(self, node: SimNode, destination: int) -> int:
        assert node.core is not None
        peer = node.core._machine.role.requests._peers.get(destination)
        return -1 if peer is None or peer.correlation_id is None else peer.correlation_id

    def do_state(self, *node_ids: str) -> str:
        """state [1 2]: what nodes are."""
        return "\n".join(self.state_of(self.node(node_id)) for node_id in node_ids or self.nodes)

    def do_disks(self, *node_ids: str) -> str:
        """disks [1 2]: what quorum-state holds."""
        return "\n".join(f"{i}: {state_text(self.node(i).disk.election)}" for i in map(int, node_ids or self.nodes))

    def do_progress(self, node_id: str) -> str:
        """progress 1: what a leader knows of the others."""
        core = self.node(node_id).core
        assert core is not None
        status = core.status()
        voters = " ".join(f"{replica_id}={end_offset}" for replica_id, end_offset in status.voter_end_offsets.items())
        observers = " ".join(f"{i}={end_offset}" for i, end_offset in status.observer_end_offsets.items())
        return f"{voters}, observers {observers}" if observers else voters

    # ---- voters and snapshots -------------------------------------------------------------------------------

    def do_add(self, leader: str, node_id: str, *words: str) -> str:
        """add 1 10 [disk 2|no] [endpoint no]: ask node 1 to make 10 a voter; prints the effects."""
        node, facts = self.node(node_id), dict(zip(words[::2], words[1::2], strict=True))
        disk = facts.get("disk")
        directory = (
            node.disk.directory_id if disk is None else None if disk == "no" else directory_id(node.node_id, int(disk))
        )
        endpoint = "" if "endpoint" in facts else node.endpoint
        return self.change(leader, AddVoter(Voter(node.node_id, directory, endpoint)))

    def do_remove(self, leader: str, voter_id: str, *words: str) -> str:
        """remove 1 3 [disk 2]: ask node 1 to take the vote of 3 away; prints the effects."""
        directory = directory_id(int(voter_id), int(words[1])) if words else None
        return self.change(leader, RemoveVoter(int(voter_id), directory))

    def change(self, leader: str, change: AddVoter | RemoveVoter) -> str:
        self._request_id += 1
        self._asked[self._request_id] = change
        return self.effects_of(self.node(leader), ChangeVoters(self._request_id, change))

    def do_voters(self, *node_ids: str) -> str:
        """voters [1 2]: the set in force on nodes."""
        lines = []
        for node in map(self.node, node_ids or self.nodes):
            if node.core is None:
                continue
            status = node.core.status()
            lines.append(f"{node.node_id}: {voters_text(status.voter_set)} at {status.voter_set_offset}")
        return "\n".join(lines)

    def do_wipe(self, node_id: str) -> None:
        """wipe 3: the node dies, and its disk is replaced by an empty one."""
        node = self.node(node_id)
        self.do_crash(node_id)
        self._generation += 1
        node.disk = SimDisk(directory_id(node.node_id, self._generation))
        self.checker.disks[node.key] = node.disk

    def do_move(self, node_id: str, endpoint: str) -> None:
        """move 3 elsewhere:9: the node dies, and will start at another endpoint."""
        self.do_crash(node_id)
        self.node(node_id).endpoint = endpoint

    def do_refuse(self, node_id: str, _by: str, other_id: str) -> str:
        """refuse 2 by 1: nobody listens where 2's request to 1 went; prints the effects."""
        node = self.node(node_id)
        correlation_id = self.in_flight(node, int(other_id))
        return self.effects_of(node, SendFailed(int(other_id), correlation_id, refused=True))

    def do_snapshot(self, node_id: str, *words: str) -> str:
        """snapshot 1 [kept 1]: write one of everything committed, keep so many, clean the log before."""
        node = self.node(node_id)
        snapshot = node.log.take_snapshot(node.high_watermark)
        node.log.clean(int(words[1]) if words else 1)
        return (
            "nothing" if snapshot is None else f"snapshot {end_text(snapshot.snapshot_id)}: {len(snapshot.data)} bytes"
        )

    def do_chunks(self, size: str) -> None:
        """chunks 40: so many bytes of a snapshot travel at once (nodes started from now on)."""
        self.config = msgspec.structs.replace(self.config, snapshot_chunk_max_bytes=int(size))

    def do_notice(self, time: str) -> None:
        """notice 100ms: how long commits may go untold to who waits for data (nodes started from now on)."""
        self.config = msgspec.structs.replace(self.config, commit_notice_ms=int(time.removesuffix("ms")))

    def do_partial(self, node_id: str, snapshot_id: str, count: str) -> None:
        """partial 3 1/4 17: an interrupted download has left 17 bytes, of something."""
        self.node(node_id).disk.parts[end_of(snapshot_id)] = b"?" * int(count)

    def do_chunk(self, replica: str, _to: str, leader: str, *words: str) -> str:
        """chunk 3 -> 1 epoch 1 of 1/4 at 0 [max 100] [disk 1]: FetchSnapshot; prints the effects."""
        facts = dict(zip(words[::2], words[1::2], strict=True))
        request = FetchSnapshotRequest(
            correlation_id=0,
            replica_id=int(replica),
            replica_directory_id=directory_id(int(replica), int(facts.get("disk", "0"))),
            leader_epoch=int(facts["epoch"]),
            snapshot_id=end_of(facts["of"]),
            position=int(facts["at"]),
            max_bytes=int(facts.get("max", "1000")),
        )
        return self.effects_of(self.node(leader), Received(int(replica), request))

    def do_give(self, source: str, _to: str, node_id: str, *words: str) -> str:
        """give 2 -> 1 epoch 5 of 3/9 at 0 size 30 [bytes 20] [error X]: a chunk, to the request in flight; prints the
        effects."""
        node, facts = self.node(node_id), dict(zip(words[::2], words[1::2], strict=True))
        response = FetchSnapshotResponse(
            correlation_id=self.in_flight(node, int(source)),
            replica_id=int(source),
            error=QuorumError[facts.get("error", "NONE")],
            leader_id=int(source),
            leader_epoch=int(facts["epoch"]),
            snapshot_id=end_of(facts["of"]),
            size=int(facts["size"]),
            position=int(facts["at"]),
            data=b"?" * int(facts.get("bytes", "0")),
        )
        return self.effects_of(node, Received(int(source), response))

    def do_update(self, voter: str, _to: str, leader: str, *words: str) -> str:
        """update 2 -> 1 epoch 1 endpoint n2:9|no [disk 1|no] [of 3]: UpdateVoter; prints the effects."""
        facts = dict(zip(words[::2], words[1::2], strict=True))
        voter_id, disk = int(facts.get("of", voter)), facts.get("disk", "0")
        directory = None if disk == "no" else directory_id(voter_id, int(disk))
        moved = Voter(voter_id, directory, "" if facts["endpoint"] == "no" else facts["endpoint"])
        request = UpdateVoterRequest(0, int(voter), int(facts["epoch"]), moved)
        return self.effects_of(self.node(leader), Received(int(voter), request))

    # ---- the simulation, observed ---------------------------------------------------------------------------

    def node(self, node_id: str | int) -> SimNode:
        return self.nodes[int(node_id)]

    def state_of(self, node: SimNode) -> str:
        if node.core is None:
            return f"{node.node_id}: down, log {log_text(node)}"
        status = node.core.status()
        return (
            f"{node.node_id}: {status.role} epoch {status.epoch} leader {status.leader_id or 'none'} "
            f"hw {status.high_watermark} log {log_text(node)}"
        )

    def effects_of(self, node: SimNode, message: Message) -> str:
        assert node.core is not None
        try:
            effects = node.core.step(message, self.now_ms)
        except QuorumInvariantError as error:
            return f"error: {error}"
        text = "\n".join(line for effect in effects for line in effect_lines(effect))
        self.perform_all(node, effects)
        self.plan_tick(node)
        return text or "nothing"

    def flushed(self, node: SimNode, life: int, job: FlushJob) -> None:
        if node.node_id in self.held:
            self.held[node.node_id].append(lambda: Simulation.flushed(self, node, life, job))
        else:
            super().flushed(node, life, job)

    def send(self, node: SimNode, destination: int, message: Request | Response) -> None:
        if node.node_id not in self.muted and message.correlation_id != 0:  # 0: it answers a command of the scenario
            super().send(node, destination, message)
