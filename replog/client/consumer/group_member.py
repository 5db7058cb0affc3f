"""A consumer's membership in its group: the tasks that speak to the coordinator, and what they leave for the reader.

Heartbeats and commits have tasks of their own, so that a slow application does not cost the membership.  Changes of the
assignment wait until the reader asks for records: it takes them between two records, and nothing is taken from under it.
What the reader has let go of is given up by a task, too, once its last commit has ended: the reader reads on what stays.
"""

from __future__ import annotations

import asyncio
import logging
import math
import re
from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Final
from uuid import UUID

from msgspec import Struct

from replog.client.backoff import Backoff
from replog.client.cluster.leader_calls import first_few
from replog.client.cluster.view import ATTEMPT_TIMEOUT_MS, ClusterView
from replog.client.consumer.group_commits import GroupCommits
from replog.client.consumer.group_openings import Opened, Openings
from replog.client.consumer.group_settings import GroupSettings
from replog.client.groups.classic_membership import ClassicMembership
from replog.client.groups.consumer_membership import ConsumerMembership
from replog.client.groups.coordinator import Coordinator
from replog.client.groups.membership import NO_EPOCH, MemberConfig, Membership, State
from replog.client.groups.messages import (
    Answered,
    Ask,
    Assign,
    Doubt,
    Effect,
    Fail,
    Failed,
    GiveUp,
    IdPartition,
    IdPartitions,
    Leave,
    Lose,
    Message,
    ReaderBack,
    ReaderLate,
    Released,
    Revoke,
    Say,
    SpeakClassic,
    Subscribe,
    Tick,
    TopicsChanged,
)
from replog.client.groups.reader_watch import ReaderWatch
from replog.client.types import TopicPartition
from replog.coordinator.consumers.requests import (
    WaitForGroupNews,
)
from replog.errors import ReplogError, UnsupportedVersionError
from replog.metadata.topic_names import INTERNAL_TOPICS
from replog.waiting.task_ends import end_tasks

NEWS_WAIT_MS = 30_000
"""How long the coordinator may wait for news before it says that there is none, milliseconds."""

NOT_LOOKED: Final[Sequence[str]] = ()
"""Of a pattern: the topics have not been looked through for it yet."""

SESSION_TIMEOUT_MS: Final = 45_000
HEARTBEAT_INTERVAL_MS: Final = 3_000
"""How long a member of the classic protocol may be silent, and how often it says that it is there, as with Kafka's clients."""

_log = logging.getLogger(__name__)


class TakenBack(Struct, frozen=True):
    """Partitions that the reader has to give up.

    Attributes:
        ids: All of them, by id.
        partitions: Those that are read.
        is_lost: Whether they are another member's already.
    """

    ids: IdPartitions
    partitions: tuple[TopicPartition, ...]
    is_lost: bool


class GroupMember:
    """Invariants:
        - a partition is either being opened, ready for the reader, or held by it, from its `Assign` on;
        - what is given back is acknowledged when the reader has let go of it and its last commit has ended, if it can be
          committed still.

    Args:
        view: The open cluster view of the consumer.
        settings: The settings of the group.
        wake: What ends a wait of the reader for records.
        position: The function that returns the offset after the last record of a partition that was handed out.
        epoch_before: The function that returns the leader epoch of the record before an offset; -1 where it is not known.

    Attributes:
        commits: The offsets of the group, and how far the reader has come.
        watch: What says whether the reader still asks for records.
        held: The partitions that are the member's, each with its topic's id: those that are read, and those that the reader
            has let go of and whose last commit is under way.
        ready: The partitions that the reader may begin with.
        taken_back: The partitions that it has to give up first; None: none.
        going: The partitions that it has given up, and whose last commit is under way; None: none.
        failure: Why the group does not take the member; None while it does.
        deleted: The named topics that were deleted and given up, of which the reader has not been told.
        leave_deadline_s: The loop's time until which it may take to leave; infinity: as long as the coordinator is worth it.
    """

    def __init__(
        self,
        view: ClusterView,
        settings: GroupSettings,
        wake: Callable[[], None],
        position: Callable[[TopicPartition], int],
        epoch_before: Callable[[TopicPartition, int], int],
    ) -> None:
        self.watch = ReaderWatch(settings.max_poll_interval_ms)
        self.held: dict[TopicPartition, UUID] = {}
        self.ready: list[Opened] = []
        self.taken_back: TakenBack | None = None
        self.going: TakenBack | None = None
        self.failure: ReplogError | None = None
        self.leave_deadline_s = math.inf
        self.deleted: list[str] = []
        self._view = view
        self._settings = settings
        self._wake = wake
        self._loop = asyncio.get_running_loop()
        self._coordinator = Coordinator(view, settings.group_id)
        self.openings = Openings(view, self._coordinator, settings)
        self._config = MemberConfig(
            settings.group_id,
            str(UUID(int=view.rng.getrandbits(128), version=4)),
            settings.max_poll_interval_ms,
            settings.instance_id,
            settings.client_rack or None,
            settings.client_id,
            SESSION_TIMEOUT_MS,
            HEARTBEAT_INTERVAL_MS,
        )
        self._core: Membership = ConsumerMembership(self._config, Backoff(view.rng))
        self.commits = GroupCommits(self._coordinator, settings, self, position, epoch_before, Backoff(view.rng))
        self._messages: deque[Message] = deque()
        self._is_stepping = False
        self._outgoing: Ask | None = None
        self._asking: Ask | None = None  # what is under way and waited for
        self._patience: asyncio.Timeout | None = None
        self._news = asyncio.Event()
        self._hearing = asyncio.Event()  # set while news would be taken up
        self._is_out = asyncio.Event()
        self._stepped = asyncio.Event()
        self._opening: set[IdPartition] = set()
        self._asked: set[IdPartition] = set()  # those of them that an answer is for which is waited for
        self._opening_wanted = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._release_task: asyncio.Task[None] | None = None
        self._pattern: re.Pattern[str] | None = None
        self._matched: Sequence[str] = NOT_LOOKED
        self._named: frozenset[str] = frozenset()
        self._given_up = set[str]()  # named topics that were read, and are not read any more
        view.add_listener(self._handle_metadata)

    @property
    def member_id(self) -> str:
        """The id of the member; "" while the coordinator of a group of the classic protocol has not said."""
        return self._core.member_id

    @property
    def epoch(self) -> int:
        """The member epoch, or its generation; 0 while it is no member."""
        return self._core.epoch

    @property
    def needs_reader(self) -> bool:
        """Whether the reader has something to take in before it goes on."""
        return self.taken_back is not None or bool(self.ready or self.deleted) or self.failure is not None

    @property
    def is_in_doubt(self) -> bool:
        """Whether it has been silent for so long that it may be out, and nobody has said yet."""
        return self._core.is_in_doubt(self._now_ms())

    # ---- life ------------------------------------------------------------------------------------------------------

    def subscribe(self, topics: Collection[str] | re.Pattern[str]) -> None:
        """Reads these topics from now on, or those of which the whole name matches; joins the group if it is not in it."""
        self._pattern = topics if isinstance(topics, re.Pattern) else None
        self._matched = NOT_LOOKED
        self._named = frozenset() if isinstance(topics, re.Pattern) else frozenset(topics)
        self._given_up.clear()
        self.deleted.clear()
        if isinstance(topics, re.Pattern):
            topics = self._matching(topics)
        self.openings.subscribe(topics)
        self.failure = None
        self._is_out.clear()
        self._step(Subscribe(tuple(sorted(topics))))
        if not self._tasks:
            self._tasks = [
                asyncio.create_task(self._live(), name="replog-group-heartbeats"),
                asyncio.create_task(self._hear_news(), name="replog-group-news"),
                asyncio.create_task(self._open_forever(), name="replog-group-openings"),
                asyncio.create_task(self.commits.run(), name="replog-group-commits"),
            ]
            for task in self._tasks:
                task.add_done_callback(self._handle_end)

    def _matching(self, pattern: re.Pattern[str]) -> list[str]:
        """Returns the topics that match; what is deleted of them is no error, and told to the log."""
        topics = self._view.image.topics
        found = sorted(name for name in topics if pattern.fullmatch(name) and name not in INTERNAL_TOPICS)
        group_id, deleted = self._settings.group_id, [name for name in self._matched if name not in topics]
        if deleted:
            _log.warning("group %s: deleted, and read no more: %s", group_id, first_few(deleted, ", "))
        if not found and (deleted or self._matched is NOT_LOOKED):
            _log.warning("group %s: no topic matches %r; this member waits for one", group_id, pattern.pattern)
        self._matched = found
        return found

    def _handle_metadata(self) -> None:
        """Looks again where new partitions begin, for topics that match, and for those that are gone."""
        self._opening_wanted.set()
        self._look_for_deleted()
        self._step(TopicsChanged(self._view.image.topics))
        if self._pattern is not None and self._tasks:
            matching = self._matching(self._pattern)
            self.openings.follow(matching)
            self._step(Subscribe(tuple(matching)))

    def _look_for_deleted(self) -> None:
        """Notes which of the named topics were deleted: the coordinator may take their partitions before the metadata say why."""
        deleted = self._given_up - self._view.image.topics.keys()
        self._given_up -= deleted
        self.deleted += sorted(deleted)
        if self.deleted:
            self._wake()

    def _handle_end(self, task: asyncio.Task[None]) -> None:
        """Tells the reader that a task has ended which should not: it would wait for what never comes.

        Where the end of the event loop has cancelled it, nobody is going to hear an answer any more.
        """
        if task.cancelled():
            self._is_out.set()
            self._stepped.set()
        elif (error := task.exception()) is not None:
            self.failure = ReplogError(
                f"{task.get_name()} ended, which is a bug of replog's: {error!r}; make a new consumer"
            )
            self._is_out.set()
            self._stepped.set()
            self._wake()

    async def leave(self) -> None:
        """Leaves the group; the reader has let go of everything.  Returns when the coordinator knows, or does not answer."""
        self._pattern = None
        self.ready.clear()
        self._opening.clear()
        self.going = None  # it is given up by leaving, when its commit has ended
        try:
            if self._release_task is not None:
                await asyncio.wait([self._release_task], timeout=self._left_s(math.inf))
        finally:
            await self._end()

    async def _end(self) -> None:
        """Says that it leaves, and ends its tasks, also where whoever waits is cancelled."""
        self._step(Leave())
        try:
            async with asyncio.timeout(self._left_s(2 * ATTEMPT_TIMEOUT_MS / 1000)):
                await self._is_out.wait()
        except TimeoutError:
            _log.debug("group %s: nobody has heard that this member leaves", self._settings.group_id)
        finally:
            self._is_out.set()  # nobody speaks for it any more, whoever else waits for that
            tasks, self._tasks = self._tasks, []
            self._view.remove_listener(self._handle_metadata)
            try:
                await end_tasks(*tasks, self._release_task)
            finally:
                self.commits.close()

    def _left_s(self, most_s: float) -> float | None:
        """Returns how long may be waited while it leaves, in seconds; None: for ever."""
        left_s = min(most_s, self.leave_deadline_s - asyncio.get_running_loop().time())
        return None if left_s == math.inf else max(0.0, left_s)

    # ---- the reader's side -------------------------------------------------------------------------------------------

    def reader_came(self) -> None:
        """Counts a read."""
        self.watch.count += 1
        if self._core.state is State.AWAY:
            self._step(ReaderBack())

    async def confirm(self) -> None:
        """Returns when it is known whether this is a member still: at once where the coordinator was heard lately, or is silent."""
        while self.is_in_doubt and not self._is_out.is_set():
            self._stepped.clear()
            await self._stepped.wait()

    def take_ready(self) -> list[Opened]:
        """Returns the partitions that the reader begins with now; they are held from now on."""
        found, self.ready = self.ready, []
        self.held.update({each.partition: each.topic_id for each in found})
        for each in found:
            self._given_up.discard(each.partition.topic)
        return found

    def release(self, taken: TakenBack, last_commit: int | None) -> None:
        """Gives up partitions that are read no more, as soon as their last commit has ended; waits for nothing.

        Args:
            taken: The partitions.
            last_commit: The ticket of the commit; None: there is none.
        """
        if last_commit is None:
            self._released(taken)
            return
        self.taken_back, self.going = None, taken
        self._release_task = asyncio.create_task(self._release(taken, last_commit), name="replog-group-release")
        self._release_task.add_done_callback(self._handle_end)

    async def _release(self, taken: TakenBack, last_commit: int) -> None:
        await self.commits.wait_for_last(last_commit)
        if self.going is taken:  # else the member was put out meanwhile, or leaves
            self._released(taken)

    def _released(self, taken: TakenBack) -> None:
        """Counts partitions as given up: nothing of them is handed out or committed any more."""
        self.taken_back = self.going = None
        for partition in taken.partitions:
            if self.held.pop(partition, None) is not None and partition.topic in self._named:
                self._given_up.add(partition.topic)
            self.commits.forget(partition)
        self._look_for_deleted()
        self._step(Released(taken.ids))

    # ---- heartbeats --------------------------------------------------------------------------------------------------

    def _now_ms(self) -> int:
        return int(self._loop.time() * 1000)

    async def _live(self) -> None:
        """Says what is due, and hears the answers, until it is cancelled."""
        while True:
            late_ms = self.watch.late_ms(self._now_ms())
            self._step(Tick() if late_ms is None else ReaderLate(late_ms))
            if self._outgoing is not None:
                self._asking = asked = self._outgoing
                self._outgoing = None
                answer = await self._say(asked)
                if self._asking is asked:  # else nobody waits for it any more
                    self._asking = None
                    self._step(answer)
            else:
                self._news.clear()
                await self._wait_for_news()

    async def _wait_for_news(self) -> None:
        due_ms = self._core.next_deadline_ms()
        look_ms = self._now_ms() + self.watch.look_ms
        until_ms = look_ms if due_ms is None else min(due_ms, look_ms)
        try:
            async with asyncio.timeout_at(until_ms / 1000):
                await self._news.wait()
        except TimeoutError:
            pass

    async def _say(self, asked: Ask) -> Message:
        limit_ms = asked.wait_ms + ATTEMPT_TIMEOUT_MS
        try:
            async with asyncio.timeout(None) as self._patience:
                return Answered(await self._coordinator.call(asked.request, limit_ms))
        except TimeoutError:
            return Tick()  # it was given up
        except ReplogError as error:
            return Failed(error.with_traceback(None))
        finally:
            self._patience = None

    def _give_up(self) -> None:
        """Waits no longer for an answer."""
        if self._patience is not None:
            self._patience.reschedule(self._loop.time())
        self._asking = self._outgoing = None

    def _speak_classic(self, reason: ReplogError) -> None:
        """Goes on by the classic protocol, in which members assign."""
        _log.info("group %s: speaks the classic protocol: %s", self._settings.group_id, reason)
        former, self._core = self._core, ClassicMembership(self._config, Backoff(self._view.rng))
        for effect in self._core.succeed(former):
            self._carry_out(effect)
        self._messages.append(TopicsChanged(self._view.image.topics))

    async def _hear_news(self) -> None:
        """Sends the next heartbeat as soon as the coordinator has news; without it they come at their interval.

        Kafka has no news: whether another broker coordinates by now, which may have, is asked once in `NEWS_WAIT_MS`.
        """
        backoff = Backoff(self._view.rng, max_ms=NEWS_WAIT_MS)
        while True:
            await self._hearing.wait()
            request = WaitForGroupNews(self._settings.group_id, self.member_id, self.epoch, NEWS_WAIT_MS)
            try:
                news = await self._coordinator.call(request, NEWS_WAIT_MS + ATTEMPT_TIMEOUT_MS)
            except UnsupportedVersionError as error:
                _log.debug("group %s: changes come with heartbeats alone: %s", self._settings.group_id, error)
                await asyncio.sleep(NEWS_WAIT_MS / 1000)
                continue
            except ReplogError as error:
                _log.debug("group %s: no news from the coordinator: %s", self._settings.group_id, error)
                await asyncio.sleep(backoff.next_s())
                continue
            backoff.reset()
            if news.is_news:
                self.doubt()

    def topic_id(self, topic: str) -> UUID | None:
        """Returns the id of a topic as the metadata have it now; None where there is no such topic."""
        found = self._view.image.topics.get(topic)
        return None if found is None else found.topic_id

    def doubt(self) -> None:
        """Asks the coordinator soon whether this is a member still."""
        self._step(Doubt())

    def _step(self, message: Message) -> None:
        """Steps the core and does what follows, also with what that leads to."""
        self._messages.append(message)
        if self._is_stepping:
            return
        self._is_stepping = True
        try:
            while self._messages:
                for effect in self._core.step(self._messages.popleft(), self._now_ms()):
                    self._carry_out(effect)
                if self.going is not None and self.epoch == NO_EPOCH:  # nothing can be committed any more
                    self._released(self.going)
        finally:
            self._is_stepping = False
            self._news.set()
            self._stepped.set()
            if self._core.may_hear:
                self._hearing.set()
            else:
                self._hearing.clear()
            if self._core.state is State.OUT:
                self._is_out.set()

    def _carry_out(self, effect: Effect) -> None:
        match effect:
            case Ask():
                self._outgoing = effect
            case GiveUp():
                self._give_up()
            case SpeakClassic(reason):
                self._speak_classic(reason)
            case Assign(partitions):
                self._opening |= partitions
                self._opening_wanted.set()
            case Revoke(partitions):
                self._take_back(partitions, is_lost=False)
            case Lose(partitions):
                self._take_back(partitions, is_lost=True)
            case Say(text):
                _log.warning("%s", text)
            case Fail(error):
                self.failure = error
                self._wake()

    def _take_back(self, partitions: IdPartitions, *, is_lost: bool) -> None:
        """Drops what the reader has not begun with; the rest it has to give up itself."""
        self._opening -= partitions
        self._asked -= partitions  # the answer is of a time before others have had them
        self.ready = [each for each in self.ready if (each.topic_id, each.partition.partition) not in partitions]
        held = tuple(each for each, topic_id in self.held.items() if (topic_id, each.partition) in partitions)
        taken = TakenBack(partitions, held, is_lost)
        if held:
            self.taken_back = taken
            self._wake()
        else:
            self._released(taken)

    # ---- openings ----------------------------------------------------------------------------------------------------

    async def _open_forever(self) -> None:
        """Finds out where new partitions begin, again and again until it is known."""
        backoff = Backoff(self._view.rng)
        while True:
            await self._opening_wanted.wait()
            self._opening_wanted.clear()
            if not self._opening:
                continue
            try:
                await self._open()
                backoff.reset()
            except ReplogError as error:
                _log.info("group %s: where to begin is not known yet: %s", self._settings.group_id, error)
                self.doubt()
                await asyncio.sleep(backoff.next_s())
                self._opening_wanted.set()

    async def _open(self) -> None:
        self._asked, member_id, epoch = set(self._opening), self.member_id, self.epoch
        names = self.openings.names(frozenset(self._asked))
        if len(names) < len(self._opening):
            self._view.request_refresh()
        if not names:
            return
        opened, fresh = await self.openings.open(names, member_id, epoch)
        self._make_ready(opened)
        if fresh:  # these may have to wait for a leader, and hold up no other
            chosen = await self.openings.reset(fresh)
            await self.openings.keep(chosen, member_id, epoch)
            self._make_ready(chosen)

    def _make_ready(self, opened: Iterable[Opened]) -> None:
        for each in opened:
            key = (each.topic_id, each.partition.partition)
            if key in self._asked:
                self._asked.discard(key)
                self._opening.discard(key)
                self.ready.append(each)
        self._wake()
