"""Fetches of consumers while the memory for answers that nobody has read is short."""

from __future__ import annotations

from broker_kit import KEY, Rig, batch, registered, rig, topic, wait_until
from slow_disk import SlowDisk, lead

from replog.broker.requests import fetch_path
from replog.errors import ErrorCode
from replog.records import scan
from replog.rpc.messages import CONSUMER_REPLICA_ID, FetchPartition, FetchRequest, FetchResponse
from replog.waiting.unread_answers import UnreadAnswer

MIB = 1 << 20
VALUE = b"v" * (MIB // 8 - 100)
BATCHES = 16


class Consumer:
    """One fetch from offset 0 whose answer is not read before `close`."""

    def __init__(self, it: Rig, *, max_wait_ms: int = 500, min_bytes: int = 1, offset: int = 0) -> None:
        self.answers: list[FetchResponse] = []
        self.unread: UnreadAnswer = it.fetch_path.unread.open()
        partition = FetchPartition(*KEY, offset, max_bytes=64 * MIB)
        request = FetchRequest(1, 1000, CONSUMER_REPLICA_ID, -1, max_wait_ms, min_bytes, 64 * MIB, (partition,))
        self.withdraw = it.fetch_path.submit(request, self.answers.append, self.unread)

    @property
    def count(self) -> int | None:
        """How many batches it was given; None: it waits."""
        if not self.answers:
            return None
        (answer,) = self.answers
        assert answer.results[0].error is ErrorCode.NONE
        return len(list(scan(bytes(answer.batches[0]))))

    def close(self) -> None:
        self.unread.close()


async def leading(it: Rig, batches: int = BATCHES) -> None:
    await it.apply(registered(1), registered(2), *topic((1,)))
    for _ in range(batches):
        assert (await it.produce(batch(VALUE))).error == 0


async def fill(it: Rig) -> list[Consumer]:
    """Consumers that do not read, until one has to wait; that one is the last."""
    consumers: list[Consumer] = []
    while not consumers or consumers[-1].count is not None:
        consumers.append(Consumer(it))
        await it.settle()
    return consumers


async def test_answers_that_nobody_reads_get_smaller_down_to_a_batch_and_end_at_the_limit() -> None:
    """Goal: consumers that ask for all that there is and read nothing do not fill the memory of a broker."""
    async with rig(queued_max_response_bytes=4 * MIB) as it:
        await leading(it)
        consumers = await fill(it)
        counts = [consumer.count or 0 for consumer in consumers]
        assert counts[0] > 4
        assert counts == sorted(counts, reverse=True)
        assert counts[-2:] == [1, 0]
        size = sum(len(answer.batches[0]) for consumer in consumers for answer in consumer.answers)
        assert it.fetch_path.unread.held_bytes == size < 4 * MIB + MIB // 4


async def test_who_waits_for_room_gets_it_in_order() -> None:
    async with rig(queued_max_response_bytes=MIB) as it:
        await leading(it)
        *held, first = await fill(it)
        second, third = Consumer(it), Consumer(it)
        await it.settle()
        assert (first.count, second.count, third.count) == (None, None, None)
        held[-1].close()
        await it.settle()
        assert (first.count, second.count, third.count) == (1, None, None)
        first.close()
        await it.settle()
        assert (second.count, third.count) == (1, None)


async def test_who_comes_while_others_wait_does_not_overtake_them() -> None:
    async with rig(queued_max_response_bytes=MIB) as it:
        await leading(it)
        *held, first = await fill(it)
        late = Consumer(it)
        held[-1].close()  # before the request of the late one is looked at
        await it.settle()
        assert (first.count, late.count) == (1, None)


async def test_who_waits_in_vain_is_answered_without_records() -> None:
    """Note: a consumer asks again then; without an answer it would take the broker for dead."""
    async with rig(queued_max_response_bytes=MIB) as it:
        await leading(it)
        *_, last = await fill(it)
        await it.produce(batch())  # does not wake who waits for room
        assert last.count is None
        await it.advance(fetch_path.ROOM_WAIT_MS)
        assert last.count == 0
        assert it.fetch_path.waiting_count == 0


async def test_who_has_gone_does_not_stand_in_the_line() -> None:
    async with rig(queued_max_response_bytes=MIB) as it:
        await leading(it)
        *held, first = await fill(it)
        second = Consumer(it)
        await it.settle()
        first.withdraw()
        first.close()
        held[-1].close()
        await it.settle()
        assert (first.count, second.count) == (None, 1)


async def test_a_follower_is_not_kept_waiting_by_consumers_that_do_not_read() -> None:
    """Goal: acknowledgements wait for followers, and not for those who read."""
    async with rig(queued_max_response_bytes=MIB) as it:
        await it.apply(registered(1), registered(2), *topic((1, 2)))
        produced = [it.produce(batch(VALUE)) for _ in range(BATCHES)]
        await it.settle()
        it.fetch(BATCHES, replica_id=2, max_wait_ms=0)
        await it.settle()
        assert all(one.done() for one in produced)
        *_, last = await fill(it)
        follower = it.fetch(0, replica_id=2, max_bytes=64 * MIB)
        await it.settle()
        assert last.count is None
        assert len(list(scan(bytes(follower.response.batches[0])))) == BATCHES


async def test_an_answer_that_is_unread_for_long_is_given_up_only_when_others_wait() -> None:
    """Goal: a consumer that reads goes on beside any number that do not."""
    async with rig(queued_max_response_bytes=MIB) as it:
        await leading(it)
        ended: list[Consumer] = []
        *held, last = await fill(it)

        def give_up(consumer: Consumer) -> None:
            ended.append(consumer)
            consumer.close()

        for consumer in held:
            consumer.unread.on_give_up = lambda consumer=consumer: give_up(consumer)  # type: ignore[misc]
        last.withdraw()
        await it.advance(fetch_path.UNREAD_MS)
        assert not ended
        reader = Consumer(it)
        await it.settle()
        assert reader.count is None
        await it.advance(fetch_path.ROOM_WAIT_MS)
        assert ended == [held[0]]
        assert reader.count is not None
        assert reader.count > 0


async def test_what_is_too_little_to_send_holds_nothing_while_it_waits() -> None:
    async with rig(queued_max_response_bytes=MIB) as it:
        await leading(it, 1)
        waiting = Consumer(it, min_bytes=MIB // 6)
        await it.settle()
        assert (waiting.count, it.fetch_path.unread.held_bytes) == (None, 0)
        await it.produce(batch(VALUE))
        await it.settle()
        assert waiting.count == 1  # there is no room for as much as it wants


async def test_what_is_read_from_the_disk_holds_its_room_meanwhile() -> None:
    async with rig(SlowDisk(), queued_max_response_bytes=MIB) as it:
        fs = await lead(it, 3)
        fs.gate.clear()
        consumer = Consumer(it)
        await wait_until(lambda: fs.waiting)
        assert it.fetch_path.unread.held_bytes > len(batch()) * 3
        fs.gate.set()
        await wait_until(lambda: consumer.answers)
        assert it.fetch_path.unread.held_bytes == len(batch()) * 3
        consumer.close()
        assert it.fetch_path.unread.held_bytes == 0


async def test_records_that_come_from_the_disk_for_nobody_hold_nothing() -> None:
    async with rig(SlowDisk(), queued_max_response_bytes=MIB) as it:
        fs = await lead(it, 3)
        fs.gate.clear()
        consumer = Consumer(it)
        await wait_until(lambda: fs.waiting)
        consumer.withdraw()
        consumer.close()
        assert it.fetch_path.unread.held_bytes == 0
        fs.gate.set()
        await wait_until(lambda: not fs.waiting)
        await it.settle()
        assert (consumer.answers, it.fetch_path.unread.held_bytes) == ([], 0)
