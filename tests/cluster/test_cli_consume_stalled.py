"""`replog consume --group` into a pipe that nobody empties for longer than a session."""

from __future__ import annotations

import asyncio
import signal
import subprocess

import pytest
from cli_runs import PATIENCE_S, command

from replog import embedded
from replog.client import Admin, Producer
from tests.quiet import quiet_for

pytestmark = pytest.mark.cluster

SESSION_S = 2
RECORDS = 400
VALUE_BYTES = 1_000  # several times what a pipe holds


async def test_a_member_whose_output_nobody_takes_stays_in_its_group() -> None:
    config = {
        "offsets.topic.num.partitions": 2,
        "group.consumer.heartbeat.interval.ms": 200,
        "group.consumer.session.timeout.ms": SESSION_S * 1_000,
    }
    async with (
        embedded(config=config) as broker,
        Admin(broker.bootstrap_servers) as admin,
        Producer(broker.bootstrap_servers) as producer,
    ):
        await admin.create_topic("t", 1)
        for number in range(RECORDS):
            await producer.send("t", b"%0*d" % (VALUE_BYTES, number))
        await producer.flush()

        async def epochs() -> list[tuple[str, int | None]]:
            groups = {each.group_id for each in await admin.list_groups()} & {"g"}
            described = await admin.describe_groups(sorted(groups))
            return [(each.member_id, each.epoch) for group in described.values() for each in group.members]

        arguments = command("consume", "t", "--group", "g", "--follow", "-b", broker.bootstrap_servers)
        with subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            assert process.stdout is not None
            try:
                async with asyncio.timeout(PATIENCE_S):
                    first = await asyncio.to_thread(process.stdout.read, 1)
                    before = await epochs()
                    await quiet_for(2 * SESSION_S)
                    assert (len(before), await epochs()) == (1, before)
                    rest = await asyncio.to_thread(process.stdout.read, RECORDS * (VALUE_BYTES + 1) - 1)
                process.send_signal(signal.SIGINT)
                more, errors = await asyncio.to_thread(process.communicate, None, PATIENCE_S)
            finally:
                process.kill()
        assert (more, errors) == (b"", b"")
        assert [int(line) for line in (first + rest).split()] == list(range(RECORDS))
        assert await admin.group_offsets("g") == {("t", 0): RECORDS}
