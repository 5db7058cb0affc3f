"""A word that is not known is refused with the words that are, wherever a string chooses."""

from __future__ import annotations

import inspect
import re
from typing import Any

import pytest
from fake_cluster import FakeCluster

from replog.client import Admin, Consumer, Producer, SyncAdmin, SyncConsumer, SyncProducer
from replog.client.settings import ANY, INSTEAD
from replog.errors import ConfigError, InvalidRequestError
from replog.local import open_log

MISSPELT: list[Any] = ["beginning", "Latest", "", None, 5, ["latest"]]


def consumer_of(cluster: FakeCluster, **settings: Any) -> Consumer:
    return Consumer(cluster.bootstrap, transport=cluster.transport(), **settings)


@pytest.mark.parametrize("start", MISSPELT)
async def test_where_to_start(start: Any) -> None:
    cluster = FakeCluster()
    cluster.create_topic("t")
    async with consumer_of(cluster) as consumer:
        with pytest.raises(ConfigError, match=r'start is .*"earliest", "latest"'):
            await consumer.assign([("t", 0)], start=start)
        with pytest.raises(ConfigError, match=r'start is .*"earliest", "latest"'):
            await consumer.assign_topic("t", start=start)
        assert consumer.assignment() == []


@pytest.mark.parametrize(
    ("offset", "text"),
    [(-1, "no record is as late"), (-2, "no offset from 0"), ("0", "no offset"), (None, "no offset")],
)
async def test_what_is_no_offset(offset: Any, text: str) -> None:
    cluster = FakeCluster()
    cluster.create_topic("t")
    async with consumer_of(cluster) as consumer:
        with pytest.raises(InvalidRequestError, match=f"start of t-0 is .*{text}"):
            await consumer.assign([("t", 0)], start={("t", 0): offset})
        await consumer.assign([("t", 0)])
        with pytest.raises(InvalidRequestError, match="cannot seek"):
            consumer.seek(("t", 0), offset)


@pytest.mark.parametrize("policy", MISSPELT)
def test_where_to_go_on_after_data_loss(policy: Any) -> None:
    with pytest.raises(ConfigError, match='"raise", "earliest", "latest"'):
        consumer_of(FakeCluster(), auto_offset_reset=policy)


@pytest.mark.parametrize(
    "setting", [{"acks": "ALL"}, {"acks": "1"}, {"acks": 2}, {"acks": []}, {"enable_idempotence": "false"}]
)
def test_what_counts_as_written(setting: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="must be one of"):
        Producer("127.0.0.1:1", transport=FakeCluster().transport(), **setting)


async def test_elections_and_resources() -> None:
    cluster = FakeCluster()
    wrong: Any = "unclean"
    async with Admin(cluster.bootstrap, transport=cluster.transport()) as admin:
        with pytest.raises(ConfigError, match=r"ElectionType\.PREFERRED, ElectionType\.UNCLEAN"):
            await admin.elect_leaders(election_type=wrong)
        with pytest.raises(ConfigError, match=r"ResourceType\.TOPIC, ResourceType\.BROKER"):
            await admin.describe_configs((wrong, "t"))
        with pytest.raises(ConfigError, match=r"ResourceType\.TOPIC, ResourceType\.BROKER"):
            await admin.alter_configs((wrong, "t"), {})


@pytest.mark.parametrize("setting", [{"flush": "Always"}, {"flush": []}, {"codec": "zip"}, {"codec": 4}, {"codec": []}])
def test_local_logs(setting: dict[str, Any], tmp_path: Any) -> None:
    with pytest.raises(ConfigError, match="must be one of"):
        open_log(tmp_path / "log", **setting)


@pytest.mark.parametrize("value", [-5, 1.5, "5", True, None])
@pytest.mark.parametrize(
    "name",
    [
        "fetch_max_wait_ms",
        "fetch_min_bytes",
        "fetch_max_bytes",
        "max_partition_fetch_bytes",
        "buffer_memory_bytes",
        "request_timeout_ms",
        "connect_timeout_ms",
    ],
)
async def test_a_consumer_refuses_numbers_that_mean_nothing(name: str, value: object) -> None:
    settings: dict[str, Any] = {name: value}
    with pytest.raises(ConfigError, match=name.replace("_", ".")):
        Consumer("127.0.0.1:1", **settings)


@pytest.mark.parametrize(
    "settings",
    [{"linger_ms": float("nan")}, {"linger_ms": "5"}, {"batch_size_bytes": True}, {"fail_below_min_isr": "no"}],
)
async def test_a_producer_refuses_numbers_that_mean_nothing(settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(settings)).replace("_", ".")):
        Producer("127.0.0.1:1", **settings)


@pytest.mark.parametrize(
    ("cls", "name", "instead"),
    [
        (Producer, "retries", "records are sent again until delivery_timeout_ms is over: set that"),
        (Producer, "retry_backoff_ms", "cannot be set"),
        (Producer, "max_in_flight_requests_per_connection", "use max_in_flight_per_partition"),
        (Producer, "max.in.flight.requests.per.connection", "use max_in_flight_per_partition"),
        (Producer, "linger.ms", "write it linger_ms"),
        (SyncProducer, "lingr_ms", "did you mean linger_ms?"),
        (Consumer, "ssl_cafile", "use security: Security.tls, scram"),
        (Consumer, "session_timeout_ms", "set group.consumer.session.timeout.ms of the brokers"),
        (SyncConsumer, "auto_offset_rest", "did you mean auto_offset_reset?"),
        (SyncConsumer, "retries", "what may be tried again is, until its time-out is over"),
        (Consumer, "compression_type", "it is of a Producer"),
        (SyncProducer, "max_poll_records", "it is of a Consumer"),
        (Consumer, "isolation_level", "only records of committed transactions are read"),
        (Admin, "reconnect_backoff_ms", "cannot be set"),
        (Admin, "request_timeout_ms", "did you mean timeout_ms?"),
        (SyncAdmin, "colour", "it has bootstrap_servers, client_id, timeout_ms, security, transport"),
    ],
)
def test_a_setting_that_there_is_not_says_what_to_use_instead(cls: type[Any], name: str, instead: str) -> None:
    with pytest.raises(ConfigError, match=f"^{cls.__name__} has no setting {re.escape(name)}: .*{re.escape(instead)}"):
        cls("127.0.0.1:1", transport=FakeCluster().transport(), **{name: 1})


@pytest.mark.parametrize(
    ("cls", "call"),
    [
        (Admin, "Admin(servers, timeout_ms=10_000)"),
        (Consumer, 'Consumer(servers, group_id="readers") and then await consumer.subscribe(["orders"])'),
        (SyncConsumer, 'SyncConsumer(servers, group_id="readers") and then consumer.subscribe(["orders"])'),
        (Producer, 'Producer(servers, acks="all") and then await producer.send("orders", b"two coffees")'),
        (SyncProducer, 'SyncProducer(servers, acks="all") and then producer.send("orders", b"two coffees")'),
    ],
)
@pytest.mark.parametrize("misplaced", ["orders", ["orders"]])
def test_an_argument_without_its_name_says_the_right_call(cls: type[Any], call: str, misplaced: object) -> None:
    with pytest.raises(ConfigError) as caught:
        cls("127.0.0.1:1", misplaced)
    assert str(caught.value).startswith(
        f"{cls.__name__} takes no further argument without its name, such as {misplaced!r}"
    )
    assert str(caught.value).endswith(f": write {call}")


def test_a_subclass_is_told_what_its_client_is_told() -> None:
    for client in (Consumer, SyncConsumer):
        mine: Any = type("Mine", (client,), {})
        with pytest.raises(ConfigError, match="Mine has no setting group_protocol: a group is joined by KIP-848"):
            mine("127.0.0.1:1", group_protocol="consumer")
        with pytest.raises(ConfigError, match=r"write Mine\(servers"):
            mine("127.0.0.1:1", ["orders"])


def test_what_to_use_instead_is_said_of_no_setting_that_there_is() -> None:
    for cls in (Admin, Consumer, Producer):
        for kind in (ANY, cls.__name__):
            assert INSTEAD[kind].keys().isdisjoint(inspect.signature(cls).parameters)
