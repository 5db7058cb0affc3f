"""Server configuration: one table of keys, three ways to write a file, and errors that name the next step."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from replog.config.keys import nearest_name
from replog.config.kinds import Number
from replog.config.server import Endpoint, FlushPolicy, NamedEndpoint, ProcessRole, ServerConfig, VoterAddress
from replog.config.server_keys import KEYS
from replog.errors import ConfigError
from replog.metadata.records import CLIENT_LISTENER
from tests.unit.config.minimal_config import MINIMAL, refused

THREE_VOTERS = "1@127.0.0.1:9001,2@127.0.0.1:9002,3@127.0.0.1:9003"
NUMBERS = [name for name, key in KEYS.items() if isinstance(key.kind, Number)]


# ---- reading ---------------------------------------------------------------------------------------------------------


def test_two_keys_are_enough() -> None:
    config = ServerConfig.from_mapping(MINIMAL)
    assert config == ServerConfig(node_id=1, log_dirs=("/data/replog",))
    assert config.client_listener == Endpoint("127.0.0.1", 9092)
    assert config.is_broker
    assert config.is_controller
    assert config.voter_ids == (1,)
    assert config.log_dir == "/data/replog"


@pytest.mark.parametrize(
    "text",
    [
        '"node.id" = 7\n"log.dirs" = ["d"]\n"log.flush.interval.ms" = 10\n"log.roll.ms" = 5',
        'node.id = 7\nlog.dirs = "d"\nlog.flush.interval.ms = 10\nlog.roll.ms = 5',
        '[node]\nid = 7\n[log]\ndirs = ["d"]\nroll.ms = 5\n[log.flush]\n"interval.ms" = 10',
    ],
)
def test_quoted_names_and_tables_mean_the_same(text: str, tmp_path: Path) -> None:
    file = tmp_path / "server.toml"
    file.write_text(text, encoding="utf-8")
    expected = ServerConfig(node_id=7, log_dirs=(str(tmp_path / "d"),), log_flush_interval_ms=10, log_roll_ms=5)
    assert ServerConfig.from_toml(file) == expected


@pytest.mark.parametrize(
    ("line", "names"),
    [
        ('"log.dirs" = ["data", "../disk2", "/disk3"]', ["node/data", "disk2", "/disk3"]),
        ('"log.dirs" = "data, ./more"', ["node/data", "node/more"]),
        ('"log.dir" = "a,b"', ["node/a,b"]),
    ],
)
def test_relative_folders_of_a_file_are_beside_it(
    line: str, names: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "node").mkdir()
    (tmp_path / "node" / "server.toml").write_text(f'"node.id" = 1\n{line}\n', encoding="utf-8")
    for directory, file in ((tmp_path, "node/server.toml"), (tmp_path / "node", "server.toml")):
        monkeypatch.chdir(directory)
        assert ServerConfig.from_toml(file).log_dirs == tuple(str(tmp_path / name) for name in names)


def test_relative_folders_of_a_program_are_where_it_was_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A node goes on writing there after `os.chdir`."""
    monkeypatch.chdir(tmp_path)
    made = ServerConfig(node_id=1, log_dirs=("data", "./more", "../up", "/disk//3"))
    overridden = ServerConfig.from_mapping({"node.id": 1}, overrides={"log.dirs": "data"})
    monkeypatch.chdir("/")
    assert made.log_dirs == (f"{tmp_path}/data", f"{tmp_path}/more", f"{tmp_path.parent}/up", "/disk//3")
    assert overridden.log_dirs == (f"{tmp_path}/data",)


def test_typed_values_of_every_kind() -> None:
    config = ServerConfig.from_mapping(
        MINIMAL
        | {
            "process.roles": ["controller", "broker"],
            "listeners": ["127.0.0.1:9092"],
            "inter.broker.listener": "127.0.0.1:9001",
            "controller.quorum.voters": THREE_VOTERS.split(","),
            "flush.policy": "always",
            "unclean.leader.election.enable": True,
            "broker.rack": "zone a",
            "cluster.id": "AAECAwQFBgcICQoLDA0ODw",
        }
    )
    assert config.process_roles == (ProcessRole.CONTROLLER, ProcessRole.BROKER)
    assert config.client_listener == Endpoint("127.0.0.1", 9092)
    assert config.peer_listener == Endpoint("127.0.0.1", 9001)
    assert config.controller_quorum_voters[2] == VoterAddress(3, Endpoint("127.0.0.1", 9003))
    assert config.voter_ids == (1, 2, 3)
    assert config.flush_policy is FlushPolicy.ALWAYS
    assert config.unclean_leader_election_enable is True


def test_kafkas_lists_with_commas() -> None:
    values = {
        "process.roles": "broker, controller",
        "log.dirs": "/disk1/data, /disk2/data",
        "listeners": "127.0.0.1:9000",
        "controller.quorum.voters": THREE_VOTERS,
    }
    config = ServerConfig.from_mapping(MINIMAL | values)
    assert len(config.controller_quorum_voters) == 3
    assert config.log_dirs == ("/disk1/data", "/disk2/data")
    assert config.log_dir == "/disk1/data", "the metadata log is there"


def test_a_single_folder_may_be_called_log_dir() -> None:
    assert ServerConfig.from_mapping({"node.id": 1, "log.dir": "/a,b"}).log_dirs == ("/a,b",)
    with pytest.raises(ConfigError, match="unknown key"):
        ServerConfig.from_mapping({"node.id": 1, "log.dir": "/a", "log.dirs": ["/b"]})


def test_overrides_win_and_texts_are_read_as_on_a_command_line() -> None:
    config = ServerConfig.from_mapping(
        MINIMAL | {"num.partitions": 3},
        overrides={"num.partitions": "6", "allow.insecure": "true", "log.segment.bytes": "2_000_000", "node.id": 4},
    )
    assert (config.num_partitions, config.allow_insecure, config.log_segment_bytes, config.node_id) == (
        6,
        True,
        2_000_000,
        4,
    )


def test_replace_checks_again() -> None:
    config = ServerConfig.from_mapping(MINIMAL)
    assert replace(config, num_partitions=2).num_partitions == 2
    with pytest.raises(ConfigError):
        replace(config, num_partitions=0)


# ---- refusing --------------------------------------------------------------------------------------------------------


def test_unknown_key_names_the_nearest(tmp_path: Path) -> None:
    file = tmp_path / "server.toml"
    file.write_text('"node.id" = 1\n"log.dirs" = ["d"]\n"replica.lag.max.ms" = 10', encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        ServerConfig.from_toml(file)
    assert (caught.value.field, caught.value.value) == ("replica.lag.max.ms", 10)
    assert str(caught.value) == (
        f'{file}: unknown key "replica.lag.max.ms". Did you mean "replica.lag.time.max.ms"?'
        " (milliseconds, 1 to 86,400,000, default 10,000)"
    )


def test_unknown_key_that_is_like_none() -> None:
    assert str(refused({"zzz": 1})) == (
        'unknown key "zzz". No key is like it; `python -m replog.config.docs` lists them all'
    )


@pytest.mark.parametrize(
    ("written", "nearest"),
    [
        ("node_id", "node.id"),
        ("Log-Dirs", "log.dirs"),
        ("log.dir", "log.dirs"),
        ("min.insync.replica", "min.insync.replicas"),
    ],
)
def test_nearest_name(written: str, nearest: str) -> None:
    assert nearest_name(written, KEYS) == nearest


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (
            {"replica.lag.time.max.ms": 0},
            "replica.lag.time.max.ms = 0 is out of range (milliseconds, 1 to 86,400,000, default 10,000)",
        ),
        (
            {"offsets.topic.segment.bytes": 1_000_000},  # the topic would be refused: no group had a coordinator
            "offsets.topic.segment.bytes = 1,000,000 is out of range (bytes, 1,048,576 to 2,147,483,647, default 104,857,600)",
        ),
        (
            {"log.retention.bytes": -2},
            "log.retention.bytes = -2 is out of range (bytes, -1 to 9,223,372,036,854,775,807, -1 = no limit, default -1)",
        ),
        ({"node.id": "one"}, 'node.id = "one" is not a whole number (0 to 2,147,483,647, required)'),
        ({"node.id": True}, "node.id = true is not a whole number (0 to 2,147,483,647, required)"),
        ({"num.partitions": 1.5}, "num.partitions = 1.5 is not a whole number (1 to 10,000, default 1)"),
        ({"allow.insecure": "yes"}, 'allow.insecure = "yes" is not true or false (true or false, default false)'),
        (
            {"flush.policy": "never"},
            'flush.policy = "never" is none of the choices ("auto", "always" or "os", default "auto")',
        ),
        ({"log.dirs": []}, "log.dirs = [] is empty (list of folders, required)"),
        ({"log.dirs": ["a", "a"]}, 'log.dirs = ["a", "a"] names something twice (list of folders, required)'),
        (
            {"broker.rack": 1},
            "broker.rack = 1 is not a string (1 to 255 printable characters, default not set)",
        ),
        (
            {"process.roles": ["broker", "broker"]},
            (
                'process.roles = ["broker", "broker"] names something twice'
                ' ("broker", "controller" or both, default ["broker", "controller"])'
            ),
        ),
        (
            {"process.roles": "worker"},
            (
                'process.roles = "worker" is none of the choices'
                ' ("broker", "controller" or both, default ["broker", "controller"])'
            ),
        ),
    ],
)
def test_bad_values_say_unit_range_and_default(values: dict[str, object], message: str) -> None:
    error = refused(values)
    assert str(error) == message
    assert error.field == next(iter(values))


def test_missing_key() -> None:
    with pytest.raises(ConfigError) as caught:
        ServerConfig.from_mapping({"log.dirs": ["d"]})
    assert str(caught.value) == "node.id is missing (0 to 2,147,483,647, required)"


def test_a_key_given_twice() -> None:
    assert str(refused({"node": {"id": 2}})) == '"node.id" is given twice, as a quoted name and in a table. Keep one'


@pytest.mark.parametrize(
    ("content", "reason"),
    [(None, "cannot be read: No such file or directory"), (b"node.id = ", "is not TOML: "), (b"\xff", "is not TOML: ")],
)
def test_files_that_cannot_be_read(content: bytes | None, reason: str, tmp_path: Path) -> None:
    file = tmp_path / "server.toml"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(ConfigError) as caught:
        ServerConfig.from_toml(file)
    assert str(caught.value).startswith(f"{file}: {reason}")


@pytest.mark.parametrize("name", NUMBERS)
def test_both_ends_of_every_range_are_allowed_and_one_more_is_not(name: str) -> None:
    key = KEYS[name]
    assert isinstance(key.kind, Number)
    assert key.parse(key.kind.low) == key.kind.low
    assert key.parse(key.kind.high) == key.kind.high
    for outside in (key.kind.low - 1, key.kind.high + 1):
        with pytest.raises(ConfigError, match="is out of range"):
            key.parse(outside)


# ---- values that belong together -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "field", "words"),
    [
        (
            {"broker.heartbeat.interval.ms": 9_000},
            "broker.heartbeat.interval.ms",
            "below broker.session.timeout.ms = 9,000",
        ),
        (
            {"group.consumer.heartbeat.interval.ms": 45_000},
            "group.consumer.heartbeat.interval.ms",
            "which group.consumer.session.timeout.ms allows",
        ),
        (
            {"group.max.session.timeout.ms": 5_000},
            "group.min.session.timeout.ms",
            "which group.max.session.timeout.ms allows",
        ),
        ({"message.max.bytes": 4096, "log.segment.bytes": 2048}, "message.max.bytes", "raise log.segment.bytes"),
        (
            {"message.max.bytes": 2**21, "queued.max.request.bytes": 2**20},
            "message.max.bytes",
            "raise queued.max.request.bytes",
        ),
        (
            {"replica.fetch.min.bytes": 4096, "replica.fetch.max.bytes": 2048},
            "replica.fetch.min.bytes",
            "raise replica.fetch.max.bytes",
        ),
        ({"replica.fetch.wait.max.ms": 20_000}, "replica.fetch.wait.max.ms", "raise replica.lag.time.max.ms"),
        (
            {"replica.fetch.wait.max.ms": 500, "request.timeout.ms": 500},
            "replica.fetch.wait.max.ms",
            "raise request.timeout.ms",
        ),
        ({"process.roles": ["broker"]}, "controller.quorum.voters", "is missing"),
        (
            {"process.roles": ["broker"], "controller.quorum.voters": THREE_VOTERS, "listeners": ["127.0.0.1:9001"]},
            "process.roles",
            "lacks controller",
        ),
        ({"controller.quorum.voters": THREE_VOTERS}, "controller.quorum.voters", "reach it at 127.0.0.1:9093"),
        (
            {"controller.quorum.voters": THREE_VOTERS, "listeners": ["127.0.0.1:0"]},
            "controller.quorum.voters",
            "port 0 cannot be used by a voter",
        ),
        (
            {"controller.quorum.voters": "1@127.0.0.1:9092,1@127.0.0.1:9093"},
            "controller.quorum.voters",
            "names a node id twice",
        ),
        (
            {"controller.quorum.voters": "1@127.0.0.1:9092,2@127.0.0.1:9092"},
            "controller.quorum.voters",
            "gives two voters the same address",
        ),
    ],
)
def test_contradictions(values: dict[str, object], field: str, words: str) -> None:
    error = refused(values)
    assert error.field == field
    assert words in str(error)


def test_a_broker_beside_a_quorum_of_others() -> None:
    values = {
        "node.id": 9,
        "process.roles": "broker",
        "controller.quorum.voters": THREE_VOTERS,
        "listeners": "127.0.0.1:0",
    }
    config = ServerConfig.from_mapping(MINIMAL | values)
    assert not config.is_controller
    assert config.voter_ids == (1, 2, 3)


def test_a_controller_that_may_become_a_voter_later() -> None:
    values = {"node.id": 9, "controller.quorum.voters": THREE_VOTERS, "listeners": "127.0.0.1:0"}
    config = ServerConfig.from_mapping(MINIMAL | values)
    assert config.is_controller
    assert config.voter_ids == (1, 2, 3)


def test_a_voter_may_be_reached_at_its_advertised_address() -> None:
    config = ServerConfig.from_mapping(
        MINIMAL
        | {
            "listeners": "0.0.0.0:9092",
            "allow.insecure": True,
            "advertised.listeners": "10.0.0.1:9092",
            "controller.quorum.voters": "1@10.0.0.1:9093,2@10.0.0.2:9093,3@10.0.0.3:9093",
        }
    )
    assert config.is_controller
    assert config.advertised_listeners == (NamedEndpoint(CLIENT_LISTENER, Endpoint("10.0.0.1", 9092)),)


# ---- the table and the file ------------------------------------------------------------------------------------------


BEGIN_OTHERS = {"max.connections", "max.connections.per.ip"}
"""Names of Kafka's with which others of Kafka's begin: beside them they are written in quotes, not as tables."""


def test_no_name_is_the_beginning_of_another() -> None:
    """Goal: tables and values never collide in one TOML file."""
    assert {a for a in KEYS for b in KEYS if b.startswith(a + ".")} == BEGIN_OTHERS


def test_a_name_with_which_others_begin_is_told_from_them(tmp_path: Path) -> None:
    file = tmp_path / "server.toml"
    file.write_text(
        '"node.id" = 1\n"log.dirs" = ["/data"]\n"max.connections" = 70\n"max.connections.per.ip" = 7\n'
        '"max.connections.per.ip.overrides" = "10.0.0.7:9,[2001:DB8::7]:8"\n'
    )
    config = ServerConfig.from_toml(file)
    assert (config.max_connections, config.max_connections_per_ip) == (70, 7)
    counts = [(each.address, each.count) for each in config.max_connections_per_ip_overrides]
    assert counts == [("10.0.0.7", 9), ("2001:db8::7", 8)]
    file.write_text(config.to_toml())
    assert ServerConfig.from_toml(file) == config


@pytest.mark.parametrize("overrides", ["10.0.0.7", "10.0.0.7:x", "host:5", "10.0.0.7:1,10.0.0.7:2"])
def test_overrides_that_are_none_are_refused(overrides: str) -> None:
    refused({"max.connections.per.ip.overrides": overrides})


def test_every_default_is_a_valid_value() -> None:
    for key in KEYS.values():
        if not key.is_required:
            assert key.parse(key.default) == key.default


@given(data=st.data())
def test_to_toml_gives_the_same_configuration_again(data: st.DataObject) -> None:
    chosen = data.draw(st.lists(st.sampled_from(["num.partitions", "log.roll.ms", "log.retention.bytes"]), unique=True))
    numbers = {name: data.draw(st.integers(*_range(name)), label=name) for name in chosen}
    here, voter = "127.0.0.1:9092", "1@127.0.0.1:9093"
    listener, voters = data.draw(st.sampled_from([(here, []), (here, [voter]), ("[::1]:0", [])]))
    config = ServerConfig.from_mapping(
        MINIMAL
        | numbers
        | {
            "log.dirs": [
                data.draw(st.text(min_size=1).filter(lambda s: s.strip() and "\0" not in s and s.isprintable()))
            ],
            "flush.policy": data.draw(st.sampled_from(["auto", "always", "os"])),
            "listeners": [listener],
            "controller.quorum.voters": voters,
            "broker.rack": data.draw(st.sampled_from(["a", 'q"\\', "x\x7f"])),
            "unclean.leader.election.enable": data.draw(st.booleans()),
        }
    )
    assert ServerConfig.from_mapping(tomllib.loads(config.to_toml())) == config


def _range(name: str) -> tuple[int, int]:
    kind = KEYS[name].kind
    assert isinstance(kind, Number)
    return kind.low, kind.high
