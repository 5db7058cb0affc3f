"""How scenarios in `tests/data/quorum` show effects, messages and states."""

from __future__ import annotations

from replog_quorum import (
    AppendBatches,
    AppendLeaderChange,
    AppendVoters,
    BecameLeader,
    BeginQuorumEpochRequest,
    Effect,
    ElectionState,
    EndQuorumEpochRequest,
    EpochEnd,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    HighWatermarkAdvanced,
    InstallSnapshot,
    LeaderChanged,
    LostLeadership,
    OpenSnapshot,
    PeerLearned,
    PersistElectionState,
    QuorumFetchRequest,
    QuorumFetchResponse,
    Request,
    Response,
    Send,
    SendFetchedData,
    SendSnapshotChunk,
    TruncateTo,
    UpdateVoterRequest,
    VoterChangeAnswered,
    VoteRequest,
    VoteResponse,
    VoterSet,
    VoterSetChanged,
    WriteSnapshotChunk,
)
from tests.sim.quorum_simulation import SimNode


def end_of(text: str) -> EpochEnd:
    """3/7: epoch 3 ends at offset 7."""
    return EpochEnd(*map(int, text.split("/")))


def end_text(end: EpochEnd) -> str:
    return f"{end.epoch}/{end.end_offset}"


def voters_text(voters: VoterSet) -> str:
    """1 2.1 3: voter 2 has its second disk; (1 2): a static set; an endpoint is shown if it is not the first one."""
    names = []
    for voter in voters:
        generation = 0 if voter.directory_id is None else voter.directory_id.int % 1000 - 1
        name = f"{voter.voter_id}.{generation}" if generation else f"{voter.voter_id}"
        names.append(name if voter.endpoint == f"n{voter.voter_id}:0" else f"{name}@{voter.endpoint}")
    return f"({' '.join(names)})" if voters.is_static else " ".join(names)


def log_text(node: SimNode) -> str:
    """1x3 2x1: three entries of epoch 1, one of epoch 2."""
    epochs, start = node.log.epochs, node.log.log_start_offset
    runs = [f"{epoch}x{epochs.count(epoch)}" for epoch in dict.fromkeys(epochs)]
    return " ".join([f"from {start}", *runs] if start else runs) or "empty"


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
        case AppendVoters():
            version = "KRaftVersion 1 and " if effect.writes_version else ""
            return [f"append {version}voters {voters_text(effect.voters)} epoch {effect.leader_epoch}"]
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
        case _:
            return [new_effect_line(effect)]


def new_effect_line(effect: Effect) -> str:
    match effect:
        case SendSnapshotChunk():
            response = effect.response
            return f"send {effect.destination} {effect.max_bytes} bytes of {end_text(response.snapshot_id)} at {response.position}"
        case OpenSnapshot():
            return f"open snapshot {end_text(effect.snapshot_id)}{' anew' if effect.restart else ''}"
        case WriteSnapshotChunk():
            return f"write {len(effect.data)} bytes of {end_text(effect.snapshot_id)} at {effect.position}"
        case InstallSnapshot():
            return f"install snapshot {end_text(effect.snapshot_id)}"
        case VoterSetChanged():
            return f"voters are {voters_text(effect.voters)}"
        case PeerLearned():
            return f"node {effect.node_id} listens at {effect.endpoint}"
        case VoterChangeAnswered():
            return f"change {effect.request_id}: {effect.error.name} {effect.reason}".rstrip()
        case _:
            raise AssertionError(effect)


def message_text(message: Request | Response) -> str:  # noqa: PLR0911 - one return per kind of message
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
        case QuorumFetchRequest():
            return f"Fetch epoch {message.leader_epoch} from {message.last_fetched_epoch}/{message.fetch_offset}"
        case QuorumFetchResponse():
            diverging = message.diverging
            tail = "" if diverging is None else f" diverging {end_text(diverging)}"
            tail += "" if message.snapshot_id is None else f" snapshot {end_text(message.snapshot_id)}"
            return f"{answer_text(message)} hw {message.high_watermark}{tail}"
        case FetchSnapshotRequest():
            return (
                f"FetchSnapshot epoch {message.leader_epoch} of {end_text(message.snapshot_id)} at {message.position}"
            )
        case FetchSnapshotResponse():
            return f"{answer_text(message)} of {end_text(message.snapshot_id)} at {message.position}"
        case UpdateVoterRequest():
            return f"UpdateVoter epoch {message.leader_epoch} endpoint {message.voter.endpoint}"
        case _:
            return answer_text(message)


def answer_text(response: Response) -> str:
    leader = "none" if response.leader_id is None else response.leader_id
    return f"{response.error.name} epoch {response.leader_epoch} leader {leader}"
