"""Help, usage errors, and how errors end a command."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from cli_kit import Replog

from replog.cli.app import app
from replog.cli.errors import CommandFailedError, UsageError, describe, exit_status
from replog.cli.main import main
from replog.errors import BrokerNotAvailableError, ConfigError
from replog.host.extras import install_command


def test_help_loads_neither_grpc_nor_the_broker() -> None:
    code = (
        "import sys; from replog.cli.main import main; status = main(['--help']);"
        "heavy = {'grpc', 'google.protobuf', 'pyspark', 'pyarrow', 'replog.broker', 'replog.client', 'replog.log'};"
        "sys.exit(f'loaded: {heavy & set(sys.modules)}' if heavy & set(sys.modules) else status)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=False,
        env={"PYTHONPATH": ":".join(sys.path)},
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_version(replog: Replog) -> None:
    import replog as package

    assert replog("--version") == (0, f"{package.__version__}\n", "")


@pytest.mark.parametrize("missing", ["typer", "rich"])
def test_without_the_extra_one_line_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], missing: str
) -> None:
    for name in [name for name in sys.modules if name.split(".")[0] == missing]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, missing, None)  # importing it raises ModuleNotFoundError
    assert main(["topics", "list"]) == 1
    told = capsys.readouterr().err
    assert told == f"error: the replog command needs typer and rich: {install_command('cli')}\n"


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["topics", "creat"], "No such command 'creat'. Did you mean 'create'? See `replog topics --help`."),
        (["topics", "create"], "See `replog topics create --help`."),
        (["topics", "list", "--nonsense"], "--nonsense"),
        (["consume", "t", "--max", "0"], "--max"),
        (["consume", "t", "--from", "yesterday"], "--from: 'yesterday' is no place in a partition; say \"earliest\""),
        (
            ["consume", "t", "--until", "2026-01-31"],
            "--until: 2026-01-31 has no time zone; say which: 2026-01-31T00:00Z is UTC",
        ),
        (["consume", "t", "--until", "end", "--follow"], "--until and --follow: give one of them"),
        (["consume", "t", "--until", "5", "--group", "g"], "--until: a group reads on from where it is"),
        (["consume", "t", "--format", "jsn"], '--format "jsn" is none of json, value, key-value, or a template'),
        (["consume", "t", "--format", "%k %x"], '--format "%k %x": %x means nothing; say json, value'),
        (["consume", "t", "--format", "%v %"], '--format "%v %": % means nothing'),
        (["consume", "t", "--format", "json", "--json"], "--format, --key-separator and --json: give one of them"),
        (["capture", "--topic", "t", "-o", "f", "--from", "10m"], "--from: '10m' is no place in a partition"),
        (["produce", "t", "--key-separator", ""], "--key-separator is empty"),
        (["topics", "create", "t", "--config", "retention"], '--config "retention" is not KEY=VALUE'),
        (["topics", "list", "-b", "here"], '"here" is not host:port with a port from 1 to 65535, such as'),
        (["server", "start", "--config", "no-such.toml"], "no-such.toml: cannot be read: No such file or directory"),
        (["cluster", "status", "--dir", "no-such"], "no cluster in no-such. `replog cluster start --dir no-such`"),
        (
            ["cluster", "start", "--dir", "/dev/null"],
            "no cluster can be made in /dev/null: it is no directory. Name another",
        ),
        (["cluster", "start", "--dir", "/dev/null/c"], "no cluster can be made in /dev/null/c: /dev/null/c"),
        (["cluster", "start", "--dir", "/proc/c"], "no cluster can be made in /proc/c: /proc/c"),
        (["cluster", "status", "--dir", "/dev/null"], "/dev/null is no directory. Name the directory of a cluster."),
        (["topics", "list", "--dir", "/dev/null"], "/dev/null is no directory. Name the directory of a cluster."),
        (["cluster", "start", "--dir", "x", "--nodes", "17"], "a local cluster has 1 to 9 nodes, not 17"),
        (["cluster", "start", "--dir", "x", "--set", "num.partition=3"], 'Did you mean "num.partitions"?'),
        (["cluster", "start", "--dir", "x", "--set", "num.partitions=0"], "1 to 10,000"),
    ],
)
def test_wrong_usage_is_one_line_and_status_2(
    replog: Replog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], text: str
) -> None:
    monkeypatch.chdir(tmp_path)
    done = replog(*arguments)
    assert done.status == 2
    assert done.err.startswith("error: ")
    assert done.err.count("\n") == 1
    assert text in done.err
    assert list(tmp_path.iterdir()) == []


def test_a_group_without_a_command_shows_its_help(replog: Replog) -> None:
    done = replog("topics")
    assert done.status == 2
    assert "Usage: replog topics" in done.out + done.err


@pytest.fixture
def free_port() -> Iterator[int]:
    """A port that is bound and not listened on: connections are refused, and nobody else takes it."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield taken.getsockname()[1]


@pytest.mark.parametrize(
    "command", [["topics", "list"], ["topics", "describe", "t"], ["consume", "t"], ["produce", "t"]]
)
def test_a_wrong_port_is_told_at_once(replog: Replog, free_port: int, command: list[str]) -> None:
    done = replog(*command, "--bootstrap-servers", f"127.0.0.1:{free_port}")
    assert (done.status, done.out) == (1, "")
    assert done.err == (
        f"error: nothing listens on 127.0.0.1:{free_port}. Check --bootstrap-servers (or REPLOG_BOOTSTRAP_SERVERS), name "
        "a local cluster with --dir, or start one: `replog cluster start --dir DIR`\n"
    )


def test_a_host_that_nobody_knows_is_told_apart_from_a_wrong_port(
    replog: Replog, free_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    resolve = socket.getaddrinfo

    def known(host: Any, *arguments: Any, **options: Any) -> Any:
        if "invalid" in str(host):
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return resolve(host, *arguments, **options)

    monkeypatch.setattr(socket, "getaddrinfo", known)
    addresses = f"a.invalid:9092,127.0.0.1:{free_port},b.invalid:9092"
    done = replog("topics", "list", "--bootstrap-servers", addresses)
    assert (done.status, done.out) == (1, "")
    assert done.err.startswith(
        f"error: no such host: a.invalid:9092, b.invalid:9092; nothing listens on 127.0.0.1:{free_port}. Check --bootstrap"
    )


def test_a_misspelt_choice_is_told_with_the_choices(replog: Replog) -> None:
    done = replog("produce", "t", "--compression", "zst")
    assert (done.status, done.out) == (2, "")
    assert done.err == (
        "error: Invalid value for '--compression': 'zst' is not one of 'none', 'gzip', 'snappy', 'lz4', 'zstd'. "
        "See `replog produce --help`.\n"
    )


def test_bootstrap_servers_come_from_the_environment(
    replog: Replog, free_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REPLOG_BOOTSTRAP_SERVERS", f"127.0.0.1:{free_port}")
    assert f"nothing listens on 127.0.0.1:{free_port}" in replog("topics", "list").err


def test_the_file_of_a_node_that_does_not_run_is_described(replog: Replog, tmp_path: Path) -> None:
    node = {"node_id": 1, "port": 9, "peer_port": 10, "process": None}
    (tmp_path / "cluster.json").write_text(json.dumps({"cluster_id": "c", "nodes": [node]}))
    file = tmp_path / "node-1" / "server.toml"
    file.parent.mkdir()
    file.write_text('"node.id" = 1\n"log.dirs" = ["data"]\n"num.partitions" = 7\n')
    done = replog("configs", "describe", "--dir", tmp_path, "--node", 1, "num.partitions", "node.id", "broker.rack")
    assert (done.status, done.out) == (0, "num.partitions=7  (node)\nnode.id=1  (node)\nbroker.rack=  (default)\n")
    assert done.err == f"node 1 does not run: this is what {file} says\n"
    file.write_text('"node.id" = "one"\n')
    done = replog("configs", "describe", "--dir", tmp_path, "--node", 1)
    assert (done.status, done.out) == (2, "")
    assert str(file) in done.err


def test_every_key_is_explained_and_a_misspelt_one_suggests(replog: Replog) -> None:
    from replog.config.server_keys import KEYS
    from replog.metadata.config_keys import BROKER_KEYS, CONFIG_KEYS, CONTROLLER_KEYS

    names = [*KEYS, *(key.name for key in (*CONFIG_KEYS, *BROKER_KEYS, *CONTROLLER_KEYS))]
    done = replog("configs", "explain", *names)
    assert (done.status, done.err, done.out.count("\nSet it ")) == (0, "", len(names))
    done = replog("configs", "explain", "retention.ms")
    assert done.out.startswith(
        "retention.ms: milliseconds, -1 to 9,223,372,036,854,775,807, -1 = for ever, default 604,800,000\n"
    )
    assert done.out.endswith("; in a node's file as log.retention.ms, from its next start on.\n")
    done = replog("configs", "explain", "node.id", "retention.mss")
    assert (done.status, done.out) == (2, "")
    assert done.err == 'error: unknown key "retention.mss". Did you mean "retention.ms"?\n'


def every_command() -> Iterator[tuple[str, Any]]:
    def walked(group: Any, path: str) -> Iterator[tuple[str, Any]]:
        for name in group.list_commands(None):
            command = group.get_command(None, name)
            is_group = hasattr(command, "list_commands")
            yield from walked(command, f"{path}{name} ") if is_group else [(path + name, command)]

    return walked(typer.main.get_command(app), "")


COMMANDS = dict(every_command())
assert len(COMMANDS) > 40
LOOKING = {"list", "describe", "status", "get", "check", "verify", "dump", "consume"}


@pytest.mark.parametrize("command", [name for name in COMMANDS if name.split()[-1] in LOOKING])
def test_whatever_is_looked_at_can_be_had_as_json(command: str) -> None:
    assert "--json" in [option for parameter in COMMANDS[command].params for option in parameter.opts]


@pytest.mark.parametrize("command", ["", *COMMANDS])
@pytest.mark.parametrize("columns", [80, 200])
def test_every_command_has_help_that_nothing_is_cut_from(
    replog: Replog, monkeypatch: pytest.MonkeyPatch, command: str, columns: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    done = replog(*command.split(), "--help")
    assert (done.status, done.err) == (0, "")
    assert "Usage: replog" in done.out
    assert "…" not in done.out


def test_debug_shows_the_traceback(replog: Replog) -> None:
    with pytest.raises(ConfigError):
        replog("--debug", "cluster", "status", "--dir", "no-such")
    assert replog("cluster", "status", "--dir", "no-such").status == 2  # the option does not outlive its command


@pytest.mark.parametrize(
    ("error", "line", "status"),
    [
        (BrokerNotAvailableError("gone. Try again"), "error: gone. Try again", 1),
        (UsageError("PATH", "x", "x is no file"), "error: x is no file", 2),
        (FileNotFoundError(2, "No such file or directory", "a/b"), "error: a/b: No such file or directory", 1),
        (OSError("no number"), "error: no number", 1),
        (CommandFailedError("node 1 ended:\nits log\nsays why"), "error: node 1 ended:\n  its log\n  says why", 1),
        (CommandFailedError(""), "error: CommandFailedError", 1),
    ],
)
def test_errors_as_lines(error: Exception, line: str, status: int) -> None:
    assert describe(error) == line
    assert exit_status(error) == status
