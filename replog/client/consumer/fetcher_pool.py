"""Which fetcher each partition of a consumer belongs to: one per leader that leads something that is read."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from replog.client.cluster.addresses import LeaderAddress
from replog.client.cluster.view import ClusterView
from replog.client.consumer.fetch_state import FetchedChunk, PartitionFetch
from replog.client.consumer.fetcher import ConsumerFetcher, FetchSettings
from replog.errors import ReplogError

LEADER_ONLY_S_MIN, LEADER_ONLY_S_MAX = 0.5, 60.0
"""How long a partition is read from its leader after another replica could not serve: longer each time in a row, for the
first time it may just not have heard yet that it is in sync, and the hundredth its broker's `replica.selector` says no."""


class FetcherPool:
    """Invariants:
    - a partition is with the fetcher of its current leader, or with none;
    - what a former fetcher still brings for it does not count.

    Args:
        view: The open cluster view of the consumer.
        settings: The settings that all fetchers share; the memory is shared evenly.
        client_rack: The rack that the consumer is in; empty: it reads from leaders.
        on_chunk, on_trouble: The arguments of each `ConsumerFetcher`.
    """

    def __init__(
        self,
        view: ClusterView,
        settings: FetchSettings,
        *,
        client_rack: str = "",
        on_chunk: Callable[[FetchedChunk], None],
        on_trouble: Callable[[], None],
    ) -> None:
        self._view = view
        self._settings = settings
        self._client_rack = client_rack
        self._on_chunk = on_chunk
        self._on_trouble = on_trouble
        self._fetchers: dict[int, ConsumerFetcher] = {}
        self._stopping: set[asyncio.Task[None]] = set()

    def follow(self, state: PartitionFetch) -> None:
        """Moves the partition to the fetcher of the broker that it is read from by the newest metadata."""
        old, new = state.leader, self._source(state)
        if old == new:
            return
        if old is None or new is None or (old.broker_id, old.address) != (new.broker_id, new.address):
            self.leave(state)
        state.leader = new
        state.clear_backoff()
        if new is not None:
            self._fetcher(new).add(state)

    def _source(self, state: PartitionFetch) -> LeaderAddress | None:
        """Returns the leader, or an in-sync replica in the consumer's own rack (KIP-392); None while nobody leads."""
        if not self._client_rack or state.leader_only:
            return self._view.leader(*state.partition)
        return self._view.image.nearest(*state.partition, self._client_rack)

    def leave(self, state: PartitionFetch) -> None:
        """Takes the partition from its fetcher; a reply that is under way is dropped."""
        if (fetcher := self._current(state)) is not None:
            fetcher.remove(state)
        state.forget_request()
        state.leader = None

    def loss(self, state: PartitionFetch) -> ReplogError | None:
        """Returns why the stream to a partition's broker was lost; None once it has answered since, or without one."""
        fetcher = self._current(state)
        return fetcher.loss if fetcher is not None else None

    def wake(self, state: PartitionFetch) -> None:
        """Wakes the partition's fetcher: it may be fetched again (a seek, less of it is buffered)."""
        if (fetcher := self._current(state)) is not None:
            fetcher.wake()

    def release(self, chunk: FetchedChunk) -> None:
        """Gives back the room of a chunk that is handed out or dropped; wakes who fetches now and may wait for that."""
        chunk.state.release(chunk)
        chunk.owner.release(chunk)
        self.wake(chunk.state)

    def stop_idle(self) -> None:
        """Ends the streams to brokers from which nothing is read any more."""
        for broker_id, fetcher in list(self._fetchers.items()):
            if fetcher.is_idle:
                del self._fetchers[broker_id]
                self._stop(fetcher)

    async def close(self) -> None:
        """Ends all fetchers; no task is left."""
        for fetcher in self._fetchers.values():
            self._stop(fetcher)
        self._fetchers.clear()
        while self._stopping:
            await asyncio.gather(*self._stopping)

    def _current(self, state: PartitionFetch) -> ConsumerFetcher | None:
        return self._fetchers.get(state.leader.broker_id) if state.leader is not None else None

    def _fetcher(self, leader: LeaderAddress) -> ConsumerFetcher:
        fetcher = self._fetchers.get(leader.broker_id)
        if fetcher is not None and fetcher.address == leader.address:
            return fetcher
        if fetcher is not None:
            self._stop(fetcher)
        fetcher = self._fetchers[leader.broker_id] = ConsumerFetcher(
            self._view,
            leader.broker_id,
            leader.address,
            self._settings,
            share_bytes=self._share_bytes,
            on_chunk=self._on_chunk,
            on_trouble=self._on_trouble,
            on_refused=self._avoid,
        )
        fetcher.start()
        return fetcher

    def _avoid(self, state: PartitionFetch) -> bool:
        """Reads the partition from its leader for a while, after another replica could not serve.

        Returns whether another broker is asked now; False if it was the leader that was asked, or nobody leads.
        """
        leader = self._view.leader(*state.partition)
        if leader is None or state.leader is None or leader.broker_id == state.leader.broker_id:
            return False
        loop = asyncio.get_running_loop()
        pause_s = state.avoid_replica(loop.time(), LEADER_ONLY_S_MIN, LEADER_ONLY_S_MAX)
        loop.call_later(pause_s, self._return_to_replica, state)
        self.follow(state)
        return True

    def _return_to_replica(self, state: PartitionFetch) -> None:
        """Ends the pause after a refusal and moves the partition: no newer metadata need come to do that."""
        state.leader_only = False
        if self._current(state) is not None:  # neither unassigned nor closed meanwhile
            self.follow(state)

    def _share_bytes(self) -> int:
        return self._settings.buffer_memory_bytes // max(1, len(self._fetchers))

    def _stop(self, fetcher: ConsumerFetcher) -> None:
        task = asyncio.create_task(fetcher.stop())
        self._stopping.add(task)
        task.add_done_callback(self._stopping.discard)
