"""Commands at brokers with TLS and SASL: the file of settings, and certificates that Kafka's own clients take."""

from __future__ import annotations

import asyncio
import itertools
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from kafka_install import KafkaInstall
from secure_doors import PASSWORD, USER, SecureDoors

from replog.client import Admin
from tests.cluster.cli_runs import Done, replog, replog_here
from tests.lint.page_examples import blocks

PAGE = "docs/SECURITY_CLIENTS.md"
PAGE_ROOT = Path(__file__).parents[2]

_numbers = itertools.count(1)

FILE = """\
security.protocol = "SASL_SSL"
ssl.ca.location = "{ca}"
sasl.mechanism = "SCRAM-SHA-512"
sasl.username = "{user}"
sasl.password = "{password}"
"""


def config(folder: Path, doors: SecureDoors, password: str = PASSWORD) -> Path:
    """Writes a file of settings; its authority lies beside it."""
    (folder / "ca.pem").write_bytes((doors.certs / "ca.pem").read_bytes())
    path = folder / "client.toml"
    path.write_text(FILE.format(ca="ca.pem", user=USER, password=password))
    path.chmod(0o600)
    return path


async def make(doors: SecureDoors) -> str:
    topic = f"by-commands-{next(_numbers)}"
    async with Admin(doors.at("PLAINTEXT")) as admin:
        await admin.create_topic(topic, 1, 1)
    return topic


def test_commands_take_the_file_of_the_line_or_of_the_environment(doors: SecureDoors, tmp_path: Path) -> None:
    """Goal: what reads, writes, exports, imports and asks goes to a secure listener, by one file."""
    path, servers, topic = config(tmp_path, doors), doors.at("SASL_SSL"), asyncio.run(make(doors))
    output = tmp_path / "out.jsonl"

    def run(*words: object, stdin: str = "") -> Done:
        done = replog_here("--client-config", path, *words, "-b", servers, stdin=stdin)
        assert done.status == 0, done
        return done

    run("produce", topic, stdin="one\ntwo\n")
    assert run("consume", topic, "--max", 2).out == "one\ntwo\n"
    assert topic in run("topics", "list").out
    run("export", topic, "--to", "jsonl", "--output", output)
    assert len(output.read_text().splitlines()) == 2
    copy = asyncio.run(make(doors))
    run("import", output, "--topic", copy)
    assert run("consume", copy, "--max", 2).out == "one\ntwo\n"
    run("capture", "--topic", topic, "-o", tmp_path / "out.replog")
    run("doctor")
    done = replog("topics", "list", "-b", servers, env={"REPLOG_CLIENT_CONFIG": str(path)})
    assert done.status == 0
    assert topic in done.out


WRONG: dict[str, tuple[Any, int, str]] = {
    "password": (lambda folder, doors: config(folder, doors, "canary-of-a-file"), 1, 'user "alice" by SCRAM-SHA-512 failed'),
    "no-file": (lambda folder, _: folder / "none.toml", 2, "cannot be read: No such file"),
    "no-toml": (lambda folder, _: _written(folder, "sasl.password = canary-x"), 2, "is no TOML"),
    "unknown": (lambda folder, _: _written(folder, 'sasl.passwort = "canary-x"'), 2, "sasl.passwort is not known here"),
    "number": (lambda folder, _: _written(folder, "sasl.password = 17171717"), 2, "is a int; it must be text"),
    "no-ca": (
        lambda folder, _: _written(folder, '[security]\nprotocol = "SSL"\n[ssl.ca]\nlocation = "none.pem"'), 2,
        "none.pem cannot be read",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
@pytest.mark.parametrize("debug", [[], ["--debug"]])
def test_what_is_wrong_is_one_line_without_a_secret(
    doors: SecureDoors, tmp_path: Path, case: str, debug: list[str]
) -> None:
    made, status, text = WRONG[case]
    done = replog(*debug, "--client-config", made(tmp_path, doors), "topics", "list", "-b", doors.at("SASL_SSL"))
    assert text in done.err
    assert "canary" not in done.err + done.out
    assert "17171717" not in done.err + done.out
    if not debug:
        assert done.status == status
        assert len(done.err.splitlines()) == 1


def test_kafkas_own_tools_take_certificates_of_ours(doors: SecureDoors, kafka: KafkaInstall, tmp_path: Path) -> None:
    """Goal: Java reads the one file as a PEM store, with its key, and the broker believes it."""
    certs = doors.certs
    done = replog_here("certs", "client", certs, "--name", "java-client")
    assert done.status == 0, done
    path = tmp_path / "java.properties"
    path.write_text(
        f"security.protocol=SSL\nssl.truststore.type=PEM\nssl.truststore.location={certs}/ca.pem\n"
        f"ssl.keystore.type=PEM\nssl.keystore.location={certs}/java-client.pem\n"
    )
    topic = asyncio.run(make(doors))
    tool = "org.apache.kafka.tools.TopicCommand"
    printed = kafka.run(*(tool, "--bootstrap-server", doors.at("MTLS"), "--command-config", str(path), "--list"))
    assert topic in printed.output


def _written(folder: Path, text: str) -> Path:
    path = folder / "client.toml"
    path.write_text(text)
    path.chmod(0o600)
    return path


def test_the_examples_of_the_page_run(
    doors: SecureDoors, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, certs_of_the_page: list[str]
) -> None:
    """Goal: a program, a command and the making of certificates do what the page says, with addresses of this broker."""
    servers = doors.at("SASL_SSL")
    monkeypatch.chdir(tmp_path)
    for line in certs_of_the_page:
        done = replog_here(*line.removeprefix("replog ").split())
        assert done.status == 0, done
    made = {path.name for path in (tmp_path / "certs").iterdir()}
    assert made == {"ca.pem", "ca.key", "broker-1.pem", "alice.pem"}
    (tmp_path / "certs" / "ca.pem").write_bytes((doors.certs / "ca.pem").read_bytes())
    program, names = (block.replace("localhost:9093", servers) for block in blocks(PAGE))
    environment = {**os.environ, "ALICE_PASSWORD": PASSWORD, "PYTHONPATH": str(Path(PAGE_ROOT))}
    ran = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, check=False, text=True, timeout=120
    )
    assert ran.returncode == 0, ran.stderr
    found: dict[str, Any] = {}
    exec(compile(names, PAGE, "exec"), found)
    assert found["security"].protocol == "SASL_SSL"
    text = (PAGE_ROOT / PAGE).read_text().split("```toml\n")[1].split("```")[0]
    (tmp_path / "certs" / "client.toml").write_text(text)
    (tmp_path / "certs" / "alice.password").write_text(PASSWORD)
    listed = replog_here("--client-config", "certs/client.toml", "topics", "list", "--bootstrap-servers", servers)
    assert "rides" in listed.out


@pytest.fixture
def certs_of_the_page() -> list[str]:
    """The commands of the page that make certificates."""
    lines = (PAGE_ROOT / PAGE).read_text().splitlines()
    return [line for line in lines if line.startswith("replog certs ")]
