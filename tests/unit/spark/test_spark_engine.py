"""A stream of the real reader, driven as Spark drives it: each committed record once, and no loss where nothing is lost.

Driver, client and brokers are in one loop whose time is a number (`VirtualLoop`), and all that happens is drawn from a seed: kills of
the driver at each point, leaders that move, brokers that are restarted and tell metadata of the past, topics that come, records that
are deleted once they were read, in some histories before; and records are written all the while.  The brokers are those of `fake_cluster`.
"""

from __future__ import annotations

import asyncio
import json
import random
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest

from replog.client import ClusterView
from replog.client.ranges.offset_range import OffsetRange
from replog.client.ranges.range_reader import RangeReader
from replog.errors import LogTruncatedError, OffsetOutOfRangeError, UnknownTopicOrPartitionError
from replog.records import decode_records, encode_batch, parse_header
from replog.rpc.metadata_messages import MetadataUpdate
from replog.spark.options import parse_stream_options
from replog.spark.stream import runner
from replog.spark.stream.reader import ReplogStreamReader
from replog.spark.words import WORDS
from replog.testing.virtual_loop import VirtualLoop
from tests.unit.client.fake_cluster import FakeCluster
from tests.unit.spark.spark_engine import Checkpoint, Engine, FileSink, Killed, Row, TopicSink

TRIGGERS = 40
"""Of one history, before the world rests and the query reads what is left."""

RECORDS_PER_TRIGGER = 20


class World:
    """Brokers, and what happens to them."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.loop = VirtualLoop(random.Random(self.rng.random()))
        self.cluster = FakeCluster(self.rng.choice([1, 3]))
        for node in self.cluster.nodes.values():
            node.handle_client_call = self._delayed(node.handle_client_call)
            node.watch_offsets = self._late(node.watch_offsets)
        self.history: list[MetadataUpdate] = [self.cluster.update()]
        self.to_write = 200
        self.stale_s_max = 1.0
        self._restarting: asyncio.Task[None] | None = None
        for _ in range(2):
            self.create_topic()
        self._writing = self.loop.create_task(self._write())

    # ---- what a `LoopThread` does

    def run(self, work: Callable[[], Awaitable[Any]], _timeout_s: float | None = None) -> Any:
        async def carry_out() -> Any:
            return await work()

        return self.loop.run_until_complete(carry_out())

    def post(self, work: Callable[[], object]) -> None:
        self.loop.call_soon(work)

    # ---- time

    def rest(self) -> None:
        """Ends all that happens by itself."""
        if self._restarting is not None:
            self.loop.run_until_complete(self._restarting)
        self._writing.cancel()
        self.wait(0.1)

    def wait(self, seconds: float) -> None:
        self.run(lambda: asyncio.sleep(seconds))

    def close(self) -> None:
        self.loop.bury([task for task in asyncio.all_tasks(self.loop) if hasattr(task, "unwind")])
        self.loop.close()
        assert self.loop.problems == []

    def view(self) -> ClusterView:
        return ClusterView(
            self.cluster.bootstrap, transport=self.cluster.transport(), rng=random.Random(self.rng.random())
        )

    def _delayed(self, call: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        """What a broker answers, some time after it was asked, and heard of some time after that."""

        async def delayed(*arguments: Any) -> Any:
            await asyncio.sleep(self.rng.uniform(0, 0.005))
            answer = await call(*arguments)
            await asyncio.sleep(self.rng.uniform(0, 0.005))
            return answer

        return delayed

    def _late(self, watch: Callable[..., AsyncIterator[Any]]) -> Callable[..., AsyncIterator[Any]]:
        """What a broker tells by itself, heard of as late as a real one tells it."""

        async def late(*arguments: Any) -> AsyncIterator[Any]:
            async for update in watch(*arguments):
                await asyncio.sleep(self.rng.uniform(0, 0.02))
                yield update

        return late

    # ---- what happens

    def create_topic(self) -> None:
        self.cluster.create_topic(f"t{self.cluster.created_count}", self.rng.randint(1, 3))
        self.history.append(self.cluster.update())

    async def _write(self) -> None:
        """Writes records, as producers do, for ever, as many as `to_write` says."""
        while True:
            if self.to_write > 0:
                count = self.rng.randint(1, 4)
                self.to_write -= count
                self.append(self.rng.choice(list(self.cluster.logs)), count)
            await asyncio.sleep(self.rng.uniform(0.0005, 0.005))

    def append(self, key: tuple[str, int], count: int) -> None:
        log = self.cluster.logs[key]
        log.append(encode_batch([(1, None, b"%d" % (log.end_offset + n), ()) for n in range(count)]))
        for node in self.cluster.nodes.values():
            node.appended.set()

    def move_leader(self) -> None:
        if up := [number for number, node in self.cluster.nodes.items() if not node.is_down]:
            self.cluster.move_leader(*self.rng.choice(list(self.cluster.logs)), self.rng.choice(up))
            self.history.append(self.cluster.update())

    def restart_broker(self) -> None:
        if self._restarting is None or self._restarting.done():
            self._restarting = self.loop.create_task(self._restart(self.rng.choice(list(self.cluster.nodes))))

    async def _restart(self, number: int) -> None:
        """Stops a broker; later it is there again, and tells what it knew once, until it has caught up."""
        node, rng = self.cluster.nodes[number], self.rng
        node.is_down = True
        node.cut()
        for (topic, partition), log in self.cluster.logs.items():
            if log.leader == number and len(self.cluster.nodes) > 1:
                self.cluster.move_leader(
                    topic, partition, rng.choice([each for each in self.cluster.nodes if each != number])
                )
        await asyncio.sleep(rng.uniform(0, 0.3))
        node.cut_off(knows_it=True, since=rng.choice(self.history))
        node.is_down = False
        await asyncio.sleep(rng.uniform(0, self.stale_s_max))
        node.hear_again()

    def delete_what_was_read(self, end: Any) -> None:
        for topic, places in end["to"].items():
            for partition, offset in places["offsets"].items():
                log = self.cluster.logs[topic, int(partition)]
                log.log_start_offset = max(log.log_start_offset, self.rng.randint(0, offset))

    @property
    def ends(self) -> dict[tuple[str, int], int]:
        return {key: log.visible_offset for key, log in self.cluster.logs.items()}


class History:
    """One query, over all lives of its driver.

    Args:
        seed: What everything is drawn from.
        is_async: Whether Spark logs some batches only, and rows may come twice.
    """

    def __init__(self, seed: int, *, is_async: bool) -> None:
        self.world = World(seed)
        self.rng = rng = self.world.rng
        self.is_async = is_async
        self.options = {
            "bootstrap.servers": ",".join(self.world.cluster.bootstrap),
            "subscribePattern": "t.*",
            "startingOffsets": rng.choice(["earliest", "latest"]),
            "failOnDataLoss": rng.choice(["true", "false"]),
        }
        if rng.random() < 0.5:
            self.options["maxOffsetsPerTrigger"] = str(rng.choice([5, 50]))
        self.checkpoint = Checkpoint()
        self.sink = TopicSink() if is_async else FileSink()
        self.ends_before: dict[tuple[str, int], int] = {}
        self.kill_chance, self.restart_chance = rng.choice([0.02, 0.1]), rng.choice([0.0, 0.5])

    def run(self, monkeypatch: pytest.MonkeyPatch) -> None:
        world = self.world
        monkeypatch.setattr(runner, "loop_thread", lambda: world)
        monkeypatch.setattr(
            runner, "ClusterView", partial(ClusterView, transport=world.cluster.transport(), rng=random.Random(1))
        )
        try:
            self._live(TRIGGERS)
            world.rest()
            self.kill_chance = self.restart_chance = 0
            self.options.pop("maxOffsetsPerTrigger", None)
            with self._life() as engine:
                for _ in range(200):
                    if not engine.trigger():
                        world.wait(0.05)
                        stands = _offsets(engine.end, "to")
                        if all(stands.get(key, 0) == end for key, end in world.ends.items()):
                            break
            self._check()
        finally:
            world.close()

    def _live(self, triggers: int) -> None:
        while triggers > 0:
            with self._life() as engine:
                while triggers > 0:
                    triggers -= 1
                    self.world.to_write += RECORDS_PER_TRIGGER
                    engine.trigger()
                    self._happen(engine)

    @contextmanager
    def _life(self) -> Iterator[Engine]:
        if self.checkpoint.offsets:  # a new query, which has seen no metadata, believes those that last
            self.world.stale_s_max = 4.0
        if self.rng.random() < self.restart_chance:
            self.world.restart_broker()
            self.world.wait(self.rng.uniform(0, 0.4))
        if not self.checkpoint.offsets:
            self.ends_before = self.world.ends
        reader = ReplogStreamReader(parse_stream_options(self.options), ())
        try:
            yield Engine(
                reader, self.checkpoint, self.sink, self._read, self._pause, self._is_late if self.is_async else None
            )
        except Killed:
            pass
        finally:
            reader.stop()

    def _is_late(self) -> bool:
        return self.rng.random() < 0.6

    def _pause(self) -> None:
        if self.rng.random() < self.kill_chance:
            raise Killed
        if self.rng.random() < 0.3:
            self.world.wait(self.rng.uniform(0, 0.03))

    def _happen(self, engine: Engine) -> None:
        world, chance = self.world, self.rng.random()
        if chance < 0.1:
            world.restart_broker()
        elif chance < 0.25:
            world.move_leader()
        elif chance < 0.3:
            world.create_topic()
        elif chance < 0.4 and self.checkpoint.is_done_with_its_last_batch and not self.is_async:
            world.delete_what_was_read(engine.end)

    def _read(self, ranges: Sequence[OffsetRange]) -> list[Row]:
        """Reads what a task reads, in a process that has just been started."""

        async def read() -> list[Row]:
            view = self.world.view()
            try:
                return [row for wanted in ranges for row in await self._read_range(view, wanted)]
            finally:
                await view.close()

        rows: list[Row] = self.world.run(read)
        return rows

    async def _read_range(self, view: ClusterView, wanted: OffsetRange) -> list[Row]:
        await view.ready(5_000)
        reader = RangeReader(view, wanted, words=WORDS, fail_on_data_loss=self.options["failOnDataLoss"] == "true")
        view.add_listener(reader.handle_metadata)
        rows: list[Row] = []
        try:
            await reader.start()
            while (piece := await reader.next_piece()) is not None:
                for record in decode_records(piece.data, start_offset=piece.start_offset, end_offset=wanted.end_offset):
                    assert record.value == b"%d" % record.offset
                    rows.append(Row(wanted.topic, wanted.partition, record.offset))
        finally:
            view.remove_listener(reader.handle_metadata)
            await reader.close()
        return rows

    def _check(self) -> None:
        """Compares what came with what was written from where the query began: where the first batch of its log did."""
        first = json.loads(self.checkpoint.offsets[min(self.checkpoint.offsets)])
        starts = _offsets(first, "from" if "from" in first else "to")
        for key, end in self.ends_before.items():
            if self.options["startingOffsets"] == "latest":
                assert starts[key] >= end, (
                    f"{key} is read from {starts[key]} on, and ended at {end} when the query began"
                )
            else:
                assert starts[key] == 0
        expected = [
            Row(*key, offset)
            for key, end in sorted(self.world.ends.items())
            for offset in range(starts.get(key, 0), end)
        ]
        found = self.sink.rows
        if self.is_async:  # lives that were killed before they had logged anything may have begun earlier
            found = sorted(set(found).intersection(expected))
        assert found == expected


class NowHistory(History):
    """A query each of whose lives is a run with the trigger `availableNow`."""

    def _live(self, triggers: int) -> None:
        while triggers > 0:
            with self._life() as engine:
                ends, began = self.world.ends, self._stands()
                engine.prepare_available_now()
                while engine.trigger():
                    triggers -= 1
                    self.world.to_write += RECORDS_PER_TRIGGER
                    self._happen(engine)
                triggers -= 1
                self.world.to_write += RECORDS_PER_TRIGGER
                stands = self._stands()
                assert all(stands[key] >= ends[key] for key in began), f"ended at {stands}, the logs had {ends}"

    def _stands(self) -> dict[tuple[str, int], int]:
        logged = self.checkpoint.offsets
        return _offsets(json.loads(logged[max(logged)]), "to") if logged else {}


class LossHistory(History):
    """A query that must tell that records are lost, once some are.

    Attributes:
        lost: What has happened; "": nothing yet.
    """

    lost = ""

    def _happen(self, engine: Engine) -> None:
        if self.lost or not self.checkpoint.is_done_with_its_last_batch or not self._lose(_offsets(engine.end, "to")):
            super()._happen(engine)

    def _lose(self, stands: dict[tuple[str, int], int]) -> bool:
        """Loses records of one partition that the query has read, or has not read yet; returns whether there were any."""
        world, rng = self.world, self.rng
        topic, partition = key = rng.choice(sorted(stands))
        log, kind = world.cluster.logs[key], rng.choice(["expired", "cut off", "created anew"])
        read = [
            at for batch in log.batches if log.log_start_offset <= (at := parse_header(batch).base_offset) < stands[key]
        ]
        if kind == "expired" and stands[key] < log.visible_offset:
            log.log_start_offset = rng.randint(stands[key] + 1, log.visible_offset)
        elif kind == "cut off" and read:
            log.truncate(rng.choice(read))
            world.cluster.move_leader(topic, partition, log.leader)
        elif kind == "created anew":
            world.cluster.delete_topic(topic)
            world.cluster.create_topic(topic, sum(each == topic for each, _ in stands))
        else:
            return False
        world.history.append(world.cluster.update())
        self.lost = f"{key}: {kind}"
        return True


def _offsets(offset: Any, side: str) -> dict[tuple[str, int], int]:
    return {
        (topic, int(partition)): number
        for topic, places in (offset or {}).get(side, {}).items()
        for partition, number in places["offsets"].items()
    }


def check(seed: int, monkeypatch: pytest.MonkeyPatch, *, is_async: bool, kind: type[History] = History) -> None:
    try:
        kind(seed, is_async=is_async).run(monkeypatch)
    except Exception as error:
        error.add_note(f"to repeat it: check({seed}, monkeypatch, is_async={is_async}, kind={kind.__name__})")
        raise


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("seed", [2, 4, 6, None])
def test_each_committed_record_comes_once(seed: int | None, is_async: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Seeds in which a start under load, one beside a broker of the past, and gaps in the log have shown false losses; and a new one."""
    check(secrets.randbits(40) if seed is None else seed, monkeypatch, is_async=is_async)


@pytest.mark.parametrize("seed", [2, 312, None])
def test_a_run_with_available_now_ends_where_the_logs_ended(seed: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Seeds in which a run beside a broker of the past ended without some partition; and a new one."""
    check(secrets.randbits(40) if seed is None else seed, monkeypatch, is_async=False, kind=NowHistory)


@pytest.mark.parametrize("seed", [1, 4, 5, None])
def test_what_is_lost_is_told(seed: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Seeds that show where a topic created anew, records deleted unread, or an unclean election are overlooked; and a new one."""
    seed = secrets.randbits(40) if seed is None else seed
    history = LossHistory(seed, is_async=False)
    history.options["failOnDataLoss"] = "true"
    told: Exception | None = None
    try:
        history.run(monkeypatch)
    except (LogTruncatedError, OffsetOutOfRangeError, UnknownTopicOrPartitionError) as error:
        told = error
    assert bool(told) == bool(history.lost), f"seed {seed}: lost is {history.lost or 'nothing'}, told is {told}"
