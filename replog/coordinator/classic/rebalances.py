"""From one generation to the next: which members are waited for and how long, what they are told, what is written.

============================ =============================================================== ======================
waits                        for                                                             at most
============================ =============================================================== ======================
the first generation         more members, who come at about the same time                   rebalance timeout
a later generation           all members to join again                                       rebalance timeout
a join                       the generation                                                  as above
a join of a new member       the generation                                                  `new_member_timeout_ms`
a sync                       the leader's sync, and that what it says has committed          rebalance timeout
============================ =============================================================== ======================

The rebalance timeout of a group is the longest of its members'.  Answers leave when what was written before them has committed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from replog.coordinator.classic.group import BYTES_BESIDE, ClassicGroup, ClassicMember, GroupState
from replog.coordinator.classic.groups import ClassicGroups
from replog.coordinator.classic.records import group_record, group_value, is_to_be_rebalanced
from replog.coordinator.classic.requests import SyncGroupResponse
from replog.coordinator.classic.turn import ClassicSessionTimer, EmptyTimer, JoinTimer, SyncTimer, Turn
from replog.coordinator.config import ClassicConfig
from replog.coordinator.messages import GroupMetadataValue
from replog.coordinator.rebalance_reasons import RebalanceCounts
from replog.coordinator.records import CoordinatorRecord
from replog.coordinator.runtime.machine import Moment, Timers
from replog.errors import GroupMaxSizeReachedError, RebalanceInProgressError, ReplogError, UnknownMemberIdError

WRITE_AGAIN_MS: Final = 1_000
"""How long after a group has become empty it is looked whether the log has that."""

Removal = Callable[[str], tuple[CoordinatorRecord, ...]]
"""Returns the records that remove a group of another kind with this id, which has no members."""


class Rebalances:
    """Moves groups on."""

    def __init__(
        self,
        groups: ClassicGroups,
        config: ClassicConfig,
        timers: Timers,
        removal_of_other: Removal,
        counts: RebalanceCounts,
    ) -> None:
        self._groups = groups
        self._config = config
        self._timers = timers
        self._removal_of_other = removal_of_other
        self._counts = counts

    # ---- the next generation is prepared ----------------------------------------------------------------------------

    def go_on(self, group: ClassicGroup, turn: Turn) -> None:
        """Prepares the next generation after a member has come, gone, or changed; begins it if all have joined."""
        if group.state is GroupState.PREPARING_REBALANCE:
            self.begin_if_all_joined(group, turn)
        else:
            self.prepare(group, turn)

    def prepare(self, group: ClassicGroup, turn: Turn) -> None:
        """Asks all members to join again; those of an empty group are given time to come together."""
        self._counts[turn.reason] += 1
        if group.state is GroupState.COMPLETING_REBALANCE:
            self._take_back_assignments(group, turn)
        self._timers.cancel(SyncTimer(group.group_id, group.generation))
        group.is_initial = group.state is GroupState.EMPTY
        timeout_ms = group.rebalance_timeout_ms()
        if group.is_initial:
            group.has_new_member = False
            group.delay_ms = self._config.initial_rebalance_delay_ms
            group.delay_left_ms = max(timeout_ms - group.delay_ms, 0)
            timeout_ms = group.delay_ms
        group.move_to(GroupState.PREPARING_REBALANCE, turn.moment.wall_ms)
        self._timers.set(JoinTimer(group.group_id), turn.moment.now_ms + timeout_ms)
        self.begin_if_all_joined(group, turn)

    def begin_if_all_joined(self, group: ClassicGroup, turn: Turn) -> None:
        """Begins the next generation unless somebody is waited for."""
        is_prepared = group.state is GroupState.PREPARING_REBALANCE and not group.is_initial
        if is_prepared and group.has_all_joined():
            self.begin(group, turn)

    def end_join_phase(self, group: ClassicGroup, turn: Turn) -> None:
        """Begins the next generation with those who have joined; the first one waits on while members come."""
        if group.state is not GroupState.PREPARING_REBALANCE:
            return
        if group.is_initial and group.has_new_member and group.delay_left_ms > 0:
            group.has_new_member = False
            earlier_ms, group.delay_ms = (
                group.delay_ms,
                min(self._config.initial_rebalance_delay_ms, group.delay_left_ms),
            )
            group.delay_left_ms = max(group.delay_left_ms - earlier_ms, 0)
            self._timers.set(JoinTimer(group.group_id), turn.moment.now_ms + group.delay_ms)
        else:
            self.begin(group, turn)

    def _take_back_assignments(self, group: ClassicGroup, turn: Turn) -> None:
        error = RebalanceInProgressError(f"group {group.group_id!r} is rebalanced again: join it")
        for member in group.members.values():
            member.assignment = b""
            if member.sync_request is not None:
                turn.fail(member.sync_request, error)
                member.sync_request = None
                self.await_heartbeat(group, member, turn.moment)

    # ---- it begins --------------------------------------------------------------------------------------------------

    def begin(self, group: ClassicGroup, turn: Turn) -> None:
        """Begins the next generation.

        Members that have not joined are put out, but for static ones, which may come back.  If nobody has joined, and static
        members are left, their sessions decide.
        """
        self._timers.cancel(JoinTimer(group.group_id))
        late = [each for each in group.members.values() if each.join_request is None and each.instance_id is None]
        self.put_out(group, (each.member_id for each in late), turn)
        if group.members and not group.elect_leader():
            deadline_ms = turn.moment.now_ms + max(group.rebalance_timeout_ms(), 1)
            self._timers.set(JoinTimer(group.group_id), deadline_ms)
            return
        group.begin_generation(turn.moment.wall_ms)
        if not group.members:
            self.write_empty(group, turn)
            return
        for member in group.members.values():
            if member.join_request is not None:
                turn.reply(group.take_join(member), group.joined(member.member_id))
            member.is_new = False
            group.not_synced[member.member_id] = None
            self.await_heartbeat(group, member, turn.moment)
        self._timers.set(SyncTimer(group.group_id, group.generation), turn.moment.now_ms + group.rebalance_timeout_ms())

    def put_out(
        self, group: ClassicGroup, member_ids: Iterable[str], turn: Turn, error: ReplogError | None = None
    ) -> None:
        """Removes members; what of their requests waits is told so, or why, where there is an error."""
        for member_id in member_ids:
            self._timers.cancel(ClassicSessionTimer(group.group_id, member_id))
            member = group.remove(member_id)
            if member is not None:
                gone = UnknownMemberIdError(
                    f"member {member_id!r} of group {group.group_id!r} was put out: join it anew"
                )
                self.fail_waiting(member, error or gone, turn)

    @staticmethod
    def fail_waiting(member: ClassicMember, error: ReplogError, turn: Turn) -> None:
        """Answers the waiting requests of a member that is in no group any more."""
        turn.fail(member.join_request, error)
        turn.fail(member.sync_request, error)
        member.join_request = member.sync_request = None

    # ---- it is assigned ---------------------------------------------------------------------------------------------

    def has_synced(self, group: ClassicGroup, member_id: str) -> None:
        """Waits no more for a member to ask what it gets."""
        group.not_synced.pop(member_id, None)
        if not group.not_synced:
            self._timers.cancel(SyncTimer(group.group_id, group.generation))

    def end_sync_phase(self, group: ClassicGroup, generation: int, turn: Turn) -> None:
        """Puts out the members that have not asked what they get, and prepares the next generation without them."""
        is_assigned = group.state in {GroupState.COMPLETING_REBALANCE, GroupState.STABLE}
        if is_assigned and group.generation == generation and group.not_synced:
            self.put_out(group, list(group.not_synced), turn)
            self.prepare(group, turn)

    def assign(self, group: ClassicGroup, assignments: Callable[[str], bytes], turn: Turn) -> None:
        """Makes a generation stable, and answers the members that wait for that.

        Args:
            group: The group.
            assignments: The function that says what a member gets, by its id.
            turn: What the leader's request leads to.
        """
        for member in group.members.values():
            member.assignment = assignments(member.member_id)
        if self._shrink(group, turn):
            return
        group.move_to(GroupState.STABLE, turn.moment.wall_ms)
        self.write(group, turn)
        for member in group.members.values():
            if member.sync_request is not None:
                turn.reply(member.sync_request, assigned(group, member))
                member.sync_request = None
                self.await_heartbeat(group, member, turn.moment)

    def _shrink(self, group: ClassicGroup, turn: Turn) -> bool:
        """Lets a group whose record is too large go on with those members that fit in, the first ones first.

        Else no generation would ever be kept: all would join again, and again.  What they get is shared by those that stay, so
        it is as large again, and until the group is empty what they tell has to fit in beside it.

        Returns:
            Whether that was so.
        """
        sizes = {member_id: each.record_bytes(group.protocol) for member_id, each in group.members.items()}
        assignment_bytes = sum(len(each.assignment) for each in group.members.values())
        beside = len(group.group_id.encode()) + BYTES_BESIDE
        size_bytes, most_bytes = beside + sum(sizes.values()) + assignment_bytes, self._config.max_record_bytes
        if size_bytes <= most_bytes:
            return False
        group.record_room = max(most_bytes - assignment_bytes, 0)
        error = GroupMaxSizeReachedError(
            f"the record of group {group.group_id!r} with {len(sizes)} members would have {size_bytes} bytes, and may have "
            f"{most_bytes}: divide it into several groups"
        )
        going: list[str] = []
        for member_id, member_bytes in sizes.items():
            if beside + member_bytes > group.record_room:
                going.append(member_id)
            else:
                beside += member_bytes
        self.put_out(group, going, turn, error)
        self.prepare(group, turn)
        return True

    # ---- what is kept of it -----------------------------------------------------------------------------------------

    def write(self, group: ClassicGroup, turn: Turn) -> None:
        """Adds the record of a group, in place of an empty one of another kind."""
        group.record = group_value(group)
        turn.records += (*self._removal_of_other(group.group_id), group_record(group.group_id, group.record))

    def write_empty(self, group: ClassicGroup, turn: Turn) -> None:
        """Adds the record of a group without members, and looks later whether that was taken back."""
        self.write(group, turn)
        self._timers.set(EmptyTimer(group.group_id), turn.moment.now_ms + WRITE_AGAIN_MS)

    def write_empty_again(self, group: ClassicGroup, turn: Turn) -> None:
        """Adds the record of a group that is still without members, if the log does not have it."""
        if group.state is GroupState.EMPTY and group.record is not self._groups.written(group.group_id):
            self.write_empty(group, turn)

    def recover(self, group: ClassicGroup, turn: Turn) -> None:
        """Goes back to what the log says of a stable group, or prepares the next generation, if a record was taken back.

        It prepares it, too, where the log says that members have to join again.  Nobody waits in a stable group, so nobody is
        answered.
        """
        kept = self._groups.written(group.group_id)
        if kept is not None and kept.generation > group.generation:
            self._go_on_behind(group, kept, turn)
        if group.state is not GroupState.STABLE:
            return
        if group.record is kept:
            if kept is not None and is_to_be_rebalanced(kept):
                self.prepare(group, turn)
            return
        group.record = kept
        if kept is not None and kept.generation == group.generation:
            for each in kept.members:
                holder = group.members.get(group.instances.get(each.group_instance_id or "", ""))
                if holder is not None and holder.member_id != each.member_id:
                    self._timers.cancel(ClassicSessionTimer(group.group_id, holder.member_id))
                    group.rename(holder, each.member_id)
                    self.await_heartbeat(group, holder, turn.moment)
        else:
            for member in group.members.values():
                member.assignment = b""
            self.prepare(group, turn)

    def _go_on_behind(self, group: ClassicGroup, kept: GroupMetadataValue, turn: Turn) -> None:
        """Raises the generation to that of the log: a group was removed, began anew, and then the removal was taken back."""
        if group.state is GroupState.EMPTY:
            group.record = kept  # so there is nothing to write
        elif group.state is not GroupState.PREPARING_REBALANCE:
            self.prepare(group, turn)  # the members that wait join again
        group.generation = kept.generation

    def await_heartbeat(self, group: ClassicGroup, member: ClassicMember, moment: Moment) -> None:
        """Gives a member a session."""
        timeout_ms = self._config.new_member_timeout_ms if member.is_new else member.session_timeout_ms
        self._timers.set(ClassicSessionTimer(group.group_id, member.member_id), moment.now_ms + timeout_ms)


def assigned(group: ClassicGroup, member: ClassicMember) -> SyncGroupResponse:
    """Returns what a member gets."""
    return SyncGroupResponse(group.protocol_type, group.protocol or "", member.assignment)
