"""Users by the command line, at a real node: the first one at format time, others later, over restarts and a kill."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from replog.client import Security, SyncAdmin, SyncConsumer, SyncProducer
from replog.errors import (
    GroupAuthorizationError,
    SaslAuthenticationError,
    TopicAuthorizationError,
    UnknownTopicOrPartitionError,
)
from tests.cluster.cli_runs import PATIENCE_S, Done, command, replog, replog_here
from tests.kafka.waiting import until

FIRST = "SCRAM-SHA-512=[name=alice,password=canary-first]"


@contextmanager
def running(config: Path) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """A node in a process of its own, and its address."""
    with subprocess.Popen(command("server", "start", "--config", config), stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        try:
            while "listens on" not in (line := process.stderr.readline()):
                assert line, "it ended early"
            yield line.partition("listens on ")[2].split()[0].rpartition("//")[2], process
        finally:
            process.kill()
            process.wait(PATIENCE_S)


def topics(address: str, user: str, password: str) -> object:
    with SyncAdmin(address, security=Security.scram(user, password)) as admin:
        return admin.list_topics()


def by_command(folder: Path, address: str, *words: object, stdin: str = "") -> Done:
    """Runs a command as alice."""
    path = folder / "alice.toml"
    path.write_text(
        'security.protocol = "SASL_PLAINTEXT"\nsasl.mechanism = "SCRAM-SHA-512"\n'
        'sasl.username = "alice"\nsasl.password = "canary-first"\n'
    )
    return replog_here("--client-config", path, *words, "-b", address, stdin=stdin)


def test_the_first_user_adds_others_and_all_outlive_a_kill(tmp_path: Path) -> None:
    config, data = tmp_path / "server.toml", tmp_path / "data"
    config.write_text(f'"node.id" = 1\n"log.dirs" = ["{data}"]\n"listeners" = ["SASL_PLAINTEXT://127.0.0.1:0"]\n')
    formatted = replog("storage", "format", "--config", config, "--add-scram", "-", stdin=f"{FIRST}\n")
    assert formatted.status == 0, formatted
    assert (data / "first-users").stat().st_mode & 0o077 == 0, "passwords can be tried by what is in it"
    with running(config) as (address, process):
        assert (data / "__cluster_metadata-0").stat().st_mode & 0o077 == 0
        assert topics(address, "alice", "canary-first") == []
        with pytest.raises(SaslAuthenticationError):
            topics(address, "alice", "canary-wrong")
        added = by_command(tmp_path, address, "users", "add", "bob", "--password-file", "-", stdin="canary of bob\n")
        assert (added.status, added.out) == (0, "user bob logs in by SCRAM-SHA-256, SCRAM-SHA-512\n"), added
        process.send_signal(signal.SIGKILL)
        process.wait(PATIENCE_S)
    with running(config) as (address, process):
        assert topics(address, "bob", "canary of bob") == []
        listed = by_command(tmp_path, address, "users", "list", "--json")
        assert json.loads(listed.out) == {
            "alice": {"SCRAM-SHA-512": 4096},
            "bob": {"SCRAM-SHA-256": 4096, "SCRAM-SHA-512": 4096},
        }
        shown = by_command(tmp_path, address, "users", "list").out
        assert "alice\tSCRAM-SHA-512 (4,096 iterations)\n" in shown
        assert by_command(tmp_path, address, "users", "remove", "bob").out == "user bob is removed\n"
        assert by_command(tmp_path, address, "users", "remove", "bob").status == 1
        with pytest.raises(SaslAuthenticationError):
            topics(address, "bob", "canary of bob")
        process.send_signal(signal.SIGINT)
        process.wait(PATIENCE_S)
    dumped = replog("log", "dump", data / "__cluster_metadata-0", "--deep", "--json").out
    assert "UserScramCredentialRecord" in dumped
    assert '"stored_key": "[hidden]"' in dumped
    for file in data.rglob("*"):
        assert file.is_dir() or b"canary" not in file.read_bytes(), file


@pytest.mark.parametrize("line", ["", "\n", "x" * 1025])
def test_a_password_that_is_none_is_refused_before_anybody_is_asked(tmp_path: Path, line: str) -> None:
    file = tmp_path / "password"
    file.write_text(line)
    done = replog_here("users", "add", "bob", "--password-file", file)
    assert done.status == 2
    assert "characters, not 1 to 1,024" in done.err


def test_a_user_may_do_what_entries_say_and_no_more_when_they_are_gone(tmp_path: Path) -> None:
    config, data = tmp_path / "server.toml", tmp_path / "data"
    config.write_text(
        f'"node.id" = 1\n"log.dirs" = ["{data}"]\n"listeners" = ["SASL_PLAINTEXT://127.0.0.1:0"]\n"super.users" = "User:alice"\n'
        '"authorizer.class.name" = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"\n'
    )
    assert replog("storage", "format", "--config", config, "--add-scram", "-", stdin=f"{FIRST}\n").status == 0
    bob = Security.scram("bob", "canary of bob")
    rights = ("bob may write,read topic flights", "bob may read group readers")

    def sent(value: bytes) -> bool:
        with SyncProducer(address, security=bob) as producer:
            try:
                producer.send("flights", value).result()
            except (
                TopicAuthorizationError,
                UnknownTopicOrPartitionError,
            ):  # a topic that he may not describe is hidden
                return False
        return True

    def received(consumer: SyncConsumer) -> bytes | None:
        while not (found := consumer.poll(1)):
            pass
        return found[0].value

    def received_all(consumer: SyncConsumer) -> None:
        while True:
            received(consumer)

    with running(config) as (address, _):
        added = by_command(tmp_path, address, "users", "add", "bob", "--password-file", "-", stdin="canary of bob\n")
        assert added.status == 0, added
        with pytest.raises(TopicAuthorizationError, match="User:bob"), SyncAdmin(address, security=bob) as admin:
            admin.create_topic("bobs", 1, 1)
        with SyncAdmin(address, security=Security.scram("alice", "canary-first")) as admin:
            admin.create_topic("flights", 1, 1)
            assert topics(address, "bob", "canary of bob") == []
            assert not sent(b"0")
            assert by_command(tmp_path, address, "acls", "add", *rights).status == 0
            until(lambda: sent(b"1"))
            with SyncConsumer(address, group_id="readers", auto_offset_reset="earliest", security=bob) as consumer:
                consumer.subscribe(["flights"])
                assert received(consumer) == b"1"
                assert by_command(tmp_path, address, "acls", "remove", "--principal", "User:bob").status == 0
                until(lambda: not sent(b"2"))
                with pytest.raises((TopicAuthorizationError, UnknownTopicOrPartitionError), match=r"DESCRIBE|READ"):
                    received_all(consumer)
            assert by_command(tmp_path, address, "acls", "add", "bob may describe topic flights").status == 0
            until(lambda: "flights" in topics(address, "bob", "canary of bob"))
            with SyncConsumer(address, group_id="others", security=bob) as consumer:
                consumer.subscribe(["flights"])
                with pytest.raises(GroupAuthorizationError, match="others"):
                    received(consumer)
