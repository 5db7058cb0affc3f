"""`Consumer`: reads partitions in order, never past the high watermark: those it is told to, or those of a group's member."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Generic, Never, Self, get_args

from replog.client.arguments import (
    checked_offsets,
    partition_of,
    partitions_of,
    require_limit,
    require_max_records,
    require_text,
    texts_of,
)
from replog.client.backoff import Backoff, retry
from replog.client.cluster.leader_calls import require_partitions
from replog.client.cluster.view import ClusterView
from replog.client.consumer.epoch_spans import NO_EPOCH
from replog.client.consumer.fetcher import FetchSettings
from replog.client.consumer.group_member import GroupMember
from replog.client.consumer.group_reading import GroupReading
from replog.client.consumer.group_settings import (
    AUTO_COMMIT_INTERVAL_MS,
    DEFAULTS,
    MAX_POLL_INTERVAL_MS,
    AssignmentListener,
    GroupSettings,
    matcher_of,
    refuse_without_group,
)
from replog.client.consumer.partition_reader import DEFAULT_TIMEOUT_MS, OffsetReset, PartitionReader
from replog.client.consumer.positions import ConsumerPositions, Partitions
from replog.client.consumer.start import Start, check_start, start_positions
from replog.client.home_loop import require_loop
from replog.client.protocol.seam import Transport
from replog.client.settings import refuse_unknown
from replog.client.typed_records import OnUndecodable, RecordDecoder
from replog.client.types import ConsumerRecord, FetchedBatches, GroupMetadata, K, MemberOffsets, TopicPartition, V
from replog.codecs import ValueCodec
from replog.coordinator.offsets.requests import CommittedOffset
from replog.errors import InvalidRequestError, UnknownTopicOrPartitionError
from replog.errors.choices import require_at_least, require_choice, require_kind
from replog.host.forks import tell_at_fork
from replog.waiting.task_ends import Ending

if TYPE_CHECKING:
    from replog.client.security.security import Security

CONNECT_TIMEOUT_MS = 10_000
POLL_RECORDS_MAX = 500
POLL_TIMEOUT_MS = 1_000

_DEFAULTS = FetchSettings()


class Consumer(ConsumerPositions, Generic[K, V]):
    """Reads topics as a member of a group, or the partitions it is assigned.

    ::

        async with Consumer("127.0.0.1:9092", group_id="billing", auto_offset_reset="earliest") as consumer:
            await consumer.subscribe(["flights"])
            async for record in consumer:
                print(record.partition, record.offset, record.value)

    A member begins where the group has committed, shares the partitions with the other members, and commits what it is done
    with: a record is, when the next one is asked for.  Without a group `assign` says what to read, and nothing is kept.

    It fetches ahead in the background, follows leaders, and hands records out by `async for`, `poll` or, undecoded,
    `fetch_batches`; the three share one position per partition and may be mixed.  One task at a time may read.

    Args:
        bootstrap_servers: "host:port,host:port" or a sequence of them.
        key, value: What keys and values are: bytes, or what `replog.codecs` decodes them to (docs/RECORDS.md).
        on_undecodable: What to do about a record that a codec cannot decode: "raise" RecordDecodeError and stay in front of it, or
            "skip" it, counted by `undecodable_count` and told to the log.
        group_id: The group whose member this consumer is once it subscribes.
        group_instance_id: The name of a static member: one that restarts within its session has its partitions again.
        auto_offset_reset: What to do when a position does not exist in the log (any more), or a group has committed
            none: "raise" OffsetOutOfRangeError or NoOffsetError, or go to the "earliest" or "latest" offset.  Default
            "raise": skipping records is never decided silently.
        enable_auto_commit: Whether offsets of what is done with are committed by themselves: every
            `auto_commit_interval_ms`, when partitions go to another member, and at the end.
        max_poll_interval_ms: How long the work between two reads may take before others go on without this member.
        fetch_max_wait_ms, fetch_min_bytes, fetch_max_bytes, max_partition_fetch_bytes: Fields of `FetchSettings`.
        buffer_memory_bytes, request_timeout_ms: Fields of `FetchSettings`, too.
        connect_timeout_ms: How long `start` waits for a first broker to answer.
        close_timeout_ms: How long `async with` and `close` wait at the end for a listener, the last commit and the coordinator;
            None: until a commit has failed (`request_timeout_ms`), and ten seconds for the coordinator.
        client_rack: Where this consumer runs: it reads from in-sync replicas on brokers with the same `broker.rack`,
            where the brokers' `replica.selector` is rack-aware; else from the leaders.
        client_id: The name of this client in the brokers' logs.
        security: How client and brokers are believed by each other (docs/SECURITY_CLIENTS.md); None: plain text.
        transport: What connects to brokers; None: TCP.

    Raises:
        ConfigError: A setting is wrong, or is of a group's member and there is no `group_id`.

    Invariants:
        - records of a partition come in order of offset, each once, unless `seek` says otherwise;
        - what is fetched ahead stays within `buffer_memory_bytes` (each leader may pass its share by one batch).
    """

    def __init__(
        self,
        bootstrap_servers: str | Sequence[str],
        *misplaced: Never,
        key: type[K] | ValueCodec[K] = bytes,  # type: ignore[assignment]  # which is K where nobody says another one
        value: type[V] | ValueCodec[V] = bytes,  # type: ignore[assignment]  # likewise
        on_undecodable: OnUndecodable = "raise",
        group_id: str | None = None,
        group_instance_id: str | None = None,
        auto_offset_reset: OffsetReset = "raise",
        enable_auto_commit: bool = True,
        auto_commit_interval_ms: int = AUTO_COMMIT_INTERVAL_MS,
        max_poll_interval_ms: int = MAX_POLL_INTERVAL_MS,
        fetch_max_wait_ms: int = _DEFAULTS.max_wait_ms,
        fetch_min_bytes: int = _DEFAULTS.min_bytes,
        fetch_max_bytes: int = _DEFAULTS.max_bytes,
        max_partition_fetch_bytes: int = _DEFAULTS.max_partition_bytes,
        buffer_memory_bytes: int = _DEFAULTS.buffer_memory_bytes,
        request_timeout_ms: int = _DEFAULTS.request_timeout_ms,
        connect_timeout_ms: int = CONNECT_TIMEOUT_MS,
        close_timeout_ms: int | None = None,
        client_rack: str = "",
        client_id: str = "replog-consumer",
        security: Security | None = None,
        transport: Transport | None = None,
        **unknown: Never,
    ) -> None:
        refuse_unknown(type(self), unknown, misplaced)
        require_choice("auto.offset.reset", auto_offset_reset, get_args(OffsetReset))
        require_at_least("connect.timeout.ms", connect_timeout_ms, 1)
        if close_timeout_ms is not None:
            require_at_least("close.timeout.ms", close_timeout_ms, 0)
        require_kind("client.rack", client_rack, str)
        require_choice("on.undecodable", on_undecodable, get_args(OnUndecodable))
        is_skipping = on_undecodable == "skip"
        self._decoder = RecordDecoder.of(
            key, value, is_skipping=is_skipping, next_step=None if is_skipping else _how_to_pass
        )
        settings = FetchSettings(
            fetch_max_wait_ms,
            fetch_min_bytes,
            fetch_max_bytes,
            max_partition_fetch_bytes,
            buffer_memory_bytes,
            request_timeout_ms,
        )
        self._group_settings: GroupSettings | None = None
        if group_id is None:
            given = (group_instance_id, enable_auto_commit, auto_commit_interval_ms, max_poll_interval_ms)
            refuse_without_group(dict(zip(DEFAULTS, given, strict=True)))
        else:
            self._group_settings = GroupSettings(
                group_id,
                group_instance_id,
                client_id,
                client_rack,
                max_poll_interval_ms,
                enable_auto_commit,
                auto_commit_interval_ms,
                auto_offset_reset,
                request_timeout_ms,
            )
        self._connect_timeout_ms = connect_timeout_ms
        self._close_timeout_ms: float | None = close_timeout_ms
        self._view = ClusterView(bootstrap_servers, transport=transport, security=security, client_id=client_id)
        self._reader = PartitionReader(
            self._view, settings, reset_policy=auto_offset_reset, client_rack=client_rack, decoder=self._decoder
        )
        self._group: GroupReading | None = None
        self._held_back: Callable[[], Mapping[TopicPartition, int]] | None = None  # set by the client without async
        self._ending = Ending(self._release)
        tell_at_fork(self)

    # ---- life ------------------------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        try:
            await self.start()
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def start(self) -> None:
        """Connects.  Raises: As `Producer.start`."""
        await self._view.ready(self._connect_timeout_ms)

    async def close(self, *, timeout_ms: int | None = None) -> None:
        """Leaves the group, stops fetching and closes the connections.  A reader that waits gets BrokerClosedError.

        A member first tells its listener, and commits what is done with.  Where that takes longer than the limit, it is given
        up: records since the last commit are read again, and the group waits for the end of the session.

        Args:
            timeout_ms: The limit, milliseconds; None: `close_timeout_ms`.  That of the first call counts.

        Raises:
            InvalidRequestError: A listener calls that hears of partitions that go.
        """
        if not self._view.is_out_of_reach:
            self._view.home.enter()
        if self._group is not None:
            self._group.raise_if_heard("close")
        if timeout_ms is not None:
            require_limit("timeout_ms", timeout_ms)
            self._close_timeout_ms = timeout_ms
        self._reader.stop()
        if self._view.is_out_of_reach:
            await self._view.close()
            return
        self._reader.wake.set()
        await self._ending.wait()

    def handle_fork(self) -> None:
        """Drops in a forked child what is there already: nothing is handed out there, the parent reads on."""
        self._reader.backlog.clear()

    async def _release(self) -> None:
        try:
            if self._group is not None:
                await self._group.leave_within(self._close_timeout_ms)
        finally:
            await self._reader.close()
            await self._view.close()

    # ---- what to read ----------------------------------------------------------------------------------------------

    async def assign(
        self,
        partitions: Partitions,
        *,
        start: Start | Mapping[tuple[str, int], int] = "earliest",
        timeout_ms: int = DEFAULT_TIMEOUT_MS,
    ) -> None:
        """Reads these partitions from now on; positions of partitions that were assigned before are kept.

        A partition without a leader holds up no other: from "earliest" or an offset it is read as soon as it has a leader,
        and the log says that it is waited for.  "latest" is a place in time, which only a leader can tell: it is waited for.

        Args:
            partitions: (topic, partition) pairs, which replace the assignment.
            start: Where newly assigned partitions begin: "earliest", "latest" (the high watermark), or an offset for
                each, which saves asking the leaders.
            timeout_ms: Limit of the time it takes to learn the offsets.

        Raises:
            ConfigError: `start` is another word, or nothing of the kind.
            InvalidRequestError: It lacks a partition, or has something for one that is no offset, such as the -1 of
                `list_offsets` where no record is as late as asked for.
            UnknownTopicOrPartitionError: One does not exist.
            RequestTimedOutError: A leader did not tell its offsets in time, or, for "latest", there was none; it names the
                partitions.
        """
        self._raise_if_not_assignable()
        check_start(start)
        require_limit("timeout_ms", timeout_ms)
        wanted = dict.fromkeys(partitions_of("partitions", partitions))
        await require_partitions(self._view, wanted)
        new = {partition: None for partition in wanted if not self._reader.is_current(partition)}
        positions = await start_positions(self._view, new, start, timeout_ms)
        self._raise_if_not_assignable()  # another task may have closed or subscribed meanwhile
        for partition in new:
            if (
                partition.topic not in self._view.image.topics
            ):  # before anything is changed: an assignment is all or nothing
                raise UnknownTopicOrPartitionError(f"topic {partition.topic} was deleted")
        for partition in [p for p in self._reader.states if p in new or p not in wanted]:
            self._reader.remove(partition)
        for partition in new:
            topic_id = self._view.image.topics[partition.topic].topic_id
            self._reader.add(partition, topic_id, positions.get(partition))
        self._reader.follow()

    async def assign_topic(
        self, topic: str, *, start: Start = "earliest", timeout_ms: int = DEFAULT_TIMEOUT_MS
    ) -> list[TopicPartition]:
        """Assigns all partitions of one topic; returns them.

        Args:
            topic: The topic's name.
            start: Where newly assigned partitions begin: "earliest" or "latest"; for an offset of each, use `assign`.
            timeout_ms: Limit of the time it takes to learn the offsets.

        Raises: As `assign`.
        """
        require_choice("start", start, get_args(Start))
        require_text("topic", topic)
        info = await self._view.topic_or_raise(topic)
        partitions = [TopicPartition(topic, partition.partition_id) for partition in info.partitions]
        await self.assign(partitions, start=start, timeout_ms=timeout_ms)
        return partitions

    def assignment(self) -> list[TopicPartition]:
        """Returns the partitions that are read now."""
        return list(self._reader.states)

    # ---- reading ---------------------------------------------------------------------------------------------------

    @property
    def undecodable_count(self) -> int:
        """The number of records that were left out because a codec could not decode them, each time that they were read."""
        return 0 if self._decoder is None else self._decoder.skipped_count

    def __aiter__(self) -> Self:
        """Returns itself.  Raises: InvalidRequestError: It belongs to another event loop."""
        if self._view.home.loop is not None:
            require_loop(self._view.home.loop)
        return self

    async def __anext__(self) -> ConsumerRecord[K, V]:
        """Returns the next record of any assigned partition; waits for one.

        Raises:
            OffsetOutOfRangeError: A position does not exist and `auto_offset_reset` is "raise"; `seek` mends it.
            LogTruncatedError: Records that were read were lost in an unclean election, likewise.
            CorruptRecordError: What a broker sent is damaged.
            RecordDecodeError: A codec cannot decode the next record of a partition, and `on_undecodable` is "raise": all before it
                was handed out, and each read raises this again until a `seek` past it.
            UnknownTopicOrPartitionError: A topic was deleted.
            InvalidRequestError: No partition is assigned.
        """
        group, reader = self._group, self._reader
        if group is None:
            while not reader.backlog.has_records:
                await reader.fill(1, None)
            return reader.backlog.take_one()
        if group.come():
            await group.attend()
        while not reader.backlog.has_records:
            await group.fill(1, None)
        record = reader.backlog.take_one()
        group.hand_out(record)
        return record

    async def poll(
        self, max_records: int = POLL_RECORDS_MAX, timeout_ms: int = POLL_TIMEOUT_MS
    ) -> list[ConsumerRecord[K, V]]:
        """Returns records, at most `max_records` (1 or more); waits up to `timeout_ms` for the first.  Raises: As `__anext__`.

        A call that raises or is cancelled has handed out nothing and moved no position.
        """
        reader, group = self._reader, self._group
        reader.raise_if_closed()
        max_records = require_max_records(max_records)
        require_limit("timeout_ms", timeout_ms)
        deadline_s = asyncio.get_running_loop().time() + timeout_ms / 1000
        if group is None:
            await reader.fill(max_records, deadline_s)
            return reader.backlog.take(max_records)  # from here to the caller nothing waits
        if group.come():
            await group.attend()
        await group.fill(max_records, deadline_s)
        found = reader.backlog.take(max_records)
        group.hand_out_all(found)
        return found

    async def getone(self) -> ConsumerRecord[K, V]:
        """Returns the next record as a loop over the consumer does; waits for one.  Raises: As `__anext__`."""
        self._reader.raise_if_closed()  # what is decoded already would be handed out in any event loop
        return await self.__anext__()

    async def getmany(
        self, *, timeout_ms: int = 0, max_records: int = POLL_RECORDS_MAX
    ) -> dict[TopicPartition, list[ConsumerRecord[K, V]]]:
        """Returns what `poll` does, by partition."""
        found: dict[TopicPartition, list[ConsumerRecord[K, V]]] = {}
        for record in await self.poll(max_records, timeout_ms):
            found.setdefault(TopicPartition(record.topic, record.partition), []).append(record)
        return found

    async def fetch_batches(self, timeout_ms: int = POLL_TIMEOUT_MS) -> list[FetchedBatches]:
        """Returns everything that is fetched ahead, undecoded; waits up to `timeout_ms` for the first piece.

        For readers that decode columns by themselves: codecs have no part in it.  Control batches are left in.  Raises: As `__anext__`, and as
        there, a call that raises or is cancelled has moved no position.
        """
        reader, group = self._reader, self._group
        reader.raise_if_closed()
        require_limit("timeout_ms", timeout_ms)
        deadline_s = asyncio.get_running_loop().time() + timeout_ms / 1000
        if group is not None and group.come():
            await group.attend()
        if not reader.backlog.has_records:
            await (reader if group is None else group).wait_for_chunk(deadline_s)
        found = reader.backlog.take_pieces()
        if group is not None:
            group.hand_out_all(found)
        return found

    # ---- groups ----------------------------------------------------------------------------------------------------

    async def subscribe(
        self, topics: Iterable[str] = (), *, pattern: str | None = None, listener: AssignmentListener | None = None
    ) -> None:
        """Reads these topics as a member of the group, from the group's committed offsets on.

        The partitions come, and go to other members, between two records of whoever reads.  Called again, it replaces the
        topics.

        Args:
            topics: The names of the topics.
            pattern: A regular expression instead: all topics are read of which it matches the whole name, also those that
                are made later.
            listener: What hears of partitions that come and go.

        Raises:
            InvalidRequestError: The consumer has no `group_id`, or was assigned partitions, or unsubscribes; or no topics are named, or
                a pattern as well.
            UnknownTopicOrPartitionError: A topic does not exist.
            RequestTimedOutError: No broker answers.
        """
        self._reader.raise_if_closed()
        names, matcher = texts_of("topics", topics), None if pattern is None else matcher_of(pattern)
        require_kind("listener", listener or AssignmentListener(), AssignmentListener)
        if self._group_settings is None:
            raise InvalidRequestError('a consumer that subscribes needs a group: give it group_id, such as "billing"')
        if self._group is None and self._reader.states:
            raise InvalidRequestError("this consumer was assigned partitions; make another one to subscribe")
        if names and pattern is not None:
            raise InvalidRequestError(
                'topics and pattern are both given: give one of them; a pattern may name topics, too, as "flights|trains-.*" does'
            )
        if not names and pattern is None:
            raise InvalidRequestError("topics is empty: name the topics, or give a pattern; see unsubscribe")
        for name in names:
            await self._view.topic_or_raise(name)
        if matcher is not None:  # which topics there are already: those of later begin elsewhere
            await self.start()
        if self._group is not None:
            self._group.raise_if_ending()  # else what it subscribes to ended with the member
        if self._group is None:
            member = GroupMember(
                self._view, self._group_settings, self._reader.wake.set, self._position, self._epoch_before
            )
            self._group = GroupReading(member, self._reader, listener or AssignmentListener(), self._held_back)
        elif listener is not None:
            self._group.listener = listener
        self._reader.want(names if matcher is None else matcher)
        self._group.member.subscribe(names if matcher is None else matcher)

    def subscription(self) -> frozenset[str]:
        """Returns the topics that it subscribes to, of a pattern those of its partitions; none where it does not subscribe."""
        if self._group is None or self._group.has_left:
            return frozenset()
        return self._reader.wanted_topics

    async def unsubscribe(self) -> None:
        """Gives back all partitions as `close` does, and leaves the group; one that is cancelled gives up the last commit.

        Raises:
            InvalidRequestError: A listener calls that hears of partitions that go.
        """
        self._reader.raise_if_closed()
        group = self._group
        if group is not None:
            group.raise_if_heard("unsubscribe")
            try:
                await group.leave()
            finally:
                # Else another task still unsubscribes, or has done so and subscribed anew.
                if self._group is group and group.is_over:
                    self._group = None
                    self._reader.want(None)

    async def commit(self, offsets: Mapping[tuple[str, int], int] | None = None) -> None:
        """Commits offsets of the group; returns when they are kept.  Commits that wait at the same time go out together.

        Args:
            offsets: The offset of the record to be read next, of each partition; None: the positions of all that are
                assigned, so that everything that was handed out counts as done with.

        Raises:
            CommitStaleError: A partition is not this member's any more; it says who has it, if that is told within a second.
            RequestTimedOutError: The coordinator did not answer in time; the offsets may be kept all the same.
            InvalidRequestError: The consumer is not subscribed.
        """
        given = checked_offsets(offsets)
        group = self._subscribed()
        if offsets is None:
            given = self._positions()
        await group.member.commits.commit_told(given)

    def group_metadata(self) -> GroupMetadata:
        """Returns which member of the group this is now, for `Transaction.commit_offsets` (KIP-447).

        Raises:
            InvalidRequestError: The consumer is not subscribed.
        """
        return self._subscribed().member.commits.metadata()

    def member_offsets(self, offsets: Mapping[tuple[str, int], int] | None = None) -> MemberOffsets:
        """Returns offsets, and the member that may commit them; `Transaction.commit_offsets` asks for it.

        Args:
            offsets: As for `commit`.

        Raises:
            CommitStaleError: A partition is not this member's.
            InvalidRequestError: The consumer is not subscribed, or commits by itself, also what a transaction that is aborted has read.
        """
        given = checked_offsets(offsets)
        group = self._subscribed()
        return group.member.commits.for_transaction(self._positions() if offsets is None else given)

    async def committed(self, partition: tuple[str, int], timeout_ms: int = DEFAULT_TIMEOUT_MS) -> int | None:
        """Returns the offset that the group has committed of a partition; None where it has none.

        An open transaction that commits an offset of it is waited for.

        Args:
            partition: The topic and the number of the partition.
            timeout_ms: How long to wait for a coordinator that serves, milliseconds.

        Raises:
            InvalidRequestError: The consumer is not subscribed.
            UnknownTopicOrPartitionError: There is no such partition.
            RequestTimedOutError: No coordinator has answered within `timeout_ms`; it names the last cause.
        """
        require_limit("timeout_ms", timeout_ms)
        wanted = partition_of("partition", partition)
        openings = self._subscribed().member.openings
        await require_partitions(self._view, [wanted])
        topic_id = self._view.image.topics[wanted.topic].topic_id

        async def attempt(_remaining_ms: int) -> dict[TopicPartition, CommittedOffset]:
            return await openings.committed({wanted: topic_id})

        what = f"ask what is committed of {wanted.topic}-{wanted.partition}"
        found = await retry(attempt, timeout_ms=timeout_ms, what=what, backoff=Backoff(self._view.rng))
        return found[wanted].offset if wanted in found else None

    # ---- helpers ---------------------------------------------------------------------------------------------------

    def _raise_if_not_assignable(self) -> None:
        self._reader.raise_if_closed()
        if self._group is not None:
            raise InvalidRequestError(
                "this consumer is subscribed: its group assigns the partitions; call unsubscribe first"
            )

    def _positions(self) -> dict[TopicPartition, int]:
        states = self._reader.states.values()
        return {state.partition: state.position for state in states if not state.has_no_position}

    def _may_go_on(self) -> bool:
        """Whether records that were polled before may be handed out still: for the client without async."""
        return self._group is None or self._group.is_free_to_go_on()

    def _position(self, partition: TopicPartition) -> int:
        return self._reader.states[partition].position

    def _epoch_before(self, partition: TopicPartition, offset: int) -> int:
        state = self._reader.states.get(partition)
        return NO_EPOCH if state is None else state.epochs.before(offset)

    def _subscribed(self) -> GroupReading:
        self._view.home.enter()
        if self._group is not None and not self._group.has_left:  # also while it closes: listeners commit then
            return self._group
        self._reader.raise_if_closed()
        raise InvalidRequestError("this consumer is not subscribed; call subscribe first")


def _how_to_pass(record: ConsumerRecord) -> str:
    return (
        "The consumer stays in front of it. Look at the error's record, then go on behind it by "
        f'seek(("{record.topic}", {record.partition}), {record.offset + 1}); or leave out what cannot be decoded by '
        'on_undecodable="skip"'
    )
