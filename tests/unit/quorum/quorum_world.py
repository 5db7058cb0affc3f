"""A cluster that obeys commands: the simulation without chance, for scenarios in `tests/data/quorum`.

A message takes 1 ms, a fsync none (unless held), node N's election timeout is 1000 ms + N x 100 ms, and all timers are
the defaults.  All invariants of the simulation are checked on the way.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable

from replog_quorum import (
    AppendBatches,
    AppendLeaderChange,
    BecameLeader,
    BeginQuorumEpochRequest,
    Effect,
    ElectionState,
    EndQuorumEpochRequest,
    EpochEnd,
    FetchRequest,
    FetchResponse,
    Flushed,
    HighWatermarkAdvanced,
    LeaderChanged,
    LostLeadership,
    Message,
    PersistElectionState,
    QuorumConfig,
    QuorumError,
    QuorumInvariantError,
    Received,
    Request,
    Resign,
    Response,
    Send,
    SendFetchedData,
    Shutdown,
    Tick,
    TruncateTo,
    VoteRequest,
    VoteResponse,
)
from tests.sim.quorum_simulation import FlushJob, SimNode, Simulation, Swarm

QUIET = Swarm(
    voter_count=3,
    observer_count=0,
    loss=0,
    duplicate=0,
    straggler=0,
    slow_flush=0,
    effect_crash=0,
    crash=0,
    cut=0,
    resign=0,
    client_interval_ms=1,
)


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
        swarm = {name: getattr(QUIET, name) for name in Swarm.__slots__}
        swarm.update(voter_count=int(voters), observer_count=int(observers))
        super().__init__(0, Swarm(**swarm))
        self.config = QuorumConfig()
        self.rng = Fixed(0.0)

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
            node.disk = ElectionState(state["epoch"], state.get("leader"), state.get("voted"))

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
        """vote 2 -> 1 epoch 3 log 2/7 [pre] [for 3]: a vote request; prints the effects."""
        last_epoch, last_offset = map(int, words[3].split("/"))
        request = VoteRequest(
            correlation_id=0,
            voter_id=int(words[words.index("for") + 1]) if "for" in words else int(voter),
            replica_id=int(candidate),
            replica_epoch=int(words[1]),
            last_epoch=last_epoch,
            last_offset=last_offset,
            pre_vote="pre" in words,
        )
        self._requests[int(candidate), int(voter), 0] = request
        return self.effects_of(self.node(voter), Received(int(candidate), request))

    def do_begin(self, leader: str, _to: str, voter: str, _epoch: str, epoch: str) -> str:
        """begin 2 -> 1 epoch 3: BeginQuorumEpoch; prints the effects."""
        request = BeginQuorumEpochRequest(0, int(voter), int(leader), int(epoch))
        return self.effects_of(self.node(voter), Received(int(leader), request))

    def do_end(self, leader: str, _to: str, voter: str, _epoch: str, epoch: str, _word: str, *successors: str) -> str:
        """end 2 -> 1 epoch 3 preferred 1 3: EndQuorumEpoch; prints the effects."""
        preferred = tuple(map(int, successors))
        request = EndQuorumEpochRequest(0, int(voter), int(leader), int(epoch), preferred)
        return self.effects_of(self.node(voter), Received(int(leader), request))

    def do_fetch(self, replica: str, _to: str, leader: str, *words: str) -> str:
        """fetch 2 -> 1 epoch 3 from 2/7 [hw 5] [wait 100]: at offset 7, last epoch 2; prints the effects."""
        facts = dict(zip(words[::2], words[1::2], strict=True))
        last_epoch, offset = map(int, facts["from"].split("/"))
        request = FetchRequest(
            correlation_id=0,
            replica_id=int(replica),
            leader_epoch=int(facts["epoch"]),
            fetch_offset=offset,
            last_fetched_epoch=last_epoch,
            high_watermark=int(facts.get("hw", "-1")),
            max_wait_ms=int(facts.get("wait", "500")),
        )
        return self.effects_of(self.node(leader), Received(int(replica), request))

    def do_answer(self, source: str, _to: str, node_id: str, *words: str) -> str:
        """answer 2 -> 1 epoch 3 leader 2 [correlation 9] [error FENCED_LEADER_EPOCH] [hw 5] [diverging 2/4]:
        a fetch response to the request in flight (or to that correlation id); prints the effects."""
        node, facts = self.node(node_id), dict(zip(words[::2], words[1::2], strict=True))
        assert node.core is not None
        peer = node.core._machine.role.requests._peers.get(int(source))
        in_flight = peer.correlation_id if peer is not None else None
        leader, diverging = facts.get("leader"), facts.get("diverging")
        response = FetchResponse(
            correlation_id=int(facts.get("correlation", in_flight or -1)),
            replica_id=int(source),
            error=QuorumError[facts.get("error", "NONE")],
            leader_id=None if leader is None else int(leader),
            leader_epoch=int(facts["epoch"]),
            high_watermark=int(facts.get("hw", "-1")),
            log_start_offset=0,
            diverging=None if diverging is None else EpochEnd(*map(int, diverging.split("/"))),
        )
        return self.effects_of(node, Received(int(source), response))

    def do_state(self, *node_ids: str) -> str:
        """state [1 2]: what nodes are."""
        return "\n".join(self.state_of(self.node(node_id)) for node_id in node_ids or self.nodes)

    def do_disks(self, *node_ids: str) -> str:
        """disks [1 2]: what quorum-state holds."""
        return "\n".join(f"{i}: {state_text(self.node(i).disk)}" for i in map(int, node_ids or self.nodes))

    def do_progress(self, node_id: str) -> str:
        """progress 1: what a leader knows of the others."""
        core = self.node(node_id).core
        assert core is not None
        status = core.status()
        ends = {**status.voter_end_offsets, **status.observer_end_offsets}
        return " ".join(f"{replica_id}={end_offset}" for replica_id, end_offset in ends.items())

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


def log_text(node: SimNode) -> str:
    """1x3 2x1: three entries of epoch 1, one of epoch 2."""
    epochs = node.log.epochs
    return " ".join(f"{epoch}x{epochs.count(epoch)}" for epoch in dict.fromkeys(epochs)) or "empty"


def state_text(state: ElectionState | None) -> str:
    if state is None:
        return "nothing"
    leader = "none" if state.leader_id is None else state.leader_id
    voted = "none" if state.voted_id is None else state.voted_id
    return f"epoch {state.epoch} leader {leader} voted {voted}"


def effect_lines(effect: Effect) -> list[str]:  # noqa: PLR0911 - one return per kind of effect
    match effect:
        case Send():
            return [f"send {effect.destination} {message_text(effect.message)}"]
        case SendFetchedData():
            return [f"send {effect.destination} data from {effect.fetch_offset} hw {effect.response.high_watermark}"]
        case PersistElectionState():
            then = [f"  {line}" for inner in effect.then for line in effect_lines(inner)]
            return [f"persist {state_text(effect.state)}, then", *then]
        case AppendLeaderChange():
            return [f"append LeaderChange epoch {effect.leader_epoch} granted by {list(effect.granting_voters)}"]
        case AppendBatches():
            return [f"append {len(effect.batches)} bytes"]
        case TruncateTo():
            return [f"truncate to {effect.end_offset}"]
        case HighWatermarkAdvanced():
            return [f"high watermark {effect.high_watermark}"]
        case LeaderChanged():
            return [f"leader {'none' if effect.leader_id is None else effect.leader_id} epoch {effect.epoch}"]
        case BecameLeader():
            return [f"became leader of epoch {effect.epoch} from {effect.epoch_start_offset}"]
        case LostLeadership():
            return [f"lost leadership of epoch {effect.epoch}"]


def message_text(message: Request | Response) -> str:
    match message:
        case VoteRequest():
            kind = "PreVote" if message.pre_vote else "Vote"
            return f"{kind} epoch {message.replica_epoch} log {message.last_epoch}/{message.last_offset}"
        case VoteResponse():
            verdict = "granted" if message.vote_granted else "refused"
            return f"{verdict} {answer_text(message)}"
        case EndQuorumEpochRequest():
            preferred = " ".join(map(str, message.preferred_candidates))
            return f"EndQuorumEpoch epoch {message.leader_epoch} preferred {preferred}"
        case BeginQuorumEpochRequest():
            return f"BeginQuorumEpoch epoch {message.leader_epoch}"
        case FetchRequest():
            return f"Fetch epoch {message.leader_epoch} from {message.last_fetched_epoch}/{message.fetch_offset}"
        case FetchResponse():
            diverging = message.diverging
            tail = "" if diverging is None else f" diverging {diverging.epoch}/{diverging.end_offset}"
            return f"{answer_text(message)} hw {message.high_watermark}{tail}"
        case _:
            return answer_text(message)


def answer_text(response: Response) -> str:
    leader = "none" if response.leader_id is None else response.leader_id
    return f"{response.error.name} epoch {response.leader_epoch} leader {leader}"
