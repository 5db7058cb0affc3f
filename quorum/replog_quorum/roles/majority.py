"""Whether a majority is still there: check-quorum (or the leader resigns) and the lease (answers without a commit)."""

from __future__ import annotations

from replog_quorum.voters import VoterSet


class _OtherVoters:
    """The voters other than the leader, and how many of them make a majority with it.

    A leader that is no voter any more (its removal is not committed yet) does not count itself.
    """

    def __init__(self, leader_id: int, voters: VoterSet, *, leader_votes: bool) -> None:
        self.ids = tuple(voter_id for voter_id in voters.ids if voter_id != leader_id)
        self.needed = voters.majority_size - (1 if leader_votes else 0)


class Lease:
    """Until when the leader knows that nobody else has been elected.

    A voter that has had a good answer of its leader helps nobody else to the leadership for the fetch timeout.  What
    counts is the time at which the answer left, which the voter's next fetch brings back: a leader that was suspended,
    or cut off, finds old fetches waiting, and they prove nothing about now.

    Three things it does not see: clocks of different speed; a vote request that a former candidate sent before the
    answer and that arrives after it; followers whose connections are refused although this process lives (they take it
    for dead).
    """

    def __init__(self, leader_id: int, voters: VoterSet, fetch_timeout_ms: int, *, leader_votes: bool) -> None:
        self._leader_id = leader_id
        self._others = _OtherVoters(leader_id, voters, leader_votes=leader_votes)
        self._answered_ms = dict.fromkeys(self._others.ids, -1)
        self._fetch_timeout_ms = fetch_timeout_ms

    def voters_changed(self, voters: VoterSet, *, leader_votes: bool) -> None:
        """Uses another set, which is in force now; a voter that stays keeps its time."""
        self._others = _OtherVoters(self._leader_id, voters, leader_votes=leader_votes)
        self._answered_ms = {voter_id: self._answered_ms.get(voter_id, -1) for voter_id in self._others.ids}

    def fetched(self, voter_id: int, leader_time_ms: int, now_ms: int) -> None:
        """Notes that a voter's fetch brought back the time of an answer."""
        if self._answered_ms.get(voter_id, now_ms) < leader_time_ms <= now_ms:
            self._answered_ms[voter_id] = leader_time_ms

    def is_held(self, now_ms: int) -> bool:
        """Whether a majority had an answer within the fetch timeout; a sole voter always holds it."""
        needed = self._others.needed
        if needed == 0:
            return True
        answered_ms = sorted(self._answered_ms.values(), reverse=True)
        return len(answered_ms) >= needed and 0 <= answered_ms[needed - 1] > now_ms - self._fetch_timeout_ms


class CheckQuorum:
    """Deadline by which a majority must have fetched, or the leader resigns (KIP-595 check-quorum).

    Why: a leader cut off from the majority would otherwise keep serving its clients and never commit.
    """

    def __init__(self, leader_id: int, voters: VoterSet, timeout_ms: int, now_ms: int, *, leader_votes: bool) -> None:
        self._leader_id = leader_id
        self._others = _OtherVoters(leader_id, voters, leader_votes=leader_votes)
        self._timeout_ms = timeout_ms
        self._deadline_ms = now_ms + timeout_ms
        self._fetched: list[int] = []

    @property
    def deadline_ms(self) -> int | None:
        """When the leader must resign; None for a sole voter, which never must."""
        return self._deadline_ms if self._others.needed > 0 else None

    def voters_changed(self, voters: VoterSet, now_ms: int, *, leader_votes: bool) -> None:
        """Uses another set, which is in force now: its majority gets the whole time."""
        self._others = _OtherVoters(self._leader_id, voters, leader_votes=leader_votes)
        self._fetched = []
        self._deadline_ms = now_ms + self._timeout_ms

    def fetched(self, voter_id: int, now_ms: int) -> None:
        """Notes that a voter has fetched; a majority of them starts the wait anew."""
        if voter_id in self._others.ids and voter_id not in self._fetched:
            self._fetched.append(voter_id)
        if len(self._fetched) >= self._others.needed:
            self._fetched = []
            self._deadline_ms = now_ms + self._timeout_ms
