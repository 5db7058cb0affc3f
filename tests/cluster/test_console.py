"""The endpoints of the console, with a broker in this process."""

from __future__ import annotations

import asyncio
import json
import shlex
import signal
import subprocess
import sys
from collections.abc import AsyncIterator

import aiohttp
import pytest
import pytest_asyncio
from cli_runs import command
from console_kit import PATIENCE_S, Asked, console_of

from replog import Admin, Producer, embedded
from replog.client import TopicPartition
from replog.console.context import STREAMS_MAX
from replog.worker import DeadLetter

TOPIC = "orders"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def servers() -> AsyncIterator[str]:
    """A broker with a topic of three partitions, 300 records of JSON, a group that has read 10 of partition 0."""
    async with embedded() as broker:
        at = broker.bootstrap_servers
        async with Admin(at) as admin:
            await admin.create_topic(TOPIC, num_partitions=3, replication_factor=1)
        async with Producer(at) as producer:
            for number in range(300):
                await producer.send(
                    TOPIC,
                    json.dumps({"id": number, "city": "Köln"}, ensure_ascii=False).encode(),
                    b"key-%d" % number,
                    partition=number % 3,
                    timestamp_ms=1_700_000_000_000 + number * 1_000,
                    headers=[("trace", b"t-%d" % number)],
                )
            await producer.send(TOPIC, b"\xff\xfe", None, partition=0, timestamp_ms=1_700_000_300_000)
        async with Admin(at) as admin:
            await admin.alter_group_offsets("billing", {(TOPIC, 0): 10, (TOPIC, 1): 100})
        yield at


@pytest_asyncio.fixture(loop_scope="module")
async def asked(servers: str) -> AsyncIterator[Asked]:
    async with console_of(servers) as found:
        yield found


pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_health_is_what_status_says(asked: Asked) -> None:
    health = await asked.get("health")
    assert health["is_healthy"]
    assert "in sync" in health["sentence"]
    assert [name for name, _ in health["facts"]][:2] == ["cluster", "controller"]
    assert health["brokers"][0]["is_controller"]
    assert (await asked.get("quorum"))["leader_id"] == 1


async def test_topics_are_paged_and_one_shows_its_groups(asked: Asked) -> None:
    page = await asked.get("topics", search="ORD")
    (row,) = page["topics"]
    assert (row["name"], row["partitions_count"], row["end"], page["matching_count"]) == (TOPIC, 3, 301, 1)
    assert row["size_bytes"] > 0
    assert (await asked.get("topics", page=7))["topics"] == []
    topic = await asked.get("topic", topic=TOPIC)
    assert [(each["start"], each["end"]) for each in topic["partitions"]] == [(0, 101), (0, 100), (0, 100)]
    (group,) = topic["groups"]
    assert group["group_id"] == "billing"
    assert (group["lag"], group["partitions_count"], group["members_count"]) == (91, 2, 0)
    assert group["lag_ms"] > 0
    assert any(each["name"] == "retention.ms" for each in topic["configs"])
    assert "there is no topic" in (await asked.get("topic", status=400, topic="orderz"))["error"]


async def test_newest_records_come_page_by_page_and_all_of_them(asked: Asked) -> None:
    page = await asked.get("messages", topic=TOPIC, limit=120)
    assert [row["timestamp"] for row in page["rows"]] == sorted((r["timestamp"] for r in page["rows"]), reverse=True)
    assert page["rows"][0]["value"] == {"size": 2, "base64": "//4="}
    assert "key" in page["rows"][0]
    assert page["rows"][0]["key"] is None
    seen = {(row["partition"], row["offset"]) for row in page["rows"]}
    while page["has_more"]:
        before = ",".join(f"{number}:{offset}" for number, offset in page["bounds"].items())
        page = await asked.get("messages", topic=TOPIC, limit=120, before=before)
        found = {(row["partition"], row["offset"]) for row in page["rows"]}
        assert found.isdisjoint(seen)
        seen |= found
    assert len(seen) == 301


async def test_records_from_a_time_on_and_further(asked: Asked) -> None:
    page = await asked.get(
        "messages", topic=TOPIC, limit=5, **{"from": "2023-11-14T22:18:00Z"}
    )  # 280 s after the first
    assert [row["timestamp"] // 1000 - 1_700_000_000 for row in page["rows"]] == [280, 281, 282, 283, 284]
    at = ",".join(f"{number}:{offset}" for number, offset in page["bounds"].items())
    page = await asked.get("messages", topic=TOPIC, limit=100, at=at)
    assert [row["timestamp"] // 1000 - 1_700_000_000 for row in page["rows"]] == list(range(285, 301))
    assert not page["has_more"]
    assert "is no place" in (await asked.get("messages", status=400, topic=TOPIC, **{"from": "soon"}))["error"]


async def test_a_record_is_shown_whole_with_lines_that_write_it_again(asked: Asked, servers: str) -> None:
    async with Producer(servers) as producer, Admin(servers) as admin:
        await admin.create_topic("copies", num_partitions=1, replication_factor=1)
        value = ("it's \\ " + "ü" * 3_000).encode()
        await producer.send("copies", value, b"k", headers=[("h", b"\xff"), ("n", None)])
    (row,) = (await asked.get("messages", topic="copies"))["rows"]
    assert (row["value"]["is_cut"], row["value"]["size"]) == (True, len(value))
    assert value.decode().startswith(row["value"]["text"])
    whole = await asked.get("message", topic="copies", partition=0, offset=0)
    assert whole["value"]["text"] == value.decode()
    names = f'replog() {{ {shlex.join(command())} "$@"; }}\n'
    for run in (["bash", "-c", names + whole["as_command"]], [sys.executable, "-c", whole["as_python"]]):
        process = await asyncio.create_subprocess_exec(*run, stdout=subprocess.DEVNULL)
        assert await process.wait() == 0
    again = [await asked.get("message", topic="copies", partition=0, offset=offset) for offset in (1, 2)]
    assert [(each["value"], each["key"], each["headers"]) for each in again] == [
        (whole["value"], whole["key"], whole["headers"])
    ] * 2
    assert (
        "no record at offset 9"
        in (await asked.get("message", status=400, topic="copies", partition=0, offset=9))["error"]
    )


@pytest.mark.parametrize(
    ("query", "count"),
    [
        ({"word": "KöLN", "in": "key"}, 0),
        ({"word": "KöLN", "in": "value"}, 300),
        ({"word": "T-29", "in": "headers"}, 11),
        ({"word": "T-29", "case": "exact"}, 0),
        ({"word": "key-7"}, 11),
    ],
)
async def test_a_search_finds_ends_and_says_so(asked: Asked, query: dict[str, str], count: int) -> None:
    lines = await asked.lines("search", topic=TOPIC, **query)
    assert len([line for line in lines if "record" in line]) == count
    assert lines[-1]["end"] == {"reason": "end", "read": 301, "matches": count, "leaderless": []}


async def test_a_tail_begins_now_and_ends_with_its_browser(asked: Asked, servers: str) -> None:
    async with Admin(servers) as admin, Producer(servers) as producer:
        await admin.create_topic("ticks", num_partitions=2, replication_factor=1)
        await (await producer.send("ticks", b"before", partition=0))
        async with asyncio.timeout(PATIENCE_S), asked.session.get(f"{asked.address}api/tail?topic=ticks") as response:
            assert json.loads(await response.content.readline())["begun"] == {"0": 1, "1": 0}
            await producer.send("ticks", b"after", partition=1)
            found: list[str] = []
            while not found:
                found = [row["value"]["text"] for row in json.loads(await response.content.readline())["records"]]
            assert found == ["after"]


@pytest.mark.parametrize(
    ("headers", "status"),
    [({"Host": "evil.example"}, 403), ({"Host": "evil.example:80"}, 403), ({"Host": "localhost:1"}, 200)],
)
async def test_only_names_of_this_machine_are_answered(asked: Asked, headers: dict[str, str], status: int) -> None:
    async with asked.session.get(f"{asked.address}api/about", headers=headers) as response:
        assert response.status == status
        assert response.headers["Cache-Control"] == "no-store"
        assert "Access-Control-Allow-Origin" not in response.headers


async def test_the_page_and_its_files_carry_the_policy(asked: Asked) -> None:
    for path in ("", "static/console.js", "static/console.css", "static/nothing.js", "api/nothing"):
        async with asked.session.get(asked.address + path) as response:
            assert "default-src 'none'" in response.headers["Content-Security-Policy"]
            assert response.status == (404 if path.endswith(("nothing.js", "nothing")) else 200)


async def test_a_group_goes_exactly_where_its_preview_says(asked: Asked, servers: str) -> None:
    async with Admin(servers) as admin, console_of(servers, allow_changes=True) as changing:
        await admin.alter_group_offsets("moves", {(TOPIC, 0): 10, (TOPIC, 1): 100})
        assert {"moves", "billing"} <= {each["group_id"] for each in (await asked.get("groups"))["groups"]}
        preview = await asked.get("reset-preview", group="moves", topics=f"{TOPIC}:0,2", to="offset:500")
        told = [(each["partition"], each["current"], each["new"]) for each in preview["changes"]]
        assert told == [(0, 10, 101), (2, None, 100)]
        assert preview["changes"][0]["note"] == "500 is past the end of the log"
        offsets = [{"topic": TOPIC, "partition": partition, "offset": new} for partition, _, new in told]
        refused = await asked.post("reset", {"group": "moves", "offsets": offsets}, status=403)
        assert "--allow-changes" in refused["error"]
        assert (await admin.group_offsets("moves"))[TopicPartition(TOPIC, 0)] == 10
        await changing.post("reset", {"group": "moves", "offsets": offsets})
        assert set((await admin.group_offsets("moves")).values()) == {101, 100}
        group = await asked.get("group", group="moves")
        assert (group["lag"], group["group"]["members"], group["partitions_count"]) == (0, [], 3)
    assert "none of earliest" in (await asked.get("reset-preview", status=400, group="moves", to="up"))["error"]
    shift = await asked.get("reset-preview", status=400, group="billing", topics=f"{TOPIC}:2", to="shift:-1")
    assert "no committed offset" in shift["error"]


async def test_a_curve_begins_before_its_page_is_opened(servers: str) -> None:
    async with console_of(servers) as asked:
        async with asyncio.timeout(PATIENCE_S):
            while not (history := (await asked.get("group", group="billing"))["history"]):
                await asyncio.sleep(0.05)
            while not (topic := await asked.get("topic", topic=TOPIC))["history"]:
                await asyncio.sleep(0.05)
        (row,) = (await asked.get("topics", search=TOPIC))["topics"]
    ((_, lag), *_) = history
    ((_, end), *_) = topic["history"]
    assert end == sum(each["end"] for each in topic["partitions"]) == row["noted"][0][1]
    assert lag > 0


async def test_dead_letters_are_counted_by_reason_and_sent_back_each_once(servers: str) -> None:
    async with Admin(servers) as admin, Producer(servers) as producer:
        for name in ("paid", "paid.dlq"):
            await admin.create_topic(name, num_partitions=1, replication_factor=1)
        for number in range(3):
            letter = DeadLetter("paid", 0, number, 1_700_000_000_000, "billing", f"ValueError: {number % 2}", 3)
            await producer.send("paid.dlq", b"%d" % number, headers=[*letter.headers(), ("own", b"1")])
        await producer.send("paid.dlq", b"strange")
    async with console_of(servers, allow_changes=True) as asked:
        found = await asked.get("letters", topic="paid.dlq")
        assert [(each["error"], each["count"]) for each in found["reasons"]] == [
            ("ValueError: 0", 2),
            ("ValueError: 1", 1),
        ]
        assert (found["strange_count"], found["rows"][1]["letter"]["attempts"]) == (1, 3)
        one = {"topic": "paid.dlq", "partition": 0, "offset": 1}
        assert (await asked.post("redrive", one))["sent"] == {"paid": 1}
        assert "no dead letter" in (await asked.post("redrive", one | {"offset": 3}, status=400))["error"]
        assert (await asked.post("redrive", {"topic": "paid.dlq", "dry_run": True}))["sent"] == {"paid": 3}
        assert (await asked.post("redrive", {"topic": "paid.dlq"})) == {
            "sent": {"paid": 3},
            "strange_count": 1,
            "silence": "",
            "may_be_more": False,
        }
        assert (await asked.post("redrive", {"topic": "paid.dlq"}))["sent"] == {}
        rows = (await asked.get("messages", topic="paid", **{"from": "earliest"}))["rows"]
    assert [row["value"]["text"] for row in rows] == ["1", "0", "1", "2"]
    assert all([name for name, _ in row["headers"]] == ["own"] for row in rows)


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"X-Replog-Console": "1", "Sec-Fetch-Site": "cross-site"},
        {"X-Replog-Console": "1", "Content-Type": "text/plain"},
    ],
)
async def test_a_change_that_another_site_could_make_is_refused(servers: str, headers: dict[str, str]) -> None:
    async with console_of(servers, allow_changes=True) as asked:
        body = json.dumps({"group": "billing", "offsets": [{"topic": TOPIC, "partition": 0, "offset": 0}]})
        given = {"Content-Type": "application/json", **headers}
        async with asked.session.post(f"{asked.address}api/reset", data=body, headers=given) as response:
            assert response.status == 403
        assert (await asked.get("group", group="billing"))["lag"] == 91


async def test_without_a_metadata_log_there_is_no_timeline_and_it_says_what_to_do(asked: Asked) -> None:
    told = await asked.get("timeline", status=400, topic=TOPIC, partition=0)
    assert "console.listener" in told["error"]


async def test_a_cluster_that_is_gone_is_told_and_not_waited_for(unused_tcp_port: int) -> None:
    async with console_of(f"127.0.0.1:{unused_tcp_port}") as asked:
        assert "error" in await asked.get("topics", status=503)


async def test_the_place_of_a_tail_is_free_when_its_browser_has_gone(asked: Asked) -> None:
    address = f"{asked.address}api/tail?topic={TOPIC}"
    tails = [await asked.session.get(address) for _ in range(STREAMS_MAX)]
    async with asked.session.get(address) as refused:
        assert (refused.status, "end one of them" in (await refused.json())["error"]) == (503, True)
    for tail in tails:
        tail.close()
    async with asyncio.timeout(PATIENCE_S):
        status = 503
        while status == 503:
            await asyncio.sleep(0.05)
            async with asked.session.get(address) as response:
                status = response.status
    assert status == 200


async def test_the_command_says_where_it_is_and_ends_at_ctrl_c(servers: str) -> None:
    process = await asyncio.create_subprocess_exec(
        *command("console", "--bootstrap-servers", servers, "--listen", "127.0.0.1:0"), stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    async with asyncio.timeout(PATIENCE_S):
        line = (await process.stdout.readline()).decode()
        assert "only shows" in line
        async with aiohttp.ClientSession() as session:
            assert not (await Asked(session, line.split(" is at ")[1].split()[0]).get("about"))["has_timeline"]
        process.send_signal(signal.SIGINT)
        assert await process.wait() == 0
