"""Arguments of another type than a method takes: each is refused at once, by its name, and nothing has happened."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

import pytest
import pytest_asyncio
from fake_cluster import FakeCluster

from replog.client import Admin, Consumer, DefaultPartitioner, Producer, SyncAdmin, SyncConsumer, SyncProducer
from replog.client.arguments import headers_bytes_bound
from replog.errors import ConfigError, InvalidRecordError, InvalidRequestError
from replog.metadata.records import ResourceType
from replog.records import Columns, batch_bytes_bound, encode_batch

NOW = datetime(2026, 1, 1, tzinfo=UTC)
COLUMNS = Columns(1, b"", b"", b"", b"", b"", None, 1, bytes(8), b"", None, 0)
TOPIC: Any = (ResourceType.TOPIC, "t")
REFUSED = (TypeError, ConfigError, InvalidRequestError)


@dataclass
class World:
    cluster: FakeCluster
    admin: Any
    producer: Any
    consumer: Any


@pytest_asyncio.fixture
async def world() -> AsyncIterator[World]:
    cluster = FakeCluster()
    cluster.create_topic("t", 2)
    transport: Any = cluster.transport()
    async with AsyncExitStack() as stack:
        admin = await stack.enter_async_context(Admin(cluster.bootstrap, transport=transport, timeout_ms=2_000))
        producer = await stack.enter_async_context(Producer(cluster.bootstrap, transport=transport))
        consumer = await stack.enter_async_context(Consumer(cluster.bootstrap, transport=transport))
        await consumer.assign([("t", 0)])
        yield World(cluster, admin, producer, consumer)


Use = Callable[[World], Any]

USES: list[tuple[str, Use]] = [
    # Producer
    ("topic", lambda it: it.producer.send(7, b"")),
    ("topic", lambda it: it.producer.send(["t"], b"")),
    ("topic", lambda it: it.producer.send(b"t", b"")),
    ("value", lambda it: it.producer.send("t", "text")),
    ("value", lambda it: it.producer.send("t", {"a": 1})),
    ("key", lambda it: it.producer.send("t", b"", "key")),
    ("key", lambda it: it.producer.send("t", b"", 7)),
    ("partition", lambda it: it.producer.send("t", b"", partition="0")),
    ("partition", lambda it: it.producer.send("t", b"", partition=0.0)),
    ("partition", lambda it: it.producer.send("t", b"", partition=True)),
    ("timestamp_ms", lambda it: it.producer.send("t", b"", timestamp_ms=NOW)),
    ("timestamp_ms", lambda it: it.producer.send("t", b"", timestamp_ms=1.5)),
    ("timestamp_ms", lambda it: it.producer.send("t", b"", timestamp_ms="now")),
    ("timestamp", lambda it: it.producer.send("t", b"", timestamp_ms=2**63)),
    (r"headers .*list\(headers.items\(\)\)", lambda it: it.producer.send("t", b"", headers={"a": b"1"})),
    (r"headers .*list\(headers.items\(\)\)", lambda it: it.producer.send("t", b"", headers={})),
    ("headers", lambda it: it.producer.send("t", b"", headers=None)),
    ("headers", lambda it: it.producer.send("t", b"", headers="ab")),
    ("headers", lambda it: it.producer.send("t", b"", headers=iter([("a", b"1")]))),
    ("an item of headers", lambda it: it.producer.send("t", b"", headers=["ab"])),
    ("an item of headers", lambda it: it.producer.send("t", b"", headers=[("a", "1")])),
    ("an item of headers", lambda it: it.producer.send("t", b"", headers=[(b"a", b"1")])),
    ("records .*not a mapping", lambda it: it.producer.send_many("t", {b"k": b"v"})),
    ("records", lambda it: it.producer.send_many("t", b"one")),
    ("records", lambda it: it.producer.send_many("t", "one")),
    ("records", lambda it: it.producer.send_many("t", 7)),
    ("value", lambda it: it.producer.send_many("t", [{"v": 1}])),
    ("a record of send_many", lambda it: it.producer.send_many("t", [(b"v", b"k", (), b"x")])),
    ("headers", lambda it: it.producer.send_many("t", [(b"v", b"k", b"x")])),
    ("an item of headers", lambda it: it.producer.send_many("t", [(b"v", b"k", ["ab"])])),
    ("value", lambda it: it.producer.send_and_wait("t", "text")),
    ("key", lambda it: it.producer.send_many("t", [(b"v", "k")])),
    ("topic", lambda it: it.producer.send_many(None, [])),
    ("partition", lambda it: it.producer.send_many("t", [], partition="0")),
    ("timestamp_ms", lambda it: it.producer.send_many("t", [], timestamp_ms=NOW)),
    ("topic", lambda it: it.producer.send_columns(None, COLUMNS)),
    ("columns", lambda it: it.producer.send_columns("t", [b"v"])),
    ("partitions", lambda it: it.producer.send_columns("t", COLUMNS, partitions=[0])),
    ("timestamp_ms", lambda it: it.producer.send_columns("t", COLUMNS, timestamp_ms=NOW)),
    ("topic", lambda it: it.producer.partitions_for(None)),
    ("topic", lambda it: it.producer.message_bytes_max(None)),
    ("timeout_ms", lambda it: it.producer.close(timeout_ms="1")),
    # Consumer
    ("partitions", lambda it: it.consumer.assign("t3")),
    ("partitions", lambda it: it.consumer.assign(None)),
    ("an item of partitions", lambda it: it.consumer.assign(["t3"])),
    ("an item of partitions", lambda it: it.consumer.assign(("t", 0))),
    ("an item of partitions", lambda it: it.consumer.assign([("t", "0")])),
    ("an item of partitions", lambda it: it.consumer.assign([("t", 0, 1)])),
    ("an item of partitions", lambda it: it.consumer.assign([(b"t", 0)])),
    ("a key of start", lambda it: it.consumer.assign([("t", 1)], start={"t": 0})),
    ("start of t-1", lambda it: it.consumer.assign([("t", 1)], start={("t", 1): 2**63})),
    ("timeout_ms", lambda it: it.consumer.assign([("t", 1)], timeout_ms="1")),
    ("timeout_ms", lambda it: it.consumer.assign([("t", 1)], timeout_ms=float("nan"))),
    ("topics", lambda it: it.consumer.subscribe("t")),
    ("an item of topics", lambda it: it.consumer.subscribe([("t", 0)])),
    ("pattern", lambda it: it.consumer.subscribe(pattern=b"t")),
    ("pattern is no regular expression", lambda it: it.consumer.subscribe(pattern="(")),
    ("listener", lambda it: it.consumer.subscribe(["t"], listener=print)),
    ("group_id", lambda it: it.consumer.subscribe(["t"])),
    ("offsets", lambda it: it.consumer.commit([("t", 0)])),
    (r"offsets\[t-0\]", lambda it: it.consumer.commit({("t", 0): "1"})),
    (r"offsets\[t-0\]", lambda it: it.consumer.commit({("t", 0): -1})),
    ("call subscribe first", lambda it: it.consumer.commit()),
    (r"offsets\[t-0\]", lambda it: it.consumer.member_offsets({("t", 0): -1})),
    ("call subscribe first", lambda it: it.consumer.group_metadata()),
    ("transactional_id", lambda it: it.producer.transaction()),
    ("partition", lambda it: it.consumer.committed("t")),
    ("partition", lambda it: it.consumer.lag("t")),
    ("partition", lambda it: it.consumer.highwater("t")),
    ("timeout_ms", lambda it: it.consumer.close(timeout_ms="1")),
    ("is no place", lambda it: it.consumer.seek_to(5)),
    ("is no place", lambda it: it.consumer.seek_to("-10 minutes")),
    ("partition", lambda it: it.consumer.seek_to("latest", "t")),
    ("timeout_ms", lambda it: it.consumer.seek_to("latest", timeout_ms="1")),
    ("partition", lambda it: it.consumer.pause("t")),
    ("t-7 is not assigned", lambda it: it.consumer.pause(("t", 7))),
    ("partition", lambda it: it.consumer.resume("t")),
    ("timestamps", lambda it: it.consumer.offsets_for_times([("t", 0)])),
    (r"timestamps\[t-0\] .*1970", lambda it: it.consumer.offsets_for_times({("t", 0): -1})),
    ("timeout_ms", lambda it: it.consumer.getmany(timeout_ms="1")),
    ("topic", lambda it: it.consumer.assign_topic(["t"])),
    ("topic", lambda it: it.consumer.assign_topic(b"t")),
    ("partition", lambda it: it.consumer.position("t")),
    ("partition", lambda it: it.consumer.seek("t", 0)),
    ("cannot seek", lambda it: it.consumer.seek(("t", 0), "0")),
    ("cannot seek", lambda it: it.consumer.seek(("t", 0), 2**63)),
    ("cannot seek", lambda it: it.consumer.seek(("t", 0), 1.0)),
    ("positions", lambda it: it.consumer.rewind([("t", 0)])),
    ("an item of partitions", lambda it: it.consumer.seek_to_beginning([("t", 0)])),
    ("an item of partitions", lambda it: it.consumer.seek_to_end("t")),
    ("partitions", lambda it: it.consumer.beginning_offsets("t")),
    ("an item of partitions", lambda it: it.consumer.end_offsets([("t", None)])),
    ("timeout_ms", lambda it: it.consumer.end_offsets([("t", 0)], timeout_ms="1")),
    ("max_records", lambda it: it.consumer.poll("5")),
    ("max_records", lambda it: it.consumer.poll(1.5)),
    ("max_records is 0; .* set timeout_ms=0", lambda it: it.consumer.poll(0)),
    ("max_records is -1", lambda it: it.consumer.getmany(max_records=-1)),
    ("timeout_ms", lambda it: it.consumer.poll(timeout_ms="1")),
    ("timeout_ms", lambda it: it.consumer.poll(timeout_ms=None)),
    ("timeout_ms", lambda it: it.consumer.fetch_batches(timeout_ms="1")),
    # Admin
    ("topics", lambda it: it.admin.create_topics("t")),
    ("an item of topics", lambda it: it.admin.create_topics(["t"])),
    ("name", lambda it: it.admin.create_topic(b"t")),
    ("source", lambda it: it.admin.fork_topic(b"t", "u")),
    ("copy", lambda it: it.admin.fork_topic("t", 7)),
    ("num_partitions", lambda it: it.admin.create_topic("t", "2")),
    ("replication_factor", lambda it: it.admin.create_topic("t", 2, 1.0)),
    ("configs", lambda it: it.admin.create_topic("t", configs=[("a", 1)])),
    ("a key of configs", lambda it: it.admin.create_topic("t", configs={1: 1})),
    ("assignments", lambda it: it.admin.create_topic("t", assignments="12")),
    ("an item of assignments", lambda it: it.admin.create_topic("t", assignments=[1, 2])),
    ("an item of an item of assignments", lambda it: it.admin.create_topic("t", assignments=[["1"]])),
    ("name", lambda it: it.admin.delete_topic(["t"])),
    ("names", lambda it: it.admin.delete_topics("t")),
    ("an item of names", lambda it: it.admin.delete_topics([1])),
    ("timeout_ms", lambda it: it.admin.delete_topic("t", timeout_ms="1")),
    ("timeout_ms", lambda it: it.admin.list_topics(timeout_ms="1")),
    ("names", lambda it: it.admin.describe_topics("t")),
    ("an item of names", lambda it: it.admin.describe_topics([1])),
    ("visible_within_ms", lambda it: it.admin.describe_topics(["t"], visible_within_ms="1")),
    ("topic", lambda it: it.admin.alter_topic_configs(None, {})),
    ("configs", lambda it: it.admin.alter_topic_configs("t", "a=1")),
    ("resource", lambda it: it.admin.alter_configs("t", {})),
    ("meant", lambda it: it.admin.describe_acls("alice")),
    ("entries", lambda it: it.admin.create_acls("alice may read topic flights")),
    ("entries", lambda it: it.admin.create_acls(["alice may read topic flights"])),
    ("filters", lambda it: it.admin.delete_acls(7)),
    ("filters", lambda it: it.admin.delete_acls(["alice"])),
    ("topic", lambda it: it.producer.needs_keys(7)),
    ("transactional_id", lambda it: it.producer.take_over(7)),
    ("user", lambda it: it.admin.set_password(7, "secret")),
    ("password", lambda it: it.admin.set_password("alice", 7)),
    ("user", lambda it: it.admin.remove_user(7)),
    ("timeout_ms", lambda it: it.admin.list_users(timeout_ms=NOW)),
    ("owner", lambda it: it.admin.create_delegation_token(owner=7)),
    ("renewers", lambda it: it.admin.create_delegation_token(renewers="bob")),
    ("max_lifetime_ms", lambda it: it.admin.create_delegation_token(max_lifetime_ms=0)),
    ("hmac", lambda it: it.admin.renew_delegation_token("no base64!")),
    ("hmac", lambda it: it.admin.renew_delegation_token(7)),
    ("period_ms", lambda it: it.admin.expire_delegation_token("AAAA", period_ms=-1)),
    ("users", lambda it: it.admin.describe_delegation_tokens("alice")),
    ("timeout_ms", lambda it: it.admin.describe_quotas(timeout_ms=NOW)),
    ("entity", lambda it: it.admin.alter_quotas("alice", {})),
    ("limits", lambda it: it.admin.alter_quotas({"user": "alice"}, 7)),
    ("the name of user", lambda it: it.admin.alter_quotas({"user": 7}, {})),
    ("the name of resource", lambda it: it.admin.alter_configs((ResourceType.BROKER, 1), {})),
    ("resource", lambda it: it.admin.describe_configs("t")),
    ("timeout_ms", lambda it: it.admin.describe_cluster(timeout_ms=NOW)),
    ("node", lambda it: it.admin.describe_node_configs(None)),
    ("broker", lambda it: it.admin.describe_node(None)),
    ("broker", lambda it: it.admin.describe_node("http://127.0.0.1:1")),
    ("partitions", lambda it: it.admin.describe_node(1, partitions="t")),
    ("broker", lambda it: it.admin.describe_log_dirs(1.0)),
    ("topic", lambda it: it.admin.move_replica(1, 0, broker=1, path="/")),
    ("partition", lambda it: it.admin.move_replica("t", "0", broker=1, path="/")),
    ("path", lambda it: it.admin.move_replica("t", 0, broker=1, path=None)),
    ("topic", lambda it: it.admin.describe_partition(None, 0)),
    ("partition", lambda it: it.admin.describe_partition("t", "0")),
    ("since", lambda it: it.admin.describe_reassignments(1)),
    ("timestamps", lambda it: it.admin.list_offsets([("t", 0)])),
    ("a key of timestamps", lambda it: it.admin.list_offsets({"t": 0})),
    (r"timestamps\[t-0\]", lambda it: it.admin.list_offsets({("t", 0): "latest"})),
    (r"timestamps\[t-0\]", lambda it: it.admin.list_offsets({("t", 0): NOW})),
    ("offsets", lambda it: it.admin.delete_records([("t", 0, 1)])),
    ("a key of offsets", lambda it: it.admin.delete_records({"t": 1})),
    ("epochs", lambda it: it.admin.epoch_ends("t")),
    ("states", lambda it: it.admin.list_groups(states="Stable")),
    ("an item of types", lambda it: it.admin.list_groups(types=[1])),
    ("names", lambda it: it.admin.describe_groups("g")),
    ("group", lambda it: it.admin.group_offsets(["g"])),
    ("group", lambda it: it.admin.group_lag(7)),
    ("group", lambda it: it.admin.alter_group_offsets(b"g", {("t", 0): 1})),
    ("offsets", lambda it: it.admin.alter_group_offsets("g", [("t", 0, 1)])),
    (r"offsets\[t-0\]", lambda it: it.admin.alter_group_offsets("g", {("t", 0): "earliest"})),
    ("names", lambda it: it.admin.delete_groups("g")),
    ("group", lambda it: it.admin.delete_group_offsets(7, [("t", 0)])),
    ("an item of partitions", lambda it: it.admin.delete_group_offsets("g", ["t"])),
    ("states", lambda it: it.admin.list_transactions(states="Ongoing")),
    ("an item of producer_ids", lambda it: it.admin.list_transactions(producer_ids=["7"])),
    ("open_longer_than_ms", lambda it: it.admin.list_transactions(open_longer_than_ms="1")),
    ("pattern", lambda it: it.admin.list_transactions(pattern=b"x")),
    ("transactional_ids", lambda it: it.admin.describe_transactions("x")),
    ("partitions", lambda it: it.admin.find_hanging_transactions("t")),
    ("silent_for_ms", lambda it: it.admin.find_hanging_transactions(silent_for_ms="1")),
    ("transactional_id", lambda it: it.admin.abort_transaction(7)),
    ("partition", lambda it: it.admin.abort_hanging_transaction("t-0", 1)),
    ("first_offset", lambda it: it.admin.abort_hanging_transaction(("t", 0), "1")),
    ("brokers", lambda it: it.admin.wait_until_ready(brokers="3")),
    ("topic", lambda it: it.admin.wait_until_in_sync(None)),
    ("predicate", lambda it: it.admin.wait_for_topic("t", 1)),
    ("topic", lambda it: it.admin.create_partitions(None, 2)),
    ("count", lambda it: it.admin.create_partitions("t", "2")),
    ("assignments", lambda it: it.admin.create_partitions("t", 2, assignments={1: 2})),
    ("partitions", lambda it: it.admin.elect_leaders("t")),
    ("an item of partitions", lambda it: it.admin.elect_leaders(["t"])),
    ("replicas", lambda it: it.admin.reassign_partitions([("t", 0)])),
    ("a key of replicas", lambda it: it.admin.reassign_partitions({"t": [1]})),
    ("the replicas of t-0", lambda it: it.admin.reassign_partitions({("t", 0): "12"})),
    ("the replicas of t-0 .*a set has not", lambda it: it.admin.reassign_partitions({("t", 0): {1, 2}})),
    ("timeout_ms", lambda it: it.admin.list_reassignments(timeout_ms="1")),
    ("broker_id", lambda it: it.admin.drain_broker("1")),
    ("broker_id", lambda it: it.admin.unregister_broker("1")),
    ("levels", lambda it: it.admin.update_features("f")),
    ("levels", lambda it: it.admin.update_features({"f": "1"})),
    ("timeout_ms", lambda it: it.admin.describe_quorum(timeout_ms="1")),
    ("timeout_ms", lambda it: it.admin.describe_features(timeout_ms="1")),
    ("voter_id", lambda it: it.admin.add_voter("1", UUID(int=1), "127.0.0.1:1")),
    ("directory_id", lambda it: it.admin.add_voter(1, "x", "127.0.0.1:1")),
    ("endpoint", lambda it: it.admin.add_voter(1, UUID(int=1), 1)),
    ("voter_id", lambda it: it.admin.remove_voter(None)),
    ("directory_id", lambda it: it.admin.remove_voter(1, "x")),
]


async def outcome(use: Use, world: World) -> Any:
    result = use(world)
    return await result if isinstance(result, Awaitable) else result


@pytest.mark.parametrize(("text", "use"), USES)
async def test_it_is_refused_by_its_name(text: str, use: Use, world: World) -> None:
    with pytest.raises(REFUSED, match=text) as refused:
        await outcome(use, world)
    assert type(refused.value) in {TypeError, ConfigError, InvalidRequestError, InvalidRecordError}
    await world.producer.flush()
    assert world.consumer.assignment() == [("t", 0)]
    assert not any(log.end_offset for log in world.cluster.logs.values())


def test_every_method_with_arguments_is_in_the_table() -> None:
    """What takes something is asked with something else, in `USES`."""
    text = Path(__file__).read_text()
    for cls, name in ((Admin, "admin"), (Producer, "producer"), (Consumer, "consumer")):
        for method, function in inspect.getmembers(cls, inspect.isfunction):
            takes = set(inspect.signature(function).parameters) - {"self"}
            if not method.startswith("_") and takes:
                assert f"it.{name}.{method}(" in text, method


@pytest.mark.parametrize(
    "servers",
    [None, b"127.0.0.1:1", 9092, {"127.0.0.1:1": 1}, ["127.0.0.1", 1], [b"127.0.0.1:1"], "http://127.0.0.1:1", "a b:1"],
)
@pytest.mark.parametrize("cls", [Admin, Producer, Consumer, SyncAdmin, SyncProducer, SyncConsumer])
def test_bootstrap_servers(cls: Any, servers: Any) -> None:
    with pytest.raises(ConfigError, match=r"bootstrap\.servers"):
        cls(servers, transport=FakeCluster().transport())


@pytest.mark.parametrize(
    ("cls", "settings"),
    [
        (Admin, {"client_id": 7}),
        (Admin, {"timeout_ms": "1"}),
        (Admin, {"timeout_ms": 0}),
        (Producer, {"client_id": None}),
        (Producer, {"partitioner": "murmur2"}),
        (Producer, {"partitioner": DefaultPartitioner}),
        (Producer, {"partitioner": lambda: 0}),
        (Producer, {"request_timeout_ms": 2**31}),
        (Producer, {"max_request_bytes": 2**31}),
        (Consumer, {"client_id": b"me"}),
        (Consumer, {"client_rack": None}),
        (Consumer, {"fetch_max_wait_ms": 2**31}),
        (Consumer, {"fetch_max_bytes": 2**31}),
        (Consumer, {"request_timeout_ms": 2**31}),
    ],
)
def test_settings(cls: Any, settings: dict[str, Any]) -> None:
    (name,) = settings
    with pytest.raises(ConfigError, match=name.replace("_", ".")):
        cls("127.0.0.1:1", transport=FakeCluster().transport(), **settings)


def test_a_mapping_is_no_list_of_records_without_async() -> None:
    cluster = FakeCluster()
    cluster.create_topic("t")
    records: Any = {b"k": b"v"}
    with SyncProducer(cluster.bootstrap, transport=cluster.transport()) as producer:  # type: ignore[arg-type]
        with pytest.raises(TypeError, match=r"records .*not a mapping"):
            producer.send_many("t", records)
        producer.send_many("t", ((value, key) for key, value in records.items())).result(5)
    assert [(record.key, record.value) for record in cluster.logs["t", 0].records()] == [(b"k", b"v")]


async def test_what_is_like_the_right_type_is_taken(world: World) -> None:
    class Whole:
        """As integers of other libraries are."""

        def __init__(self, value: int) -> None:
            self._value = value

        def __index__(self) -> int:
            return self._value

    await (await world.producer.send("t", b"", headers=[["a", None]], timestamp_ms=5))
    await world.consumer.assign([["t", 0], ("t", 1)], start={("t", 0): 0, ("t", 1): Whole(0)})
    world.consumer.seek(["t", 1], Whole(0))
    assert world.consumer.position(("t", 1)) == 0
    await world.consumer.end_offsets({("t", 0): 0})
    await world.consumer.poll(timeout_ms=1.5)


class Text(str):
    """As strings of other libraries are."""

    __slots__ = ()


class Pair(NamedTuple):
    name: str
    data: bytes | None


@pytest.mark.parametrize(
    "headers",
    [
        [],
        (),
        [("trace", b"1" * 300), ("\N{SNOWMAN}" * 200, b"")],
        (("a", None), ["b", b"1" * 70]),
        [Pair("name", b"data"), (Text("name"), b"data"), ("", b"")],
    ],
)
def test_headers_are_counted_as_a_batch_counts_them(headers: Any) -> None:
    bound = batch_bytes_bound(b"key", b"value", headers)
    assert batch_bytes_bound(b"key", b"value") + headers_bytes_bound(headers) == bound
    assert len(encode_batch([(1, b"key", b"value", headers)])) <= bound


@pytest.mark.parametrize(
    "header",
    [
        "ab",
        b"ab",
        ("a",),
        ("a", b"1", b"2"),
        {"a": b"1", "b": b"2"},
        ("a", "1"),
        (b"a", b"1"),
        (None, b"1"),
        ("a", 1),
        7,
    ],
)
def test_what_is_no_header_is_refused_behind_good_ones(header: Any) -> None:
    with pytest.raises(TypeError, match=r"^an item of headers is "):
        headers_bytes_bound([("good", b"1"), header])
