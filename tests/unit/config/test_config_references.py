"""Values that stand elsewhere than in a node's file: what they stand for, and that nothing shows them."""

from __future__ import annotations

import logging
import traceback
from pathlib import Path

import pytest

from replog.access.secret import HIDDEN, Secret
from replog.config.references import FILE_BYTES_MAX, properties, resolve
from replog.config.server import ServerConfig
from replog.errors import ConfigError

CANARY = "canary-of-a-node"


def configured(folder: Path, *lines: str) -> ServerConfig:
    """The configuration of a file with these lines and a few more."""
    file = folder / "server.toml"
    file.write_text("\n".join(['"node.id" = 1', '"log.dirs" = ["data"]', *lines]))
    return ServerConfig.from_toml(file)


def kept(folder: Path, text: str, mode: int = 0o600) -> Path:
    """A file with a secret."""
    path = folder / "kept"
    path.write_text(text)
    path.chmod(mode)
    return path


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("${env:SECRET_OF_TEST}", CANARY),
        ("${file:kept}", f"a = {CANARY}\nb=2"),
        ("${file:kept:a}", CANARY),
        ("<${file:kept:b}-${env:SECRET_OF_TEST}>", f"<2-{CANARY}>"),
        ("no reference: $1 ${nothing} {env:x}", "no reference: $1 ${nothing} {env:x}"),
    ],
)
def test_what_a_reference_stands_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, written: str, expected: str
) -> None:
    monkeypatch.setenv("SECRET_OF_TEST", CANARY)
    kept(tmp_path, f"a = {CANARY}\nb=2\n")
    assert resolve({"ssl.key.password": written}, tmp_path).values == {"ssl.key.password": expected}
    absolute = written.replace("file:kept", f"file:{tmp_path}/kept")
    assert resolve({"ssl.key.password": absolute}, Path("/nowhere")).values == {"ssl.key.password": expected}


def test_what_a_reference_stands_for_is_taken_as_it_is(tmp_path: Path) -> None:
    kept(tmp_path, "${env:HOME}")
    assert resolve({"a": ["${file:kept}", "x"]}, tmp_path).values == {"a": ["${env:HOME}", "x"]}


@pytest.mark.parametrize(
    ("written", "reason"),
    [
        ("${env:NOT_SET_ANYWHERE}", "there is no variable NOT_SET_ANYWHERE in the environment of this process: set it"),
        ("${file:nothing}", "nothing cannot be read: No such file"),
        ("${file:.}", "cannot be read: Is a directory"),
        ("${file:kept:c}", "kept has no line c=VALUE: add it"),
        ("${file:bytes}", "it is no text in UTF-8"),
        ("${file:large}", "has more than 1,048,576 bytes"),
        ("${vault:x}", '"vault" is none of env and file'),
    ],
)
def test_a_reference_to_what_is_not_there_is_told(tmp_path: Path, written: str, reason: str) -> None:
    kept(tmp_path, f"a={CANARY}")
    (tmp_path / "bytes").write_bytes(b"\xff")
    (tmp_path / "large").write_bytes(b"x" * (FILE_BYTES_MAX + 1))
    with pytest.raises(ConfigError, match=r"server\.toml: ssl\.key\.password = ") as raised:
        configured(tmp_path, f'"ssl.key.password" = "{CANARY}{written}"')
    assert (raised.value.field, raised.value.value) == ("ssl.key.password", None)
    assert written in str(raised.value)
    assert reason in str(raised.value)
    assert CANARY not in "".join(traceback.format_exception(raised.value))


@pytest.mark.parametrize(("mode", "is_told"), [(0o600, False), (0o400, False), (0o640, True), (0o604, True)])
def test_a_file_that_others_may_read_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, mode: int, is_told: bool
) -> None:
    path = kept(tmp_path, CANARY, mode)
    with caplog.at_level(logging.WARNING):
        resolve({"ssl.key.password": "${file:kept}"}, tmp_path)
    assert (f"not only its owner may open it: chmod 600 {path}" in caplog.text) is is_told
    assert CANARY not in caplog.text


def test_values_are_those_of_their_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A number, a list, a folder beside the file, a key of one listener; a file that is written again has the references."""
    monkeypatch.setenv("NUMBER", "17")
    kept(tmp_path, "127.0.0.1")
    lines = [
        '"log.roll.ms" = "${env:NUMBER}"',
        '"listeners" = ["${file:kept}:0", "INSIDE://${file:kept}:1"]',
        '"listener.security.protocol.map" = "PLAINTEXT:PLAINTEXT,INSIDE:PLAINTEXT"',
        '"listener.name.INSIDE.ssl.key.password" = "${env:NUMBER}"',
        '"ssl.keystore.location" = "${env:NUMBER}.pem"',
    ]
    config = configured(tmp_path, *lines)
    assert config.log_roll_ms == 17
    assert [each.endpoint.port for each in config.listeners] == [0, 1]
    assert config.security_of("INSIDE").ssl_key_password == Secret("17")
    assert config.ssl_keystore_location == str(tmp_path / "17.pem")
    (tmp_path / "server.toml").write_text(config.to_toml())
    assert '"${env:NUMBER}"' in config.to_toml()
    again = ServerConfig.from_toml(tmp_path / "server.toml")
    assert (again, again.security_of("INSIDE")) == (config, config.security_of("INSIDE"))


@pytest.mark.parametrize(
    "lines",
    [
        ['"log.roll.ms" = "${env:CANARY}"'],
        ['"listeners" = ["${env:CANARY}"]'],
        ['"listener.security.protocol.map" = "PLAINTEXT:${env:CANARY}"'],
        ['"listener.name.x.ssl.client.auth" = "${env:CANARY}"'],
        ['"listeners" = ["${env:CANARY}:9092"]'],
        ['"listeners" = ["${env:CANARY}:0"]', '"advertised.listeners" = ["B://h:1"]', '"allow.insecure" = true'],
    ],
)
def test_no_error_shows_what_a_reference_stands_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lines: list[str]
) -> None:
    monkeypatch.setenv("CANARY", CANARY)
    with pytest.raises(ConfigError, match=r"\$\{env:CANARY\}") as raised:
        configured(tmp_path, *lines)
    assert CANARY not in "".join(traceback.format_exception(raised.value)) + repr(raised.value.value)


def test_no_error_shows_a_password(tmp_path: Path) -> None:
    own = '"listener.name.a.ssl.key.password" = "{}"'
    lines = [
        ['"ssl.key.password" = ["x", "{}"]'],
        ['"listener.name.a.ssl.key.password" = ["{}"]'],
        [own, '"listener.name.a.ssl.no.key" = "x"'],
        [own, '"listener.name.A.ssl.key.password" = "x"'],
        ['"ssl.key.pasword" = "{}"'],
        ['"ssl.key.password" = "{}"', '"ssl"."key.password" = "{}"'],
    ]
    for each in lines:
        with pytest.raises(ConfigError, match=r"password|pasword") as raised:
            configured(tmp_path, *(line.replace("{}", CANARY) for line in each))
        assert CANARY not in "".join(traceback.format_exception(raised.value)), each


def test_nothing_that_shows_a_configuration_shows_a_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CANARY", CANARY)
    config = configured(
        tmp_path,
        '"broker.rack" = "${env:CANARY}"',
        f'"ssl.key.password" = "{CANARY}"',
        f'"listener.name.a.ssl.key.password" = "{CANARY}"',
        '"listener.name.b.ssl.key.password" = "${env:CANARY}"',
    )
    rich = [value for _, value in config.__rich_repr__()]
    shown = [repr(config), str(config), repr(config.listener_name), *map(str, config.listener_name), repr(rich)]
    assert not [text for text in shown if CANARY in text]
    assert f"broker_rack={HIDDEN}" in repr(config)
    assert "node_id=1" in repr(config)
    assert config.broker_rack == CANARY


def test_a_value_of_the_command_line_is_none_of_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CANARY", CANARY)
    configured(tmp_path, '"broker.rack" = "${env:CANARY}"')
    config = ServerConfig.from_toml(tmp_path / "server.toml", overrides={"broker.rack": "b"})
    assert (config.broker_rack, config.references) == ("b", ())


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a=1\r\nb: 2\rc 3\n", {"a": "1", "b": "2", "c": "3"}),
        ("# no=1\n ! no=2\n\n  a  =  b c \n", {"a": "b c "}),
        ("a=b\\\n   c\\\r\n d\n", {"a": "bcd"}),
        ("a\\=\\:\\ b=c\\\\\nd=\\u00e9\\t\\n\\x", {"a=: b": "c\\", "d": "é\t\nx"}),
        ("a\n=b\na=2", {"a": "2", "": "b"}),
        ("# a comment is not continued \\\na=1", {"a": "1"}),
        ("a=x=y:z", {"a": "x=y:z"}),
    ],
)
def test_properties_are_read_as_java_does(text: str, expected: dict[str, str]) -> None:
    assert properties(text) == expected
