"""What must hold of consumer groups: looked at with each record that commits to `__consumer_offsets`, and with whatever a member
of either protocol is told, reads, or is done with.

===== ==============================================================================================================
G1    a partition has one owner: by the committed log no two members have it, nor has one what another has still to give back;
      member epochs and generations never go back
G2    nobody who is out commits: by the log before it, whoever commits an offset has the partition in that epoch, or, in a
      generation of the classic protocol, nobody else has
G3    what a member is told is so: its assignment, and that its commit is kept, have committed when it hears it
G4    a member begins where the log says that the group has committed, and no lower than any offset of which somebody was told
      that it is kept
G5    a committed offset never goes back, and is not forgotten while the group has members; but Kafka's protocol does not number
      commits: one over a connection that its member gave up may come behind a later one of the same generation
G6    an offset is committed when all below it has been handled, and not before
G7    who is a member and has lost a partition to another one does not read it any more, and whoever has heard that it has to give
      up what it has is handed out nothing more, and whoever leaves in order has let go of everything before it says so; but a
      static member that is away counts as put out: one of KIP-848 by its own word (`_away`), and one of the classic protocol
      where it has not joined a generation in time (`_late_static`)
G8    from where it begins, a member handles every record, each once, in order
G9    nobody is put out who was heard within its session
G10   when the faults are over, every partition has an owner and all records are handled and committed, within bounded time;
      no member, call or commit hangs, and no member meets an error that is not its own to mend
===== ==============================================================================================================

So a record is handled twice only where a member lost its partition between the handling and the commit; these are counted, by
how it lost it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from replog.coordinator.consumers.member import LEAVING_STATIC_EPOCH, MemberState
from tests.sim.event_log import EventLog
from tests.sim.group_log import GroupLog, Kept, LoggedGroup, LogListener, Partitions, Place

ROUNDED_S = 0.01
"""Clocks of brokers count milliseconds, that of the simulation does not."""


@dataclass(eq=False, slots=True)
class Seat:
    """One life of one member, as it sees itself.

    Attributes:
        reads: where it is in the partitions that it has in hand.
        heard_at: when a heartbeat was answered last.
        epoch: the member epoch, or generation, in which it was told last what it has.
        has_heard: it has heard that it has to give up what it reads.
        is_leaving: it has begun to leave.
    """

    name: str
    group_id: str
    member_id: str = ""
    reads: dict[int, int] = field(default_factory=dict)
    heard_at: float = -1e9
    epoch: int = -1
    has_heard: bool = False
    is_static: bool = False
    is_leaving: bool = False
    is_dead: bool = False
    rebalance_s: float = 1e9


class GroupChecks(LogListener):
    """Told what happens; what must not be goes to `report`.

    Args:
        report: told what does not hold.
        now: the virtual time.
        session_s: of members of KIP-848; 0: clocks stand still, so that sessions may be shorter than they are.
        seen: counts doubles, and what else is rare.

    Attributes:
        log: what has committed.
    """

    def __init__(
        self,
        report: Callable[[str], None],
        now: Callable[[], float],
        session_s: float,
        events: EventLog,
        seen: Counter[str],
    ) -> None:
        self.log = GroupLog(self)
        self.seats: list[Seat] = []
        self._report = report
        self._now = now
        self._session_s = session_s
        self._events = events
        self._seen = seen
        self._handled: dict[tuple[str, int], list[int]] = {}  # how often each record was, by its offset
        self._frontiers: dict[tuple[str, int], int] = {}
        self._acknowledged: dict[tuple[str, int], dict[str, int]] = {}  # the highest by whoever was told
        self._lost_by: dict[tuple[str, int], str] = {}

    # ---- what the log says -----------------------------------------------------------------------------------------------

    def before_place(self, group_id: str, group: LoggedGroup, member_id: str, place: Place) -> None:
        self._note(
            group_id,
            f"{member_id} epoch {place.epoch} {place.state.name} {sorted(place.assigned)} revoked {sorted(place.revoked)}",
        )
        before = group.members.get(member_id)
        if (
            before is not None
            and place.epoch < before.epoch
            and LEAVING_STATIC_EPOCH not in {before.epoch, place.epoch}
        ):
            self._report(f"G1 {group_id}: {member_id} goes back from epoch {before.epoch} to {place.epoch}")
        for other_id, other in group.members.items():
            shared = (place.assigned | place.revoked) & (other.assigned | other.revoked)
            if other_id != member_id and shared:
                self._report(f"G1 {group_id}: {member_id} and {other_id} have {sorted(shared)}")
        if place.state is not MemberState.UNREVOKED_PARTITIONS:
            group.revoking_since.pop(member_id, None)
        elif before is None or before.state is not place.state or before.epoch != place.epoch:
            group.revoking_since[member_id] = self._now()
        self._check_hands(group_id, {member_id: place.assigned}, {*group.members, member_id} - self._away(group))

    def before_generation(
        self, group_id: str, group: LoggedGroup, generation: int, members: Mapping[str, Place]
    ) -> None:
        told = {name: sorted(place.assigned) for name, place in members.items()}
        self._note(group_id, f"generation {generation}: {told}")
        if generation < group.generation:
            self._report(f"G1 {group_id}: generation {generation} follows {group.generation}")
        counted = Counter(number for place in members.values() for number in place.assigned)
        if counted and max(counted.values()) > 1:
            self._report(f"G1 {group_id}: generation {generation} gives a partition to two members: {told}")
        given = {name: place.assigned for name, place in members.items()}
        self._check_hands(group_id, given, members.keys() - self._late_static(group_id, generation))

    def _away(self, group: LoggedGroup) -> set[str]:
        """Static members of KIP-848 that have said that they leave for a while.

        Ours says so where its application has worked for longer than max.poll.interval.ms, and may go on with what it has in hand,
        which it cannot commit (G2).  What the coordinator had asked back is free from then on, as with a member that has left for
        good (consumerGroupStaticMemberGroupLeave of Kafka 4.1.1); the rest is kept for it.  One that leaves in order has nothing in
        hand (`begins_to_leave`).
        """
        return {member_id for member_id, place in group.members.items() if place.epoch == LEAVING_STATIC_EPOCH}

    def _late_static(self, group_id: str, generation: int) -> set[str]:
        """Static members that a generation may have begun without.

        When the rebalance timeout is over, Kafka's coordinator puts out the members that have not joined, but for static ones: such a
        one is in the generation by its name alone, and others may get what it has in hand.  Its application has been at work on that
        for longer than max.poll.interval.ms, or it has not heard of the rebalance.  It is as one that was put out: it may work on
        what it has, and not commit it (G2).  It is handed out nothing more as soon as it has heard (`handed_out`), and has let go of
        everything when it joins (`joins`).

        Until the rebalance began its heartbeats were answered, so that the last answer is older than the timeout.
        """
        now_s = self._now() + ROUNDED_S
        return {
            seat.member_id
            for seat in self.seats
            if seat.group_id == group_id
            and seat.is_static
            and seat.epoch < generation
            and (not self._session_s or now_s - seat.heard_at >= seat.rebalance_s)
        }

    def _check_hands(self, group_id: str, given: Mapping[str, Partitions], members: Collection[str]) -> None:
        for seat in self.seats:
            if seat.group_id != group_id or seat.member_id not in members:
                continue
            for member_id, partitions in given.items():
                both = partitions & seat.reads.keys()
                if member_id != seat.member_id and both:
                    self._report(
                        f"G7 {group_id}: {member_id} is given {sorted(both)}, which {seat.name} {seat.member_id} reads"
                    )

    def before_removal(self, group_id: str, group: LoggedGroup, member_id: str) -> None:
        self._note(group_id, f"{member_id} goes")
        seat = next((each for each in self.seats if each.member_id == member_id and not each.is_leaving), None)
        if seat is None or not self._session_s:
            return
        silent_s = self._now() - seat.heard_at
        slow_s = self._now() - group.revoking_since.get(member_id, self._now())
        if silent_s < self._session_s - ROUNDED_S and slow_s < seat.rebalance_s - ROUNDED_S and not seat.is_dead:
            self._report(f"G9 {group_id}: {seat.name} is put out, and was answered {silent_s:.3f} s ago")

    def before_offset(self, group_id: str, group: LoggedGroup, partition: int, kept: Kept | None) -> None:
        self._note(group_id, f"partition {partition} is committed: {kept}")
        if kept is None:
            if group.members:
                self._report(
                    f"G5 {group_id}: the offset of partition {partition} is removed while {list(group.members)} read"
                )
            self._seen["offset forgotten"] += partition in group.offsets
            self._acknowledged.pop((group_id, partition), None)
            self._lost_by[group_id, partition] = "forgot, and so did its group"
            return
        before = group.offsets.get(partition)
        if before is not None and kept.offset < before.offset:
            if before.author.has_given_up(kept.author):
                self._seen["offset goes back, by a commit that came late"] += 1
                self._acknowledged.pop((group_id, partition), None)
                self._lost_by[group_id, partition] = "committed, and an earlier commit of its own came late"
            else:
                self._report(f"G5 {group_id}: partition {partition} goes back from {before} to {kept}")
        place = group.members.get(kept.author.member_id)
        is_classic = group.generation >= 0
        is_spare = is_classic and group.holder(partition) is None
        has_it = place is not None and (partition in place.assigned | place.revoked or is_spare)
        is_new = (
            is_classic and kept.author.epoch > group.generation
        )  # one that was never assigned: nobody has got anything
        if place is None or not has_it or (kept.author.epoch != place.epoch and not is_new):
            self._report(f"G2 {group_id}: {kept.author} commits partition {partition}, and is {place}")
        if kept.offset > self.frontier(group_id, partition):
            self._report(
                f"G6 {group_id}: {kept} is committed of partition {partition}, and handled is what is below "
                f"{self.frontier(group_id, partition)}"
            )

    # ---- what members are told -------------------------------------------------------------------------------------------

    def new_seat(self, name: str, group_id: str) -> Seat:
        """A member begins to live."""
        self.seats.append(seat := Seat(name, group_id))
        return seat

    def told(self, seat: Seat, epoch: int, assigned: Partitions | None, sent_at: float) -> None:
        """What was asked at `sent_at` is answered: the member is in this epoch, and may read these; None: as before."""
        seat.heard_at, seat.epoch = sent_at, epoch
        said = self.log.group(seat.group_id).said.get(seat.member_id, set())
        if not any(epoch == each and assigned in (None, those) for each, those in said):
            self._report(f"G3 {seat.name} is told epoch {epoch} with {_shown(assigned)}, and the log does not have it")

    def kept(self, seat: Seat, offsets: Mapping[int, int]) -> None:
        """A commit was answered: these offsets are kept."""
        group = self.log.group(seat.group_id)
        for partition, offset in offsets.items():
            if group.by_author.get((partition, seat.member_id), -1) < offset:
                self._report(
                    f"G3 {seat.name} is told that {offset} of partition {partition} is kept, and the log has {group.offsets.get(partition)}"
                )
            by_whom = self._acknowledged.setdefault((seat.group_id, partition), {})
            by_whom[seat.member_id] = max(offset, by_whom.get(seat.member_id, -1))
            self._seen["commit acknowledged"] += 1

    # ---- what members do -------------------------------------------------------------------------------------------------

    def joins(self, seat: Seat) -> None:
        """A member that gives back everything first, by the eager protocol, asks for the next generation."""
        if seat.reads:
            self._report(f"G7 {seat.name} joins the next generation, and reads {sorted(seat.reads)}")

    def begins_to_leave(self, seat: Seat) -> None:
        """A member that is closed, or has unsubscribed, says that it leaves."""
        if seat.reads:
            self._report(f"G7 {seat.name} leaves in order, and reads {sorted(seat.reads)}")

    def handed_out(self, seat: Seat, partitions: Collection[int]) -> None:
        """A member's application has got records."""
        if seat.has_heard and partitions:
            self._report(
                f"G7 {seat.name} is handed out records of {sorted(partitions)}, and has heard that it has to give back all"
            )

    def begins(self, seat: Seat, partition: int, position: int) -> None:
        """A member has a partition in hand, and reads from `position` on."""
        key, group = (seat.group_id, partition), self.log.group(seat.group_id)
        self._note(seat.group_id, f"{seat.name} begins with partition {partition} at {position}")
        place = group.members.get(seat.member_id)
        if place is not None and partition in place.assigned:  # else it was put out meanwhile, and does not know
            kept, highest = group.offsets.get(partition), max(self._acknowledged.get(key, {}).values(), default=0)
            if position < highest or position != (0 if kept is None else kept.offset):
                self._report(
                    f"G4 {seat.name} begins with partition {partition} at {position}: {highest} was kept, the log has {kept}"
                )
        if position > self.frontier(*key):
            self._report(
                f"G8 {seat.name} begins with partition {partition} at {position}: handled is {self.frontier(*key)}"
            )
        seat.reads[partition] = position

    def handled(self, seat: Seat, partition: int, offset: int) -> None:
        """A member is done with a record."""
        key = seat.group_id, partition
        expected = seat.reads.get(partition)
        if expected != offset:
            self._report(f"G8 {seat.name} handles {offset} of partition {partition}, next is {expected}")
        seat.reads[partition] = offset + 1
        counts = self._handled.setdefault(key, [])
        counts += [0] * (offset + 1 - len(counts))
        counts[offset] += 1
        self._seen["handled"] += 1
        if counts[offset] > 1:
            self._seen[f"handled twice, {self._reason(seat, partition)}"] += 1
        frontier = self._frontiers.get(key, 0)
        while frontier < len(counts) and counts[frontier]:
            frontier += 1
        self._frontiers[key] = frontier

    def _reason(self, seat: Seat, partition: int) -> str:
        """Why a record of a partition is handled once more: who had it before has lost it, and has not committed since."""
        for other in self.seats:
            if other is not seat and other.group_id == seat.group_id and partition in other.reads:
                return "a member was put out and did not know"
        return f"a member {self._lost_by.get((seat.group_id, partition), '?')}"

    def ends(self, seat: Seat, partitions: Collection[int], how: str) -> None:
        """A member has let go of partitions."""
        for partition in partitions:
            if seat.reads.pop(partition, None) is not None:
                self._note(seat.group_id, f"{seat.name} {how} with partition {partition}")
                self._lost_by[seat.group_id, partition] = how
        seat.has_heard = seat.has_heard and bool(seat.reads)

    def dies(self, seat: Seat) -> None:
        """Its process has ended without a word."""
        seat.is_dead = True
        self.ends(seat, list(seat.reads), "was killed")
        self.seats.remove(seat)

    def leaves(self, seat: Seat) -> None:
        """It has left, in order."""
        self.ends(seat, list(seat.reads), "has left")
        if seat in self.seats:
            self.seats.remove(seat)

    def frontier(self, group_id: str, partition: int) -> int:
        """Below it every record has been handled."""
        return self._frontiers.get((group_id, partition), 0)

    # ---- the end ---------------------------------------------------------------------------------------------------------

    def missing(self, group_id: str, ends: Mapping[int, int]) -> str:
        """What a group lacks until it is done with everything below `ends`; "" for nothing."""
        group = self.log.group(group_id)
        held = [number for seat in self.seats if seat.group_id == group_id for number in seat.reads]
        lacks = [f"partition {number} has {held.count(number)} readers" for number in ends if held.count(number) != 1]
        for number, end in ends.items():
            kept = group.offsets.get(number)
            if self.frontier(group_id, number) < end:
                lacks.append(f"of partition {number} {self.frontier(group_id, number)} of {end} are handled")
            elif end and (kept is None or kept.offset < end):
                lacks.append(f"of partition {number} {kept} of {end} is committed")
        return "; ".join(lacks)

    def _note(self, group_id: str, text: str) -> None:
        self._events.note("group", f"{group_id}: {text}")


def _shown(partitions: Partitions | None) -> str:
    return "what it had" if partitions is None else str(sorted(partitions))
