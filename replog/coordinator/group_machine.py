"""The state machine of groups: which part replays which record, handles which request, owns which timer."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial
from itertools import islice
from typing import Any, Final

from msgspec import Struct, field
from msgspec.structs import replace

from replog.coordinator.all_groups import AllGroups
from replog.coordinator.classic.group import ClassicGroup
from replog.coordinator.classic.groups import ClassicGroups
from replog.coordinator.classic.manager import ClassicManager
from replog.coordinator.classic.manager import Request as ClassicRequest
from replog.coordinator.classic.requests import (
    NO_MEMBER_ID,
    ClassicHeartbeat,
    JoinGroup,
    LeaveGroup,
    LeaveGroupResponse,
    LeavingMember,
    LeftMember,
    SyncGroup,
)
from replog.coordinator.classic.turn import ClassicSessionTimer, EmptyTimer, JoinTimer, RecoveryTimer, SyncTimer
from replog.coordinator.classic.turn import Timer as ClassicTimer
from replog.coordinator.config import ClassicConfig, ConsumersConfig, ConversionConfig, OffsetsConfig
from replog.coordinator.consumers.decisions import TargetsTimer
from replog.coordinator.consumers.group import ConsumerGroup, ConsumerGroups
from replog.coordinator.consumers.manager import ConsumerManager, ConsumerSessionTimer, RebalanceTimer
from replog.coordinator.consumers.news import GroupNewsWaits, NewsTimer, WaitTimer
from replog.coordinator.consumers.pattern_keeper import PatternTimer
from replog.coordinator.consumers.requests import ConsumerHeartbeat, DeleteGroup, DeleteGroupResponse, WaitForGroupNews
from replog.coordinator.conversion.classic_members import ClassicMembers, LateJoinTimer, LateSyncTimer
from replog.coordinator.conversion.downgrades import Downgrades
from replog.coordinator.conversion.upgrades import Upgrades, UpgradeTimer
from replog.coordinator.describing.describer import Describer
from replog.coordinator.describing.requests import DescribeConsumerGroup, DescribeGroup, ListGroups, ReadOffsets
from replog.coordinator.group_records import GROUP_RECORDS
from replog.coordinator.messages import LegacyOffsetCommitKey, OffsetCommitKey
from replog.coordinator.offsets.cleaner import CleaningPass, OffsetCleaner, PassTimer, Removals
from replog.coordinator.offsets.manager import OffsetManager
from replog.coordinator.offsets.requests import (
    CommitOffsets,
    DeleteOffsets,
    FetchOffsets,
    ForgetTopics,
    ForgetTopicsResponse,
)
from replog.coordinator.offsets.state import OffsetState, removal_record
from replog.coordinator.offsets.transactional import TransactionalOffsets
from replog.coordinator.offsets.transactions import CommitTransactionalOffsets, CompleteTransaction, GetCommitPermit
from replog.coordinator.rebalance_reasons import RebalanceCounts, RebalanceReason
from replog.coordinator.records import CoordinatorRecord, EncodedRecord
from replog.coordinator.runtime.background import Background, StepTimer, Work
from replog.coordinator.runtime.machine import Moment, Outcome, TimerKey, Timers
from replog.coordinator.runtime.messages import Answer, Reply
from replog.coordinator.runtime.transactions import EndMarker, TransactionWriter
from replog.coordinator.topic_view import TopicView
from replog.errors import (
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    FencedInstanceIdError,
    GroupIdNotFoundError,
    InvariantViolationError,
    NonEmptyGroupError,
    ReplogError,
    UnknownMemberIdError,
)
from replog_timeline import SnapshotRegistry


class Deletions:
    """The groups of a shard that are being deleted.

    Offsets go first, the group itself with the last of them.  Until then nobody may join it or commit to it, so that nothing which
    was acknowledged meanwhile goes, too.  What a deletion leaves that ends in the middle, because the coordinator does or may not
    serve, is an empty group with fewer offsets: deleting it again goes on.
    """

    def __init__(self, groups: AllGroups, offsets: OffsetState, config: OffsetsConfig) -> None:
        self._groups = groups
        self._offsets = offsets
        self._config = config
        self._going: set[str] = set()

    def stop(self) -> None:
        """Forgets what has begun."""
        self._going.clear()

    def check_stays(self, group_id: str) -> None:
        """Checks that a group may be used.

        Raises:
            CoordinatorLoadInProgressError: It is being deleted, which takes a moment.
        """
        if group_id in self._going:
            raise CoordinatorLoadInProgressError(f"group {group_id!r} is being deleted; ask again a little later")

    def delete(self, request_id: int, group_id: str) -> Work:
        """Deletes a group.

        Raises:
            GroupIdNotFoundError: There is no such group.
            NonEmptyGroupError: It has members.
            CoordinatorNotAvailableError: The log did not take the changes.
        """
        self.check_stays(group_id)
        group = self._groups.find(group_id)
        offsets = self._offsets.partitions(group_id)
        if group is None and not offsets:
            raise GroupIdNotFoundError(f"there is no group {group_id!r}")
        if group is not None and group.members:
            raise NonEmptyGroupError(f"group {group_id!r} has {len(group.members)} members: stop them first")
        self._going.add(group_id)
        try:
            for _ in range(2 + 2 * len(offsets)):  # more than it takes, unless they are taken back again and again
                records, is_last = self._some(group_id)
                if is_last:
                    break
                yield Outcome(records)
            else:
                raise CoordinatorNotAvailableError(f"offsets of group {group_id!r} could not be deleted; ask again")
        finally:
            self._going.discard(group_id)
        yield Outcome(records, (Reply(request_id, DeleteGroupResponse()),))

    def _some(self, group_id: str) -> tuple[tuple[CoordinatorRecord, ...], bool]:
        """Returns the records of the next change, and whether it is the last one."""
        offsets = self._offsets.partitions(group_id)
        removals = Removals(self._config)
        room = removals.room(group_id)
        removals.add(group_id, [removal_record(group_id, each) for each in islice(offsets, room)])
        is_last = len(offsets) <= room
        if is_last:
            removals.add(group_id, self._groups.removal(group_id))
            self._groups.classic.forget_unwritten(group_id)
        return tuple(removals.records), is_last


def remove_consumers(
    group: ConsumerGroup, request: LeaveGroup, remove: Callable[[Iterable[str]], tuple[CoordinatorRecord, ...]]
) -> tuple[tuple[CoordinatorRecord, ...], LeaveGroupResponse]:
    """Removes members of either protocol, static ones by their instance ids alone.

    Args:
        group: The group.
        request: The members that go.
        remove: The function that returns the records that remove members.

    Returns:
        The records, and the answer.
    """
    going: dict[str, None] = {}
    left = tuple(_left(group, each, going) for each in request.members)
    return remove(going), LeaveGroupResponse(left)


def _left(group: ConsumerGroup, who: LeavingMember, going: dict[str, None]) -> LeftMember:
    """Returns what becomes of one that is removed; adds its id to those that go, if it does."""
    error: ReplogError | None = None
    holder = who.member_id if who.instance_id is None else group.instances.get(who.instance_id)
    if holder is None or holder not in group.members or holder in going:
        error = UnknownMemberIdError(f"the group has no member {who.member_id!r} of instance {who.instance_id!r}")
    elif who.member_id not in {holder, NO_MEMBER_ID}:
        error = FencedInstanceIdError(f"instance {who.instance_id!r} is member {holder!r} now")
    else:
        going[holder] = None
    return LeftMember(who.member_id, who.instance_id, error)


VISITS_PER_STEP: Final = 200
"""Groups, and members of groups, that are taken up in one step when this coordinator begins to serve."""


SECOND_LOOK_MS: Final = 5_000
"""How long after the log has refused something all groups are looked at again; it may refuse a lot."""


class SecondLook(Struct, frozen=True):
    """The state has gone back, and what looked at it in steps may have missed something."""


class GroupsConfig(Struct, frozen=True):
    """The settings of groups."""

    offsets: OffsetsConfig = field(default_factory=OffsetsConfig)
    consumers: ConsumersConfig = field(default_factory=ConsumersConfig)
    classic: ClassicConfig = field(default_factory=ClassicConfig)
    conversion: ConversionConfig = field(default_factory=ConversionConfig)


class GroupMachine:
    """Groups and their offsets, over one timeline."""

    def __init__(
        self,
        registry: SnapshotRegistry,
        timers: Timers,
        config: GroupsConfig,
        topics: TopicView,
        rng: random.Random,
        rebalances: RebalanceCounts | None = None,
    ) -> None:
        """Makes a machine without groups.

        Args:
            registry: The registry that can take changes back.
            timers: The timers of the shard.
            config: The settings.
            topics: The topics of the cluster as this node knows them.
            rng: The random generator that ids of members come from.
            rebalances: The counts of rebalances, which may be those of other machines too; None: nobody wants them.
        """
        self._rebalances: RebalanceCounts = Counter() if rebalances is None else rebalances
        consumers, classic = ConsumerGroups(registry), ClassicGroups(registry)
        self._groups = AllGroups(classic, consumers)
        self._offsets = OffsetState(registry)
        self._offset_manager = OffsetManager(self._offsets, self._groups, topics, config.offsets)
        self._transactional = TransactionalOffsets(self._offsets, self._offset_manager)
        self._cleaner = OffsetCleaner(self._offsets, self._groups, topics, config.offsets, timers)
        self._timers = timers
        self._background = Background(timers)
        self._news = GroupNewsWaits(consumers, timers)
        downgrades = Downgrades(config.conversion, config.classic, topics, timers)
        self._consumers = ConsumerManager(
            consumers, topics, config.consumers, timers, self._background, rng, downgrades.of_going, self._rebalances
        )
        self._upgrades = Upgrades(config.conversion, config.consumers.max_size, topics, self._consumers, timers)
        both = (config.classic, config.consumers)
        self._classic_members = ClassicMembers(consumers, self._consumers, downgrades, topics, both, timers, rng)
        self._classic = ClassicManager(classic, config.classic, timers, rng, consumers.removal, self._rebalances)
        self._deletions = Deletions(self._groups, self._offsets, config.offsets)
        self._describer = Describer(self._groups, self._offsets, config.consumers.assignors)
        self._pending_replays: dict[type, Any] = {
            OffsetCommitKey: self._offsets.replay_pending,
            LegacyOffsetCommitKey: self._offsets.replay_pending_legacy,
        }
        self._replays: dict[type, Any] = {
            OffsetCommitKey: self._offsets.replay,
            LegacyOffsetCommitKey: self._offsets.replay_legacy,
            **{key: self._with_news(replay) for key, replay in consumers.replays().items()},
            **classic.replays(),
        }

    def replay(self, record: CoordinatorRecord, offset: int) -> None:  # noqa: ARG002 - all that counts is the order
        """Takes in a record; those of kinds of groups that are not served here are passed over."""
        replay = self._replays.get(type(record.key))
        if replay is not None:
            replay(record.key, record.value)

    def replay_encoded(self, key: bytes, value: bytes | None) -> bool:
        """Takes in a committed offset of the usual shape, and no other record."""
        return self._offsets.replay_encoded(key, value)

    def replay_pending(self, record: EncodedRecord, offset: int, writer: TransactionWriter) -> None:
        """Takes in a record of a transaction; only offsets wait for its end, as in Kafka."""
        key, value = record
        if self._offsets.replay_pending_encoded(key, value, offset, writer):
            return
        decoded = GROUP_RECORDS.decode(key, value)
        if decoded is None:
            return
        replay = self._pending_replays.get(type(decoded.key))
        if replay is None:
            self.replay(decoded, offset)
        else:
            replay(decoded.key, decoded.value, offset, writer)

    def replay_marker(self, marker: EndMarker) -> None:
        """Takes in the end of a transaction."""
        self._offsets.replay_marker(marker)

    def _with_news(self, replay: Callable[[Any, Any], None]) -> Callable[[Any, Any], None]:
        """Returns the replay of a record of a group whose members may wait for news."""

        def replay_news(key: Any, value: Any) -> None:
            replay(key, value)
            self._news.note_change(key.group_id)

        return replay_news

    def start(self, moment: Moment, epoch: int) -> None:  # noqa: ARG002 - groups tell nobody of it
        """Begins the sessions of all members, and to look for what is to be removed."""
        self._background.add(self._take_up(is_again=False), moment)
        self._cleaner.start(moment)

    def was_taken_back(self, moment: Moment) -> None:
        """Sets the timer to look at all groups once more: some may have been passed over, or told, as they were in between."""
        self._timers.set_if_none(SecondLook(), moment.now_ms + SECOND_LOOK_MS)
        self._cleaner.was_taken_back(moment)
        self._offset_manager.note_taken_back()

    def _take_up(self, *, is_again: bool) -> Work:
        """Takes up all groups in steps; a member that speaks before its group's turn has a session already.

        Args:
            is_again: Whether only members without a session get one.
        """
        consumers, classic = list(self._groups.consumers.group_ids()), list(self._groups.classic.group_ids())
        visits = 0
        for take_up, group_ids in ((self._consumers.take_up, consumers), (self._classic.take_up, classic)):
            for group_id in group_ids:
                visits += 1 + take_up(group_id, self._background.moment, is_again=is_again)
                if visits >= VISITS_PER_STEP:
                    visits = 0
                    yield Outcome()

    def were_lost(self, request_ids: tuple[int, ...], moment: Moment) -> None:
        """Passes over them: whoever asks again is told all that there is to tell."""

    def pause(self) -> tuple[int, ...]:
        """Gives up lists and deletions of groups; returns the ids of their requests.  Joins, syncs and news can wait."""
        return tuple(self._background.give_up_requests())

    def stop(self) -> tuple[int, ...]:
        """Forgets what has begun; returns the ids of the requests that wait: joins, syncs, and for news."""
        self._consumers.stop()
        self._upgrades.stop()
        self._cleaner.stop()
        self._deletions.stop()
        self._transactional.stop()
        return (*self._groups.classic.stop(), *self._news.stop(), *self._background.stop())

    def handle(self, request_id: int, request: Any, moment: Moment) -> Outcome:
        """Handles a request.

        Raises:
            ReplogError: It is refused.
            InvariantViolationError: It is no request to a coordinator of groups.
        """
        if isinstance(request, JoinGroup | ConsumerHeartbeat | CommitOffsets | CommitTransactionalOffsets):
            self._deletions.check_stays(request.group_id)
        match request:
            case DeleteGroup():
                work = self._deletions.delete(request_id, request.group_id)
                return self._background.answer(request_id, work, moment)
            case ListGroups():
                return self._background.answer(request_id, self._describer.list(request_id, request), moment)
            case ReadOffsets():
                return self._background.answer(request_id, self._describer.read_offsets(request_id, request), moment)
            case FetchOffsets(topics=None):
                work = self._offset_manager.fetch_all(request_id, request)
                return self._background.answer(request_id, work, moment)
            case GetCommitPermit() | CommitTransactionalOffsets() | CompleteTransaction():
                return self._transactional.handle(request_id, request, moment)
            case WaitForGroupNews():
                return Outcome(answers=self._news.wait(request_id, request, moment))
            case JoinGroup() | SyncGroup() | ClassicHeartbeat() | LeaveGroup():
                return self._handle_classic(request_id, request, moment)
            case ConsumerHeartbeat() if (
                isinstance(group := self._groups.find(request.group_id), ClassicGroup) and group.members
            ):
                records, response = self._upgrades.heartbeat(request, group, moment)
                answers = self._classic.dissolve(request.group_id, moment)
                return Outcome(records, (*answers, Reply(request_id, response)))
            case _:
                records, response = self._handle(request, moment)
        answers = self._forget_stale(request.group_id, moment) if isinstance(request, ConsumerHeartbeat) else ()
        return Outcome(records, (*answers, Reply(request_id, response)))

    def _handle_classic(self, request_id: int, request: ClassicRequest, moment: Moment) -> Outcome:
        """Handles a request of a member of the classic protocol, to a group of whichever kind."""
        group = self._groups.find(request.group_id)
        if not isinstance(group, ConsumerGroup) or not group.members:
            return self._classic.handle(request_id, request, moment)
        records: tuple[CoordinatorRecord, ...] = ()
        response: Any
        match request:
            case JoinGroup():
                records, response = self._classic_members.join(request, group, moment)
            case SyncGroup():
                response = self._classic_members.sync(request, group, moment)
            case ClassicHeartbeat():
                response = self._classic_members.heartbeat(request, group, moment)
            case LeaveGroup():
                remove = partial(self._consumers.remove, request.group_id, moment=moment, reason=RebalanceReason.LEFT)
                records, response = remove_consumers(group, request, remove)
        return Outcome(records, (*self._forget_stale(request.group_id, moment), Reply(request_id, response)))

    def _forget_stale(self, group_id: str, moment: Moment) -> tuple[Answer, ...]:
        """Forgets a group of the classic protocol which is one of KIP-848 again, as a change was taken back.

        So it is not taken for the one that the next change makes.

        Returns:
            The answers to the requests that wait for it.
        """
        group = self._groups.find(group_id)
        return self._classic.dissolve(group_id, moment) if isinstance(group, ConsumerGroup) and group.members else ()

    def _handle(self, request: Any, moment: Moment) -> tuple[tuple[CoordinatorRecord, ...], Any]:
        """Handles a request that is answered at once; returns the records, and the answer."""
        records: tuple[CoordinatorRecord, ...] = ()
        response: Any
        match request:
            case CommitOffsets():
                records, response = self._offset_manager.commit(request, moment)
                self._classic.note_commit(request.group_id, request.member_id, moment)
            case FetchOffsets():
                response = self._offset_manager.fetch(request)
            case DeleteOffsets():
                records, response = self._offset_manager.delete(request)
            case ForgetTopics():
                self._cleaner.forget_topics(request.topics, moment)
                response = ForgetTopicsResponse()
            case ConsumerHeartbeat():
                removal = self._groups.classic.removal(request.group_id)
                records, response = self._consumers.heartbeat(request, moment)
                records = (*removal, *records)
            case DescribeGroup():
                response = self._describer.describe(request)
            case DescribeConsumerGroup():
                response = self._describer.describe_consumers(request)
            case _:
                raise InvariantViolationError(f"{type(request).__name__} is no request to a coordinator of groups")
        return records, response

    def take_done(self, key: TimerKey, result: Any, moment: Moment) -> None:
        """Takes in what was worked out beside the loop: targets of a group, or what it becomes; None: that has failed.

        Raises:
            InvariantViolationError: Nobody has wanted such a thing.
        """
        match key:
            case TargetsTimer():
                self._consumers.take_decided(key, result, moment)
            case UpgradeTimer():
                self._upgrades.take_ready(key, result, moment)
            case _:
                raise InvariantViolationError(f"{key!r} was not wanted")

    def handle_timer(self, key: TimerKey, moment: Moment) -> Outcome:
        """Puts out a member, goes on with a group, or makes a step of a pass over the offsets.

        Raises:
            InvariantViolationError: Nobody has set such a timer.
        """
        match key:
            case ClassicSessionTimer() | JoinTimer() | SyncTimer() | EmptyTimer() | RecoveryTimer():
                return self._handle_classic_timer(key, moment)
            case ConsumerSessionTimer() | RebalanceTimer() | LateJoinTimer() | LateSyncTimer():
                return Outcome(self._put_out(key, moment), self._forget_stale(key.group_id, moment))
            case TargetsTimer():
                decided = self._consumers.decide(key, moment)
                return replace(decided, answers=self._forget_stale(key.group_id, moment))
            case UpgradeTimer():
                group = self._groups.find(key.group_id)
                return self._upgrades.begin(key, group if isinstance(group, ClassicGroup) and group.members else None)
            case SecondLook() | PatternTimer() | PassTimer():
                self._handle_silent_timer(key, moment)
                return Outcome()
            case NewsTimer():
                return Outcome(answers=self._news.look(key, moment))
            case WaitTimer():
                return Outcome(answers=self._news.give_up(key))
            case StepTimer():
                return self._background.step(moment)
            case CleaningPass():
                return Outcome(self._cleaner.step(key, moment))
            case _:
                raise InvariantViolationError(f"nobody has set the timer {key!r}")

    def _handle_classic_timer(self, key: ClassicTimer, moment: Moment) -> Outcome:
        """Goes on with a group of the classic protocol; one that is of KIP-848 again, a change being taken back, is forgotten."""
        group = self._groups.find(key.group_id)
        if isinstance(group, ConsumerGroup) and group.members:
            return Outcome(answers=self._forget_stale(key.group_id, moment))
        return self._classic.handle_timer(key, moment)

    def _handle_silent_timer(self, key: SecondLook | PatternTimer | PassTimer, moment: Moment) -> None:
        """Goes on with what leads to no record and no answer at once."""
        match key:
            case SecondLook():
                self._background.add(self._take_up(is_again=True), moment)
            case PatternTimer():
                self._consumers.refresh_patterns(key, moment)
            case PassTimer():
                self._cleaner.settle(key)

    def _put_out(
        self, key: ConsumerSessionTimer | RebalanceTimer | LateJoinTimer | LateSyncTimer, moment: Moment
    ) -> tuple[CoordinatorRecord, ...]:
        """Returns the records that put out a member of a group of KIP-848; none where it has gone on."""
        match key:
            case ConsumerSessionTimer():
                return self._consumers.put_out_silent(key, moment)
            case RebalanceTimer():
                return self._consumers.put_out_slow(key, moment)
            case _:
                return self._classic_members.put_out_late(key, moment)
