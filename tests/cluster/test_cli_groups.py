"""`replog groups` on a cluster: a group of our own consumer, one of a client of Kafka's, and what is refused."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from cli_runs import PATIENCE_S, Done, command, replog, replog_here
from test_cli_cluster import ports, settings, until

from replog.client import SyncAdmin, SyncConsumer, SyncProducer, TopicPartition
from replog.client.admin import group_health
from replog.errors import GroupIdNotFoundError, GroupSubscribedToTopicError, InvalidRequestError, NonEmptyGroupError

pytestmark = pytest.mark.cluster

PARTITIONS = 4
EACH = 10
FIRST_MS = 1_750_000_000_000
QUICK = ("offsets.topic.num.partitions=4", "group.initial.rebalance.delay.ms=0")

Run: TypeAlias = Callable[..., Done]


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Of three nodes, with topic "t" of four partitions: ten records in each, a second apart."""
    path = tmp_path_factory.mktemp("groups") / "cluster"
    quick = [argument for pair in QUICK for argument in ("--set", pair)]
    started = replog("cluster", "start", "--nodes", 3, "--dir", path, "--port", 0, *settings(), *quick)
    assert started.status == 0, started
    found = ",".join(f"127.0.0.1:{port}" for port in ports(path))
    with SyncAdmin(found) as admin, SyncProducer(found) as producer:
        admin.create_topic("t", PARTITIONS)
        for number in range(PARTITIONS * EACH):
            offset, partition = divmod(number, PARTITIONS)
            producer.send("t", b"%d" % number, partition=partition, timestamp_ms=FIRST_MS + offset * 1000)
        producer.flush()
    yield found
    replog("cluster", "stop", "--dir", path)


@pytest.fixture
def admin(servers: str) -> Iterator[SyncAdmin]:
    with SyncAdmin(servers) as found:
        yield found


@pytest.fixture
def run(servers: str) -> Run:
    """A command on that cluster."""

    def call(*arguments: object) -> Done:
        return replog_here("groups", *arguments, env={"REPLOG_BOOTSTRAP_SERVERS": servers})

    return call


def good(run: Run, *arguments: object) -> str:
    done = run(*arguments)
    assert (done.status, done.err) == (0, ""), done
    return done.out


def told(run: Run, *arguments: object) -> Any:
    return json.loads(good(run, *arguments, "--json"))


def refused(run: Run, *arguments: object, status: int = 1) -> str:
    """The line that a command says that is refused."""
    done = run(*arguments)
    assert (done.status, done.out, done.err.count("\n")) == (status, "", 1), done
    return done.err


def everywhere(offset: int) -> dict[tuple[str, int], int]:
    return {("t", partition): offset for partition in range(PARTITIONS)}


def rows(answer: dict[str, Any], field: str) -> list[Any]:
    return [each[field] for each in answer["partitions"]]


def test_a_group_of_our_own_consumer(run: Run, servers: str, admin: SyncAdmin) -> None:
    with (
        SyncConsumer(
            servers,
            group_id="ours",
            client_id="reader",
            auto_offset_reset="earliest",
            enable_auto_commit=False,  # every five seconds it would commit what has been read, beyond what is committed below
        ) as consumer
    ):
        consumer.subscribe(["t"])
        seen = 0
        while seen < PARTITIONS * EACH:
            seen += len(consumer.poll())
        consumer.commit(everywhere(7))
        assert [line.split() for line in good(run, "list", "--state", "stable").splitlines()] == [
            ["group", "type", "state"],
            ["ours", "consumer", "Stable"],
        ]
        (member,) = (group := told(run, "describe", "ours"))["members"]
        assert (member["client_id"], len(member["assignment"])) == ("reader", PARTITIONS)
        assert group["epoch"] == group["target_epoch"] == member["epoch"]
        assert group["coordinator_id"] in {1, 2, 3}
        text = good(run, "describe", "ours", "--members")
        assert text.startswith("ours: Stable, 1 member with 4 partitions of 1 topic, consumer protocol, assigned by ")
        assert "t:0-3" in text

        lag = told(run, "lag", "ours")
        assert (lag["lag"], rows(lag, "lag"), rows(lag, "log_end")) == (4 * 3, [3] * 4, [EACH] * 4)
        assert rows(lag, "owner") == [member["member_id"]] * PARTITIONS
        since_ms = time.time_ns() // 1_000_000 - (FIRST_MS + 7 * 1000)
        assert all(0 <= since_ms - each < PATIENCE_S * 1000 for each in (lag["lag_ms"], *rows(lag, "lag_ms")))
        metrics = good(run, "lag", "ours", "--prometheus")
        assert 'replog_group_lag_records{group="ours",topic="t",partition="3"} 3\n' in metrics
        assert "--json" in refused(run, "lag", "ours", "--prometheus", "--json", status=2)
        assert "ours: 12 behind in 4 partitions, for " in good(run, "lag", "ours")

        reset = ("reset", "ours", "--topic", "t", "--to-earliest")
        assert "has 1 member" in refused(run, *reset, "--execute")
        assert rows(told(run, *reset), "difference") == [-7] * PARTITIONS
        with pytest.raises(NonEmptyGroupError, match="stop them first"):
            admin.alter_group_offsets("ours", everywhere(0))
        assert "1 members" in refused(run, "delete", "ours")
        outcome = admin.delete_group_offsets("ours", [("t", 0)])
        assert isinstance(outcome[TopicPartition("t", 0)], GroupSubscribedToTopicError)
        assert admin.group_offsets("ours") == everywhere(7)
    until(lambda: told(run, "describe", "ours")["state"] == "Empty")


def test_offsets_are_put_elsewhere_only_when_that_is_said(
    run: Run, servers: str, admin: SyncAdmin, tmp_path: Path
) -> None:
    admin.alter_group_offsets("moved", everywhere(5))
    preview = good(run, "reset", "moved", "--topic", "t:1,3", "--shift-by", "-2")
    assert preview.endswith("nothing was changed; --execute commits the new offsets in 2 partitions\n")
    assert [line.split() for line in preview.splitlines()[1:3]] == [["t-1", "5", "3", "-2"], ["t-3", "5", "3", "-2"]]
    assert admin.group_offsets("moved") == everywhere(5)

    def moves(*arguments: object) -> list[int]:
        """Where the group is in every partition after a reset."""
        assert told(run, "reset", "moved", *arguments, "--execute")["executed"]
        return [offset for _, offset in sorted(admin.group_offsets("moved").items())]

    assert moves("--topic", "t:1,3", "--shift-by", "-2") == [5, 3, 5, 3]
    assert moves("--all-topics", "--to-latest") == [EACH] * 4
    assert moves("--topic", "t:0", "--to-time", "2025-06-15T15:06:44Z") == [4, EACH, EACH, EACH]
    assert moves("--all-topics", "--by-duration", "1s") == [EACH] * 4
    assert moves("--all-topics", "--by-duration", "99999d") == [0] * 4
    (tmp_path / "offsets.csv").write_text("t,0,1\nt,2,3\n")
    assert moves("--from-file", tmp_path / "offsets.csv") == [1, 0, 3, 0]
    clamped = told(run, "reset", "moved", "--topic", "t:0", "--to-offset", 99)
    assert (rows(clamped, "new"), rows(clamped, "note")) == ([EACH], ["99 is past the end of the log"])

    with SyncConsumer(servers, group_id="moved") as consumer:
        consumer.subscribe(["t"])
        first: dict[int, int] = {}
        while len(first) < PARTITIONS:
            for record in consumer.poll():
                first.setdefault(record.partition, record.offset)
    assert first == {0: 1, 1: 0, 2: 3, 3: 0}


def test_a_group_begins_where_it_is_put(run: Run, admin: SyncAdmin) -> None:
    where = ("reset", "fresh", "--topic", "t:1", "--to-offset", 3)
    assert "begin" not in refused(run, "reset", "fresh", "--topic", "tt", "--to-offset", 3)
    for begins, more in (("would begin", ()), ("begins", ("--execute",))):
        done = run(*where, *more)
        assert (done.status, done.err) == (0, f'there is no group "fresh" yet; it {begins} with these offsets\n')
    assert admin.group_offsets("fresh") == {("t", 1): 3}


def test_a_topic_is_printed_as_a_group_that_goes_on_where_it_was(servers: str, admin: SyncAdmin) -> None:
    def consume(*arguments: object) -> Done:
        return replog_here("consume", "t", *arguments, env={"REPLOG_BOOTSTRAP_SERVERS": servers})

    admin.alter_group_offsets("printed", {("t", 0): EACH - 1})
    first = consume("--group", "printed", "--max", 11)
    assert (first.status, first.err, len(first.out.split())) == (0, "", 11)
    assert sum(admin.group_offsets("printed").values()) == EACH - 1 + 11
    rest = consume("--group", "printed")
    assert (rest.status, rest.err) == (0, "")
    of_partition_0 = {str(number) for number in range(0, (EACH - 1) * PARTITIONS, PARTITIONS)}
    everything = set(map(str, range(EACH * PARTITIONS)))
    assert sorted(first.out.split() + rest.out.split()) == sorted(everything - of_partition_0)
    assert admin.group_offsets("printed") == everywhere(EACH)
    assert consume("--group", "printed") == Done(0, "", "")
    assert consume("--group", "other", "--from", "latest") == Done(0, "", "")
    assert admin.group_offsets("other") == everywhere(EACH)
    assert "the group decides who reads which" in consume("--group", "printed", "--partition", 1).err
    assert "replog groups reset" in consume("--group", "printed", "--from", 5).err
    assert "does not exist" in replog_here(
        "consume", "no-such", "--group", "printed", env={"REPLOG_BOOTSTRAP_SERVERS": servers}
    ).err  # fmt: skip


def test_a_member_without_a_partition_ends_when_its_time_is_over(servers: str, admin: SyncAdmin) -> None:
    admin.create_topic("single", 1)
    with SyncConsumer(servers, group_id="crowded", auto_offset_reset="earliest") as consumer:
        consumer.subscribe(["single"])
        until(lambda: consumer.poll(timeout_ms=100) == [] and bool(consumer.assignment()))
        arguments = ("consume", "single", "--group", "crowded", "--timeout", 2)
        done = replog_here(*arguments, env={"REPLOG_BOOTSTRAP_SERVERS": servers})
    assert (done.status, done.out) == (1, "")
    assert "the group has given this member no partition" in done.err


def test_what_is_not_there(run: Run, admin: SyncAdmin) -> None:
    admin.alter_group_offsets("there", {("t", 0): 1})
    for arguments in (["describe", "no-such"], ["lag", "no-such"], ["reset", "no-such", "--all-topics", "--to-latest"]):
        assert refused(run, *arguments).startswith('error: there is no group "no-such". `replog groups list`')
    with pytest.raises(GroupIdNotFoundError):
        admin.group_offsets("no-such")
    assert 'no topic "tt"' in refused(run, "reset", "there", "--topic", "tt", "--to-latest")
    assert "t has 4 partitions" in refused(run, "reset", "there", "--topic", "t:4", "--to-latest")
    assert "t-1 has no committed offset" in refused(run, "reset", "there", "--topic", "t", "--shift-by", 1, status=2)
    assert "no group has the state 'stabel'" in refused(run, "list", "--state", "stabel")
    with pytest.raises(InvalidRequestError, match="-1 is no offset"):
        admin.alter_group_offsets("there", {("t", 0): -1})
    assert "nothing of t-3" in refused(run, "offsets", "delete", "there", "t:0,3")
    assert admin.group_offsets("there") == {("t", 0): 1}


def test_groups_of_all_brokers_are_listed_and_deleted(run: Run, admin: SyncAdmin) -> None:
    names = [f"many-{number:02}" for number in range(20)]
    for name in names:
        admin.alter_group_offsets(name, {("t", 0): 1, ("t", 1): 2})
    found = [json.loads(line) for line in good(run, "list", "--state", "empty", "--json").splitlines()]
    assert [each["group_id"] for each in found if each["group_id"].startswith("many-")] == names
    described = admin.describe_groups(names)
    assert len({group.coordinator_id for group in described.values()}) > 1

    assert good(run, "offsets", "delete", names[0], "t:1") == "deleted the offset of t-1\n"
    assert admin.group_offsets(names[0]) == {("t", 0): 1}
    done = run("delete", names[0], "no-such", names[1])
    assert (done.status, done.out) == (1, f"deleted {names[0]}\ndeleted {names[1]}\n")
    assert 'no group "no-such"' in done.err
    assert not {one.group_id for one in admin.list_groups()} & set(names[:2])


def test_a_group_of_a_client_of_kafkas(run: Run, servers: str, admin: SyncAdmin) -> None:
    kafka = pytest.importorskip("confluent_kafka")
    config = {"bootstrap.servers": servers, "group.id": "kafkas", "client.id": "theirs", "group.instance.id": "one"}
    consumer = kafka.Consumer(config | {"auto.offset.reset": "earliest", "enable.auto.commit": False})
    consumer.subscribe(["t"])
    try:
        until(lambda: consumer.poll(0.1) is not None)
        consumer.commit(offsets=[kafka.TopicPartition("t", 2, 6)], asynchronous=False)
        group = told(run, "describe", "kafkas")
        (member,) = group["members"]
        assert (group["group_type"], group["state"], group["assignor"]) == ("classic", "Stable", "range")
        assert (member["client_id"], member["instance_id"]) == ("theirs", "one")
        assert member["assignment"] == [["t", number] for number in range(PARTITIONS)]
        lags = {each.partition: each for each in admin.group_lag("kafkas")}
        assert {number: each.lag for number, each in lags.items()} == {0: None, 1: None, 2: 4, 3: None}
        assert {each.owner.client_id for each in lags.values() if each.owner is not None} == {"theirs"}
        assert "not known in 3 partitions" in good(run, "lag", "kafkas")
    finally:
        consumer.close()


def test_lag_is_watched_until_ctrl_c(servers: str, admin: SyncAdmin) -> None:
    admin.alter_group_offsets("watched", {("t", 0): 4})
    watching = command("groups", "lag", "watched", "--watch", "--interval", 0.2, "--json", "-b", servers)
    with subprocess.Popen(watching, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert json.loads(process.stdout.readline())["lag"] == 6
        admin.alter_group_offsets("watched", {("t", 0): 9})
        assert any(json.loads(line)["lag"] == 1 for line in process.stdout)
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE_S) == 130


def test_status_names_groups_that_nobody_reads_for(
    servers: str, admin: SyncAdmin, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if five minutes had gone by since the commit; the records are older than that."""
    admin.alter_group_offsets("left", everywhere(6))
    admin.alter_group_offsets("done", everywhere(EACH))

    def status() -> dict[str, Any]:
        done = replog_here("status", "--json", env={"REPLOG_BOOTSTRAP_SERVERS": servers})
        assert done.status == 0, done
        found: dict[str, Any] = json.loads(done.out)["groups"]
        return {each["group_id"]: each for each in found["troubled"]}

    assert "left" not in status()
    monkeypatch.setattr(group_health, "STILL_MS", 0)
    monkeypatch.setattr(group_health, "NAMED_MAX", 99)  # the groups of other tests stand still, too
    found = status()
    assert (found["left"]["trouble"], found["left"]["lag"]) == ("has no members", 4 * (EACH - 6))
    assert found["left"]["partitions"] == ["t-0", "t-1", "t-2", "t-3"]
    assert "done" not in found
    text = replog_here("status", env={"REPLOG_BOOTSTRAP_SERVERS": servers}).out
    assert "left: has no members, and is 16 records behind in t-0, t-1, t-2, t-3 for" in " ".join(text.split())
