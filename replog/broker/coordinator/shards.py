"""The shards of this broker: one for each partition of an internal topic while it leads that, and who waits for their answers.

All of it runs on the replica driver, beside the logs that the shards write; only requests come from other tasks, through
`submit`.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from replog.broker.replicas.image_queue import WaitForImage
from replog.broker.replicas.replica import Replica, ReplicaKey
from replog.broker.replicas.stepper import REPLICAS_TOGETHER, ReplicaStepper
from replog.coordinator.consumers.requests import WaitForGroupNews
from replog.coordinator.offsets.requests import CommitOffsetsResponse
from replog.coordinator.rebalance_reasons import RebalanceCounts
from replog.coordinator.runtime.messages import HighWatermarkMoved, Paused, Resigned, Resumed, Submit
from replog.errors import (
    BrokerClosedError,
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    NotCoordinatorError,
    ReplogError,
    raised_anew,
)
from replog.replication.leader import Leader
from replog.waiting.deadlines import Deadlines

if TYPE_CHECKING:
    from replog.broker.coordinator.shard_host import ReadTurns, ShardHost
    from replog.coordinator.runtime.shard import Shard

OPEN_REQUESTS_MAX: Final = 50_000
"""Requests that wait for answers of coordinators, members that wait for others to join among them.  From half of them on
nobody waits for news, which members can do without."""


POSTPONED_MS_MAX: Final = 500
"""How long a request waits for an image that may make this broker the coordinator: one of 10,000 new partitions takes many seconds."""

PAUSE_CHECK_MS: Final = 500
"""How often a broker that may not serve looks whether it may again."""


class LeadershipWatcher(Protocol):
    """Hears, on the replica driver, which partitions of an internal topic this broker leads."""

    def begun(self, key: ReplicaKey) -> None:
        """Notes that this broker leads a partition in a new epoch; its shard is about to read the log."""

    def ended(self, key: ReplicaKey) -> None:
        """Notes that this broker leads a partition no more."""


class _Asked(NamedTuple):
    """A request, the partition whose shard it is for, and how long it waits where there is none yet."""

    key: ReplicaKey
    submit: Submit
    until_ms: int


class Shards:
    """See `replog.broker.replicas.stepper.Leaderships`.

    Args:
        stepper: The stepper of this broker's replicas.
        make_shards: The functions that make the shard of a partition, given its name, by the internal topic of that.
        refuses: The function that says why this broker may not serve now; None when it may.
        wait_for_image: Has a call made after the next step of an image that is being applied; False: none is.
        rebalances: The counts of rebalances that the machines of the shards keep.

    Attributes:
        committed_offsets: The number of offsets that have been committed.
        rebalances: The counts of rebalances, by their reasons.
    """

    def __init__(
        self,
        stepper: ReplicaStepper,
        make_shards: Mapping[str, Callable[[str], Shard]],
        refuses: Callable[[], str | None],
        wait_for_image: WaitForImage,
        rebalances: RebalanceCounts | None = None,
    ) -> None:
        self.committed_offsets = 0
        self.rebalances: RebalanceCounts = Counter() if rebalances is None else rebalances
        self._stepper = stepper
        self._make_shards = make_shards
        self._watchers: dict[str, LeadershipWatcher] = {}
        self._refuses = refuses
        self._wait_for_image = wait_for_image
        self._hosts: dict[ReplicaKey, ShardHost] = {}
        self._deadlines = Deadlines[ReplicaKey]()
        self._queue: list[_Asked] = []
        self._postponed: dict[ReplicaKey, list[_Asked]] = {}  # until an image has gone on
        self._futures: dict[int, asyncio.Future[Any]] = {}
        self._next_request_id = 0
        self._is_paused = False
        self._checked_ms = stepper.clock.now_ms()
        self._closed = False
        stepper.leaderships = self

    @cached_property
    def _read_turns(self) -> ReadTurns:
        from replog.broker.coordinator.shard_host import ReadTurns

        return ReadTurns(self._stepper.driver.submit)

    @property
    def hosts(self) -> Mapping[ReplicaKey, ShardHost]:
        """The shards, for reading only."""
        return self._hosts

    def hosts_of(self, topic: str) -> dict[ReplicaKey, ShardHost]:
        """Returns the shards of one topic."""
        return {key: host for key, host in self._hosts.items() if host.topic == topic}

    def watch(self, topic: str, watcher: LeadershipWatcher) -> None:
        """Lets a watcher hear from now on which partitions of a topic this broker leads."""
        self._watchers[topic] = watcher

    @property
    def open_requests(self) -> int:
        """The number of requests that wait for an answer."""
        return len(self._futures)

    # ---- requests -----------------------------------------------------------------------------------------------------

    async def submit(self, key: ReplicaKey, request: Any, timeout_ms: int | None) -> Any:
        """Returns the answer of a shard; see `Coordinators.submit`.

        Args:
            key: The partition whose shard is asked.
            request: The request.
            timeout_ms: The time within which an answer is wanted; None: it may take as long as it takes.
        """
        if self._closed:
            raise BrokerClosedError("the node is stopping")
        requests_max = OPEN_REQUESTS_MAX // 2 if isinstance(request, WaitForGroupNews) else OPEN_REQUESTS_MAX
        if len(self._futures) >= requests_max:
            raise CoordinatorLoadInProgressError(
                f"{requests_max:,} requests wait for coordinators on this broker; ask again a little later"
            )
        request_id = self._new_id()
        deadline_ms = None if timeout_ms is None else self._stepper.clock.now_ms() + timeout_ms
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._futures[request_id] = future
        self._take_up(key, Submit(request_id, request, deadline_ms))
        try:
            return await future
        finally:
            self._futures.pop(request_id, None)
            del future  # what it raises has passed here: it must not be found from there

    def tell_all(self, topic: str, request: Any) -> None:
        """Hands a request to every shard of a topic, also while this broker may not serve; nobody waits for the answers."""
        self._stepper.driver.submit(partial(self._hand_to_all, topic, request))

    def _hand_to_all(self, topic: str, request: Any) -> None:
        self._refused_because()  # where time is to stand still, what the request begins waits, too
        for host in self.hosts_of(topic).values():
            host.tell(Submit(self._new_id(), request, None))
            host.run()

    def _new_id(self) -> int:
        self._next_request_id += 1
        return self._next_request_id

    def _take_up(self, key: ReplicaKey, submit: Submit) -> None:
        self._queue.append(_Asked(key, submit, self._stepper.clock.now_ms() + POSTPONED_MS_MAX))
        if len(self._queue) == 1:
            self._stepper.driver.submit(self._run_queued)

    def _run_queued(self) -> None:
        """Hands over all that came in while the driver was busy: what it changes in one shard is one write."""
        queue, self._queue = self._queue, []
        self._hand_over(queue)

    def _hand_over(self, queue: Sequence[_Asked]) -> None:
        """Hands requests over in their order: what comes after one that waits for an image waits behind it."""
        reason = self._refused_because()
        asked: dict[ShardHost, None] = {}
        for each in queue:
            key, submit, _ = each
            if reason is not None:
                self._answer(submit.request_id, CoordinatorNotAvailableError(reason))
            elif (postponed := self._postponed.get(key)) is not None:
                postponed.append(each)
            elif (host := self._hosts.get(key)) is not None:
                host.tell(submit)
                asked[host] = None
            elif self._wait_for_image(partial(self._image_went_on, key)):
                self._postponed[key] = [each]
            else:
                self._answer(submit.request_id, NotCoordinatorError(self._why_not(key)))
        for host in asked:
            host.run()

    def _refused_because(self) -> str | None:
        """Returns why this broker may not serve now; None: it may.  Time stands still for the shards while it may not.

        Members whose heartbeats are refused are not silent, and must not be put out when they are heard again.
        """
        reason = self._refuses()
        since_ms, self._checked_ms = self._checked_ms, self._stepper.clock.now_ms()
        if self._is_paused is not (reason is not None):
            self._is_paused = reason is not None
            for host in list(self._hosts.values()):  # a disk that fails ends some
                host.tell(Paused(since_ms) if self._is_paused else Resumed())
                host.run()
        return reason

    def _image_went_on(self, key: ReplicaKey) -> None:
        """Hands over what has waited, in front of what is in the queue by now; refuses what has waited for long."""
        waiting, now_ms = self._postponed.pop(key, []), self._stepper.clock.now_ms()
        since_ms = 0 if key in self._hosts else now_ms + 1
        for each in waiting:
            if each.until_ms >= since_ms:
                continue
            error = CoordinatorLoadInProgressError(
                f"broker {self._stepper.config.node_id} opens other replicas first; ask again a little later"
            )
            self._answer(each.submit.request_id, error)
        self._hand_over([each for each in waiting if each.until_ms >= since_ms])

    def _why_not(self, key: ReplicaKey) -> str:
        unusable = self._stepper.unusable(key)
        topic = self._stepper.image.topics_by_id.get(key[0])
        name = f"partition {key[1]} of topic {key[0]}" if topic is None else f"{topic.name}-{key[1]}"
        text = f"broker {self._stepper.config.node_id} is not the coordinator of {name} now"
        return text if unusable is None else f"{text}: {unusable[1]}"

    def _answer(self, request_id: int, outcome: Any) -> None:
        if isinstance(outcome, CommitOffsetsResponse):
            self.committed_offsets += sum(each.error is None for topic in outcome.topics for each in topic.partitions)
        future = self._futures.get(request_id)
        if future is None or future.done():
            return  # whoever asked has gone
        if isinstance(outcome, ReplogError):
            future.set_exception(raised_anew(outcome))  # the same may be told to many
        else:
            future.set_result(outcome)

    # ---- what the replicas tell ---------------------------------------------------------------------------------------

    def begun(self, replica: Replica) -> None:
        make_shard = self._make_shards.get(replica.topic)
        if make_shard is None or not isinstance(replica.role, Leader):
            return
        host = self._hosts.get(replica.key)
        if host is None:
            from replog.broker.coordinator.shard_host import ShardHost

            host = self._hosts[replica.key] = ShardHost(
                replica,
                make_shard(replica.name),
                self._stepper,
                self._read_turns,
                self._refuses,
                self._answer,
                partial(self._schedule, replica.key),
            )
        if self._is_paused:
            host.tell(Paused(self._checked_ms))
        host.lead(replica.role.leader_epoch)
        host.run()
        if (watcher := self._watchers.get(replica.topic)) is not None:
            watcher.begun(replica.key)

    def ended(self, replica: Replica) -> None:
        host = self._hosts.pop(replica.key, None)
        self._deadlines.discard(replica.key)
        if host is not None:
            host.tell(Resigned())
            host.run()
            if (watcher := self._watchers.get(replica.topic)) is not None:
                watcher.ended(replica.key)

    def committed(self, replica: Replica) -> None:
        host = self._hosts.get(replica.key) if replica.topic in self._make_shards else None
        if host is not None:
            host.tell(HighWatermarkMoved(replica.high_watermark))
            host.run()

    def tick(self) -> None:
        self._refused_because()
        for key in self._deadlines.pop_expired(self._stepper.clock.now_ms(), REPLICAS_TOGETHER):
            host = self._hosts.get(key)
            if host is not None:
                host.tick()

    def next_deadline_ms(self) -> int | None:
        due_ms = self._deadlines.next_deadline_ms()
        if not self._is_paused:
            return due_ms
        check_ms = self._checked_ms + PAUSE_CHECK_MS
        return check_ms if due_ms is None else min(due_ms, check_ms)

    def _schedule(self, key: ReplicaKey) -> None:
        """Notes when a shard is due; a tick that comes too early costs less than moving it whenever it moves back."""
        host = self._hosts.get(key)
        due_ms, scheduled_ms = None if host is None else host.next_deadline_ms(), self._deadlines.get(key)
        if due_ms is None or (scheduled_ms is not None and scheduled_ms <= due_ms):
            return
        self._deadlines.discard(key)
        self._deadlines.add(key, due_ms)

    # ---- the end ------------------------------------------------------------------------------------------------------

    async def stop(self) -> None:
        """Takes no more requests, and fails what waits; the replicas have left their roles, or run no more."""
        self._closed = True
        self._queue.clear()
        self._postponed.clear()
        for future in self._futures.values():
            if not future.done():
                future.set_exception(BrokerClosedError("the node is stopping"))
        self._futures.clear()
